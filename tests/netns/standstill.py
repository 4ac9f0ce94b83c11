"""How long the machine itself stood still: `python standstill.py CPU` until stdin ends.

On a virtual machine whose host gives the CPU to another one, nobody runs; and speakers of other tests, in the same
real-time class, take turns. What wakes up each few milliseconds in that class is late only then, or while the kernel
lets no process run at all. Prints a line when it has begun, and the longest lateness in ms in the end.
"""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from haxlb.linux.realtime import PRIORITY

EVERY_S = 0.005


def watch(cpu: int) -> float:
    """The longest lateness on this CPU, in ms, until stdin ends."""
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    print(flush=True)
    longest = 0.0
    due = time.monotonic() + EVERY_S
    while not select.select([sys.stdin], [], [], max(0.0, due - time.monotonic()))[0]:
        now = time.monotonic()
        longest = max(longest, now - due)
        due = now + EVERY_S
    return longest * 1000


class Standstill:
    """Watches all CPUs while a block runs."""

    longest_ms = 0.0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        argv = (sys.executable, str(Path(__file__)))
        watchers = [
            subprocess.Popen([*argv, str(cpu)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for cpu in os.sched_getaffinity(0)
        ]
        try:
            for each in watchers:
                assert each.stdout is not None
                each.stdout.readline()
            yield
        finally:
            said = [each.communicate()[0] for each in watchers]
        self.longest_ms = max(float(each) for each in said)


if __name__ == "__main__":
    print(watch(int(sys.argv[1])))
