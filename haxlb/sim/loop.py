"""Virtual time: a heap of callbacks, and a clock that jumps to the next one.

Two callbacks of the same microsecond run in the order in which they were asked for, so a run depends on nothing but
its inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush


class Timer:
    """One pending callback."""

    __slots__ = ("_callback", "when_us")

    def __init__(self, when_us: int, callback: Callable[[], None]) -> None:
        self.when_us = when_us
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Never run it."""
        self._callback = None

    def fire(self) -> None:
        """Run it, unless it was cancelled."""
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()


class VirtualLoop:
    """The world's clock and agenda; starts at 0 µs."""

    def __init__(self) -> None:
        self.now_us = 0
        self.fired = 0
        """Callbacks taken off the heap so far."""
        self._heap: list[tuple[int, int, Timer]] = []
        self._sequence = 0
        self._observer: Callable[[], None] | None = None

    def observe(self, observer: Callable[[], None]) -> None:
        """Call this after every callback: how the laws see each moment."""
        self._observer = observer

    def at(self, when_us: int, callback: Callable[[], None]) -> Timer:
        """Run the callback at this time, now at the earliest."""
        timer = Timer(max(when_us, self.now_us), callback)
        self._sequence += 1
        heappush(self._heap, (timer.when_us, self._sequence, timer))
        return timer

    def after(self, delay_us: int, callback: Callable[[], None]) -> Timer:
        """Run the callback in so many µs."""
        return self.at(self.now_us + delay_us, callback)

    def run_until(self, end_us: int) -> None:
        """Run all that is due up to this time; the clock stands there afterwards."""
        heap = self._heap
        while heap and heap[0][0] <= end_us:
            self.now_us, _, timer = heappop(heap)
            timer.fire()
            self.fired += 1
            if self._observer is not None:
                self._observer()
        self.now_us = max(self.now_us, end_us)
