"""Room in the flow table: who makes way for whom."""

from __future__ import annotations

import time

import pytest

from haxlb.forwarding.layout import FlowState
from haxlb.forwarding.wanted import WantedTable
from tests.bpf.conftest import Crowd
from tests.bpf.frames import tcp, udp
from tests.bpf.plane import TICKS_PER_SECOND, Plane
from tests.forwarding.tables import DNS, PEER, PEER_MAC, WEB, server, service

pytestmark = pytest.mark.bpf


def serve(plane: Plane, **options: object) -> None:
    servers = [server(number) for number in range(1, 6)]
    plane.apply(WantedTable(services=(service(*servers, **options), service(*servers, endpoint=DNS))))
    assert plane.forwarder._actual is not None
    assert plane.forwarder._actual.endpoints == {WEB: 1, DNS: 2}


def ports(plane: Plane) -> set[int]:
    return {flow.source_port for flow in plane.flows()}


def establish(plane: Plane, client: dict[str, object]) -> bytes:
    plane.send(tcp(**client))
    return plane.send(tcp("A", **client)).frame[:6]


def test_a_syn_never_takes_the_place_of_an_established_flow(plane: Plane, crowd: Crowd) -> None:
    serve(plane)
    *settled, late = crowd(5)
    servers = [establish(plane, client) for client in settled]
    first = plane.send(tcp(**late))
    assert first.reason == "table_full"
    assert [plane.send(tcp("A", **client)).frame[:6] for client in settled] == servers
    assert {plane.send(tcp("A", **client)).reason for client in settled} == {"forwarded"}
    # Unrecorded, it still goes where its SYN went.
    assert [plane.send(tcp("A", **late)).frame[:6] for _ in range(3)] == [first.frame[:6]] * 3


def test_without_room_the_peer_is_asked_only_for_what_has_begun(plane: Plane, crowd: Crowd) -> None:
    serve(plane, peer=PEER)
    *settled, late = crowd(5)
    for client in settled:
        establish(plane, client)
    assert plane.send(tcp(**late)).reason == "table_full"
    assert plane.send(tcp("A", **late)).reason == "asked_peer"
    assert plane.send(tcp("A", by=PEER_MAC, **late)).reason == "table_full"


def test_an_expired_flow_makes_way(plane: Plane, crowd: Crowd) -> None:
    serve(plane)
    old, *settled, late, later = crowd(6)
    establish(plane, old)
    plane.age(880)
    for client in settled:
        establish(plane, client)
    assert plane.send(tcp(**late)).reason == "table_full"
    plane.age(21)
    assert plane.send(tcp(**late)).reason == "new_flow"
    assert ports(plane) == {client["port"] for client in (*settled, late)}
    # The newcomer is half-open; it makes way before any of the settled does.
    assert plane.send(tcp(**later)).reason == "new_flow"
    assert ports(plane) == {client["port"] for client in (*settled, later)}


def test_what_has_expired_makes_way_before_what_was_silent_for_longer(plane: Plane, crowd: Crowd) -> None:
    serve(plane)
    single, *_ = crowd(1, which=2)
    half_open, *settled, late = crowd(4)
    plane.send(udp(**single))
    plane.age(100)
    plane.send(tcp(**half_open))
    plane.age(70)
    for client in settled:
        establish(plane, client)
    assert len(plane.flows()) == 4
    assert plane.send(tcp(**late)).reason == "new_flow"
    assert half_open["port"] not in ports(plane)
    assert single["port"] in ports(plane)


def test_half_open_and_closing_flows_make_way_the_longest_silent_first(plane: Plane, crowd: Crowd) -> None:
    serve(plane)
    settled, closing, half_open, recent, *late = crowd(7)
    establish(plane, settled)
    establish(plane, closing)
    plane.send(tcp("FA", **closing))
    plane.age(2)
    plane.send(tcp(**half_open))
    plane.age(2)
    plane.send(tcp(**recent))
    plane.age(2)
    leaves = [closing, half_open, recent]
    for newcomer, gone in zip(late, leaves, strict=True):
        assert gone["port"] in ports(plane)
        assert plane.send(tcp(**newcomer)).reason == "new_flow"
        assert gone["port"] not in ports(plane)
        plane.age(0.5)
    assert settled["port"] in ports(plane)


def test_an_ack_flood_takes_no_place_of_an_established_flow(plane: Plane, crowd: Crowd) -> None:
    """What was never opened here is on probation like a SYN, until its second packet."""
    serve(plane)
    settled, *forged = crowd(12)
    establish(plane, settled)
    for client in forged:
        plane.send(tcp("A", **client))
    assert settled["port"] in ports(plane)
    assert [flow.state for flow in plane.flows()].count(FlowState.TCP_NEW) == 3


def test_one_packet_udp_flows_make_way_and_conversations_do_not(plane: Plane, crowd: Crowd) -> None:
    serve(plane)
    talking, *single = crowd(9, which=2)
    plane.send(udp(**talking))
    plane.send(udp(**talking))
    for client in single:
        assert plane.send(udp(**client)).reason == "new_flow"
    assert talking["port"] in ports(plane)


def test_a_claim_that_was_never_finished_is_taken_over(plane: Plane, crowd: Crowd) -> None:
    """A program that ends between claim and record (it cannot, but a table is forever) blocks a way for a second."""
    serve(plane)
    clients = crowd(4)
    for client in clients:
        establish(plane, client)
    with plane._flows() as flows:
        entries = [at for at in range(0, len(flows), 16) if any(flows[at : at + 16])]
        for at in entries:
            flows[at + 8 : at + 12] = bytes([0, 0, 0, FlowState.CLAIMED])
    # Its own flow is unknown meanwhile, and finds its place again.
    assert plane.send(tcp("A", **clients[0])).reason == "unknown_flow"
    assert plane.send(tcp("A", **clients[0])).reason == "forwarded"
    newcomer = crowd(5)[4]
    assert plane.send(tcp(**newcomer)).reason == "table_full"
    plane.age(1.5)
    assert plane.send(tcp(**newcomer)).reason == "new_flow"


def test_flows_of_an_earlier_server_of_an_index_are_unknown(plane: Plane) -> None:
    serve(plane)
    first = plane.send(tcp())
    plane.send(tcp("A"))
    with plane._flows() as flows:
        at = next(at for at in range(0, len(flows), 16) if any(flows[at : at + 16]))
        flows[at + 10] += 1
    answer = plane.send(tcp("A"))
    assert answer.reason == "unknown_flow"
    assert first.reason == "new_flow"
    assert plane.send(tcp("A")).frame == answer.frame


def test_a_stamp_of_the_next_tick_is_no_age(plane: Plane, crowd: Crowd) -> None:
    """A CPU that read the clock a moment later has touched the flow: it is fresh, not as old as can be."""
    serve(plane)
    talking, *_ = crowd(1, which=2)
    settled = crowd(4)
    first = plane.send(udp(**talking))
    plane.send(udp(**talking))
    for client in settled[:3]:
        establish(plane, client)
    plane.age(-0.9)
    assert plane.send(udp(**talking)).frame == first.frame
    assert plane.send(tcp(**settled[3])).reason == "table_full"


def test_stamps_count_the_ticks_that_lifetimes_are_computed_with(plane: Plane) -> None:
    serve(plane)
    before_first = time.monotonic()
    plane.send(tcp(port=1024))
    after_first = time.monotonic()
    time.sleep(0.5)  # what is measured: the kernel's ticks in it
    before_second = time.monotonic()
    plane.send(tcp(port=1025))
    after_second = time.monotonic()
    first, second = sorted(plane.flows(), key=lambda flow: flow.source_port)
    ticks = second.stamp - first.stamp
    assert (before_second - after_first) * TICKS_PER_SECOND - 1 <= ticks
    assert ticks <= (after_second - before_first) * TICKS_PER_SECOND + 1
