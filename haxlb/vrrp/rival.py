"""Two routers of priority 255: two owners of the addresses, which one configuration of them contradicts.

As newer keepaliveds do: the one of the lower address backs off; the other gives it the time of two adverts and more to
do so, and if it goes on, calls itself 254 until it is gone.
"""

from __future__ import annotations


class Rival:
    """Another router of priority 255, as the owner of the higher address hears it."""

    def __init__(self) -> None:
        self.prevails = False
        """It did not back off: we are 254 until it falls silent."""
        self._patience_until: int | None = None
        self._heard_at = 0

    def forget(self) -> None:
        """It is gone."""
        self.prevails = False
        self._patience_until = None

    def heard(self, our_interval_us: int, its_interval_us: int, now: int) -> bool:
        """An advert of 255 from the lower address; whether it prevails."""
        patience = 2 * our_interval_us + max(our_interval_us, its_interval_us) * 6 // 5
        if self._patience_until is None or now - self._heard_at > patience:
            self._patience_until = now + patience
        self._heard_at = now
        self.prevails = now >= self._patience_until
        return self.prevails
