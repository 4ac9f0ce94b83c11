"""Programs that take the kernel's ticks for much shorter ones: real time is nearly none for their flows.

Tests let time pass for flows themselves (aging.py). What really passes between two of their packets, on a machine that
may stop for seconds, then decides nothing: eight seconds are less than a tenth of one, a margin that all tests keep.
Shorter ticks still, and the ages of flows would not fit into the 32 bits of a stamp.
"""

from __future__ import annotations

import time
from pathlib import Path

TICKS_PER_SECOND = 25_000
"""As in slow_python."""
KERNEL_TICKS_PER_SECOND = round(1 / time.clock_getres(6))
PYTHON = str(Path(__file__).with_name("slow_python"))
"""Whoever compiles by this one gets such a program."""


def now_s() -> float:
    """What time it is for them, from some moment on."""
    return time.monotonic() * KERNEL_TICKS_PER_SECOND / TICKS_PER_SECOND
