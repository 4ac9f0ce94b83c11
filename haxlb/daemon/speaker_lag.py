"""How late the speaker is woken: what a starved process looks like from inside."""

from __future__ import annotations

from haxlb.model.status import LoopLag
from haxlb.model.units import SECOND_US

_MILLISECOND_US = 1_000


class LagMeter:
    """Counts wakes and how late they were."""

    def __init__(self) -> None:
        self._wakes = self._last_us = self._max_us = self._max_at = self._over_ms = 0

    def woken(self, asked_for: int | None, now: int) -> None:
        """The wake that was asked for this time has come; one that nobody asked for, or that is early, is none."""
        if asked_for is None or now < asked_for:
            return
        late = now - asked_for
        self._wakes += 1
        self._last_us = late
        if late >= _MILLISECOND_US:
            self._over_ms += 1
        if late > self._max_us:
            self._max_us, self._max_at = late, now

    def status(self, epoch_offset_us: int) -> LoopLag:
        """For `haxlb show`; the offset turns monotonic µs into µs since the epoch."""
        return LoopLag(
            wakes=self._wakes,
            last_us=self._last_us,
            max_us=self._max_us,
            max_at=(self._max_at + epoch_offset_us) / SECOND_US if self._max_us else 0.0,
            over_ms=self._over_ms,
        )
