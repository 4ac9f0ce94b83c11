"""Keeps the speaker on time: real-time class, locked memory, a frozen garbage collector.

Each step is worth having alone; where the capability is missing the speaker runs on without it and says so once.
Measured effects: docs/reference/speaker.md.
"""

from __future__ import annotations

import ctypes
import gc
import os
import resource

from haxlb.linux.log import Log

PRIORITY = 20
"""Of SCHED_RR (1 to 99): above every normal process, below the kernel's own threads at 50 and the watchdogs at 99."""
BFD_PRIORITY = 15
"""Of a tracker with BFD sessions: a session of 10 ms does not outlive 50 ms without the CPU; the speaker goes first."""
RUNAWAY_S = 2
"""CPU time without a blocking call after which the kernel ends the process; its VIPs go with it (supervisor)."""

# <asm-generic/mman.h>
_MCL_CURRENT = 1
_MCL_FUTURE = 2


def enter_realtime_class(log: Log, priority: int = PRIORITY) -> bool:
    """Take SCHED_RR for this process only: children (operators' scripts) start in the normal class."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(priority))
    except OSError as problem:
        log(
            "warning",
            "no_realtime_class",
            detail="timers may be late while the host is busy",
            reason=problem.strerror,
            remedy="run with CAP_SYS_NICE, or give the unit LimitRTPRIO=20",
        )
        return False
    # A loop of ours that never sleeps must not take a CPU from the machine for good (setrlimit(2), RLIMIT_RTTIME).
    _, hard = resource.getrlimit(resource.RLIMIT_RTTIME)
    resource.setrlimit(resource.RLIMIT_RTTIME, (RUNAWAY_S * 1_000_000, hard))
    return True


def leave_realtime_class() -> None:
    """Back to the normal class; no capability is needed."""
    os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))


def lock_memory(log: Log) -> bool:
    """Keep all of this process in memory, the code that runs only at take-over included."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mlockall(_MCL_CURRENT | _MCL_FUTURE):
        log(
            "warning",
            "memory_not_locked",
            detail="a host that swaps can delay adverts",
            reason=os.strerror(ctypes.get_errno()),
            remedy="run with CAP_IPC_LOCK, or give the unit LimitMEMLOCK=infinity",
        )
        return False
    return True


def freeze_collector() -> None:
    """Move all that lives now out of the collector's sight: a collection then looks at new objects only."""
    gc.collect()
    gc.freeze()
