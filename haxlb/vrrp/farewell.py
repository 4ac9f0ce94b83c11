"""The last advert of a MASTER that yields to a higher one, and whether it was heard (docs/adr/0007).

The winner of a split does not know that there was one unless it hears the loser, and then it does not announce the
addresses. So the loser says one more thing after it has taken its addresses off. A winner answers an advert of
lower priority at once, an interval before its next advert is due. If instead nothing comes until that one, the way to
the winner is not open yet: it is said again.
"""

from __future__ import annotations

_REPEATS = 2
"""A winner may be configured not to answer (lower_prio_no_advert): it is not told for ever."""


class Farewell:
    """One last advert."""

    def __init__(self) -> None:
        self._said_at: int | None = None
        self._repeats = 0

    def begin(self, now: int) -> None:
        """It was sent at this time."""
        self._said_at = now
        self._repeats = _REPEATS

    def end(self) -> None:
        """It matters no more."""
        self._said_at = None

    def unheard(self, interval_us: int, now: int) -> bool:
        """The winner's advert has come; whether ours is to be sent once more."""
        if self._said_at is None:
            return False
        if now - self._said_at < interval_us // 2 or not self._repeats:
            self._said_at = None
            return False
        self._said_at = now
        self._repeats -= 1
        return True
