from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from haxlb.linux.timerfd import MonotonicClock, TimerfdWake

CLOCK = MonotonicClock()


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


class Woken:
    """Times of wake-ups, and a way to wait for the next one."""

    def __init__(self) -> None:
        self.at: asyncio.Queue[int] = asyncio.Queue()

    def __call__(self) -> None:
        self.at.put_nowait(CLOCK.now())


def test_wakes_at_the_time_not_before_and_once() -> None:
    async def test() -> None:
        woken = Woken()
        wake = TimerfdWake(woken)
        deadline = CLOCK.now() + 20_000
        wake.wake_at(deadline)
        at = await woken.at.get()
        assert deadline <= at
        wake.wake_at(CLOCK.now() + 10_000)
        await woken.at.get()
        assert woken.at.empty()
        wake.close()

    run(test())


def test_a_time_in_the_past_or_zero_wakes_at_once() -> None:
    async def test() -> None:
        woken = Woken()
        wake = TimerfdWake(woken)
        for deadline in (0, -5, 1, CLOCK.now() - 1):
            wake.wake_at(deadline)
            await woken.at.get()
        wake.close()

    run(test())


def test_a_request_replaces_the_former_one_and_none_cancels_it() -> None:
    async def test() -> None:
        woken = Woken()
        wake = TimerfdWake(woken)
        wake.wake_at(CLOCK.now() + 1_000)
        wake.wake_at(None)
        early = CLOCK.now() + 30_000
        wake.wake_at(early + 60_000_000)
        wake.wake_at(early)
        assert await woken.at.get() >= early
        assert woken.at.empty()
        wake.close()

    run(test())


def test_re_arming_for_the_time_that_has_just_fired_wakes_again() -> None:
    async def test() -> None:
        woken = Woken()
        wake = TimerfdWake(woken)
        deadline = CLOCK.now()
        for _ in range(3):
            wake.wake_at(deadline)
            await woken.at.get()
        wake.close()

    run(test())
