from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from haxlb.linux.pacing import Paced


def run(steps: Callable[[Paced, list[str]], Any], pause_s: float = 0.01) -> list[str]:
    done: list[str] = []

    async def body() -> None:
        paced = Paced(lambda: done.append("done"), pause_s)
        await steps(paced, done)
        paced.close()

    asyncio.run(asyncio.wait_for(body(), 60))
    return done


def test_what_is_asked_for_is_done_at_once() -> None:
    async def steps(paced: Paced, done: list[str]) -> None:
        paced.ask()
        assert done == ["done"]

    assert run(steps, pause_s=3600) == ["done"]


def test_what_is_asked_for_in_the_pause_is_done_once_at_its_end() -> None:
    async def steps(paced: Paced, done: list[str]) -> None:
        for _ in range(5):
            paced.ask()
        assert done == ["done"]
        await asyncio.sleep(0.02)
        assert len(done) == 2

    assert len(run(steps)) == 2


def test_after_the_pause_it_is_at_once_again() -> None:
    async def steps(paced: Paced, done: list[str]) -> None:
        paced.ask()
        await asyncio.sleep(0.02)
        paced.ask()
        assert len(done) == 2

    assert len(run(steps)) == 2


def test_nothing_is_done_after_the_end() -> None:
    async def steps(paced: Paced, _: list[str]) -> None:
        paced.ask()
        paced.ask()
        paced.close()
        await asyncio.sleep(0.03)

    assert run(steps) == ["done"]
