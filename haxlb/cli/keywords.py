"""`haxlb keywords`: the table of keywords that the parser uses."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import Enum
from typing import Any

import click

from keepalived_compat.nearest import did_you_mean
from keepalived_compat.table import TOP_LEVEL, Row, Status, blocks, rows

SCHEMA = "haxlb.keywords/1"


@click.command(short_help="Print what is known of keepalived.conf's keywords.")
@click.argument("block", metavar="[WORD]", required=False)
@click.option("--planned", is_flag=True, help="Only those that are planned, wholly or in part, and not done yet.")
@click.option("--json", "as_object", is_flag=True, help=f"Print one JSON object, schema {SCHEMA}.")
def keywords(block: str | None, *, planned: bool, as_object: bool) -> None:
    """Print the keywords of keepalived.conf, all or those that WORD names, one a line: arguments, ranges, defaults, and
    what is done, planned, ignored, refused.

    WORD is the keyword that opens a block (vrrp_instance, real_server, HTTP_GET, …), or `root` for what stands outside
    of blocks, and shows what may stand in it; or any keyword, and shows it in every block that has it.

    `since` is the version of keepalived that brought it. What has no other remark is done.
    """
    table = [row for name in blocks() for row in rows(name)]
    found = [row for row in table if block is None or block == row.block]
    found += [row for row in table if row.keyword == block != row.block]
    if not found:
        known = [TOP_LEVEL, *blocks(), *(row.keyword for row in table)]
        hint = did_you_mean(block or "", known)
        raise click.BadParameter(f"no block and no keyword is called {block}{'; ' + hint if hint else ''}")
    if planned:
        found = [row for row in found if row.planned or row.status is Status.PLANNED]
    if as_object:
        click.echo(json.dumps({"schema": SCHEMA, "keywords": [_plain(each) for each in found]}, indent=2))
        return
    for name in dict.fromkeys(each.block for each in found):
        click.echo(f"{name}:")
        for each in found:
            if each.block == name:
                click.echo(_line(each))


def _line(row: Row) -> str:
    body = "{ … }" if row.opens else ""
    written = " ".join(each for each in (row.keyword, row.argument, body) if each)
    notes = [f"default {row.default}"] if row.default else []
    if row.since:
        notes.append(f"since {row.since}")
    if row.status in (Status.ALIAS, Status.OLD_SPELLING):
        notes.append(f"{row.status.value} of {row.alias_of}" if row.status is not Status.ALIAS else f"= {row.alias_of}")
    elif row.status is not Status.SUPPORTED:
        notes.append(f"{row.status.value}: {row.reason}")
    if row.limit:
        notes.append(row.limit)
    if row.planned:
        notes.append(f"planned: {row.planned}")
    return f"  {written}" + (f"  # {'; '.join(notes)}" if notes else "")


def _plain(row: Row) -> dict[str, Any]:
    return {name: each.value if isinstance(each, Enum) else each for name, each in asdict(row).items()}
