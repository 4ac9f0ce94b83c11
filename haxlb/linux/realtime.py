"""Keeps the speaker on time: real-time class, locked memory, a frozen garbage collector.

Each step is worth having alone; where the capability is missing the speaker runs on without it and says so once.
Measured effects: docs/reference/speaker.md.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource

from haxlb.linux.log import Log
from haxlb.model.settings import CheckerSettings, SpeakerSettings

PRIORITY = 20
"""Of SCHED_RR (1 to 99): above every normal process, below the kernel's own threads at 50 and the watchdogs at 99."""
BFD_PRIORITY = 15
"""Of a tracker with BFD sessions: a session of 10 ms does not outlive 50 ms without the CPU; the speaker goes first."""
RUNAWAY_S = 2
"""CPU time without a blocking call after which the kernel ends the process; its VIPs go with it (supervisor)."""

# <asm-generic/mman.h>
_MCL_CURRENT = 1
_MCL_FUTURE = 2
# <malloc.h>
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4

Settings = SpeakerSettings | CheckerSettings


class Scheduling:
    """How this process runs, as the configuration says; what cannot be had is logged once."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._settings: Settings | None = None

    def apply(self, settings: Settings) -> None:
        """Class, priority, memory, CPUs and the limit of a runaway; what is as before is not touched."""
        before, self._settings = self._settings, settings
        if before is None or before.lock_memory != settings.lock_memory:
            if settings.lock_memory:
                lock_memory(self._log)
            elif before is not None:
                unlock_memory()
        if settings.cpus != (() if before is None else before.cpus):
            choose_cpus(self._log, settings.cpus)
        # Last: locking memory takes 50 ms, in which a spare must not have the priority of the speaker beside it.
        if before is None or _class_of(before) != _class_of(settings):
            if settings.realtime_priority:
                enter_realtime_class(self._log, settings.realtime_priority, runaway_us=settings.runaway_us)
            else:
                leave_realtime_class()
                set_nice(self._log, settings.nice)


def _class_of(settings: Settings) -> tuple[int, int, int]:
    return settings.realtime_priority, settings.nice, settings.runaway_us


def enter_realtime_class(log: Log, priority: int = PRIORITY, *, runaway_us: int = RUNAWAY_S * 1_000_000) -> bool:
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
    limit = runaway_us if hard == resource.RLIM_INFINITY else min(runaway_us, hard)
    resource.setrlimit(resource.RLIMIT_RTTIME, (limit, hard))
    return True


def follow(thread: int, who: int = 0) -> None:
    """Give a thread (0 = the calling one) the scheduling class of another one.

    In a lower one it could lose the CPU while it holds the interpreter, and with it the thread that is in a hurry.
    """
    policy, parameters = os.sched_getscheduler(thread), os.sched_getparam(thread)
    if (os.sched_getscheduler(who), os.sched_getparam(who).sched_priority) != (policy, parameters.sched_priority):
        with contextlib.suppress(PermissionError):  # then neither has the other one got it for long
            os.sched_setscheduler(who, policy, parameters)


def leave_realtime_class() -> None:
    """Back to the normal class; no capability is needed."""
    os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))


def set_nice(log: Log, nice: int) -> bool:
    """Take this nice value (-20 to 19) for this process only: its children start with 0 unless that is lower."""
    # SCHED_RESET_ON_FORK resets a negative nice value, too (sched(7)); it stays set, and needs no capability.
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    except OSError as problem:
        log(
            "warning",
            "no_priority",
            detail=f"cannot run with nice {nice}",
            reason=problem.strerror,
            remedy="run with CAP_SYS_NICE, or give the unit LimitNICE=-20",
        )
        return False
    return True


def choose_cpus(log: Log, cpus: tuple[int, ...]) -> bool:
    """Run on these CPUs only; empty = on all that there are."""
    try:
        os.sched_setaffinity(0, cpus or range(os.cpu_count() or 1))
    except (OSError, ValueError, OverflowError) as problem:
        log(
            "warning",
            "no_cpu_affinity",
            detail=f"cannot run on CPU {', '.join(map(str, cpus))} only",
            reason=str(problem),
            remedy="name CPUs that this host has, and that the unit's AllowedCPUs= leaves",
        )
        return False
    return True


def lock_memory(log: Log) -> bool:
    """Keep all of this process in memory, the code that runs only at take-over included.

    And what it has once got from the kernel: glibc takes a piece of 128 KiB or more from the kernel each time and gives
    it back, and where memory is locked every page of it is there, and cleared, before it can be used: 0.1 ms for the
    buffer of each answer of netlink.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "mallopt"):  # musl has none
        libc.mallopt(_M_MMAP_MAX, 0)
        libc.mallopt(_M_TRIM_THRESHOLD, -1)
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


def unlock_memory() -> None:
    """Let the kernel swap this process again."""
    ctypes.CDLL(None).munlockall()


def freeze_collector() -> None:
    """Move all that lives now out of the collector's sight: a collection then looks at new objects only."""
    gc.collect()
    gc.freeze()
