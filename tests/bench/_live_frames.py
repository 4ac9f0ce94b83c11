"""Frames over a veth pair (BPF_F_TEST_XDP_LIVE_FRAMES): one CPU makes them, handles them, counts what comes back."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Iterator
from typing import Any

from haxlb.forwarding import layout
from haxlb.linux import bpf, xdp
from haxlb.linux.maps import possible_cpus
from haxlb.linux.specimen import OWN_MAC, features_of, specimen, table
from haxlb.model.virtual_server import Scheduler
from tests.bpf.assembly import answer, swap
from tests.bpf.frames import tcp
from tests.bpf.wire import Traffic, Wire

FRAMES = 1_000_000
MANY = 50_000
SCHEDULERS = (Scheduler.RR, Scheduler.MH)


def live_frames(rounds: int) -> Iterator[dict[str, Any]]:
    """Frames a second and core; the making and the way back are in it, as XDP_DROP and the bare XDP_TX show."""
    with Wire() as wire, contextlib.ExitStack() as stack:
        near = wire.index("near")
        targets = {
            "XDP_DROP": bpf.prog_load(answer(bpf.XDP_DROP), name="drop"),
            "MACs exchanged, XDP_TX": bpf.prog_load(swap(), name="swap"),
        }
        for scheduler in SCHEDULERS:
            loaded = stack.enter_context(
                specimen(table(scheduler, interface=near), features=features_of(scheduler), flow_buckets_log2=18)
            )
            loaded.maps.write("interfaces", layout.INDEX.pack(near), layout.pack_own_mac(OWN_MAC))
            targets[f"haxlb {scheduler.value}"] = loaded.program
        seconds: dict[tuple[str, int], list[float]] = {}
        for turn in range(-1, rounds):
            for target, program in targets.items():
                for flows in (1, MANY):
                    taken = _run(wire, program, flows, came_back=target != "XDP_DROP")
                    # The first round fills the flow table.
                    if turn >= 0:
                        seconds.setdefault((target, flows), []).append(taken)
    for (target, flows), taken_by in seconds.items():
        yield {
            "case": f"live frames, {flows} flow{'s' * (flows > 1)}",
            "program": target,
            "frames_a_second": round(FRAMES / statistics.median(taken_by)),
            "most": round(FRAMES / min(taken_by)),
            "ns": round(statistics.median(taken_by) / FRAMES * 1e9),
        }


def _run(wire: Wire, program: int, flows: int, *, came_back: bool) -> float:
    """Seconds."""
    link = wire.inside(lambda: bpf.link_create(program, wire.index("near"), flags=xdp.FLAGS_DRV_MODE))
    traffic = Traffic(wire, tcp("A").ljust(60, b"\0"), OWN_MAC, ports=flows)
    try:
        begun = time.perf_counter()
        traffic.send(FRAMES)
        taken = time.perf_counter() - begun
        back = traffic.came_back(possible_cpus())
        assert back >= FRAMES * 0.99 if came_back else back == 0, f"{back} of {FRAMES} frames came back"
    finally:
        traffic.close()
        os.close(link)
    return taken
