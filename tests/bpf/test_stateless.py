"""Services whose ring says it all: what a change of the ring records, and for how long."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

from haxlb.forwarding.wanted import WantedServer
from haxlb.model.virtual_server import Scheduler
from tests.bpf.books import expect_books
from tests.bpf.conftest import Crowd
from tests.bpf.frames import Stamp, client, tcp, udp
from tests.bpf.plane import Plane
from tests.forwarding.tables import DNS, PEER, mac, server, table

pytestmark = pytest.mark.bpf

FLOWS = 160
"""So few that no five of those on record, half-open all, meet in one of 512 buckets."""
SYN, ACK = Stamp(tcp("S")), Stamp(tcp("A"))
SERVERS = [server(number) for number in range(1, 5)]
HASHING = [each for each in Scheduler if each.hashes and each is not Scheduler.DH]
LIFETIME_S = 900


def serve(plane: Plane, servers: Sequence[WantedServer], **options: object) -> None:
    plane.apply(table(*servers, **{"scheduler": Scheduler.MH, **options}))


def places(plane: Plane, count: int = FLOWS) -> list[str]:
    return [plane.expect(ACK.of(*client(number))).frame[:6].hex(":") for number in range(count)]


def reasons(plane: Plane, stamp: Stamp, first: int = 0) -> set[str]:
    return {plane.expect(stamp.of(*client(number))).reason for number in range(first, first + FLOWS)}


def settle(plane: Plane, now_s: int) -> None:
    plane.forwarder.settle(now_s, LIFETIME_S)
    plane.oracle.settle(now_s, LIFETIME_S)


@pytest.mark.parametrize("scheduler", HASHING)
def test_a_server_more_moves_no_flow_and_takes_its_share_of_new_ones(plane: Plane, scheduler: Scheduler) -> None:
    serve(plane, SERVERS[:3], scheduler=scheduler)
    before = places(plane)
    serve(plane, SERVERS, scheduler=scheduler)
    assert places(plane) == before
    new = {plane.expect(SYN.of(*client(number))).frame[:6].hex(":") for number in range(1000, 1200)}
    assert mac(0x104) in new
    assert places(plane) == before
    expect_books(plane)


@pytest.mark.parametrize("scheduler", HASHING)
def test_a_drained_server_keeps_its_flows(plane: Plane, scheduler: Scheduler) -> None:
    serve(plane, SERVERS, scheduler=scheduler)
    before = places(plane)
    serve(plane, [replace(SERVERS[0], weight=0), *SERVERS[1:]], scheduler=scheduler)
    assert places(plane) == before
    for number in range(1000, 1200):
        assert plane.expect(SYN.of(*client(number))).frame[:6].hex(":") != mac(0x101)
    expect_books(plane)


def test_only_flows_of_a_dead_server_move(plane: Plane) -> None:
    serve(plane, SERVERS)
    before = places(plane)
    serve(plane, [replace(SERVERS[0], alive=False), *SERVERS[1:]])
    after = places(plane)
    assert mac(0x101) not in after
    assert {was for was, becomes in zip(before, after, strict=True) if was != becomes} == {mac(0x101)}
    # It comes back: those that moved stay where they are, as long as they last.
    serve(plane, SERVERS)
    assert places(plane) == after
    expect_books(plane)


def test_changes_that_follow_each_other(plane: Plane) -> None:
    """A flow that nobody has heard of is of the time before all of them."""
    serve(plane, SERVERS[:2])
    before = places(plane)
    serve(plane, SERVERS[:3])
    serve(plane, SERVERS)
    serve(plane, [*SERVERS, server(5, weight=3)])
    assert places(plane) == before
    expect_books(plane)


def test_a_handshake_that_a_change_meets_ends_where_it_began(plane: Plane) -> None:
    serve(plane, SERVERS[:3])
    serve(plane, SERVERS)
    begun = [plane.expect(SYN.of(*client(number))).frame[:6].hex(":") for number in range(FLOWS)]
    serve(plane, [*SERVERS, server(5, weight=3)])
    assert places(plane) == begun
    expect_books(plane)


def test_without_room_for_a_record_a_flow_keeps_to_one_server(plane: Plane, crowd: Crowd) -> None:
    """What cannot be written down goes where its next packet, unknown again, will go."""
    serve(plane, SERVERS[:3])
    serve(plane, SERVERS)
    clients = crowd(200)
    moved = [one for one in clients if plane.send(tcp("S", **one)).reason in ("new_flow", "table_full")]
    assert len(moved) > 10
    late = moved[4:]
    for one in late:
        first = plane.send(tcp("S", **one))
        assert first.reason == "table_full"
        assert {plane.send(tcp("A", **one)).frame[:6] for _ in range(2)} == {first.frame[:6]}


def test_udp_stays_where_it_was_while_the_change_is_recent(plane: Plane) -> None:
    query = Stamp(udp())
    serve(plane, SERVERS[:3], endpoint=DNS)
    before = [plane.expect(query.of(*client(number))).frame[:6] for number in range(FLOWS)]
    serve(plane, SERVERS, endpoint=DNS)
    assert [plane.expect(query.of(*client(number))).frame[:6] for number in range(FLOWS)] == before
    expect_books(plane)


def test_a_transition_ends(plane: Plane) -> None:
    serve(plane, SERVERS[:3])
    assert reasons(plane, ACK) == {"hashed"}
    before = int(time.monotonic())
    serve(plane, SERVERS)
    assert reasons(plane, ACK) == {"hashed", "unknown_flow"}
    settle(plane, before + LIFETIME_S - 1)
    assert "new_flow" in reasons(plane, SYN, 1000)
    after = int(time.monotonic())
    settle(plane, after + LIFETIME_S + 1)
    # Flows on record are found still, new ones are not written down any more.
    assert reasons(plane, ACK) == {"hashed", "forwarded"}
    assert reasons(plane, SYN, 2000) == {"hashed"}
    assert plane.flows() != []
    for name in ("flows", "overflow", "loads"):
        with plane.table(name) as content:
            content[:] = bytes(len(content))
    plane.oracle.flows.forget()
    settle(plane, after + LIFETIME_S + 2)
    assert reasons(plane, ACK) == {"hashed"}
    assert plane.flows() == []


def test_a_ring_that_says_it_all_asks_no_peer(plane: Plane) -> None:
    serve(plane, SERVERS[:3], peer=PEER)
    assert reasons(plane, ACK) == {"hashed"}
    serve(plane, SERVERS, peer=PEER)
    assert reasons(plane, ACK) == {"hashed", "unknown_flow"}
    for number in range(FLOWS):
        plane.expect(Stamp(tcp("FA")).of(*client(number)))
    plane.age(30)
    # Closing and silent, but nobody else can have placed another one on these ports.
    assert reasons(plane, ACK) == {"hashed", "forwarded"}
    expect_books(plane)


@pytest.mark.parametrize(("first", "then"), [(Scheduler.MH, Scheduler.RR), (Scheduler.RR, Scheduler.MH)])
def test_another_scheduler_moves_no_flow(plane: Plane, first: Scheduler, then: Scheduler) -> None:
    # Here all are on record.
    count = 50
    serve(plane, SERVERS, scheduler=first)
    for number in range(count):
        plane.expect(SYN.of(*client(number)))
    before = places(plane, count)
    serve(plane, SERVERS, scheduler=then)
    assert places(plane, count) == before
    expect_books(plane)
