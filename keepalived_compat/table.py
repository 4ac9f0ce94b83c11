"""The keyword table flat, for people and programs: one row a keyword in a block, with what becomes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from keepalived_compat.diagnostics import Severity
from keepalived_compat.grammar import LINES, ROOT, Keyword, Kind, Support
from keepalived_compat.keywords import KEEPALIVED

TOP_LEVEL = "root"
"""How the block outside of all blocks is called by those who ask for it."""


class Status(Enum):
    """What becomes of a keyword, in the words of the documentation."""

    SUPPORTED = "supported"
    ALIAS = "alias"
    OLD_SPELLING = "old spelling"
    PLANNED = "planned"
    IGNORED = "ignored"
    UNSUPPORTED = "not supported"
    REFUSED = "refused"
    OBSOLETE = "obsolete"


_STATUS = {
    Support.SUPPORTED: Status.SUPPORTED,
    Support.OLD_SPELLING: Status.OLD_SPELLING,
    Support.NOT_YET: Status.PLANNED,
    Support.IGNORED: Status.IGNORED,
    Support.UNSUPPORTED: Status.UNSUPPORTED,
    Support.REFUSED: Status.REFUSED,
    Support.OBSOLETE: Status.OBSOLETE,
}


_RANGED = (Kind.INTEGER, Kind.SECONDS, Kind.MILLISECONDS)
_UNITS = {Kind.SECONDS: "s", Kind.MILLISECONDS: "ms"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One keyword in one block. The names of the fields are those of the JSON of `haxlb keywords`."""

    block: str
    keyword: str
    argument: str
    """How it is written, empty when it takes none."""
    kind: str
    low: float | None
    high: float | None
    """The range of a number, None where there is none."""
    unit: str
    """µs, ms, s, bytes, or empty."""
    default: str
    since: str
    """Release of keepalived, empty for words that never were keepalived's."""
    alias_of: str
    opens: str
    """The block that it opens: its name, `lines` for one of an entry a line, empty for none."""
    repeatable: bool
    status: Status
    severity: Severity | None
    """Of the complaint that it brings, None when it brings none."""
    reason: str
    limit: str
    """What is taken instead of a value that is too large, empty where each of the range is taken."""
    planned: str
    """What is planned within a keyword that is supported for the rest, empty when nothing is."""


def rows(block: str) -> tuple[Row, ...]:
    """The rows of a block, in the order of the table. Raises KeyError."""
    reached = block in _reached()
    return tuple(_row(block, each, reached=reached) for each in KEEPALIVED[block].values())


def blocks() -> tuple[str, ...]:
    """The names of all blocks, the one outside of blocks first, as the empty name."""
    return tuple(KEEPALIVED)


def opened_by(block: str) -> tuple[str, ...]:
    """The blocks in which a keyword opens this one."""
    return tuple(name for name, table in KEEPALIVED.items() if any(each.body == block for each in table.values()))


def _row(block: str, keyword: Keyword, *, reached: bool) -> Row:
    argument = keyword.argument
    numeric = argument.kind in _RANGED
    status = _STATUS[keyword.support]
    reason, severity = keyword.reason, keyword.severity if keyword.support is not Support.SUPPORTED else None
    if status is Status.SUPPORTED and keyword.means:
        status = Status.ALIAS
    if not reached and status in (Status.SUPPORTED, Status.ALIAS):
        status, reason = Status.REFUSED if _is_refused(block) else Status.PLANNED, "with its block"
    return Row(
        block=block or TOP_LEVEL,
        keyword=keyword.name,
        argument=str(argument),
        kind=argument.kind.value,
        low=argument.low if numeric else None,
        high=argument.high if numeric else None,
        unit=argument.unit or _UNITS.get(argument.kind, ""),
        default=keyword.default,
        since=keyword.since,
        alias_of=keyword.means,
        opens=LINES if keyword.body == LINES else keyword.body or "",
        repeatable=keyword.many,
        status=status,
        severity=severity,
        reason=reason,
        limit=keyword.limit,
        planned=keyword.partly if status in (Status.SUPPORTED, Status.ALIAS) else "",
    )


def _is_refused(block: str) -> bool:
    openers = [row for name in opened_by(block) for row in KEEPALIVED[name].values() if row.body == block]
    return all(row.support is Support.REFUSED for row in openers)


def _reached() -> set[str]:
    """Blocks that a supported keyword opens, from the top level down."""
    used, waiting = set(), [ROOT]
    while waiting:
        name = waiting.pop()
        used.add(name)
        waiting += list(_opened(name, used))
    return used


def _opened(name: str, used: set[str]) -> Iterator[str]:
    for row in KEEPALIVED[name].values():
        body = row.body
        if row.support is Support.SUPPORTED and body is not None and body in KEEPALIVED and body not in used:
            yield body
