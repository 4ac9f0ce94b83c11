"""The nice value of what others wait for. Imports nothing of ours: `haxlb run` takes it before its imports."""

from __future__ import annotations

import contextlib
import os

SUPERVISOR_NICE = -15
"""Of the supervisor: what it does for a dead speaker must not wait behind what the host computes (ADR 11)."""


def hurry(pid: int = 0) -> None:
    """Give a process that others wait for (0 = this one) the supervisor's nice value, where that is permitted."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, pid, SUPERVISOR_NICE)
