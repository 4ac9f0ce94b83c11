"""When each distinct probe is due. One probe per `Check` value, however many virtual servers name it.

A probe's life: due, started with a ticket, ended (its pause begins) or overdue. The pause counts from the end of a
probe, so a slow target is asked less often, never twice at once.
"""

from __future__ import annotations

import heapq
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from haxlb.health.rise_fall import probe_limit_us
from haxlb.model.check import Check
from haxlb.model.units import SECOND_US

FIRST_PROBE_WITHIN_US = SECOND_US
"""keepalived spreads the first probes over a whole delay_loop, up to a minute without knowledge of a dead server."""
GRACE_US = SECOND_US
"""How much longer than its limit a probe may stay silent before it counts as failed: the prober is stuck."""

AT_ONCE = 16
"""Starting one takes 50 µs. Hundreds in one go would end in one go, some 10 ms late, and be due together ever after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartProbe:
    """Effect: make this probe now."""

    ticket: int
    check: Check
    deadline_us: int
    """When it must have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonProbe:
    """Effect: the outcome of this probe is of no interest any more."""

    ticket: int


@dataclass(slots=True)
class _Row:
    """One check's line in the timetable."""

    stamp: int = 0
    """Of its only valid entry in the heap."""
    ticket: int | None = None
    """Of the probe that is running."""


class Timetable:
    """Deterministic: the same seed, checks and outcomes give the same times."""

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self._rows: dict[Check, _Row] = {}
        self._running: dict[int, Check] = {}
        self._heap: list[tuple[int, int, Check]] = []
        self._stamp = 0
        self._ticket = 0

    def configure(self, checks: Iterable[Check], now: int) -> list[AbandonProbe]:
        """Probe exactly these from now on; those that stay keep their times and running probes."""
        wanted = dict.fromkeys(checks)
        abandoned = []
        for check in [each for each in self._rows if each not in wanted]:
            ticket = self._rows.pop(check).ticket
            if ticket is not None:
                del self._running[ticket]
                abandoned.append(AbandonProbe(ticket=ticket))
        for check in wanted:
            if check not in self._rows:
                self._rows[check] = _Row()
                self._enter(check, now + self._first_pause_us(check))
        return abandoned

    def start_due(self, now: int) -> tuple[list[StartProbe], list[tuple[AbandonProbe, Check]]]:
        """The probes that are due, now running; and those that should have ended long ago, now ended.

        `AT_ONCE` at most: `next_deadline` is in the past then.
        """
        starting: list[StartProbe] = []
        overdue: list[tuple[AbandonProbe, Check]] = []
        while self._heap and self._heap[0][0] <= now and len(starting) < AT_ONCE:
            _, stamp, check = heapq.heappop(self._heap)
            row = self._rows.get(check)
            if row is None or row.stamp != stamp:
                continue
            if row.ticket is not None:
                overdue.append((AbandonProbe(ticket=row.ticket), check))
                self.ended(row.ticket)
                continue
            self._ticket += 1
            row.ticket = self._ticket
            self._running[self._ticket] = check
            deadline = now + probe_limit_us(check)
            starting.append(StartProbe(ticket=self._ticket, check=check, deadline_us=deadline))
            self._enter(check, deadline + GRACE_US)
        return starting, overdue

    def ended(self, ticket: int) -> Check | None:
        """The check of a running probe that has ended; None for a ticket that is not running (any more)."""
        check = self._running.pop(ticket, None)
        if check is not None:
            self._rows[check].ticket = None
        return check

    def pause(self, check: Check, pause_us: int, now: int) -> None:
        """The next probe of `check` comes after a pause."""
        self._enter(check, now + pause_us)

    def next_deadline(self) -> int | None:
        """When `start_due` has something to do again."""
        while self._heap:
            at, stamp, check = self._heap[0]
            row = self._rows.get(check)
            if row is not None and row.stamp == stamp:
                return at
            heapq.heappop(self._heap)
        return None

    def _enter(self, check: Check, at: int) -> None:
        self._stamp += 1
        self._rows[check].stamp = self._stamp
        # The stamp is unique, so two entries never compare their checks.
        heapq.heappush(self._heap, (at, self._stamp, check))

    def _first_pause_us(self, check: Check) -> int:
        window = min(FIRST_PROBE_WITHIN_US, check.delay_loop_us)
        if check.warmup_us is not None:
            window = min(window, check.warmup_us)
        return zlib.crc32(f"{self._seed} {check}".encode()) * window >> 32
