"""How soon a dead BFD neighbour is noticed, what a loaded machine does to a 10 ms session, and what sessions cost.

Needs root: two network namespaces on a bridge, a tracker process in each; keepalived in the same place for comparison.
Times are the kernel's stamps of packets on the wire.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haxlb.bfd.packet import Diagnostic, State, decode
from haxlb.daemon.messages import ConfigureTracker
from haxlb.model.tracking import BfdSession

if TYPE_CHECKING:
    from lab import Host

    from tests.netns.standin import Ear, Heard

ONE, TWO = "10.9.0.1", "10.9.0.2"
INTERVAL_US = 10_000
MULTIPLIER = 5
KILLS = 20
HOGS = 4
SOAK_S = 20.0
SESSIONS = 50
COST_S = 10.0


def measure() -> Iterator[dict[str, Any]]:
    """One row each."""
    from lab import Lab

    from tests.netns.standin import Ear

    with Lab(f"hxbfdb{os.getpid()}") as lab, ExitStack() as stack:
        one, two = (lab.host(f"d{number}", f"10.9.0.{number}/24") for number in (1, 2))
        for number in range(SESSIONS):
            one.run("ip", "address", "add", f"10.9.1.{number}/16", "dev", "eth0")
            two.run("ip", "address", "add", f"10.9.2.{number}/16", "dev", "eth0")
        ear = stack.enter_context(Ear(one.namespace))
        yield {"bench": "bfd.detect", "who": "haxlb", **_detect(asyncio.run(_kills(one, two, ear)))}
        yield {"bench": "bfd.detect", "who": "keepalived", **_detect(asyncio.run(_kills(one, two, ear, _keepalived)))}
        yield {"bench": "bfd.soak", **asyncio.run(_soak(one, two, ear))}
        yield {"bench": "bfd.cost", **asyncio.run(_cost(one, two))}


def _sessions(own: str, other: str) -> ConfigureTracker:
    return ConfigureTracker(bfd_sessions=(_session("s", own, other),))


def _session(name: str, own: str, other: str) -> BfdSession:
    return BfdSession(
        name=name,
        neighbor=other,
        source=own,
        min_rx_us=INTERVAL_US,
        min_tx_us=INTERVAL_US,
        multiplier=MULTIPLIER,
    )


def _packets(ear: Ear, source: str, since_ns: int) -> list[Heard]:
    return [
        each
        for each in list(ear._frames)
        if each.at_ns >= since_ns and each.frame[23:24] == b"\x11" and str(each.source) == source
    ]


async def _kills(one: Host, two: Host, ear: Ear, observer: Any = None) -> list[float]:
    """From the last packet of the killed one to the Down of the other one, ms."""
    from tests.netns.bfd_hosts import TrackerHandle, until

    times = []
    stop = None
    if observer is not None:
        stop = observer(one)
    else:
        watching = TrackerHandle(one)
        await watching.configure(_sessions(ONE, TWO))
    for _ in range(KILLS):
        begin = time.time_ns()
        async with TrackerHandle(two) as victim:
            await victim.configure(_sessions(TWO, ONE))
            await until(lambda: victim.values("s")[-1] == 1, "Up")
            await asyncio.sleep(1.0)
            victim.process.kill()
            await asyncio.sleep(0.3)
        last = _packets(ear, TWO, begin)[-1].at_ns
        downs = [
            each.at_ns
            for each in _packets(ear, ONE, last)
            if (packet := decode(each.frame[42:])).state is State.DOWN
            and packet.diagnostic == Diagnostic.DETECTION_TIME_EXPIRED
        ]
        times.append((downs[0] - last) / 1e6)
    if stop is not None:
        stop()
    else:
        async with watching:
            watching.process.terminate()
    return times


def _detect(times: list[float]) -> dict[str, Any]:
    return {
        "kills": len(times),
        "theory_ms": INTERVAL_US * MULTIPLIER / 1000,
        "median_ms": round(statistics.median(times), 2),
        "worst_ms": round(max(times), 2),
    }


def _keepalived(host: Host) -> Any:
    directory = Path(tempfile.mkdtemp(prefix="hxbfdb"))
    conf = directory / "conf"
    conf.write_text(
        f"bfd_instance s {{\n neighbor_ip {TWO}\n source_ip {ONE}\n"
        f" min_rx 10\n min_tx 10\n multiplier {MULTIPLIER}\n}}\n"
        "vrrp_instance V {\n interface eth0\n virtual_router_id 9\n virtual_ipaddress {\n 10.9.9.9/32\n }\n"
        " track_bfd {\n s\n }\n}\n"
    )
    process = host.start(
        *("keepalived", "--dont-fork", "--log-console", "--no-syslog", "-f", str(conf)),
        *(word for each in "prcb" for word in (f"-{each}", str(directory / each))),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def stop() -> None:
        process.terminate()
        process.wait(timeout=20)
        for each in directory.iterdir():
            each.unlink()
        directory.rmdir()

    return stop


async def _soak(one: Host, two: Host, ear: Ear) -> dict[str, Any]:
    """Two trackers, and more processes that want the CPU than there are CPUs."""
    from tests.netns.bfd_hosts import TrackerHandle, until

    async with TrackerHandle(one) as first, TrackerHandle(two) as second:
        await first.configure(_sessions(ONE, TWO))
        await second.configure(_sessions(TWO, ONE))
        await until(lambda: first.values("s")[-1] == second.values("s")[-1] == 1, "Up")
        await asyncio.sleep(1.0)
        begin = time.time_ns()
        with _hogs():
            await asyncio.sleep(SOAK_S)
        end = time.time_ns()
        stamps = {
            source: [each.at_ns for each in _packets(ear, source, begin) if each.at_ns < end] for source in (ONE, TWO)
        }
        gaps = [(later - earlier) / 1e6 for times in stamps.values() for earlier, later in itertools.pairwise(times)]
        flaps = first.values("s").count(0) + second.values("s").count(0)
        for each in (first, second):
            each.process.terminate()
        return {
            "hogs": HOGS,
            "seconds": SOAK_S,
            "packets": sum(len(each) for each in stamps.values()),
            "interval_ms": INTERVAL_US / 1000,
            "p99_gap_ms": round(sorted(gaps)[len(gaps) * 99 // 100], 2),
            "max_gap_ms": round(max(gaps), 2),
            "spurious_downs": flaps,
        }


@contextlib.contextmanager
def _hogs() -> Iterator[None]:
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(HOGS)]
    try:
        yield
    finally:
        for each in running:
            each.kill()
            each.wait()


async def _cost(one: Host, two: Host) -> dict[str, Any]:
    """CPU time and memory of a tracker with many sessions of 10 ms."""
    from tests.netns.bfd_hosts import TrackerHandle, until

    ends = [(f"s{number}", f"10.9.1.{number}", f"10.9.2.{number}") for number in range(SESSIONS)]
    async with TrackerHandle(one) as first, TrackerHandle(two) as second:
        await first.configure(ConfigureTracker(bfd_sessions=tuple(_session(*each) for each in ends)))
        await second.configure(ConfigureTracker(bfd_sessions=tuple(_session(n, b, a) for n, a, b in ends)))
        await until(lambda: all(first.values(name)[-1] == 1 for name, _, _ in ends), "all Up")
        await asyncio.sleep(1.0)
        before = _cpu_s(first.process.pid)
        await asyncio.sleep(COST_S)
        spent = _cpu_s(first.process.pid) - before
        downs = sum(first.values(name).count(0) for name, _, _ in ends)
        rss_mb = _rss_mb(first.process.pid)
        for each in (first, second):
            each.process.terminate()
    return {
        "sessions": SESSIONS,
        "interval_ms": INTERVAL_US / 1000,
        "cpu_s_per_minute": round(spent * 60 / COST_S, 1),
        "cpu_us_per_session_second": round(spent / COST_S / SESSIONS * 1e6),
        "rss_mb": round(rss_mb, 1),
        "spurious_downs": downs,
    }


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _rss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
