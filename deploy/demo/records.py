"""What the load generator writes down: one JSON array a line. Times are µs of the monotonic clock."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

OK = "ok"
NEW = "new"
KEPT = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One HTTP request, from the first SYN (or the send, on an open connection) to the last byte or the failure."""

    kind: str
    """`new`: on a connection of its own. `kept`: on one of the long-lived connections."""
    started_us: int
    ended_us: int
    outcome: str
    """`ok`, or why not: refused, reset, closed, timeout, http-503, …"""
    server: str = ""
    """The name in the answer; empty without one."""

    @property
    def failed(self) -> bool:
        """No whole answer with status 200."""
        return self.outcome != OK


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """A long-lived connection that had answered before is lost."""

    started_us: int
    """Start of the request that was under way, or the moment of the loss when none was."""
    ended_us: int
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """Everything that one run of the load generator saw."""

    requests: tuple[Request, ...] = ()
    breaks: tuple[Break, ...] = ()


def encode(record: Request | Break) -> str:
    """One line, newline included."""
    if isinstance(record, Break):
        return json.dumps(["break", record.started_us, record.ended_us, record.outcome]) + "\n"
    row = [record.kind, record.started_us, record.ended_us, record.outcome, record.server]
    return json.dumps(row) + "\n"


def decode(lines: Iterable[str]) -> Journal:
    """Read back what `encode` wrote; a last line that is cut short (the writer was killed) is left out."""
    requests: list[Request] = []
    breaks: list[Break] = []
    for line in lines:
        if not line.endswith("\n"):
            continue
        row = json.loads(line)
        if row[0] == "break":
            breaks.append(Break(started_us=row[1], ended_us=row[2], outcome=row[3]))
        else:
            requests.append(
                Request(kind=row[0], started_us=row[1], ended_us=row[2], outcome=row[3], server=row[4]),
            )
    return Journal(requests=tuple(requests), breaks=tuple(breaks))
