"""Frames that are cut, lie about their lengths, or are nobody's: passed to the kernel as they are, never aborted."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from scapy.layers.inet import ICMP, IP, TCP, IPOption
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether

from haxlb.forwarding.reference import Action
from haxlb.forwarding.wanted import WantedTable
from haxlb.linux import bpf
from haxlb.linux.specimen import OWN_MAC, VIP
from haxlb.model.addresses import IPAddress, Protocol
from haxlb.model.virtual_server import Scheduler
from tests.bpf.frames import CLIENT, CLIENT_MAC, tcp, udp
from tests.bpf.packets import ACK, INIT, NO_OPERATION, SYN, ethernet, frame, ipv4, ipv6, segment
from tests.bpf.plane import Plane
from tests.bpf.sentences import ENDPOINTS, VIP6
from tests.forwarding.tables import DNS, PEER, server, service, table

pytestmark = pytest.mark.bpf


@pytest.mark.parametrize("frame", [tcp(data=b"GET / HTTP/1.1\r\n\r\n"), udp(data=b"0123456789")], ids=["tcp", "udp"])
def test_every_truncation(plane: Plane, frame: bytes) -> None:
    plane.apply(WantedTable(services=(service(server(1)), service(server(2), endpoint=DNS))))
    reasons = {length: plane.expect(frame[:length]).reason for length in range(14, len(frame) + 1)}
    assert reasons.pop(len(frame)) == "new_flow"
    assert set(reasons.values()) == {"malformed"}


@pytest.mark.parametrize("kind", ["tcp", "udp"])
@pytest.mark.parametrize("length", [0, 19, 20, 27, 28, 39, 40, 41, 1400, 65535])
def test_every_total_length(plane: Plane, kind: str, length: int) -> None:
    plane.apply(WantedTable(services=(service(server(1)), service(server(2), endpoint=DNS))))
    frame = bytearray((tcp if kind == "tcp" else udp)(data=b"x" * 20))
    frame[16:18] = length.to_bytes(2, "big")
    plane.expect(bytes(frame))


@pytest.mark.parametrize("kind", ["tcp", "udp"])
@pytest.mark.parametrize("version_and_length", [*range(0x40, 0x50), 0x00, 0x55, 0x65, 0xF5])
def test_every_header_length(plane: Plane, kind: str, version_and_length: int) -> None:
    plane.apply(WantedTable(services=(service(server(1)), service(server(2), endpoint=DNS))))
    options = max(0, (version_and_length & 0x0F) * 4 - 20)
    frame = (tcp if kind == "tcp" else udp)(data=b"x" * 80)
    frame = bytearray(frame[:34] + b"\x01" * options + frame[34:])
    frame[14] = version_and_length
    frame[16:18] = (len(frame) - 14).to_bytes(2, "big")
    answer = plane.expect(bytes(frame))
    assert (answer.reason == "new_flow") == (version_and_length in range(0x45, 0x50))


def test_ip_options_are_forwarded(plane: Plane) -> None:
    plane.apply(table(server(1)))
    assert plane.expect(tcp(ip={"options": [IPOption(b"\x94\x04\x00\x00")]})).reason == "new_flow"
    assert plane.expect(tcp("A")).reason == "forwarded"


@pytest.mark.parametrize(
    ("fragment", "reason"),
    [
        ({"flags": "MF"}, "new_flow"),
        ({"frag": 1}, "fragment"),
        ({"frag": 0x1FFF, "flags": "MF"}, "fragment"),
        ({"flags": "DF"}, "new_flow"),
    ],
)
def test_fragments(plane: Plane, fragment: dict[str, object], reason: str) -> None:
    plane.apply(table(server(1)))
    assert plane.expect(tcp(ip=fragment)).reason == reason


def to_us(payload: object) -> bytes:
    return bytes(Ether(dst=OWN_MAC, src=CLIENT_MAC) / payload).ljust(60, b"\0")


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (to_us(ARP(pdst=str(VIP))), "not_ip"),
        (to_us(IPv6(dst="2001:db8::1") / TCP(dport=80)), "no_service"),
        (to_us(Dot1Q(vlan=5) / Dot1Q(vlan=6) / Dot1Q(vlan=7) / IP(dst=str(VIP)) / TCP(dport=80)), "not_ip"),
        (to_us(Dot1Q(vlan=5, type=0x0806)), "not_ip"),
        (to_us(IP(src=CLIENT, dst=str(VIP)) / ICMP()), "other_protocol"),
        (to_us(IP(src=CLIENT, dst=str(VIP), proto=112) / b"\x31"), "other_protocol"),
        (tcp(vip="10.200.1.2"), "no_service"),
        (tcp(vport=81), "no_service"),
        (udp(), "no_service"),
        (tcp(to="02:00:00:00:00:ab"), "not_for_us"),
        (tcp(to="06:00:00:00:00:aa"), "not_for_us"),
        (tcp(to="ff:ff:ff:ff:ff:ff"), "not_for_us"),
        (tcp(to="01:00:5e:00:00:01"), "not_for_us"),
    ],
)
def test_what_is_no_service_of_ours_is_left_untouched(plane: Plane, frame: bytes, reason: str) -> None:
    plane.apply(table(server(1)))
    answer = plane.expect(frame)
    assert (answer.action, answer.reason, answer.frame) == (Action.PASS, reason, frame)
    assert plane.flows() == []


VERDICTS = {bpf.XDP_PASS, bpf.XDP_DROP, bpf.XDP_TX, bpf.XDP_REDIRECT}
WHOLE = {
    "TCP": frame(Protocol.TCP, SYN, source=IPv6Address("2001:db8:2::1"), to=VIP6),
    "UDP": frame(Protocol.UDP, source=IPv6Address("2001:db8:2::1"), to=VIP6),
    "SCTP": frame(Protocol.SCTP, INIT, source=IPv6Address("2001:db8:2::1"), to=VIP6),
    "SCTP4": frame(Protocol.SCTP, INIT, source=IPv4Address(CLIENT), to=VIP),
    "extensions": ethernet(
        ipv6(
            IPv6Address("2001:db8:2::1"), VIP6, 6, segment(Protocol.TCP, 1, 80, SYN), extensions=(0, 43, 60, 60, 60, 60)
        )
    ),
    "options": ethernet(
        ipv4(IPv4Address(CLIENT), VIP, 6, segment(Protocol.TCP, 1, 80, SYN), options=NO_OPERATION * 10)
    ),
}


def serve_all(plane: Plane, **options: object) -> None:
    plane.apply(table(server(1), server(2), endpoints=tuple(ENDPOINTS), **options))


@pytest.mark.parametrize("kind", WHOLE)
def test_every_truncation_of_every_kind(plane: Plane, kind: str) -> None:
    serve_all(plane)
    whole = WHOLE[kind]
    reasons = {length: plane.expect(whole[:length]).reason for length in range(14, len(whole) + 1)}
    assert reasons.pop(len(whole)) == "new_flow"
    assert set(reasons.values()) == {"malformed"}


@pytest.mark.parametrize("kind", WHOLE)
@pytest.mark.parametrize("asks", [b"\x88\xb5", b"\x88\xb6"])
def test_every_truncation_of_a_question(plane: Plane, kind: str, asks: bytes) -> None:
    serve_all(plane)
    whole = WHOLE[kind][:12] + asks + WHOLE[kind][14:]
    for length in range(14, len(whole) + 1):
        plane.expect(whole[:length])


@pytest.mark.parametrize("kind", WHOLE)
def test_every_byte_of_a_header_may_be_anything(plane: Plane, kind: str) -> None:
    serve_all(plane)
    whole = WHOLE[kind]
    for at in range(12, len(whole)):
        for value in (0x00, 0x01, 0x2C, 0x3C, 0x45, 0x60, 0x7F, 0x80, 0xFF):
            run = bpf.prog_test_run(plane.program, whole[:at] + bytes([value]) + whole[at + 1 :])
            assert run.verdict in VERDICTS


@pytest.mark.parametrize("flags", range(0, 256, 3))
def test_every_combination_of_flags(plane: Plane, flags: int) -> None:
    """Reserved bits and nonsense (SYN and FIN, none at all) are for the server to judge."""
    serve_all(plane)
    for source, to in ((IPv4Address(CLIENT), VIP), (IPv6Address("2001:db8:2::1"), VIP6)):
        first = plane.expect(frame(Protocol.TCP, flags, source=source, to=to))
        assert first.reason == ("new_flow" if flags & 0x17 == SYN else "unknown_flow")
        plane.expect(frame(Protocol.TCP, flags, source=source, to=to))


@pytest.mark.parametrize("chunk", range(0, 256, 5))
def test_every_type_of_chunk(plane: Plane, chunk: int) -> None:
    serve_all(plane)
    first = plane.expect(frame(Protocol.SCTP, chunk, source=IPv4Address(CLIENT), to=VIP))
    assert first.reason == ("new_flow" if chunk == INIT else "unknown_flow")


@pytest.mark.parametrize("scheduler", [Scheduler.RR, Scheduler.WLC, Scheduler.MH])
@pytest.mark.parametrize("to", [VIP, VIP6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("protocol", Protocol)
def test_a_packet_from_the_service_to_itself_is_the_kernels(
    plane: Plane, scheduler: Scheduler, to: IPAddress, protocol: Protocol
) -> None:
    serve_all(plane, scheduler=scheduler, peer=PEER)
    for kind in (SYN, ACK, INIT, 0):
        for port in (40000, 80):
            answer = plane.expect(frame(protocol, kind, source=to, to=to, port=port))
            assert (answer.action, answer.reason) == (Action.PASS, "malformed")
    assert plane.flows() == []


def test_a_length_of_ipv6_beyond_the_frame(plane: Plane) -> None:
    serve_all(plane)
    whole = bytearray(WHOLE["TCP"])
    for length in (0, 1, 19, 20, len(whole) - 54, len(whole) - 53, 0xFFD7, 0xFFD8, 0xFFFF):
        whole[18:20] = length.to_bytes(2, "big")
        assert plane.expect(bytes(whole)).reason in ("malformed", "new_flow", "forwarded")
