"""`haxlb config`: the effective configuration, and what lies between two of them."""

from __future__ import annotations

import contextlib
import gc
import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from haxlb.cli.guided_group import GuidedGroup
from haxlb.cli.options import config_id_option, file_option, settings_option
from haxlb.config import Loaded, load, refusal
from haxlb.config.printer import STARS, keepalived_conf
from haxlb.model.node import NodeConfig
from haxlb.model.wire import to_json
from keepalived_compat.diagnostics import Severity
from keepalived_compat.rendering import summary_by_file

SCHEMA = "haxlb.config/1"


class _Subcommands(GuidedGroup):
    """Imports `diff` only when it is named: printing needs nothing of it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """There is one."""
        del ctx
        return ["diff"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load it."""
        del ctx
        if cmd_name != "diff":
            return None
        from haxlb.cli.config_diff import diff

        return diff


@click.group(cls=_Subcommands, invoke_without_command=True, short_help="Print the effective configuration.")
@file_option("The keepalived.conf to read.")
@settings_option()
@click.option(
    "--format",
    "style",
    type=click.Choice(["keepalived", "json", "yaml"]),
    default="keepalived",
    show_default=True,
    help=f"json and yaml have the schema {SCHEMA}, and what haxlb.yml says too.",
)
@config_id_option
@click.option("--secrets", is_flag=True, help="Show passwords; else they are starred.")
@click.pass_context
def config(context: click.Context, path: Path, settings: Path, style: str, config_id: str, *, secrets: bool) -> None:
    """Print the configuration as haxlb understands it: includes and definitions resolved, every default written out.

    The keepalived form loads again to the same configuration, when it is printed with --secrets.

    Exit codes: 0 printed; 4 the configuration cannot be used; 2 wrong usage.
    """
    if context.invoked_subcommand is not None:
        return
    found = effective(read_configuration(path, settings, config_id))
    if not secrets:
        found = without_secrets(found)
    if style == "keepalived":
        # The stars are written by the printer: it knows which words are secrets.
        click.echo(keepalived_conf(found, secrets=secrets), nl=False)
        return
    document: dict[str, Any] = {"schema": SCHEMA, "config": to_json(found)}
    if style == "json":
        click.echo(json.dumps(document, indent=2))
        return
    import yaml

    click.echo(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), nl=False)


def read_configuration(path: Path, settings: Path | None, config_id: str = "") -> Loaded:
    """Load the files as `haxlb check` does, without a look at this host's interfaces."""
    with no_collection():
        return load(path, settings=settings, node=socket.gethostname(), config_id=config_id)


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """All that is made while a configuration is read stays: to look for garbage would only double the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def effective(loaded: Loaded) -> NodeConfig:
    """The configuration; what was left out of it is said on stderr. Raises ConfigError when there is none."""
    if loaded.config is None:
        raise refusal(loaded)
    errors = [each for each in loaded.diagnostics if each.severity is Severity.ERROR]
    if errors:
        click.echo(f"{summary_by_file(errors)}: not all that is written is used; see `haxlb check`", err=True)
    return loaded.config


def without_secrets(config: NodeConfig) -> NodeConfig:
    """The same with every password starred."""
    mqtt = config.mqtt
    if mqtt is not None and mqtt.password is not None:
        mqtt = replace(mqtt, password=STARS)
    instances = tuple(each if each.auth_pass is None else replace(each, auth_pass=STARS) for each in config.instances)
    return replace(config, mqtt=mqtt, instances=instances)
