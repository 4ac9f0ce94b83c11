"""Adverts of lower priority that a MASTER hears: which of them call for an announcement.

Somebody else believes to be MASTER and may have taught the network its own MAC. keepalived announces at each advert,
ten frames a time: 740 a second at an interval of 10 ms, for as long as the split lasts and five seconds beyond. Here

* the first advert of a contest is answered with an announcement, and while it goes on in turn one about each second;
* an advert *out of turn* is answered, too: it is the last word of a router that has just heard us and let its addresses
  go (docs/adr/0007), and only what is announced after that is final;
* when it ends after adverts that were not answered, silence is: one more announcement an interval and a half later.

In any second there are no more than three, whatever comes in.
"""

from __future__ import annotations

from collections import deque

from haxlb.model.units import SECOND_US

_PAUSE_US = SECOND_US * 9 // 10
"""Between announcements in turn; less than a second, so that adverts a second apart are all answered."""
_BURST_US = 1_000
"""Adverts that come so close together, as those that waited while we were stopped, are answered once and, when they
have all been heard, once more: each for itself they would use up what a second has."""
_MOST_IN_A_SECOND = 3
_LEAST_INTERVAL_US = 10_000
"""A version 3 advert may name none at all."""


class Contest:
    """The adverts of lower priority that one MASTER hears."""

    def __init__(self) -> None:
        self.sustained = False
        """More than one advert has come in turn: what is announced now will be announced again."""
        self.silent_at: int | None = None
        """When `due` wants to be asked, monotonic µs."""
        self._heard_at: int | None = None
        self._announced: deque[int] = deque(maxlen=_MOST_IN_A_SECOND)

    def end(self) -> None:
        """No longer MASTER."""
        self.sustained = False
        self.silent_at = self._heard_at = None
        self._announced.clear()

    def heard(self, interval_us: int, now: int) -> bool:
        """An advert of this interval has come in; whether to announce."""
        interval = max(interval_us, _LEAST_INTERVAL_US)
        gap = None if self._heard_at is None else now - self._heard_at
        self._heard_at = now
        begins = gap is None or gap > 2 * interval
        in_turn = not begins and gap is not None and gap * 4 >= interval * 3
        if begins:
            self.sustained = False
        elif in_turn:
            self.sustained = True
        if not in_turn and self._announced and now - self._announced[-1] < _BURST_US:
            self.silent_at = self._announced[-1] + _BURST_US
            return False
        if (not in_turn or now - self._announced[-1] >= _PAUSE_US) and self._spend(now):
            return True
        self.silent_at = now + interval * 3 // 2
        return False

    def has_rival(self, patience_us: int, now: int) -> bool:
        """Whether one was heard that recently."""
        return self._heard_at is not None and now - self._heard_at <= patience_us

    def left(self, now: int) -> bool:
        """Another MASTER has resigned; whether to announce."""
        self._heard_at = None
        return self._spend(now)

    def shared(self, now: int) -> bool:
        """Another member of the sync group has heard a rival; whether to announce, too."""
        return self._spend(now)

    def due(self, now: int) -> bool:
        """Whether the other one has fallen silent and it is time to announce."""
        return self.silent_at is not None and self.silent_at <= now and self._spend(now)

    def _spend(self, now: int) -> bool:
        if len(self._announced) == _MOST_IN_A_SECOND and now - self._announced[0] < SECOND_US:
            # Not forgotten: said when it may be.
            self.silent_at = self._announced[0] + SECOND_US
            return False
        self._announced.append(now)
        self.silent_at = None
        return True
