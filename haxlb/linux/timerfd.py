"""Time for the speaker: the monotonic clock, and a timerfd that wakes the loop to the microsecond.

asyncio's own timers end in epoll's timeout, which is rounded up to whole milliseconds. `os.timerfd_create` came with
Python 3.13; until then three libc calls do.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from collections.abc import Callable

from haxlb.model.errors import HostError

# <linux/timerfd.h> and <time.h>
_CLOCK_MONOTONIC = 1
_TFD_NONBLOCK = os.O_NONBLOCK
_TFD_CLOEXEC = os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("it_interval", _Timespec), ("it_value", _Timespec))


_libc = ctypes.CDLL(None, use_errno=True)
_libc.timerfd_create.argtypes = (ctypes.c_int, ctypes.c_int)
_libc.timerfd_settime.argtypes = (
    ctypes.c_int,
    ctypes.c_int,
    ctypes.POINTER(_Itimerspec),
    ctypes.POINTER(_Itimerspec),
)


class MonotonicClock:
    """ClockPort on CLOCK_MONOTONIC, the clock that the timerfd runs on."""

    def now(self) -> int:
        """Monotonic time in µs."""
        return time.monotonic_ns() // 1000


class TimerfdWake:
    """WakePort: calls `on_wake` from the running loop at the requested time."""

    def __init__(self, on_wake: Callable[[], None]) -> None:
        self._fd = _libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
        if self._fd < 0:
            number = ctypes.get_errno()
            raise HostError(f"timerfd_create: {os.strerror(number)}", remedy="raise the limit of open files")
        self._on_wake = on_wake
        self._deadline_us: int | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._expired)

    def wake_at(self, deadline_us: int | None) -> None:
        """Arm for this absolute time, replacing the former request; a time in the past fires at once."""
        if deadline_us == self._deadline_us:
            return
        self._deadline_us = deadline_us
        # An it_value of zero disarms, so the earliest time that can be asked for is one nanosecond after boot.
        nanoseconds = 0 if deadline_us is None else max(1, deadline_us * 1000)
        seconds, rest = divmod(nanoseconds, 1_000_000_000)
        when = _Itimerspec(_Timespec(0, 0), _Timespec(seconds, rest))
        if _libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(when), None):
            raise HostError(f"timerfd_settime: {os.strerror(ctypes.get_errno())}", remedy="report this as a bug")

    def close(self) -> None:
        """Disarm for good."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _expired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:  # it was re-armed between epoll's return and this call
            return
        self._deadline_us = None
        self._on_wake()
