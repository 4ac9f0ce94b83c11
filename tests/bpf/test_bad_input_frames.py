"""Frames by chance through every part, all features compiled: never aborted, always counted, as the oracle says.

The number of frames is small here; HAXLB_FUZZ_FRAMES makes it any other, HAXLB_FUZZ_SEED begins elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from haxlb.forwarding import layout
from haxlb.forwarding.layout import pack_mac
from haxlb.forwarding.reference import Action, Verdict
from haxlb.forwarding.reference_related import RelatedReference
from haxlb.forwarding.reference_tunnel import deliver
from haxlb.forwarding.wanted import WantedTable
from haxlb.linux import bpf
from haxlb.linux.bpf_call import closing
from haxlb.linux.bpffs import unmount
from haxlb.linux.forwarder import Forwarder
from haxlb.linux.forwarder_build import compile_forwarder
from haxlb.linux.maps import Maps
from haxlb.linux.specimen import LOOPBACK, OWN_MAC, Specimen
from haxlb.model.virtual_server import ForwardingMethod
from tests.bpf import slow_clock
from tests.bpf.mutations import Mutations, everything, tunnelled
from tests.bpf.plane import ACTIONS, Plane
from tests.forwarding.tables import mac

pytestmark = pytest.mark.bpf

FRAMES = int(os.environ.get("HAXLB_FUZZ_FRAMES", "2000"))
SEED = int(os.environ.get("HAXLB_FUZZ_SEED", "1"))
LONGER_BY = 60
"""What the widest tunnel puts before a packet, and a tag: 40 + 12 bytes, and 4."""
TUNNELLED = {pack_mac(mac(0x100 + number)) for number in range(11, 17)}
"""Where frames go whose outer headers the oracle knows of valid packets only."""
REASONS = {
    *("new_flow", "forwarded", "unknown_flow", "hashed", "asked_peer", "local", "no_service", "malformed", "not_ip"),
    *("fragment", "later_fragment", "icmp_error", "other_protocol", "too_big"),
}
"""Without each of them the frames would prove less."""
YOUNG_S = 0.7
ASKS = {b"\x88\xb5", b"\x88\xb6"}
"""The other director's: what the kernel gets of them has its own EtherType again."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Specimen]:
    """With everything compiled, frames of several buffers included."""
    directory = tmp_path_factory.mktemp("fuzz") / "bpf" / layout.ABI
    try:
        path = asyncio.run(compile_forwarder(directory, flow_buckets_log2=17, frags=True, python=slow_clock.PYTHON))
        with (
            Maps.open(directory) as maps,
            contextlib.closing(Forwarder(directory)) as forwarder,
            closing(bpf.obj_get(Path(path))) as program,
        ):
            yield Specimen(program=program, forwarder=forwarder, maps=maps)
    finally:
        unmount(directory.parent)


def ethertypes(frame: bytes) -> set[bytes]:
    """Its own, and those behind up to two tags."""
    return {frame[at : at + 2] for at in (12, 16, 20)}


def begin(plane: Plane, wanted: WantedTable) -> float:
    """Both know nothing; returns the time that it is for the oracle from now on."""
    plane.reset()
    plane.oracle = RelatedReference({LOOPBACK: OWN_MAC})
    plane.oracle.deliveries[ForwardingMethod.TUN] = deliver
    plane.apply(wanted)
    return time.monotonic()


def test_any_frame_as_the_oracle_says(whole: Specimen) -> None:
    plane = Plane(whole)
    wanted = tunnelled()
    now_s = begin(plane, wanted)
    seen: Counter[str] = Counter()
    for number, frame in enumerate(Mutations(wanted, SEED).frames(FRAMES)):
        told: Verdict = plane.oracle.handle(frame, LOOPBACK, now_s)
        answer = plane.send(frame)
        if time.monotonic() - now_s > YOUNG_S:
            # From a second on the program renews stamps: what either clock says then decides what is compared.
            now_s = begin(plane, wanted)
            continue
        which = f"frame {number}: {frame.hex()}"
        assert answer.reason == told.reason, which
        # Of errors there are so many in a second, which the oracle does not count.
        if answer.reason != "too_big":
            assert answer.action == told.action, which
            if answer.action is not Action.DROP and answer.frame[:6] not in TUNNELLED:
                assert answer.frame == told.frame, which
        seen[answer.reason] += 1
    assert set(seen) >= REASONS


def test_any_frame_through_every_part(whole: Specimen) -> None:
    plane = Plane(whole)
    wanted = everything()
    plane.apply(wanted)
    before = plane.verdicts()
    for number, frame in enumerate(Mutations(wanted, SEED).frames(FRAMES)):
        run = bpf.prog_test_run(whole.program, frame)
        which = f"frame {number}: {frame.hex()}"
        assert run.verdict in ACTIONS, which
        assert len(run.frame) <= len(frame) + LONGER_BY, which
        if run.verdict == bpf.XDP_PASS and not ASKS.intersection(ethertypes(frame)):
            # A tunnel cuts off padding before it sees that a later fragment ends amid its headers.
            assert frame.startswith(run.frame), which
    now = plane.verdicts()
    assert sum(now.values()) - sum(before.values()) == FRAMES
    assert {name for name in now if now[name] > before[name]} >= REASONS | {"reply", "hop_limit"}
    assert {flow.backend for flow in plane.flows()} <= set(plane.forwarder._read().backends)
