"""IPv6, SCTP, all ports of an address, groups and virtual MACs: the same rules for all."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest

from haxlb.forwarding.hashing import any_port_bit
from haxlb.forwarding.layout import INDEX, pack_virtual_mac
from haxlb.forwarding.wanted import WantedTable
from haxlb.linux.specimen import LOOPBACK, VIP
from haxlb.model.addresses import Endpoint, IPAddress, Protocol
from haxlb.model.virtual_server import Scheduler
from tests.bpf.books import expect_books
from tests.bpf.packets import (
    ABORT,
    ACK,
    DATA,
    FIN,
    INIT,
    PSH,
    RST,
    SHUTDOWN,
    SHUTDOWN_COMPLETE,
    SYN,
    ethernet,
    frame,
    ipv4,
    ipv6,
    segment,
)
from tests.bpf.plane import Plane
from tests.bpf.sentences import VIP6, VIRTUAL_MAC
from tests.forwarding.tables import mac, server, server6, service

pytestmark = pytest.mark.bpf

CLIENT4, CLIENT6 = IPv4Address("192.0.2.1"), IPv6Address("2001:db8:2::1")
FAMILIES = [(CLIENT4, VIP), (CLIENT6, VIP6)]
STARTS = {Protocol.TCP: SYN, Protocol.SCTP: INIT, Protocol.UDP: 0}
GOES_ON = {Protocol.TCP: ACK, Protocol.SCTP: DATA, Protocol.UDP: 0}


def serve(plane: Plane, *endpoints: Endpoint, **options: object) -> None:
    servers = [server(1), server(2), server6(3)]
    plane.apply(WantedTable(services=(service(*servers, endpoints=endpoints, name="all of them", **options),)))


def at(address: IPAddress, protocol: Protocol, port: int = 80) -> Endpoint:
    return Endpoint(address=address, port=port, protocol=protocol)


@pytest.mark.parametrize(("source", "to"), FAMILIES, ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("protocol", Protocol)
@pytest.mark.parametrize("port", [80, 0])
def test_a_flow_of_every_kind_keeps_its_server(
    plane: Plane, source: IPAddress, to: IPAddress, protocol: Protocol, port: int
) -> None:
    serve(plane, at(to, protocol, port))
    for number in range(40):
        flow = {"source": source + number, "to": to, "service_port": 80 if port else 7000 + number % 3}
        first = plane.expect(frame(protocol, STARTS[protocol], **flow))
        assert first.reason == "new_flow"
        for _ in range(3):
            answer = plane.expect(frame(protocol, GOES_ON[protocol], **flow))
            assert (answer.reason, answer.frame[:12]) == ("forwarded", first.frame[:12])
    expect_books(plane)


@pytest.mark.parametrize(("source", "to"), FAMILIES, ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("protocol", [Protocol.TCP, Protocol.SCTP])
def test_a_connection_that_ended_makes_place_for_another_server(
    plane: Plane, source: IPAddress, to: IPAddress, protocol: Protocol
) -> None:
    serve(plane, at(to, protocol))
    ends = {Protocol.TCP: (FIN | ACK, RST, RST | ACK), Protocol.SCTP: (SHUTDOWN, ABORT, SHUTDOWN_COMPLETE)}
    for end in ends[protocol]:
        before = plane.expect(frame(protocol, STARTS[protocol], source=source, to=to))
        plane.expect(frame(protocol, GOES_ON[protocol], source=source, to=to))
        plane.expect(frame(protocol, end, source=source, to=to))
        after = plane.expect(frame(protocol, STARTS[protocol], source=source, to=to))
        assert (after.reason, after.frame[:6] == before.frame[:6]) == ("new_flow", False)
        plane.expect(frame(protocol, ends[protocol][1], source=source, to=to))
    expect_books(plane)


def test_ports_of_an_endpoint_for_all_are_flows_of_their_own(plane: Plane) -> None:
    serve(plane, at(VIP, Protocol.TCP, 0))
    for port in (1, 80, 65535):
        assert plane.expect(frame(Protocol.TCP, SYN, source=CLIENT4, to=VIP, service_port=port)).reason == "new_flow"
    assert len(plane.flows()) == 3
    expect_books(plane)


@pytest.mark.parametrize(("source", "to"), FAMILIES, ids=["IPv4", "IPv6"])
def test_an_address_that_shares_the_bit_of_one_for_all_ports_is_nobodys(
    plane: Plane, source: IPAddress, to: IPAddress
) -> None:
    serve(plane, at(to, Protocol.TCP, 0))
    others = (to + number for number in range(1, 1 << 20))
    other = next(each for each in others if any_port_bit(each) == any_port_bit(to))
    assert plane.expect(frame(Protocol.TCP, SYN, source=source, to=other)).reason == "no_service"
    assert plane.expect(frame(Protocol.TCP, SYN, source=source, to=to)).reason == "new_flow"


def test_an_endpoint_of_its_own_comes_before_that_of_all_ports(plane: Plane) -> None:
    plane.apply(
        WantedTable(
            services=(
                service(server(1), endpoints=(at(VIP, Protocol.TCP, 0),), name="all"),
                service(server(2), endpoints=(at(VIP, Protocol.TCP, 80),), name="web"),
            )
        )
    )
    reached = {
        port: plane.expect(frame(Protocol.TCP, SYN, source=CLIENT4, to=VIP, service_port=port)).frame[:6].hex(":")
        for port in (79, 80, 81)
    }
    assert reached == {79: mac(0x101), 80: mac(0x102), 81: mac(0x101)}
    assert plane.expect(frame(Protocol.UDP, source=CLIENT4, to=VIP)).reason == "no_service"


def test_endpoints_of_a_group_share_turns_and_no_flows(plane: Plane) -> None:
    serve(plane, at(VIP, Protocol.TCP, 80), at(VIP, Protocol.TCP, 443), at(VIP6, Protocol.TCP, 80))
    frames = [
        frame(Protocol.TCP, SYN, source=CLIENT4, to=VIP, service_port=80),
        frame(Protocol.TCP, SYN, source=CLIENT4, to=VIP, service_port=443),
        frame(Protocol.TCP, SYN, source=CLIENT6, to=VIP6, service_port=80),
    ]
    reached = [plane.expect(each).frame[:6].hex(":") for each in frames]
    assert sorted(reached) == [mac(0x101), mac(0x102), mac(0x103)]
    assert len(plane.flows()) == 3
    expect_books(plane)


@pytest.mark.parametrize("scheduler", [each for each in Scheduler if each.hashes])
@pytest.mark.parametrize(("source", "to"), FAMILIES, ids=["IPv4", "IPv6"])
def test_hash_schedulers_keep_no_records(plane: Plane, source: IPAddress, to: IPAddress, scheduler: Scheduler) -> None:
    serve(plane, at(to, Protocol.TCP), at(to + 1, Protocol.TCP), scheduler=scheduler)
    reached = set()
    for number in range(60):
        for kind in (SYN, ACK, PSH | ACK, FIN | ACK):
            answer = plane.expect(frame(Protocol.TCP, kind, source=source + number, to=to + number % 2))
            assert answer.reason == "hashed"
            reached.add(answer.frame[:6])
    assert plane.flows() == []
    assert len(reached) == 3 or scheduler is Scheduler.DH  # there are two destinations
    expect_books(plane)


@pytest.mark.parametrize("extensions", [(0,), (43,), (60,), (0, 43, 60), (0, 60, 43, 60, 43, 60)])
def test_extension_headers_are_forwarded(plane: Plane, extensions: tuple[int, ...]) -> None:
    serve(plane, at(VIP6, Protocol.TCP))
    packet = ipv6(CLIENT6, VIP6, 6, segment(Protocol.TCP, 40000, 80, SYN), extensions=extensions)
    assert plane.expect(ethernet(packet)).reason == "new_flow"
    assert plane.expect(frame(Protocol.TCP, ACK, source=CLIENT6, to=VIP6)).reason == "forwarded"


def test_a_seventh_extension_header_is_the_kernels(plane: Plane) -> None:
    serve(plane, at(VIP6, Protocol.TCP))
    packet = ipv6(CLIENT6, VIP6, 6, segment(Protocol.TCP, 40000, 80, SYN), extensions=(60,) * 7)
    assert plane.expect(ethernet(packet)).reason == "other_protocol"


@pytest.mark.parametrize("options", range(0, 44, 4))
def test_ip_options_of_every_length_are_forwarded(plane: Plane, options: int) -> None:
    serve(plane, at(VIP, Protocol.TCP))
    packet = ipv4(CLIENT4, VIP, 6, segment(Protocol.TCP, 40000, 80, SYN), options=b"\x01" * options)
    assert plane.expect(ethernet(packet)).reason == "new_flow"


def test_frames_to_a_virtual_mac_are_ours(plane: Plane) -> None:
    serve(plane, at(VIP, Protocol.TCP), at(VIP6, Protocol.TCP))
    for source, to in FAMILIES:
        assert plane.expect(frame(Protocol.TCP, SYN, source=source, to=to)).reason == "new_flow"
        refused = ethernet_to(VIRTUAL_MAC, source, to)
        assert plane.expect(refused).reason == "not_for_us"
    plane.maps.write("virtual_macs", pack_virtual_mac(LOOPBACK, VIRTUAL_MAC), INDEX.pack(LOOPBACK))
    plane.oracle.virtual_macs = {(LOOPBACK, bytes.fromhex(VIRTUAL_MAC.replace(":", "")))}
    for source, to in FAMILIES:
        assert plane.expect(ethernet_to(VIRTUAL_MAC, source, to)).reason == "forwarded"


def ethernet_to(hardware: str, source: IPAddress, to: IPAddress) -> bytes:
    compose = ipv4 if source.version == 4 else ipv6
    return ethernet(compose(source, to, 6, segment(Protocol.TCP, 40000, 80, ACK)), to=hardware)
