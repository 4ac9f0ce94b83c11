"""SIGKILL of the speaker of the MASTER, while a client pings the VIP every millisecond and four programs hog the CPUs.

Needs root: three network namespaces on a bridge. Two real directors, version 3 at 100 ms; a row for each way to begin:
with a spare, without, and with one at 10 ms. `HX_KILLS`, `HX_HOGS` change how often and how busy.
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

KILLS = int(os.environ.get("HX_KILLS", "20"))
HOGS = int(os.environ.get("HX_HOGS", "4"))
LIMIT_MS = 100
VIP = IPv4Address("10.8.0.100")
STEADY_S = 10.5
"""A speaker that lives less is not replaced at once the next time."""


def measure() -> Iterator[dict[str, Any]]:
    """One row per way."""
    for interval, spare in (("0.1", True), ("0.01", True), ("1", True), ("0.1", False)):
        yield _measure(interval, spare=spare)


def _measure(interval: str, *, spare: bool) -> dict[str, Any]:
    from lab import Lab

    from haxlb.model.instance import Role
    from tests.netns.site import Director, configuration
    from tests.netns.standin import Ear, eventually

    gaps: list[float] = []
    words: list[float] = []
    lost: list[int] = []
    takeovers = resigned = 0
    with tempfile.TemporaryDirectory() as directory, Lab(f"hxks{os.getpid()}") as lab:
        client = lab.host("cl", "10.8.0.10/24")
        directors = []
        for number, (name, priority) in enumerate((("lb1", 150), ("lb2", 100)), 1):
            host = lab.host(name, f"10.8.0.{number}/24", director=True)
            text = configuration(name, priority, servers=False).replace("advert_int 0.1", f"advert_int {interval}")
            settings = f"processes:\n  spare_speaker: {str(spare).lower()}\n"
            directors.append(Director(host, Path(directory) / name, text, settings=settings).start())
        one, two = directors
        changes = Path(directory) / "changes"
        with changes.open("w") as log:
            one.host.start("ip", "-o", "monitor", "address", stdout=log)

        def settled() -> bool:
            return one.role() is Role.MASTER and two.role() is Role.BACKUP

        def has_spare() -> bool:
            status = one.status()
            return status is not None and any(e.name == "spare" and not e.problem for e in status.processes)

        with Ear(client.namespace) as ear:
            hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(HOGS)]
            try:
                eventually(settled, "lb1 is MASTER", 60)
                for _ in range(KILLS):
                    if spare:
                        eventually(has_spare, "a spare stands by", 60)
                    time.sleep(STEADY_S)
                    pid = one.pid("speaker")
                    ping = client.start(
                        "ping",
                        "-q",
                        "-i",
                        "0.001",
                        "-c",
                        "1500",
                        "-W",
                        "1",
                        str(VIP),
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                    time.sleep(0.5)
                    killed_ns = time.time_ns()
                    os.kill(pid, signal.SIGKILL)
                    said, _ = ping.communicate(timeout=30)
                    times = sorted(each.at_ns for each in ear.adverts(killed_ns - 2_000_000_000) if each.priority)
                    gaps.append(max((b - a) / 1e6 for a, b in itertools.pairwise(times)))
                    first = min(each.at_ns for each in ear.adverts_of(IPv4Address("10.8.0.1"), since_ns=killed_ns))
                    words.append((first - killed_ns) / 1e6)
                    lost.append(_lost(said))
                    foreign = [e for e in ear.adverts(killed_ns) if e.source != IPv4Address("10.8.0.1")]
                    takeovers += bool(foreign)
                    resigned += any(not e.priority for e in ear.adverts(killed_ns))
                    eventually(settled, "lb1 is MASTER again", 60)
                removals = changes.read_text().count("Deleted ")
            finally:
                for hog in hogs:
                    hog.kill()
                    hog.wait()
                for director in directors:
                    director.close()
    return {
        "advert_int_s": float(interval),
        "spare": spare,
        "kills": KILLS,
        "hogs": HOGS,
        "longest_gap_of_adverts_ms_median": round(statistics.median(gaps), 1),
        "longest_gap_of_adverts_ms_worst": round(max(gaps), 1),
        "first_word_in_its_stead_ms_median": round(statistics.median(words), 1),
        "first_word_in_its_stead_ms_worst": round(max(words), 1),
        "pings_lost_median": statistics.median(lost),
        "pings_lost_worst": max(lost),
        "vip_removals": removals,
        "takeovers_by_the_peer": takeovers,
        "bequests": resigned,
        "limit_ms": LIMIT_MS,
    }


def _lost(said: str) -> int:
    words = said.rsplit("---", maxsplit=1)[-1].split()
    return int(words[0]) - int(words[3])
