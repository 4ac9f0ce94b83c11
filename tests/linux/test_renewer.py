"""The thread that waits for the kernel, with a kernel that answers when it is told to."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from typing import Any, cast

import pytest

from haxlb.linux.renewer import PATIENCE_S as RENEWER_PATIENCE_S
from haxlb.linux.renewer import Outcome, Renewer
from haxlb.linux.rtnetlink import Rtnetlink

PATIENCE_S = 60


class Kernel:
    """Stands in for Rtnetlink."""

    port = 7

    def __init__(self, answer: Outcome) -> None:
        self._answer = answer
        self.asked = threading.Event()
        self.may_answer = threading.Event()
        self.closed = threading.Event()
        self.answered: list[Sequence[bytes]] = []
        self.policies: list[int] = []

    def change(self, requests: Sequence[bytes]) -> list[int]:
        self.policies.append(os.sched_getscheduler(0))
        self.asked.set()
        assert self.may_answer.wait(PATIENCE_S)
        self.answered.append(requests)
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def close(self) -> None:
        self.closed.set()


def renewer(kernel: Kernel) -> Renewer:
    return Renewer(cast("Rtnetlink", kernel))


def heard_by(kernel: Kernel, *, before_answer: Any = lambda _: None) -> list[Outcome]:
    async def test() -> list[Outcome]:
        made = renewer(kernel)
        told: asyncio.Queue[Outcome] = asyncio.Queue()
        made.begin([b"request"], told.put_nowait)
        assert kernel.asked.wait(PATIENCE_S)
        assert made.busy
        before_answer(made)
        kernel.may_answer.set()
        outcome = await asyncio.wait_for(told.get(), PATIENCE_S)
        assert not made.busy
        made.close()
        assert kernel.closed.wait(PATIENCE_S)
        return [outcome]

    return asyncio.run(test())


def test_nobody_waits_for_the_kernel():
    assert heard_by(Kernel([0])) == [[0]]


@pytest.mark.parametrize("problem", [OSError(105, "No buffer space available"), ValueError("a bug")])
def test_what_went_wrong_is_told_on_the_loop(problem):
    assert heard_by(Kernel(problem)) == [problem]


def test_who_waits_is_behind_the_answer():
    kernel = Kernel([0])

    def let_it_answer() -> None:
        kernel.asked.wait(PATIENCE_S)
        kernel.may_answer.set()

    async def test() -> None:
        made = renewer(kernel)
        made.wait()  # for nothing
        made.begin([b"request"], lambda _: None)
        other = threading.Thread(target=let_it_answer)
        other.start()
        made.wait()
        assert kernel.answered == [[b"request"]]
        other.join()
        made.close()

    asyncio.run(test())


def test_what_was_asked_for_before_a_standstill_is_not_done_after_it():
    kernel = Kernel([0])
    kernel.may_answer.set()
    now = 100.0

    async def test() -> None:
        made = Renewer(cast("Rtnetlink", kernel), clock=lambda: now)
        told: asyncio.Queue[str] = asyncio.Queue()
        made.begin([b"old"], lambda _: told.put_nowait("old"), since=now - 1.1 * RENEWER_PATIENCE_S)
        made.wait()
        assert not made.busy
        made.begin([b"new"], lambda _: told.put_nowait("new"))
        assert await asyncio.wait_for(told.get(), PATIENCE_S) == "new"
        made.close()

    asyncio.run(test())
    assert kernel.answered == [[b"new"]]


def test_an_answer_after_the_end_of_the_loop_harms_nobody():
    kernel = Kernel([0])

    async def test() -> Renewer:
        made = renewer(kernel)
        made.begin([b"request"], lambda _: None)
        return made

    made = asyncio.run(test())
    made.close()
    kernel.may_answer.set()
    assert kernel.closed.wait(PATIENCE_S)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: real-time class")
def test_the_thread_has_the_class_of_who_asks():
    kernel = Kernel([0])
    before = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        made: list[Renewer] = []

        async def test() -> None:
            made.append(renewer(kernel))
            os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(5))
            kernel.may_answer.set()
            told = asyncio.get_running_loop().create_future()
            made[0].begin([], told.set_result)
            await asyncio.wait_for(told, PATIENCE_S)
            made[0].close()

        asyncio.run(test())
    finally:
        os.sched_setscheduler(0, *before)
    assert kernel.policies == [os.SCHED_RR | os.SCHED_RESET_ON_FORK]
