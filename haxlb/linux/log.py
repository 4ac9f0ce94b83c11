"""What adapters of a child process log with: lines for the supervisor, and a brake for those that could be many."""

from __future__ import annotations

from typing import Protocol

from haxlb.daemon.ports import ClockPort
from haxlb.model.units import SECOND_US


class Log(Protocol):
    """`Pipe.log`, or anything that takes the same arguments."""

    def __call__(self, level: str, event: str, **fields: object) -> None:
        """One line; `level` is debug, info, warning or error."""
        ...


class Complaints:
    """Logs at most one line a second per event, and says how often the event was left out since the last one."""

    def __init__(self, log: Log, clock: ClockPort) -> None:
        self._log = log
        self._clock = clock
        self._quiet_until: dict[str, int] = {}
        self._left_out: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        """How often each event has happened, logged or not."""

    def complain(self, event: str, **fields: object) -> None:
        """Count the event, and log it as a warning when its last line is a second old."""
        self.counts[event] = self.counts.get(event, 0) + 1
        now = self._clock.now()
        if now < self._quiet_until.get(event, 0):
            self._left_out[event] = self._left_out.get(event, 0) + 1
            return
        self._quiet_until[event] = now + SECOND_US
        left_out = self._left_out.pop(event, 0)
        if left_out:
            fields["left_out"] = left_out
        self._log("warning", event, **fields)
