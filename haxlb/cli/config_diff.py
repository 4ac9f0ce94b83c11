"""`haxlb config diff`: what a reload from one configuration to another does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from haxlb.cli.config import effective, read_configuration
from haxlb.cli.options import config_id_option, settings_option
from haxlb.config import Loaded
from haxlb.config.consequences import Consequence, Fate, consequences
from haxlb.model.errors import ConfigError
from haxlb.model.node import NodeConfig
from haxlb.model.wire import to_json
from keepalived_compat.diagnostics import UNREADABLE

SCHEMA = "haxlb.config-diff/1"


@click.command(short_help="Say what a reload from A to B keeps, retunes, recreates and removes.")
@click.argument("before", metavar="A", type=click.Path(path_type=Path))
@click.argument("after", metavar="B", type=click.Path(path_type=Path))
@settings_option("haxlb's own settings, for A and for B unless --settings-b names others.")
@click.option("--settings-b", type=click.Path(path_type=Path), help="haxlb's own settings for B.")
@config_id_option
@click.option("--json", "as_object", is_flag=True, help=f"Print one JSON object, schema {SCHEMA}.")
def diff(
    before: Path, after: Path, settings: Path, settings_b: Path | None, config_id: str, *, as_object: bool
) -> None:
    """Say what a director that runs A does when it is reloaded with B: with the reason, and what comes of it.

    Exit codes: 0 printed, whatever differs; 4 one of the two cannot be used; 2 wrong usage.
    """
    found = consequences(
        _used(read_configuration(before, settings, config_id)),
        _used(read_configuration(after, settings_b or settings, config_id)),
    )
    if as_object:
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "refused": any(each.fate is Fate.REFUSED for each in found),
            "consequences": to_json(found),
        }
        click.echo(json.dumps(document, indent=2))
        return
    for line in _lines(found):
        click.echo(line)


def _used(loaded: Loaded) -> NodeConfig:
    """As `effective`. The files are arguments here: what is said elsewhere of `-f` would lead astray."""
    try:
        return effective(loaded)
    except ConfigError as problem:
        if all(each.code != UNREADABLE for each in loaded.diagnostics):
            raise
        remedy = "see its path, and that it may be read"
        raise ConfigError(problem.message, remedy=remedy, diagnostics=problem.diagnostics) from problem


def _lines(found: tuple[Consequence, ...]) -> Iterator[str]:
    for each in found:
        if each.fate is Fate.KEPT and not each.effects:
            continue
        yield f"{each.kind} {each.name}: {each.fate.value}{f': {each.reason}' if each.reason else ''}"
        yield from (f"    {effect}" for effect in each.effects)
    kept = [each for each in found if each.fate is Fate.KEPT and not each.effects]
    for kind in dict.fromkeys(each.kind for each in kept):
        names = [each.name for each in kept if each.kind == kind]
        shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        yield f"{kind} kept, not touched: {shown}"
    if all(each.fate is Fate.KEPT for each in found):
        yield "nothing changes"


_SHOWN = 6
