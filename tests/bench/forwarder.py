"""Nanoseconds a packet, by BPF_PROG_TEST_RUN: the floor, and the forwarder in its main cases.

The kernel reports whole nanoseconds of the mean of many runs; a case is measured several times, in turn with the
others, and its median and minimum are given. `over_floor` is the ratio of minima, harness included.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from haxlb.forwarding.layout import pack_mac
from haxlb.linux import bpf
from haxlb.linux.bpffs import ensure_bpffs, unmount
from haxlb.linux.specimen import OWN_MAC, pinned, specimen, table
from haxlb.model.node import Scheduler
from tests.bpf.assembly import answer, relay
from tests.bpf.frames import CLIENT_MAC, tcp, udp

ROUNDS, REPEAT, WARM_UP = 7, 400_000, 200_000
MAP_TYPE_PROG_ARRAY = 3
YARDSTICK = Path(__file__).parents[3] / "shared" / "bench" / "run.sh"
YARDSTICK_LINE = re.compile(r"^(\S+) +(\S.*?) {2,}([\d.]+) +([\d.]+) +[\d.]+ +(\w+) ")


@dataclass
class Case:
    name: str
    program: int
    frame: bytes
    verdict: int
    clients: int = 1
    ns: list[int] = field(default_factory=list)
    harness: int = -1

    def prepare(self) -> None:
        # The kernel empties the array when its last descriptor is closed: it stays open.
        jumps = bpf.map_create(MAP_TYPE_PROG_ARRAY, 4, 4, 1, name="jumps")
        bpf.map_update(jumps, bytes(4), self.program.to_bytes(4, "little"))
        macs = pack_mac(OWN_MAC) + pack_mac(CLIENT_MAC)
        self.harness = bpf.prog_load(relay(jumps, macs, clients=self.clients), name="relay")
        self.run(WARM_UP)

    def run(self, repeat: int = REPEAT) -> None:
        done = bpf.prog_test_run(self.harness, self.frame.ljust(60, b"\0"), repeat=repeat)
        assert done.verdict == self.verdict, f"{self.name}: verdict {done.verdict}"
        if repeat == REPEAT:
            self.ns.append(done.nanoseconds)


def measure() -> Iterator[dict[str, Any]]:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    yield from _cases()
    if YARDSTICK.exists():
        yield from _against_the_yardstick()


def _cases() -> Iterator[dict[str, Any]]:
    drop = bpf.prog_load(answer(bpf.XDP_DROP), name="floor")
    with specimen(table(Scheduler.RR)) as loaded:
        ours = loaded.program
        cases = [
            Case("floor: XDP_DROP", drop, tcp("A"), bpf.XDP_DROP),
            Case("floor: XDP_DROP, 64k flows", drop, tcp("A"), bpf.XDP_DROP, clients=1 << 16),
            Case("hit, 1 flow", ours, tcp("A"), bpf.XDP_TX),
            Case("hit, 1k flows", ours, tcp("A"), bpf.XDP_TX, clients=1 << 10),
            Case("hit, 64k flows", ours, tcp("A"), bpf.XDP_TX, clients=1 << 16),
            Case("UDP hit, 1 flow", ours, udp(), bpf.XDP_TX),
            Case("SYN of a new flow", ours, tcp("S"), bpf.XDP_TX, clients=0),
            Case("not a service's", ours, tcp("A", vip="10.99.99.99"), bpf.XDP_PASS),
        ]
        for case in cases:
            case.prepare()
        for _ in range(ROUNDS):
            for case in cases:
                case.run()
    floor = min(cases[0].ns)
    for case in cases:
        yield {
            "case": case.name,
            "ns": statistics.median(case.ns),
            "min_ns": min(case.ns),
            "over_floor": round(min(case.ns) / floor, 2),
        }


def _against_the_yardstick() -> Iterator[dict[str, Any]]:
    """Beside the yardstick, in its own harness."""
    with tempfile.TemporaryDirectory(prefix="haxlb-") as folder, specimen(table(Scheduler.RR)) as loaded:
        ensure_bpffs(Path(folder))
        try:
            with pinned(loaded.program, Path(folder) / "haxlb"):
                command = [YARDSTICK, "--rounds", "7", "--repeat", "300000", "--only", "yardstick"]
                done = subprocess.run(
                    [*command, "--pin", f"haxlb={folder}/haxlb"], capture_output=True, text=True, check=False
                )
        finally:
            unmount(Path(folder))
    if done.returncode:
        yield {"case": "yardstick", "problem": (done.stderr or done.stdout).strip().splitlines()[-1:]}
        return
    figures: dict[str, dict[str, tuple[float, float]]] = {}
    for line in done.stdout.splitlines():
        if found := YARDSTICK_LINE.match(line):
            target, case, median, least, _ = found.groups()
            figures.setdefault(case.split(" + ")[0], {})[target] = (float(median), float(least))
    for case, by_target in figures.items():
        if "haxlb" not in by_target or len(by_target) == 1:
            continue
        ours, least = by_target.pop("haxlb")
        for target, (median, yardstick_least) in by_target.items():
            yield {
                "case": f"{case}, beside {target}",
                "ns": ours,
                "yardstick_ns": median,
                "over_yardstick": round(ours / median, 2),
                "over_yardstick_min": round(least / yardstick_least, 2),
            }
