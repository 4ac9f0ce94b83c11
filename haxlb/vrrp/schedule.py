"""When the adverts of a MASTER are due, and how often it answers out of turn."""

from __future__ import annotations

from haxlb.model.units import SECOND_US

_QUICK_ANSWER_US = 1_000
_MOST_QUICK_ANSWERS = 8
"""Adverts that come within a millisecond of each other and are answered all the same."""


class Schedule:
    """The Adver_Timer. Absolute: a late wake-up does not shift it, and what a stall has missed is not made up for."""

    def __init__(self) -> None:
        self.at: int | None = None
        """When the next advert is due, monotonic µs; None while not MASTER."""
        self._answered_at = -_QUICK_ANSWER_US
        self._quick_answers = 0

    def start(self, interval_us: int, now: int) -> None:
        """An advert is sent now, in turn or not: the next follows one interval later."""
        self.at = now + interval_us

    def stop(self) -> None:
        """No longer MASTER."""
        self.at = None

    def advance(self, interval_us: int, now: int) -> None:
        """The advert that was due is sent."""
        if self.at is not None:
            self.at += ((now - self.at) // interval_us + 1) * interval_us

    def answer(self, interval_us: int, now: int, *, contested: bool) -> bool:
        """Whether an advert of lower priority or of 0 is answered at once: their flood must not become one of ours."""
        if now - self._answered_at < _QUICK_ANSWER_US:
            self._quick_answers += 1
            if self._quick_answers > _MOST_QUICK_ANSWERS:
                return False
        else:
            self._answered_at, self._quick_answers = now, 0
        # While they keep coming: halfway between two of theirs, so that the last word of a router that hears us at last
        # is out of its turn (haxlb.vrrp.contest).
        self.start(interval_us // 2 if contested and interval_us < SECOND_US else interval_us, now)
        return True
