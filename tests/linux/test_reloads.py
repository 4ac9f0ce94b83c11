"""SIGHUP as the supervisor process takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from haxlb.daemon.control import Answer, Request, Step
from haxlb.linux.supervisor_main import Reloads


class OneByOne:
    """Carries out commands as the supervisor does: one after the other."""

    def __init__(self) -> None:
        self.begun = 0
        self.gate = asyncio.Event()
        self._changing = asyncio.Lock()

    async def command(self, _request: Request, _step: Callable[[Step], None]) -> Answer:
        async with self._changing:
            self.begun += 1
            await self.gate.wait()
        return Answer(ok=True)


def test_a_storm_of_signals_is_the_reload_under_way_and_one_after_it() -> None:
    async def scene() -> None:
        supervisor = OneByOne()
        reloads = Reloads(supervisor)  # type: ignore[arg-type]
        for _ in range(50):
            reloads.begin()
            await asyncio.sleep(0)
        assert supervisor.begun == 1
        supervisor.gate.set()
        while reloads._tasks:  # noqa: ASYNC110 - its end is what is waited for
            await asyncio.sleep(0)
        # The file may have changed after the first one had read it.
        assert supervisor.begun == 2
        reloads.begin()
        await asyncio.sleep(0)
        assert supervisor.begun == 3
        await reloads.end()

    asyncio.run(scene())
