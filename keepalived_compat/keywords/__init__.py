"""Every keyword of keepalived (up to 2.4.3), by block. `KEEPALIVED` is the whole table."""

from __future__ import annotations

from dataclasses import replace

from keepalived_compat.grammar import Block, Grammar, Keyword, Kind
from keepalived_compat.keywords.checkers import CHECKERS
from keepalived_compat.keywords.defaults import DEFAULTS
from keepalived_compat.keywords.global_defs import GLOBAL_DEFS
from keepalived_compat.keywords.limited import LIMITED
from keepalived_compat.keywords.partly import PARTLY
from keepalived_compat.keywords.root import ROOT_BLOCKS
from keepalived_compat.keywords.since import SINCE
from keepalived_compat.keywords.syntax import SYNTAX, SYNTAX_IN, UNITS
from keepalived_compat.keywords.tracking import TRACKING
from keepalived_compat.keywords.virtual_server import VIRTUAL_SERVER
from keepalived_compat.keywords.vrrp import VRRP

_RELEASES = {
    (block, name): release
    for release, blocks in SINCE.items()
    for block, names in blocks.items()
    for name in names.split()
}
_OPEN_ENDED = (Kind.WORDS, Kind.SCRIPT)


def _completed(block: str, rows: Block) -> Block:
    return {name: _with_facts(block, row) for name, row in rows.items()}


def _with_facts(block: str, row: Keyword) -> Keyword:
    """The row with what is kept apart from it: release, default, unit, and how its argument is written."""
    argument = row.argument
    if argument.kind in _OPEN_ENDED:
        syntax = SYNTAX_IN.get((block, row.name), SYNTAX.get(row.name, ""))
        argument = replace(argument, syntax=syntax) if syntax else argument
    elif row.name in UNITS:
        argument = replace(argument, unit=UNITS[row.name])
    return replace(
        row,
        argument=argument,
        since=row.since or _RELEASES.get((block, row.name), ""),
        partly=_planned_within(row, PARTLY.get(block, {}).get(row.name, "")),
        limit=LIMITED.get(block, {}).get(row.name, ""),
        default=row.default or DEFAULTS.get(block, {}).get(row.name, ""),
    )


def _planned_within(row: Keyword, more: str) -> str:
    offered = row.argument.offered
    missing = [each for each in row.argument.choices if each not in offered] if offered else []
    return ", ".join(filter(None, (*missing, more)))


_ROWS: Grammar = {**ROOT_BLOCKS, **GLOBAL_DEFS, **VRRP, **TRACKING, **VIRTUAL_SERVER, **CHECKERS}

KEEPALIVED: Grammar = {block: _completed(block, rows) for block, rows in _ROWS.items()}
