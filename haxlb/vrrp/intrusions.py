"""Who speaks although a better one does: two masters of one virtual router.

A router that hears a better one (higher priority, or the same and a higher address) is silent until that has been
silent for master_down_interval (RFC 9568 section 6.4.3). One that speaks earlier does not hear it, or does not believe
it. That they alternate is no measure: each advert that keepalived 2.2.7 receives, and be it refused, puts its own next
one off by an interval, so that two masters starve each other for seconds.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

ENOUGH = 3
"""Intrusions. A take-over has one when the old master's last advert crosses the new one's first."""
_WINDOW = 10
"""Times the better one's master_down_interval, within which they count together."""


@dataclass(slots=True)
class _Pair:
    at: deque[int] = field(default_factory=lambda: deque(maxlen=ENOUGH))
    expires_us: int | None = None
    """None = not two masters yet."""


class Intrusions:
    """Of one virtual router; its speakers are numbers."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[int, int], _Pair] = {}

    def note(self, worse: int, better: int, at_us: int, *, down_us: int, interval_us: int) -> bool:
        """The worse one has spoken within `down_us` of the better one; True when that makes them two masters.

        `interval_us` is the longer one of their intervals: what comes faster is one intrusion.
        """
        pair = self._pairs.setdefault((worse, better), _Pair())
        if pair.at and at_us - pair.at[-1] < interval_us // 2:
            return False
        pair.at.append(at_us)
        if len(pair.at) < ENOUGH or at_us - pair.at[0] > _WINDOW * down_us:
            return False
        news = pair.expires_us is None
        pair.expires_us = at_us + _WINDOW * down_us
        return news

    def forget(self, who: int) -> None:
        """It has resigned."""
        for key in [key for key in self._pairs if who in key]:
            del self._pairs[key]

    def expire(self, now_us: int) -> bool:
        """Forget what has not happened for long; True when two masters were among it."""
        gone = [key for key, pair in self._pairs.items() if pair.expires_us is not None and pair.expires_us < now_us]
        for key in gone:
            del self._pairs[key]
        return bool(gone)

    @property
    def masters(self) -> tuple[int, ...]:
        """All that are master beside another one."""
        return tuple(sorted({who for key, pair in self._pairs.items() if pair.expires_us is not None for who in key}))
