"""The rise/fall machine of one check: how many probes in a row it takes to believe a change.

A check begins UNKNOWN and settles UP after RISE passes or DOWN after `fall` failures in a row; each later change
takes as many in a row again. Between the first probe that disagrees and the verdict, probes follow each other at the
retry pace, so that a dead server is found within `fall_time_us`, not within several delay_loops.

keepalived differs in three points (docs/reference/health.md): its first probe ever may take a server down alone, one
success brings it back, and `retry` defaults to 1.
"""

from __future__ import annotations

from enum import Enum

from haxlb.health.outcome import Finding, Outcome
from haxlb.model.check import Check

RISE = 2
DEFAULT_FALL = 2


class Verdict(Enum):
    """What is believed of a check's target."""

    UNKNOWN = "unknown"
    """No verdict yet: the pool reads it as UP, or as DOWN with `alpha`."""
    UP = "up"
    DOWN = "down"


def fall(check: Check) -> int:
    """Failures in a row that take the target down: retry + 1 where `retry` is named, else two."""
    return DEFAULT_FALL if check.retry is None else check.retry + 1


def retry_pace_us(check: Check) -> int:
    """Pause before the next probe while a change is suspected.

    A `retry` that is named brings keepalived's `delay_before_retry` as it stands. Without one, asking again later than
    the ordinary pace would make no sense.
    """
    if check.retry is None:
        return min(check.delay_before_retry_us, check.delay_loop_us)
    return check.delay_before_retry_us


def probe_limit_us(check: Check) -> int:
    """The longest that one probe of this check may last: connect_timeout for each url, or for the one connect."""
    return check.connect_timeout_us * max(1, len(check.urls))


def fall_time_us(check: Check) -> int:
    """Longest time from a target's death to its verdict DOWN, when nothing answers any more.

    The worst case is a death right after a probe passed: one delay_loop, then `fall` probes that all time out on
    their first url, with the retry pace between them.
    """
    attempts = fall(check)
    return check.delay_loop_us + attempts * check.connect_timeout_us + (attempts - 1) * retry_pace_us(check)


class RiseFall:
    """One check's machine. Counts outcomes; `pause_us` says how long to wait before the next probe."""

    def __init__(self, check: Check) -> None:
        self.check = check
        self.verdict = Verdict.UNKNOWN
        self.reason = "not probed yet"
        """Of the verdict, or of the last outcome that disagreed with it."""
        self.probed_at_us: int | None = None
        """End of the last probe."""
        self._in_a_row = 0
        self._last: Finding | None = None

    def handle(self, outcome: Outcome, now: int) -> bool:
        """Take in one outcome; whether the verdict changed."""
        self.probed_at_us = now
        if outcome.finding is Finding.INCONCLUSIVE:
            self.reason = outcome.reason
            return False
        self._in_a_row = self._in_a_row + 1 if outcome.finding is self._last else 1
        self._last = outcome.finding
        suspected, needed = self._suspected()
        if self.verdict is suspected:
            self.reason = outcome.reason
            return False
        if self._in_a_row < needed:
            self.reason = f"{outcome.reason} ({self._in_a_row} of {needed})"
            return False
        self.verdict = suspected
        self.reason = outcome.reason if needed == 1 else f"{outcome.reason}, {_times(needed)} in a row"
        return True

    @property
    def settled(self) -> bool:
        """Whether the last outcome agreed with the verdict."""
        return self._last is not None and self.verdict is self._suspected()[0]

    @property
    def pause_us(self) -> int:
        """Pause from the end of the last probe to the next."""
        return self.check.delay_loop_us if self.settled else retry_pace_us(self.check)

    def _suspected(self) -> tuple[Verdict, int]:
        if self._last is Finding.PASSED:
            return Verdict.UP, RISE
        return Verdict.DOWN, fall(self.check)


def _times(number: int) -> str:
    return "twice" if number == RISE else f"{number} times"
