"""The clock of an event loop as a test wants it: a limit is reached when the test says so, or when nothing more comes.

By the clock of the machine a process that is kept from its CPU for longer than the limit would reach it, too.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any

_SILENCE_S = 0.5
"""Whoever has said nothing for so long, in this very process, says nothing."""


def put_forward(seconds: float) -> None:
    """The clock of the running loop, at once."""
    loop = asyncio.get_running_loop()
    ahead = loop.time() - time.monotonic() + seconds
    loop.time = lambda: time.monotonic() + ahead  # type: ignore[method-assign]


def run_unhurried(test: Coroutine[Any, Any, None]) -> None:
    """As asyncio.run, where time passes only while nothing happens."""
    with asyncio.Runner(loop_factory=_Unhurried) as runner:
        runner.run(test)


class _Selector(selectors.EpollSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(None if timeout is None else min(timeout, _SILENCE_S))
        if timeout is not None and timeout > 0 and not found:
            self.now += timeout
        return found


class _Unhurried(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._passing = _Selector()
        super().__init__(self._passing)

    def time(self) -> float:
        return self._passing.now
