"""Which elements of `rings` are free.

Nothing of it is kept anywhere but in the records of services: what a generation in force, or the one before it, names
is in use. What is given back may be read by packets that are being handled, so it rests until they have been.

Extents are aligned to a power of two that is not smaller than they are. So those of equal size, which are most, fit
where another of them was, and long ones find room beside short ones.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

Extent = tuple[int, int]
"""First element and number."""


def blocks(elements: int) -> int:
    """Elements that an extent takes: a power of two."""
    return 1 << (elements - 1).bit_length() if elements else 0


class Arena:
    """Free extents, in order of place, never two that touch."""

    def __init__(self, size: int, used: Iterable[Extent]) -> None:
        """`used`: first element and length of those in use."""
        self._size = size
        self._free: list[Extent] = []
        self._resting: list[Extent] = []
        at = 0
        for first, elements in sorted(used):
            if first > at:
                self._free.append((at, first - at))
            at = max(at, first + blocks(elements))
        if at < size:
            self._free.append((at, size - at))

    @property
    def free(self) -> int:
        """Elements that are free now."""
        return sum(length for _, length in self._free)

    def take(self, elements: int) -> int | None:
        """First element of an extent; None where there is no room but perhaps in what rests."""
        wanted = blocks(elements)
        best: tuple[int, int, int] | None = None
        for at, (first, length) in enumerate(self._free):
            start = -(-first // wanted) * wanted
            if start + wanted > first + length:
                continue
            # The tightest: what is large stays in one piece.
            if best is None or length < best[0]:
                best = (length, at, start)
            if length == wanted:
                break
        if best is None:
            return None
        _, at, start = best
        first, length = self._free[at]
        around = [(first, start - first), (start + wanted, first + length - start - wanted)]
        self._free[at : at + 1] = [extent for extent in around if extent[1]]
        return start

    def give_back(self, first: int, elements: int) -> None:
        """No packet finds this extent any more; those that have found it may still read it."""
        if elements:
            self._resting.append((first, blocks(elements)))

    @property
    def rests(self) -> bool:
        """Whether something waits for packets to end."""
        return bool(self._resting)

    def release(self, resting: int | None = None) -> None:
        """All packets that were being handled have been: what rests (only the first `resting` of it) is free."""
        ready = self._resting[:resting]
        del self._resting[: len(ready)]
        for extent in ready:
            self._insert(extent)

    @property
    def resting(self) -> int:
        """How many extents wait for packets to end."""
        return len(self._resting)

    def _insert(self, extent: Extent) -> None:
        insort(self._free, extent)
        at = bisect_left(self._free, extent)
        first, length = extent
        if at + 1 < len(self._free) and self._free[at + 1][0] == first + length:
            length += self._free.pop(at + 1)[1]
        if at and sum(self._free[at - 1]) == first:
            at -= 1
            length += self._free[at][1]
            first = self._free[at][0]
            self._free.pop(at + 1)
        self._free[at] = (first, length)

    def holds(self, element: int) -> bool:
        """Whether this element is free."""
        at = bisect_right(self._free, (element, self._size)) - 1
        return at >= 0 and sum(self._free[at]) > element
