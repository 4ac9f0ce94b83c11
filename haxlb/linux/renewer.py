"""A thread that waits for the kernel in the speaker's stead.

Every change of an address takes the lock of all of the host's network configuration (rtnl_lock, net/core/rtnetlink.c),
and whoever else changes some may hold it for long: a driver that resets its adapter for seconds, the removal of a few
hundred interfaces for more than a tenth of one. What the speaker does once and in order, as on a change of its role, it
does itself. What it does all the time, renewing addresses, waits here, and adverts leave meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from haxlb.linux.realtime import follow
from haxlb.linux.rtnetlink import Rtnetlink

STACK = 256 * 1024
"""Bytes: the usual 8 MiB would all be there where memory is locked."""

PATIENCE_S = 0.7
"""How old a batch may be when it is handed to the kernel: shorter than any address lives on after a renewal in time.

A process that was stopped, or a host that slept, may be MASTER no longer: what ran out meanwhile must not be put on
before the adverts that wait have been heard. It is not asked for again: the next turn is.
"""

Outcome = list[int] | Exception
"""The errno of each request, 0 where it went well; or why none can be told."""
_Job = tuple[Sequence[bytes], Callable[[Outcome], None], asyncio.AbstractEventLoop, float]


def since_boot() -> float:
    """Seconds, with those in which the host slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Renewer:
    """One batch of requests at a time, by a socket of its own."""

    def __init__(self, rtnetlink: Rtnetlink | None = None, clock: Callable[[], float] = since_boot) -> None:
        """Starts the thread: later, on a busy host, the start of one would hold us up."""
        self._rtnetlink = rtnetlink or Rtnetlink()
        self._clock = clock
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        former = threading.stack_size(STACK)
        self._thread = threading.Thread(target=self._run, name="renewer", daemon=True)
        self._thread.start()
        threading.stack_size(former)

    @property
    def port(self) -> int:
        """As `Rtnetlink.port`."""
        return self._rtnetlink.port

    @property
    def busy(self) -> bool:
        """The kernel has not yet answered the last batch."""
        return not self._idle.is_set()

    def begin(self, requests: Sequence[bytes], done: Callable[[Outcome], None], since: float | None = None) -> None:
        """Send these, while not `busy`; `done` hears of it from the running loop.

        Nothing is sent, and `done` not called, where the thread comes to it more than PATIENCE_S later than `since`
        (`since_boot`): when it was decided, now unless said.
        """
        thread = self._thread.native_id
        assert thread is not None
        follow(0, thread)
        self._idle.clear()
        self._jobs.put(
            (requests, done, asyncio.get_running_loop(), (self._clock() if since is None else since) + PATIENCE_S)
        )

    def wait(self) -> None:
        """Until the kernel has answered: what is asked for next comes after it."""
        self._idle.wait()

    def close(self) -> None:
        """Nothing is begun any more; nobody waits for what was."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            requests, done, loop, latest = job
            if self._clock() > latest:
                self._idle.set()
                continue
            outcome: Outcome
            try:
                outcome = self._rtnetlink.change(requests)
            except Exception as problem:  # noqa: BLE001 - whoever asked judges it, on the loop
                outcome = problem
            self._idle.set()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(done, outcome)
        self._rtnetlink.close()
