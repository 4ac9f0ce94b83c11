"""The last advert of a MASTER that yields to a higher one, and whether it was heard (docs/adr/0007).

The winner of a split does not know that there was one unless it hears the loser, and then it does not announce the
addresses. So the loser says one more thing after it has taken its addresses off. A winner answers an advert of
lower priority at once. If instead nothing comes until its next advert in turn, the way to the winner is not open yet:
it is said again, an interval later, then two, then every four.

Who has left MASTER without another router's advert (its link was lost, its timer came far too late, its sync group
left) owes the last word to the first MASTER that it hears.
"""

from __future__ import annotations

_REPEATS = 16
"""About sixty intervals. A winner may be configured not to answer (lower_prio_no_advert): it is not told for ever."""
_LONGEST_PAUSE = 4
"""Intervals."""
_ANSWER_SHARE = 8
"""What comes within this fraction of an interval is an answer. A winner that was late itself may have its next turn
soon after: to take that for an answer would leave the client dark; to take an answer for a turn costs one advert."""


class Farewell:
    """One last advert."""

    def __init__(self) -> None:
        self._said_at: int | None = None
        self._repeats = 0
        self._owed = False

    def begin(self, now: int) -> None:
        """It was sent at this time."""
        self._said_at = now
        self._repeats = 0
        self._owed = False

    def owe(self) -> None:
        """It is still to be said."""
        self._owed = True

    def end(self) -> None:
        """It matters no more."""
        self._said_at = None
        self._owed = False

    def unheard(self, interval_us: int, now: int) -> bool:
        """The winner's advert has come; whether ours is to be sent now."""
        if self._owed:
            self.begin(now)
            return True
        if self._said_at is None:
            return False
        since = now - self._said_at
        if since * _ANSWER_SHARE < interval_us or self._repeats == _REPEATS:
            self._said_at = None
            return False
        if since < min(1 << self._repeats, _LONGEST_PAUSE) * interval_us - interval_us // 2:
            return False
        self._said_at = now
        self._repeats += 1
        return True
