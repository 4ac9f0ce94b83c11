"""Adverts every 10 ms while somebody else holds the lock of the host's network configuration.

Needs root: network namespaces on a bridge, two real directors; in one more, interfaces are made and removed without a
pause, `HX_INTERFACES` at a time. `nobody_ms_max` is how late a real-time process that only sleeps is woken meanwhile:
what the kernel itself costs, and nobody can better. `HX_SECONDS` changes how long.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

SECONDS = float(os.environ.get("HX_SECONDS", "20"))
INTERFACES = int(os.environ.get("HX_INTERFACES", "300"))
ONE, TWO = IPv4Address("10.8.0.1"), IPv4Address("10.8.0.2")

_STORM = """
import subprocess, sys
names = range(int(sys.argv[1]))
made = "".join(f"link add hxa{n} type veth peer name hxb{n}\\nlink set hxa{n} group 7\\n" for n in names)
while True:
    for batch in (made, "link del group 7\\n"):
        subprocess.run(["ip", "-batch", "-"], input=batch.encode())
"""
_SLEEPER = """
import os, sys, time
os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(20))
due = time.monotonic()
end, worst = due + float(sys.argv[1]), 0.0
while due < end:
    due = max(due + 0.01, time.monotonic())
    time.sleep(max(0.0, due - time.monotonic()))
    worst = max(worst, time.monotonic() - due)
print(worst * 1000)
"""


def measure() -> Iterator[dict[str, Any]]:
    """A row without the storm, and one with it."""
    from lab import Lab

    from haxlb.model.instance import Role
    from tests.netns.site import Director, configuration
    from tests.netns.standin import Ear, eventually

    with tempfile.TemporaryDirectory() as directory, Lab(f"hxrt{os.getpid()}") as lab:
        client, other = lab.host("cl", "10.8.0.10/24"), lab.host("ot", "10.8.0.11/24")
        directors = []
        for number, (name, priority) in enumerate((("lb1", 150), ("lb2", 100)), 1):
            host = lab.host(name, f"10.8.0.{number}/24", director=True)
            text = configuration(name, priority, servers=False).replace("advert_int 0.1", "advert_int 0.01")
            directors.append(Director(host, Path(directory) / name, text))
        one, two = directors
        storm: subprocess.Popen[Any] | None = None
        try:
            for each in directors:
                each.start()
            eventually(lambda: one.role() is Role.MASTER and two.role() is Role.BACKUP, "lb1 is MASTER", 120)
            with Ear(client.namespace) as ear:
                for busy in (False, True):
                    if busy:
                        storm = other.start(sys.executable, "-c", _STORM, str(INTERFACES))
                    begun_ns = time.time_ns()
                    sleeper = subprocess.run(
                        [sys.executable, "-c", _SLEEPER, str(SECONDS)], capture_output=True, text=True, check=True
                    )
                    times = [each.at_ns for each in ear.adverts_of(ONE, 150, since_ns=begun_ns)]
                    gaps = [(b - a) / 1e6 for a, b in itertools.pairwise(times)]
                    yield {
                        "interfaces": INTERFACES if busy else 0,
                        "seconds": SECONDS,
                        "gap_ms_p99": round(statistics.quantiles(gaps, n=100)[98], 1),
                        "gap_ms_max": round(max(gaps), 1),
                        "adverts_of_the_backup": len(ear.adverts_of(TWO, since_ns=begun_ns)),
                        "nobody_ms_max": round(float(sleeper.stdout), 1),
                    }
        finally:
            if storm is not None:
                storm.kill()
                storm.wait()
            for each in directors:
                each.close()
