"""When no packet is being handled any more as tables and programs were a moment ago."""

from __future__ import annotations

import ctypes
import os
import platform
from typing import Final

_MEMBARRIER: Final = {"x86_64": 324, "aarch64": 283}
_MEMBARRIER_GLOBAL: Final = 1


def wait_for_packets() -> None:
    """Return when every packet that is being handled now has been: MEMBARRIER_CMD_GLOBAL waits for an RCU grace period
    (kernel/sched/membarrier.c), and XDP programs run under RCU.
    """
    number = _MEMBARRIER.get(platform.machine())
    libc = ctypes.CDLL(None, use_errno=True)
    if number is not None and not libc.syscall(number, _MEMBARRIER_GLOBAL, 0, 0):
        return
    # No such command (nohz_full): who has run on every CPU has seen each of them leave what it was handling.
    allowed = os.sched_getaffinity(0)
    for cpu in sorted(allowed):
        os.sched_setaffinity(0, {cpu})
    os.sched_setaffinity(0, allowed)
