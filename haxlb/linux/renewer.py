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
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from haxlb.linux.realtime import follow
from haxlb.linux.rtnetlink import Rtnetlink

STACK = 256 * 1024
"""Bytes: the usual 8 MiB would all be there where memory is locked."""

Outcome = list[int] | Exception
"""The errno of each request, 0 where it went well; or why none can be told."""
_Job = tuple[Sequence[bytes], Callable[[Outcome], None], asyncio.AbstractEventLoop]


class Renewer:
    """One batch of requests at a time, by a socket of its own."""

    def __init__(self, rtnetlink: Rtnetlink | None = None) -> None:
        """Starts the thread: later, on a busy host, the start of one would hold us up."""
        self._rtnetlink = rtnetlink or Rtnetlink()
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

    def begin(self, requests: Sequence[bytes], done: Callable[[Outcome], None]) -> None:
        """Send these, while not `busy`; `done` hears of it from the running loop."""
        thread = self._thread.native_id
        assert thread is not None
        follow(0, thread)
        self._idle.clear()
        self._jobs.put((requests, done, asyncio.get_running_loop()))

    def wait(self) -> None:
        """Until the kernel has answered: what is asked for next comes after it."""
        self._idle.wait()

    def close(self) -> None:
        """Nothing is begun any more; nobody waits for what was."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            requests, done, loop = job
            outcome: Outcome
            try:
                outcome = self._rtnetlink.change(requests)
            except Exception as problem:  # noqa: BLE001 - whoever asked judges it, on the loop
                outcome = problem
            self._idle.set()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(done, outcome)
        self._rtnetlink.close()
