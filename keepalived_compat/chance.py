"""Numbers for `${_RANDOM}`: drawn from a seed, so that a reload of the same file draws the same ones."""

from __future__ import annotations

_MASK = 2**64 - 1
LARGEST = 32_767
"""Of `${_RANDOM}` without bounds, as in a shell."""


class Chance:
    """Splitmix64 (Steele, Lea, Flood 2014)."""

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def draw(self, low: int, high: int) -> int:
        """A number of low … high, both inclusive."""
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        mixed = self._state
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        return low + (mixed ^ (mixed >> 31)) % (high - low + 1)


def seed_of(text: str) -> int:
    """A seed for a director: FNV-1a (64 bits) of its config-id, so that two directors draw different numbers."""
    value = 0xCBF29CE484222325
    for each in text.encode(errors="surrogatepass"):
        value = ((value ^ each) * 0x100000001B3) & _MASK
    return value
