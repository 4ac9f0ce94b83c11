"""The overflow: a bucket notes that flows of it are there, until a sweep sees that none is any more."""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Iterator
from itertools import islice

import pytest

from haxlb.forwarding.flows import SPILLED
from haxlb.forwarding.hashing import flow_hash, wide_flow_hash
from haxlb.forwarding.wanted import WantedTable
from haxlb.linux.sweeper import Sweeper
from haxlb.model.addresses import Endpoint, IPv4Address, Protocol
from tests.bpf.books import counted, entries, loads
from tests.bpf.conftest import Crowd
from tests.bpf.frames import tcp
from tests.bpf.plane import FLOW_TABLES, Plane
from tests.forwarding.tables import VIP, server, service

pytestmark = [pytest.mark.bpf, pytest.mark.timeout(900)]

ROUNDS = 3000


@contextlib.contextmanager
def sweeping(plane: Plane) -> Iterator[Sweeper]:
    with contextlib.closing(Sweeper()) as sweeper:
        sweeper.use(plane.forwarder._directory)
        yield sweeper


def sweep(sweeper: Sweeper) -> None:
    for _ in range(sweeper.begin(counting=False)):
        sweeper.sweep()


def notes(plane: Plane, table: str = "flows") -> int:
    """Buckets that say so."""
    with plane.table(table) as flows:
        return sum(octet & SPILLED != 0 for octet in flows[11 :: FLOW_TABLES[table]])


def establish(plane: Plane, one: dict[str, object]) -> str:
    reached = plane.server(tcp("S", **one))
    assert plane.server(tcp("A", **one)) == reached
    return reached


def empty(plane: Plane, table: str) -> None:
    """As when all in there have ended."""
    with plane.table(table) as flows:
        flows[:] = bytes(len(flows))


def test_a_bucket_notes_that_a_flow_of_it_is_in_the_overflow(plane: Plane, crowd: Crowd) -> None:
    plane.apply(WantedTable(services=(service(*map(server, range(1, 6))),)))
    *first, late = crowd(5)
    for one in first:
        establish(plane, one)
    assert notes(plane) == 0
    reached = establish(plane, late)
    assert notes(plane) == 1
    with sweeping(plane) as sweeper:
        sweep(sweeper)
        assert notes(plane) == 1
        # All others end and are swept: the note outlives the flow beside which it stands.
        for one in first:
            plane.server(tcp("R", **one))
        plane.age(600)
        plane.server(tcp("A", **late))
        sweep(sweeper)
        assert {flow.source_port for flow in entries(plane, *FLOW_TABLES)} == {late["port"]}
        assert notes(plane) == 1
        assert plane.server(tcp("A", **late)) == reached
        plane.age(1000)
        sweep(sweeper)
        assert notes(plane) == 1  # it has gone after its bucket was looked at
        sweep(sweeper)
    assert notes(plane) == 0
    assert not any(entries(plane, *FLOW_TABLES))
    assert not loads(plane)


def test_another_flow_of_the_same_bucket_of_the_overflow_leaves_no_note(plane: Plane, crowd: Crowd, seed: int) -> None:
    plane.apply(WantedTable(services=(service(*map(server, range(1, 6))),)))
    clients = crowd(5)
    for one in clients:
        establish(plane, one)
    with plane.table("overflow") as flows:
        at = next(at for at in range(0, len(flows), 16) if any(flows[at : at + 8]))
        # One whose own bucket is another one. There are eight of them for each of the overflow.
        (key,) = struct.unpack_from("=Q", flows, at)
        late, mask = clients[-1], plane.maps.sizes.flow_buckets - 1
        source = int(IPv4Address(str(late["source"])))
        home, *others = (
            flow_hash(IPv4Address(source ^ number << 24), int(str(late["port"])), 1, seed=seed) & mask
            for number in range(8)
        )
        assert home == plane.maps.sizes.flow_buckets // 2
        struct.pack_into("=Q", flows, at, key ^ next(number for number, other in enumerate(others, 1) if other != home))
    with sweeping(plane) as sweeper:
        sweep(sweeper)
    assert notes(plane) == 0


def test_the_same_of_an_endpoint_for_all_ports(plane: Plane, seed: int) -> None:
    endpoint = Endpoint(address=VIP, port=0, protocol=Protocol.TCP)
    plane.apply(WantedTable(services=(service(*map(server, range(1, 6)), endpoint=endpoint),)))
    frontend = plane.forwarder._read().frontends[endpoint].index
    buckets = plane.maps.sizes.wide_flow_buckets
    source = IPv4Address("198.51.100.7")
    meeting = (
        {"source": str(source), "port": port, "vport": vport}
        for port in range(1024, 65536)
        for vport in range(8000, 8064)
        if wide_flow_hash(source, port, frontend, seed=seed, destination_port=vport) % buckets == 3
    )
    *first, late = islice(meeting, 5)
    for one in first:
        establish(plane, one)
    reached = establish(plane, late)
    assert notes(plane, "wide_flows") == 1
    assert [flow.source_port for flow in entries(plane, "wide_overflow")] == [late["port"]]
    with sweeping(plane) as sweeper:
        sweep(sweeper)
        assert notes(plane, "wide_flows") == 1
        assert plane.server(tcp("A", **late)) == reached
        empty(plane, "wide_overflow")
        sweep(sweeper)
    assert notes(plane, "wide_flows") == 0


def test_no_sweep_hides_a_flow_that_has_just_spilled(plane: Plane, crowd: Crowd) -> None:
    """One CPU opens flows that go into the overflow and ends them there; the other finds them gone, and says so."""
    plane.apply(WantedTable(services=(service(*map(server, range(1, 6))),)))
    *first, late = crowd(5)
    for one in first:
        establish(plane, one)
    syn, ack = tcp("S", **late), tcp("A", **late)
    ended = threading.Event()
    cleared = 0

    def sweeps() -> None:
        nonlocal cleared
        with sweeping(plane) as sweeper:
            while not ended.is_set():
                sweep(sweeper)
                cleared += notes(plane) == 0

    sweeper = threading.Thread(target=sweeps)
    sweeper.start()
    strayed, turns = [], 0
    try:
        while turns < ROUNDS or not cleared:
            turns += 1
            reached = plane.server(syn)
            known = plane.verdicts()["forwarded"]
            if plane.server(ack) != reached or plane.verdicts()["forwarded"] == known:
                strayed.append(turns)
            empty(plane, "overflow")
    finally:
        ended.set()
        sweeper.join()
    assert strayed == []
    assert cleared
    assert {flow.source_port for flow in entries(plane, "flows")} == {one["port"] for one in first}
    assert counted(plane)
