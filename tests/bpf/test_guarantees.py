"""Promises about live flows (DESIGN section 6): who writes the maps, and when packets see what was written.

With 100,000 flows: test_many_flows.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from haxlb.forwarding import layout
from haxlb.forwarding.features import Features
from haxlb.forwarding.steps import Plan, Write
from haxlb.forwarding.wanted import WantedServer
from haxlb.linux import bpf
from haxlb.linux.bpf_call import closing
from haxlb.linux.bpffs import unmount
from haxlb.linux.forwarder import Forwarder
from haxlb.linux.forwarder_build import compile_forwarder
from haxlb.linux.specimen import LOOPBACK, OWN_MAC
from haxlb.model.virtual_server import Scheduler
from tests.bpf.conftest import Crowd
from tests.bpf.frames import Stamp, client, tcp, udp
from tests.bpf.multitude import open_flows, reached
from tests.bpf.plane import Plane
from tests.forwarding.tables import DNS, mac, server, table

pytestmark = pytest.mark.bpf

FLOWS = 2_000
CHANGES = 150
NEEDED = replace(Features.parse("none"), stateless=True, stateful=True, list=True)
SYN, ACK, UDP = Stamp(tcp("S")), Stamp(tcp("A")), Stamp(udp())


def test_flows_keep_their_servers_when_the_writer_of_the_maps_starts_anew(plane: Plane) -> None:
    """The checker died, and the configuration changed meanwhile: indices are read back from the maps."""
    plane.apply(table(*(server(number) for number in (3, 4, 5))))
    before = open_flows(plane.program, range(FLOWS))
    with contextlib.closing(Forwarder(plane.forwarder._directory)) as successor:
        successor.apply(table(*(server(number) for number in (1, 2, 4, 5))))
        after = reached(plane.program, before)
        assert {before[flow] for flow in before if before[flow] != after[flow]} == {0x103}
        successor.apply(table(*(server(number) for number in (1, 2, 3, 4, 5))))
        assert reached(plane.program, before) == after


def test_a_server_is_dead_to_packets_before_the_ring_without_it_is_written(plane: Plane) -> None:
    """A ring of a thousand servers takes tens of milliseconds; the flows of a dead one move at once."""
    servers = list(map(server, range(1, 1001)))
    moved = []

    class Watched(Forwarder):
        def _carry_out(self, planned: Plan) -> None:
            moved.append(plane.server(ACK.of(*client(1))))
            super()._carry_out(planned)

    with contextlib.closing(Watched(plane.forwarder._directory)) as forwarder:
        forwarder.apply(table(*servers, scheduler=Scheduler.MH))
        moved.clear()
        former = plane.server(SYN.of(*client(1)))
        dead = next(each for each in servers if each.next_hop.destination_mac == former)
        servers[servers.index(dead)] = replace(dead, alive=False)
        forwarder.apply(table(*servers, scheduler=Scheduler.MH))
        # Before the deaths, and before all the rest.
        then, now = moved
        assert then == former
        assert now not in (former, "drop")
        assert plane.server(ACK.of(*client(1))) == now


@pytest.mark.parametrize("weights", [(1, 1, 1), (0, 0, 0)])
@pytest.mark.parametrize("scheduler", [each for each in Scheduler if not each.hashes])
def test_a_scheduler_that_compares_meets_no_flow_of_before(
    plane: Plane, scheduler: Scheduler, weights: tuple[int, ...]
) -> None:
    """UDP does not say what begins a flow: what nobody knows is new to a scheduler."""
    servers = [server(number) for number in (1, 2, 3)]
    seen: list[list[str]] = []

    def look() -> list[str]:
        return [plane.server(UDP.of(*client(number))) for number in range(40)]

    class Watched(Forwarder):
        """Flows come when all is prepared, and not before."""

        def _carry_out(self, planned: Plan) -> None:
            for phase in planned.phases:
                super()._carry_out(Plan(phases=(phase,)))
                if any(isinstance(step, Write) and step.map == "services" for step in phase.steps):
                    seen.append(look())

    with contextlib.closing(Watched(plane.forwarder._directory)) as forwarder:
        forwarder.apply(table(*servers, scheduler=Scheduler.MH, endpoint=DNS))
        before = look()
        seen.clear()
        then = (replace(each, weight=weight) for each, weight in zip(servers, weights, strict=True))
        forwarder.apply(table(*then, scheduler=scheduler, endpoint=DNS))
        assert seen
        assert all(each == before for each in seen)
        assert look() == before


@pytest.mark.parametrize("servers", [[server(1)], [server(1), server(2), server(3)]])
def test_a_threshold_meets_no_flow_of_before(plane: Plane, servers: list[WantedServer]) -> None:
    """A service that ceases to be stateless has its flows on no record, and its servers may be full of them."""
    limited = table(*(replace(each, upper_threshold=3) for each in servers), scheduler=Scheduler.MH)
    seen: list[list[str]] = []

    def look() -> list[str]:
        return [plane.server(ACK.of(*client(number))) for number in range(40)]

    class Watched(Forwarder):
        """Flows come when what is known of all servers was written, and not before."""

        def _carry_out(self, planned: Plan) -> None:
            for phase in planned.phases:
                super()._carry_out(Plan(phases=(phase,)))
                if any(isinstance(step, Write) and step.map == "backends" for step in phase.steps):
                    seen.append(look())

    with contextlib.closing(Watched(plane.forwarder._directory)) as forwarder:
        forwarder.apply(table(*servers, scheduler=Scheduler.MH))
        before = look()
        seen.clear()
        forwarder.apply(limited)
        assert seen
        assert all(each == before for each in seen)
        assert look() == before
        assert plane.server(SYN.of(*client(1000))) == "drop", "the threshold is in force"


def test_a_pool_that_never_rests_moves_no_flow_of_the_servers_that_stay(tmp_path: Path) -> None:
    """Room for eleven servers, of which nine are exchanged all the time, by and by or all at once."""
    directory = tmp_path / "bpf" / layout.ABI
    path = asyncio.run(compile_forwarder(directory, backends=12, features=NEEDED))
    chance = random.Random(5)
    # ovf leaves a flow without a server rather than overload one.
    schedulers = [each for each in Scheduler if each is not Scheduler.OVF]
    with contextlib.ExitStack() as stack:
        stack.callback(unmount, directory.parent)
        forwarder = stack.enter_context(contextlib.closing(Forwarder(directory)))
        forwarder._maps.write("interfaces", layout.INDEX.pack(LOOPBACK), layout.pack_own_mac(OWN_MAC))
        program = stack.enter_context(closing(bpf.obj_get(Path(path))))

        def place(frame: bytes) -> bytes:
            run = bpf.prog_test_run(program, frame)
            assert run.verdict == bpf.XDP_TX
            return run.frame[:6]

        stay, others = [server(1), server(2)], list(map(server, range(3, 12)))
        forwarder.apply(table(*stay, *others))
        kept = {bytes.fromhex(mac(0x101).replace(":", "")), bytes.fromhex(mac(0x102).replace(":", ""))}
        flows = {number: place(SYN.of(*client(number))) for number in range(1100)}
        assert len(set(flows.values())) == 11
        for turn in range(CHANGES):
            many = chance.choice([1, 1, 1, 2, 9])
            newcomers = [server(number) for number in chance.sample(range(12, 60000), many)]
            others = chance.sample(others, 9 - many) + newcomers
            forwarder.apply(table(*stay, *others, scheduler=chance.choice(schedulers)))
            if turn % 10 == 0:
                live = {bytes.fromhex(each.next_hop.destination_mac.replace(":", "")) for each in (*stay, *others)}
                for number, former in flows.items():
                    flows[number] = place(ACK.of(*client(number)))
                    assert flows[number] in live
                    assert flows[number] == former or former not in kept
                assert {place(SYN.of(*client(5000 + turn * 40 + number))) for number in range(40)} <= live


def test_new_flows_are_shared_as_the_weights_say_while_the_pool_changes(plane: Plane) -> None:
    plane.apply(table(server(1, weight=3), server(2, weight=1), scheduler=Scheduler.WRR))
    shares = Counter(open_flows(plane.program, range(400)).values())
    assert shares == {0x101: 300, 0x102: 100}
    plane.apply(table(server(1, weight=3), server(2, weight=1), server(3, weight=4), scheduler=Scheduler.WRR))
    shares = Counter(open_flows(plane.program, range(400, 800)).values())
    assert shares == {0x101: 150, 0x102: 50, 0x103: 200}


@pytest.mark.parametrize("scheduler", [Scheduler.RR, Scheduler.MH])
def test_no_packet_finds_an_empty_slot_while_rings_are_exchanged(
    plane: Plane, crowd: Crowd, scheduler: Scheduler
) -> None:
    """Parts of the pool in turn, as fast as it goes, under millions of packets that all look into the ring.

    That a flow has no room makes each of its packets look. A test run hands the frame back to the program as it left
    it: servers are reached by our own MAC, so that it is ours again, and by another interface, so that they are not
    taken for this host.
    """
    looping = {"destination_mac": OWN_MAC, "source_mac": mac(7), "interface_index": 7}
    pools = [
        table(*(server(number, **looping) for number in numbers), scheduler=scheduler)
        for numbers in [(1, 2, 3), (4, 5), (1,), (2, 3, 4, 5, 6, 7)]
    ]
    plane.apply(pools[0])
    *settled, late = crowd(9)
    for each in settled:
        plane.server(tcp("S", **each))
        plane.server(tcp("A", **each))
    before = plane.verdicts()
    enough = sum(before.values()) + 1_000_000
    stop = threading.Event()

    def send() -> None:
        while not stop.is_set():
            bpf.prog_test_run(plane.program, tcp("S", **late), repeat=100_000)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        turn, deadline = 0, time.monotonic() + 200
        # However little of the CPU the sender gets meanwhile.
        while turn < 120 or (sum(plane.verdicts().values()) < enough and time.monotonic() < deadline):
            plane.forwarder.apply(pools[turn % len(pools)])
            turn += 1
    finally:
        stop.set()
        sender.join()
    looked = {name: count - before[name] for name, count in plane.verdicts().items() if count != before[name]}
    # Of a ring it is an exception or not, as its slot is: what counts is that it is never without a server.
    assert set(looked) <= ({"table_full", "hashed", "new_flow", "forwarded"} if scheduler.hashes else {"table_full"})
    assert sum(looked.values()) >= 1_000_000
