"""A throttle on reports: what repeats is counted by its owner and passed on once per pause."""

from __future__ import annotations

from collections.abc import Hashable

_MAX_KEYS = 256
"""A flood of spoofed sources must not cost memory, nor fill the log: beyond this nothing new passes until one ends."""


class Throttle:
    """Passes each key once per `pause_us`."""

    def __init__(self, pause_us: int) -> None:
        self._pause_us = pause_us
        self._until: dict[Hashable, int] = {}

    def passes(self, key: Hashable, now: int) -> bool:
        """Whether this is to be passed on now (monotonic µs)."""
        until = self._until.get(key)
        if until is not None and now < until:
            return False
        if until is None and len(self._until) >= _MAX_KEYS:
            self._until = {each: end for each, end in self._until.items() if now < end}
            if len(self._until) >= _MAX_KEYS:
                return False
        self._until[key] = now + self._pause_us
        return True
