"""The search for a health check's regular expression, within a limit of CPU time.

Python's engine backtracks: `(a+)+$` needs seconds for a line of thirty letters, and the server chooses the line. The
engine looks for signals while it searches (CPython, Modules/_sre/sre_lib.h), so a timer can end it where a thread could
not. The timer counts this process's own time: a busy machine must not fail a healthy server.
"""

from __future__ import annotations

import re
import signal
from types import FrameType
from typing import Never

LIMIT_S = 0.1
"""An honest expression searches a body of 1 MiB in a few milliseconds."""


class _Expired(Exception):
    """The limit has passed."""


def search(pattern: re.Pattern[bytes], body: bytes) -> bool | None:
    """Whether the pattern is found; None when LIMIT_S did not suffice to tell. For the main thread only."""
    signal.signal(signal.SIGVTALRM, _expire)
    try:
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
            return pattern.search(body) is not None
        finally:
            # One that expires on the way to here has been raised by the time that the handler is gone.
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, signal.SIG_IGN)
    except _Expired:
        return None


def _expire(number: int, frame: FrameType | None) -> Never:
    del number, frame
    raise _Expired
