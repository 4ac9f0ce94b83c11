"""What a key stands for, found out once and kept: as fast as a dict where the key is known, and bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Remembered(dict[K, V]):
    """A dict that finds out by itself what it has not; once it is full, it begins anew."""

    def __init__(self, find_out: Callable[[K], V], *, most: int) -> None:
        """`most`: entries at a time, where the keys are for strangers to choose."""
        self._find_out = find_out
        self._most = most

    def __missing__(self, key: K) -> V:
        if len(self) >= self._most:
            self.clear()
        value = self[key] = self._find_out(key)
        return value
