"""When the flow tables are swept: once a second, in portions that keep nobody waiting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from haxlb.daemon.checker_ports import CheckerReportPort
from haxlb.model.errors import HostError
from haxlb.model.units import SECOND_US

SWEEP_EVERY_US = SECOND_US
"""So long at most flows that are over are counted among the connections of their server."""
COUNT_EVERY = 60
"""Sweeps of which one counts what it finds, and compares it with the counts that packets keep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corrected:
    """What was wrong with the counts of connections; false when nothing was."""

    servers: int = 0
    """How many had wrong ones."""
    active: int = 0
    """Sum of what was added to them; negative where they were too high."""
    inactive: int = 0

    def __bool__(self) -> bool:
        return bool(self.servers)


class SweepPort(Protocol):
    """Frees flows that are over."""

    def begin(self, *, counting: bool) -> int:
        """Begin with the first bucket; how many calls of `sweep` make a whole, at least 1. Raises HostError."""
        ...

    def sweep(self) -> None:
        """Sweep one portion, in a few milliseconds. Raises HostError."""
        ...

    def compare(self) -> Corrected | None:
        """After a whole one that counted: what was corrected; None when it must be counted once more to be sure.

        Raises HostError.
        """
        ...


class Sweeps:
    """Drives the sweep; a refusal is said once, and the next second it is tried again."""

    def __init__(self, port: SweepPort | None, reports: CheckerReportPort) -> None:
        self._port = port
        self._reports = reports
        self._next_at: int | None = None
        self._portions = 0
        """Of this sweep, those still to come."""
        self._pause_us = SWEEP_EVERY_US
        self._until_count = COUNT_EVERY
        self.problem = ""

    def start(self, now: int) -> None:
        """There are tables from now on."""
        if self._port is not None and self._next_at is None:
            self._next_at = now + SWEEP_EVERY_US

    def next_deadline(self) -> int | None:
        """When the next portion is due."""
        return self._next_at

    def on_time(self, now: int) -> None:
        """Sweep a portion, if it is time."""
        if self._port is None or self._next_at is None or now < self._next_at:
            return
        due = self._next_at
        try:
            self._sweep(self._port)
        except HostError as problem:
            self._note(str(problem))
            self._portions, self._pause_us = 0, SWEEP_EVERY_US
        else:
            self._note("")
        # An even pace, but no portions that were missed are made up for.
        self._next_at = max(due + self._pause_us, now + self._pause_us // 2)

    def _sweep(self, port: SweepPort) -> None:
        if not self._portions:
            self._until_count -= 1
            self._portions = port.begin(counting=self._until_count <= 0)
            self._pause_us = SWEEP_EVERY_US // self._portions
        port.sweep()
        self._portions -= 1
        if self._portions or self._until_count > 0:
            return
        # What differs is counted once more, before it is corrected.
        corrected = port.compare()
        self._until_count = COUNT_EVERY if corrected is not None else 1
        if corrected:
            self._reports.log(
                "warning",
                "connection_counts_corrected",
                servers=corrected.servers,
                active=corrected.active,
                inactive=corrected.inactive,
                reason="the counts of connections differed from the flows on record",
                remedy="none: least-connection schedulers and thresholds go by the corrected counts from now on",
            )

    def _note(self, problem: str) -> None:
        if problem and problem != self.problem:
            self._reports.log(
                "warning",
                "flows_not_swept",
                reason=problem,
                consequence="flows that are over are counted until others take their place",
                remedy="`haxlb swap` builds the data plane anew",
            )
        self.problem = problem
