"""Thresholds of servers, clients that keep their server, packets that are flows of their own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from haxlb.forwarding.wanted import WantedTable
from haxlb.model.virtual_server import Scheduler
from tests.bpf.books import expect_books
from tests.bpf.frames import tcp, udp
from tests.bpf.plane import Plane
from tests.forwarding.tables import DNS, PEER, PEER_MAC, WEB, mac, server, service, table

pytestmark = pytest.mark.bpf


def limited(number: int, upper: int, lower: int = 0, **options: object) -> object:
    return replace(server(number, **options), upper_threshold=upper, lower_threshold=lower)


def opened(plane: Plane, first: int, count: int) -> list[str]:
    return [plane.expect(tcp(port=port)).frame[:6].hex(":") for port in range(first, first + count)]


@pytest.mark.parametrize("scheduler", Scheduler)
def test_a_full_server_gets_nothing_and_keeps_what_it_has(plane: Plane, scheduler: Scheduler) -> None:
    plane.apply(table(limited(1, 3), limited(2, 5), server(3), scheduler=scheduler))
    answers = {port: plane.expect(tcp(port=port)) for port in range(2000, 2060)}
    # ovf: where all have more connections than their weight, nobody gets one.
    reached = {port: each.frame[:6].hex(":") for port, each in answers.items() if each.reason == "new_flow"}
    shares = Counter(reached.values())
    assert shares[mac(0x101)] <= 3
    assert shares[mac(0x102)] <= 5
    assert len(reached) == 60 or scheduler is Scheduler.OVF
    for port, was in reached.items():
        assert plane.expect(tcp("A", port=port)).frame[:6].hex(":") == was
    expect_books(plane)


@pytest.mark.parametrize("scheduler", [each for each in Scheduler if each.takes_turns])
def test_full_servers_hide_nobody_whose_turn_is_far_away(plane: Plane, scheduler: Scheduler) -> None:
    plane.apply(table(limited(1, 1, weight=100), server(2, weight=1), scheduler=scheduler))
    assert set(opened(plane, 2000, 60)) == {mac(0x101), mac(0x102)}
    plane.reset()
    plane.apply(table(*(limited(number, 1) for number in range(1, 100)), server(100), scheduler=scheduler))
    shares = Counter(opened(plane, 2000, 250))
    assert shares.pop(mac(0x164)) >= 250 - 99
    assert set(shares.values()) == {1}


def test_chance_names_everybody_while_some_are_full(plane: Plane) -> None:
    plane.apply(table(limited(1, 1), limited(2, 1), *map(server, (3, 4, 5)), scheduler=Scheduler.TWOS))
    shares = Counter(opened(plane, 2000, 302))
    assert (shares.pop(mac(0x101)), shares.pop(mac(0x102))) == (1, 1)
    assert len(shares) == 3
    assert min(shares.values()) > 90


@pytest.mark.parametrize(("upper", "lower", "opens_with"), [(8, 0, 5), (8, 3, 2), (8, 8, 7), (4, 1, 0), (1, 0, 0)])
def test_a_full_server_opens_below_its_lower_threshold(plane: Plane, upper: int, lower: int, opens_with: int) -> None:
    """Without one below three quarters of the upper one: with 5 of 8 (6 is not fewer)."""
    plane.apply(table(limited(1, upper, lower), scheduler=Scheduler.WLC))
    opened(plane, 2000, upper)
    assert plane.expect(tcp(port=1999)).reason == "no_server"
    # A flow that leaves: its record goes to another server, as that of one whose end nobody saw is swept.
    for left in range(upper - 1, opens_with, -1):
        _forget(plane, 2000 + left)
        assert plane.expect(tcp(port=1999)).reason == "no_server", f"with {left} flows"
    _forget(plane, 2000 + opens_with)
    assert plane.expect(tcp(port=1999)).reason == "new_flow"


def _forget(plane: Plane, port: int) -> None:
    with plane.table("flows") as flows:
        at = next(at for at in range(0, len(flows), 16) if flows[at + 4 : at + 6] == port.to_bytes(2, "big"))
        backend = int.from_bytes(flows[at + 8 : at + 10], "little")
        flows[at : at + 16] = bytes(16)
    with plane.table("loads") as table:
        active = int.from_bytes(table[64 * backend : 64 * backend + 4], "little")
        table[64 * backend : 64 * backend + 4] = (active - 1).to_bytes(4, "little")
    plane.oracle.flows.forget(port)


def test_closing_flows_count_for_the_threshold(plane: Plane) -> None:
    plane.apply(table(limited(1, 2), scheduler=Scheduler.RR))
    opened(plane, 2000, 2)
    plane.expect(tcp("FA", port=2000))
    assert plane.expect(tcp(port=2002)).reason == "no_server"


@pytest.mark.parametrize("scheduler", Scheduler)
def test_a_client_keeps_its_server(plane: Plane, scheduler: Scheduler) -> None:
    servers = [server(number) for number in range(1, 6)]
    plane.apply(table(*servers, scheduler=scheduler, persistence_s=60))
    for client in ("192.0.2.1", "192.0.2.2", "192.0.2.3"):
        first = plane.expect(tcp(source=client)).frame[:6]
        for port in range(2000, 2010):
            plane.age(5.3)
            assert plane.expect(tcp(source=client, port=port)).frame[:6] == first
    expect_books(plane)


def test_a_client_is_forgotten_after_its_time(plane: Plane) -> None:
    plane.apply(table(*map(server, range(1, 4)), persistence_s=60))
    first = plane.expect(tcp(port=2000)).frame[:6]
    plane.age(59.3)
    assert plane.expect(tcp(port=2001)).frame[:6] == first
    plane.age(60.3)
    assert plane.expect(tcp(port=2002)).frame[:6] != first
    expect_books(plane)


def test_packets_of_a_connection_keep_the_client(plane: Plane) -> None:
    plane.apply(table(*map(server, range(1, 4)), persistence_s=60))
    first = plane.expect(tcp()).frame[:6]
    for _ in range(5):
        plane.age(30.3)
        plane.expect(tcp("A"))
    assert plane.expect(tcp(port=2002)).frame[:6] == first


def test_a_network_of_clients_is_one(plane: Plane) -> None:
    plane.apply(table(*map(server, range(1, 6)), persistence_s=60, persistence_mask=24))
    assert len({plane.expect(tcp(source=f"192.0.2.{host}")).frame[:6] for host in range(1, 30)}) == 1
    assert len({plane.expect(tcp(source=f"192.0.{net}.1")).frame[:6] for net in range(3, 30)}) == 5
    expect_books(plane)


def test_a_client_of_a_dead_server_gets_another_and_keeps_that(plane: Plane) -> None:
    servers = [server(1), server(2), server(3)]
    plane.apply(table(*servers, persistence_s=60))
    first = plane.expect(tcp()).frame[:6].hex(":")
    dead = [replace(each, alive=each.next_hop.destination_mac != first) for each in servers]
    plane.apply(table(*dead, persistence_s=60))
    second = plane.expect(tcp("A")).frame[:6].hex(":")
    assert second != first
    plane.apply(table(*servers, persistence_s=60))
    assert {plane.expect(tcp(port=port)).frame[:6].hex(":") for port in range(2000, 2010)} == {second}
    expect_books(plane)


def test_a_client_keeps_a_server_that_drains_or_is_full(plane: Plane) -> None:
    plane.apply(table(limited(1, 1), persistence_s=60))
    plane.expect(tcp())
    plane.apply(table(limited(1, 1, weight=0), server(2), persistence_s=60))
    assert plane.expect(tcp(port=2001)).frame[:6].hex(":") == mac(0x101)
    assert plane.expect(tcp(source="192.0.2.9")).frame[:6].hex(":") == mac(0x102)
    expect_books(plane)


def test_what_the_peer_asks_of_a_client_that_we_know(plane: Plane) -> None:
    plane.apply(table(*map(server, range(1, 6)), persistence_s=60, peer=PEER))
    known = plane.expect(tcp()).frame[:6]
    assert plane.expect(tcp("A", port=2000)).reason == "asked_peer"
    for port in range(2000, 2010):
        answer = plane.expect(tcp("A", port=port, by=PEER_MAC))
        assert (answer.reason, answer.frame[:6]) == ("unknown_flow", known)
    expect_books(plane)


def test_flows_from_port_0_spoil_no_client(plane: Plane) -> None:
    plane.apply(table(*map(server, range(1, 4)), persistence_s=60))
    first = plane.expect(tcp()).frame[:6]
    for flags in ("S", "A", "FA", "S"):
        assert plane.expect(tcp(flags, port=0)).frame[:6] == first
    assert plane.expect(tcp(port=2000)).frame[:6] == first
    assert [flow.state.of_client for flow in plane.flows()].count(True) == 1
    expect_books(plane)


@pytest.mark.parametrize("scheduler", [Scheduler.RR, Scheduler.WRR])
def test_with_ops_each_packet_takes_a_turn(plane: Plane, scheduler: Scheduler) -> None:
    plane.apply(table(*map(server, range(1, 4)), endpoint=DNS, one_packet=True, scheduler=scheduler))
    reached = [plane.expect(udp()).frame[:6].hex(":") for _ in range(9)]
    assert {reached.count(mac(0x100 + number)) for number in range(1, 4)} == {3}
    assert plane.flows() == []
    expect_books(plane)


def test_the_endpoints_of_a_service_share_its_clients(plane: Plane) -> None:
    """What a fwmark with persistence is for: a client's requests by http and https meet the same server."""
    both = replace(service(*map(server, range(1, 6)), persistence_s=60), endpoints=(WEB, replace(WEB, port=443)))
    plane.apply(WantedTable(services=(both,)))
    first = plane.expect(tcp())
    for port in range(40001, 40005):
        assert plane.expect(tcp(port=port, vport=443)).frame[:6] == first.frame[:6]
    plane.expect_flows()
