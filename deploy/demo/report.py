"""What the client saw, phase by phase, against what was promised. Pure: a journal and marks in, tables out."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from demo.records import NEW, Break, Journal, Request

PHASES = (
    "steady",
    "server-down",
    "server-back",
    "hot-swap",
    "failover",
    "speaker-killed",
    "power-off",
    "master-back",
)
UNTOUCHED = ("steady", "server-back", "hot-swap", "failover", "speaker-killed", "master-back")
"""Phases in which no request may fail."""
GAP_ALLOWANCE_MS = 50.0
IN_FLIGHT_US = 100_000
"""An answer takes a few milliseconds here; what has waited longer than this was in trouble already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A phase begins; it ends where the next one begins."""

    name: str
    at_us: int
    theory_ms: float
    """Longest outage that the configuration allows in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseReport:
    """One row of the table."""

    name: str
    requests: int
    failed: int
    broken: int
    """Long-lived connections lost."""
    gap_ms: float
    """Longest time between two successes in succession."""
    theory_ms: float
    share: dict[str, float]
    """Of the answered requests on new connections, by the server's name."""
    reasons: dict[str, int] = field(default_factory=dict)
    """Failed requests by outcome."""
    gap_us: tuple[int, int] = (0, 0)
    """Where the longest gap began and ended."""
    failed_us: tuple[int, ...] = ()
    """When the failed requests started."""


@dataclass(frozen=True, slots=True)
class _Bound:
    """Where a phase begins or the last one ends."""

    at_us: int
    in_flight_us: int
    """How long before it what fails after it may have begun to have been hit by it."""


def reports(journal: Journal, marks: list[Mark], end_us: int, *, patience_us: int = 0) -> list[PhaseReport]:
    """One report per mark.

    A request belongs to the phase in which it started; but one that was just under way when the next phase began, and
    failed then, was hit by the event of that phase and belongs there. Where that event may fail requests, "just" is
    `patience_us` longer: an answer may take so long on a busy machine.
    """
    successes = sorted(each.ended_us for each in journal.requests if not each.failed)
    starts = [_Bound(mark.at_us, IN_FLIGHT_US + (patience_us if mark.theory_ms else 0)) for mark in marks]
    bounds = [*starts, _Bound(end_us, IN_FLIGHT_US)]
    return [_report(journal, mark, span, successes) for mark, span in zip(marks, pairwise(bounds), strict=True)]


def _report(journal: Journal, mark: Mark, span: tuple[_Bound, _Bound], successes: list[int]) -> PhaseReport:
    requests = [each for each in journal.requests if belongs(each, span, failed=each.failed)]
    failed = [each for each in requests if each.failed]
    answered = Counter(each.server for each in requests if each.kind == NEW and not each.failed)
    total = sum(answered.values())
    gap = longest_gap(successes, span[0].at_us, span[1].at_us)
    return PhaseReport(
        name=mark.name,
        requests=len(requests),
        failed=len(failed),
        broken=sum(belongs(each, span, failed=True) for each in journal.breaks),
        gap_ms=round((gap[1] - gap[0]) / 1000, 1),
        theory_ms=mark.theory_ms,
        share={name: round(count / total, 4) for name, count in sorted(answered.items())},
        reasons=dict(sorted(Counter(each.outcome for each in failed).items())),
        gap_us=gap,
        failed_us=tuple(sorted(each.started_us for each in failed)),
    )


def belongs(record: Request | Break, span: tuple[_Bound, _Bound], *, failed: bool) -> bool:
    """Whether a request or a break counts in the phase that lasts from `span[0]` to `span[1]`."""
    start, stop = (
        bound.at_us - bound.in_flight_us if failed and record.ended_us >= bound.at_us else bound.at_us for bound in span
    )
    return start <= record.started_us < stop


def longest_gap(successes: list[int], start: int, stop: int) -> tuple[int, int]:
    """The longest interval without a success that belongs to the phase: by half of its length, or by filling it.

    An outage begins a few milliseconds before or after its phase is marked; it counts whole, in one phase.
    `successes` are sorted. Before the first and after the last one of the run the phase's own bounds count.
    """
    points = [min([start, *successes[:1]]), *successes, max([stop, *successes[-1:]])]
    gaps = [
        (begin, end)
        for begin, end in pairwise(points)
        if 2 * (min(end, stop) - max(begin, start)) >= end - begin or (begin <= start and end >= stop)
    ]
    return max(gaps, key=lambda gap: gap[1] - gap[0], default=(start, start))


def shortfalls(rows: list[PhaseReport], *, removed_us: int, allowance_ms: float = GAP_ALLOWANCE_MS) -> list[str]:
    """What was promised and not kept, one line each; empty when all is well.

    `removed_us` is when both directors were seen to have taken the killed server out: what failed in that phase was
    on its way to it, or started after this and has no excuse. `allowance_ms` is how much longer than by theory an
    outage may last.
    """
    lines = [f"{row.name}: no request was made" for row in rows if not row.requests]
    lines += [
        f"{row.name}: {row.failed} of {row.requests} requests failed ({_counts(row.reasons)}), want 0"
        for row in rows
        if row.name in UNTOUCHED and row.failed
    ]
    lines += [
        f"{row.name}: {row.broken} long-lived connections broke, want 0"
        for row in rows
        if row.name in UNTOUCHED and row.broken
    ]
    for row in rows:
        if row.name == "server-down":
            lines += _server_down(row, removed_us)
        if row.name == "power-off":
            lines += _power_off(row, allowance_ms)
    missing = [name for name in PHASES if name not in {row.name for row in rows}]
    return lines + [f"{name}: did not take place" for name in missing]


def _server_down(row: PhaseReport, removed_us: int) -> list[str]:
    late = sum(each > removed_us for each in row.failed_us)
    slow = {why: count for why, count in row.reasons.items() if why not in {"refused", "reset", "closed"}}
    lines = (
        [f"{row.name}: {late} requests failed that started after the server had left the ring, want 0"] if late else []
    )
    if slow:
        lines.append(f"{row.name}: {_counts(slow)}: a dead server's kernel refuses or resets, so these went elsewhere")
    return lines


def _power_off(row: PhaseReport, allowance_ms: float) -> list[str]:
    allowed = row.theory_ms + allowance_ms
    lines = [f"{row.name}: a gap of {row.gap_ms} ms, want at most {allowed:.0f} ms"] if row.gap_ms > allowed else []
    outside = sum(each > row.gap_us[1] for each in row.failed_us)
    if outside:
        lines.append(f"{row.name}: {outside} requests failed that started after traffic had come back, want one gap")
    return lines


def _counts(reasons: dict[str, int]) -> str:
    return ", ".join(f"{count} {why}" for why, count in reasons.items())


def as_json(rows: list[PhaseReport]) -> dict[str, Any]:
    """The object that `--json` prints: schema haxlb.demo/1, docs/reference/demo.md."""
    names = ("name", "requests", "failed", "broken", "gap_ms", "theory_ms", "share")
    return {"schema": "haxlb.demo/1", "phases": [{name: getattr(row, name) for name in names} for row in rows]}


def as_table(rows: list[PhaseReport]) -> str:
    """The same for people, with the reasons of the failures."""
    servers = sorted({name for row in rows for name in row.share})
    head = ["phase", "requests", "failed", "broken", "gap ms", "theory ms", *servers, "failed with"]
    body = [
        [
            row.name,
            str(row.requests),
            str(row.failed),
            str(row.broken),
            f"{row.gap_ms:.1f}",
            f"{row.theory_ms:.0f}",
            *(f"{100 * row.share.get(name, 0):.1f} %" for name in servers),
            _counts(row.reasons),
        ]
        for row in rows
    ]
    widths = [max(len(line[column]) for line in [head, *body]) for column in range(len(head))]
    left = {0, len(head) - 1}
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in [head, *body]
    )
