"""TUN frame by frame: what leaves is what the oracle says, and scapy can read it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scapy.layers.inet import GRE, ICMP, IP, TCP, UDP, IPerror
from scapy.layers.inet6 import (
    ICMPv6PacketTooBig,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
)
from scapy.layers.l2 import Dot1Q, Ether
from scapy.layers.sctp import SCTP, SCTPChunkInit
from scapy.packet import Packet, Raw

from haxlb.forwarding.reference import Action
from haxlb.forwarding.reference_packet import Datagram, Link, parse_datagram
from haxlb.forwarding.reference_tunnel import Tunnel, encapsulated, internet_checksum
from haxlb.forwarding.wanted import Tally
from haxlb.linux import bpf
from haxlb.linux.bpf_call import closing
from haxlb.model.virtual_server import TunnelKind
from tests.bpf.assembly import without_head_room
from tests.bpf.tunnelled import (
    CLIENT_MAC,
    FEATURES,
    GUE_PORT,
    MTU,
    OTHER_INTERFACE,
    OWN_MAC,
    PORT,
    SERVER_MAC,
    SITES,
    Site,
    Tunnelled,
    site,
    tunnelled,
    without_identification,
)

pytestmark = pytest.mark.bpf

IPIP4 = site(TunnelKind.IPIP)
ALL = pytest.mark.parametrize("at", SITES, ids=str)
CHECKED = [each for each in SITES if each.checksum]


@pytest.fixture(scope="module")
def loaded() -> Iterator[Tunnelled]:
    with tunnelled() as made:
        yield made


@pytest.fixture
def plane(loaded: Tunnelled) -> Tunnelled:
    loaded.reset()
    return loaded


def header(at: Site, **fields: object) -> Packet:
    return IP(src=at.client, dst=at.vip, **fields) if at.inner == 4 else IPv6(src=at.client, dst=at.vip, **fields)


def framed(packet: Packet, *, tags: Packet | None = None) -> bytes:
    ethernet = Ether(dst=OWN_MAC, src=CLIENT_MAC)
    return bytes(ethernet / tags / packet if tags is not None else ethernet / packet)


def tcp(at: Site, *, length: int | None = None, says: str = "S", tags: Packet | None = None, **fields: object) -> bytes:
    """A frame whose packet has `length` bytes, headers included; `fields` are of IP."""
    headers = header(at, **fields) / TCP(sport=40000, dport=PORT, flags=says)
    data = b"" if length is None else random.Random(length).randbytes(length - len(bytes(headers)))
    return framed(headers / data, tags=tags)


def udp(at: Site, data: bytes = b"query", **fields: object) -> bytes:
    return framed(header(at, **fields) / UDP(sport=40000, dport=PORT) / data)


def datagram(frame: bytes) -> Datagram:
    read = parse_datagram(Link(frame=frame, offset=14))
    assert isinstance(read, Datagram)
    return read


def way(at: Site) -> Tunnel:
    return Tunnel(
        source=ip_address(at.director),
        destination=ip_address(at.server),
        kind=at.kind,
        port=GUE_PORT,
        checksum=at.checksum,
    )


def is_right(packet: Packet, kind: type[Packet], name: str = "chksum") -> bool:
    """Would scapy write the same checksum?"""
    said = getattr(packet[kind], name)
    copy = packet.copy()
    delattr(copy[kind], name)
    return bool(getattr(copy.__class__(bytes(copy))[kind], name) == said)


def read(frame: bytes, at: Site) -> tuple[Packet, bytes]:
    """The outer packet as scapy reads it, its checksums verified; and the inner one's bytes."""
    packet = Ether(frame)
    outer = packet[IP] if at.outer == 4 else packet[IPv6]
    assert (outer.src, outer.dst) == (at.director, at.server)
    if at.outer == 4:
        assert is_right(outer, IP)
    protocol = 4 if at.inner == 4 else 41
    number = outer.proto if at.outer == 4 else outer.nh
    if at.kind is TunnelKind.IPIP:
        assert number == protocol
        return outer, bytes(outer.payload)
    if at.kind is TunnelKind.GUE:
        shim = outer[UDP]
        assert (number, shim.dport) == (17, GUE_PORT)
        assert shim.sport >= 49152
        assert shim.len == len(bytes(shim))
        if at.checksum:
            assert shim.chksum
            assert is_right(outer, UDP)
        else:
            assert shim.chksum == 0
        raw = bytes(shim.payload)
        assert raw[:4] == bytes((0, protocol, 0, 0))
        return outer, raw[4:]
    shim = outer[GRE]
    assert number == 47
    assert shim.proto == (0x0800 if at.inner == 4 else 0x86DD)
    assert shim.chksum_present == at.checksum
    raw = bytes(outer.payload)
    if at.checksum:
        # Scapy would leave out what it takes for padding of the inner packet.
        assert internet_checksum(raw) == 0
    return outer, raw[8 if at.checksum else 4 :]


@ALL
@pytest.mark.parametrize("make", [tcp, udp], ids=["tcp", "udp"])
def test_a_packet_goes_to_its_server_as_it_is(plane: Tunnelled, at: Site, make: object) -> None:
    frame = make(at)
    answer = plane.expect(frame)
    assert answer.reason == "new_flow"
    assert answer.frame[:12] == bytes.fromhex((SERVER_MAC + OWN_MAC).replace(":", ""))
    outer, inner = read(answer.frame, at)
    assert inner == frame[14:]
    assert (outer.ttl if at.outer == 4 else outer.hlim) == 64
    if at.outer == 4:
        assert outer.flags == 0
    plane.expect(frame)
    length = len(frame) - 14
    both = Tally(packets=2, bytes=2 * length, flows=1)
    assert plane.tallies(at) == (both, both)
    assert plane.oracle.service_tallies[str(at)] == both


@ALL
def test_clients_and_server_behind_one_router(plane: Tunnelled, at: Site) -> None:
    by_router = bytes.fromhex(SERVER_MAC.replace(":", ""))
    for says, reason in (("S", "new_flow"), ("A", "forwarded")):
        frame = tcp(at, says=says)
        answer = plane.expect(frame[:6] + by_router + frame[12:])
        assert answer.reason == reason
        assert read(answer.frame, at)[1] == frame[14:]


@ALL
def test_padding_stays_behind(plane: Tunnelled, at: Site) -> None:
    for padding in (1, 6, 200):
        frame = udp(at, b"")
        answer = plane.expect(frame + b"\xee" * padding)
        assert read(answer.frame, at)[1] == frame[14:]
        assert len(answer.frame) == len(frame) + at.overhead


@ALL
def test_the_outer_header_takes_over_what_it_says_to_routers(plane: Tunnelled, at: Site) -> None:
    for traffic_class in (0x00, 0x01, 0x02, 0x03, 0xB8, 0xFF):
        for hops in (1, 255):
            fields = {"tos": traffic_class, "ttl": hops} if at.inner == 4 else {"tc": traffic_class, "hlim": hops}
            outer, _ = read(plane.expect(tcp(at, **fields)).frame, at)
            assert (outer.tos if at.outer == 4 else outer.tc) == traffic_class
            assert (outer.ttl if at.outer == 4 else outer.hlim) == hops


@pytest.mark.parametrize("kind", list(TunnelKind), ids=lambda each: each.value)
def test_a_packet_that_must_not_be_fragmented_is_not_in_its_tunnel(plane: Tunnelled, kind: TunnelKind) -> None:
    at = site(kind)
    outer, _ = read(plane.expect(tcp(at, id=77)).frame, at)
    assert outer.flags == 0
    outer, _ = read(plane.expect(tcp(at, says="A", flags="DF", id=77)).frame, at)
    assert outer.flags == "DF"
    assert outer.id == 0


def test_what_may_be_fragmented_has_identifications_by_chance(plane: Tunnelled) -> None:
    seen = {IP(plane.send(tcp(IPIP4, id=1)).frame[14:]).id for _ in range(64)}
    assert len(seen) > 48


@ALL
def test_the_longest_packet_that_fits_fits(plane: Tunnelled, at: Site) -> None:
    frame = tcp(at, length=MTU - at.overhead)
    answer = plane.expect(frame)
    assert answer.reason == "new_flow"
    assert len(answer.frame) == MTU + 14
    assert read(answer.frame, at)[1] == frame[14:]


@ALL
@pytest.mark.parametrize("flags", ["DF", ""], ids=["fixed", "may-fragment"])
def test_the_sender_of_one_too_long_is_told(plane: Tunnelled, at: Site, flags: str) -> None:
    fields = {"flags": flags} if at.inner == 4 else {}
    length = MTU - at.overhead + 1
    frame = tcp(at, length=length, **fields)
    answer = plane.expect(frame)
    assert answer.reason == "too_big"
    error = Ether(answer.frame)
    assert (error.dst, error.src) == (CLIENT_MAC, OWN_MAC)
    if at.inner == 4:
        assert (error[IP].src, error[IP].dst) == (at.vip, at.client)
        assert (error[ICMP].type, error[ICMP].code, error[ICMP].nexthopmtu) == (3, 4, MTU - at.overhead)
        assert is_right(error[IP], IP)
        assert is_right(error[IP], ICMP)
        assert error[IP].len == len(answer.frame) - 14 == 576
        assert error[IPerror].dst == at.vip
        assert answer.frame[42:] == frame[14 : 14 + 548]
    else:
        assert (error[IPv6].src, error[IPv6].dst) == (at.vip, at.client)
        assert error[ICMPv6PacketTooBig].mtu == MTU - at.overhead
        assert is_right(error[IPv6], ICMPv6PacketTooBig, "cksum")
        assert len(answer.frame) == 14 + 1280
        assert answer.frame[62:] == frame[14 : 14 + 1232]
    assert plane.tallies(at)[1] == Tally()


@pytest.mark.parametrize("length", [69, 100, 547, 548, 549])
def test_an_error_about_a_short_packet_quotes_the_least(plane: Tunnelled, length: int) -> None:
    plane.serve(IPIP4, mtu=20 + 68)
    answer = plane.expect(tcp(IPIP4, length=length, says="A"))
    assert answer.reason == "too_big"
    assert Ether(answer.frame)[ICMP].nexthopmtu == 68
    assert len(answer.frame) == 14 + 28 + (548 if length >= 548 else 68)


@pytest.mark.parametrize("mtu", [0, 19, 87])
def test_a_way_narrower_than_ip_allows_takes_nothing_long(plane: Tunnelled, mtu: int) -> None:
    plane.serve(IPIP4, mtu=mtu)
    assert plane.expect(tcp(IPIP4, length=600)).reason == "no_room"


@pytest.mark.parametrize("outer", [4, 6])
def test_no_ipv6_sender_is_told_less_than_1280(plane: Tunnelled, outer: int) -> None:
    at = site(TunnelKind.IPIP, 6, outer)
    plane.serve(at, mtu=1000)
    assert Ether(plane.expect(tcp(at, length=1281)).frame)[ICMPv6PacketTooBig].mtu == 1280
    assert plane.expect(tcp(at, length=1280)).reason == "no_room"


@pytest.mark.usefixtures("one_cpu")
def test_errors_are_few(plane: Tunnelled) -> None:
    frame = tcp(IPIP4, length=MTU, says="A")
    told = 0
    while (answer := plane.send(frame)).reason == "too_big":
        told += 1
        assert told < 10_000
    assert (answer.action, answer.reason) == (Action.DROP, "no_room")
    assert told == 1000
    assert plane.send(tcp(IPIP4, says="A")).action is Action.SEND
    plane.pass_second()
    assert plane.send(frame).reason == "too_big"


@pytest.mark.parametrize("client", ["0.0.0.1", "127.0.0.1", "224.0.0.1", "255.255.255.255"])
def test_nobody_is_told_who_is_no_host(plane: Tunnelled, client: str) -> None:
    frame = framed(IP(src=client, dst=IPIP4.vip) / UDP(sport=40000, dport=PORT) / bytes(MTU - 28))
    assert plane.expect(frame).reason == "no_room"


@pytest.mark.parametrize("client", ["::", "ff02::1"])
def test_nobody_is_told_who_is_no_ipv6_host(plane: Tunnelled, client: str) -> None:
    at = site(TunnelKind.IPIP, 6, 6)
    frame = framed(IPv6(src=client, dst=at.vip) / UDP(sport=40000, dport=PORT) / bytes(MTU - 48))
    assert plane.expect(frame).reason == "no_room"


def test_an_error_goes_back_with_its_tags(plane: Tunnelled) -> None:
    for tags in (Dot1Q(vlan=7, prio=3), Dot1Q(vlan=7) / Dot1Q(vlan=9)):
        answer = plane.expect(tcp(IPIP4, length=MTU, tags=tags))
        assert answer.reason == "too_big"
        back = Ether(answer.frame)
        assert back[Dot1Q].vlan == 7
        assert is_right(back[IP], ICMP)


@ALL
def test_tags_are_those_of_the_way(plane: Tunnelled, at: Site) -> None:
    plane.expect(tcp(at, tags=Dot1Q(vlan=7)))
    answer = plane.expect(tcp(at, tags=Dot1Q(vlan=7) / Dot1Q(vlan=9)))
    assert Dot1Q not in Ether(answer.frame)
    read(answer.frame, at)
    plane.serve(at, vlan=42)
    for tags, priority in ((None, 0), (Dot1Q(vlan=7, prio=5), 5), (Dot1Q(vlan=7, prio=5) / Dot1Q(vlan=9), 5)):
        answer = plane.expect(tcp(at, tags=tags))
        assert (Ether(answer.frame)[Dot1Q].vlan, Ether(answer.frame)[Dot1Q].prio) == (42, priority)
        read(answer.frame, at)


def test_a_server_behind_another_interface(plane: Tunnelled) -> None:
    plane.serve(IPIP4, interface=OTHER_INTERFACE)
    assert plane.expect(tcp(IPIP4)).redirected


def test_without_an_address_of_ours_on_the_way_nothing_leaves(plane: Tunnelled) -> None:
    plane.serve(IPIP4, source=False)
    answer = plane.expect(tcp(IPIP4))
    assert (answer.action, answer.reason) == (Action.DROP, "no_server")


def test_without_head_room_nothing_leaves(plane: Tunnelled) -> None:
    jumps = bpf.map_create(3, 4, 4, 1, name="jumps")
    with closing(jumps):
        bpf.map_update(jumps, bytes(4), plane.program.to_bytes(4, "little"))
        for taken, reason in ((100, "new_flow"), (200, "no_room")):
            with closing(bpf.prog_load(without_head_room(jumps, taken), name="narrow")) as narrow:
                answer = plane.send(tcp(IPIP4, length=60), narrow)
                assert answer.reason == reason
            plane.reset()


@pytest.mark.parametrize("at", CHECKED, ids=str)
@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 63, 64, 65, 127, 128, 1000, 1350])
def test_checksums_where_the_packet_has_none(plane: Tunnelled, at: Site, size: int) -> None:
    data = random.Random(size).randbytes(size)
    if at.inner == 4:
        # Without a checksum of its own.
        frame = framed(header(at) / UDP(sport=40000, dport=PORT, chksum=0) / data)
        read(plane.expect(frame).frame, at)
    chunk = SCTP(sport=40000, dport=PORT) / SCTPChunkInit() / data
    read(plane.expect(framed(header(at) / chunk)).frame, at)
    if size:
        # Padding of IP behind the datagram of UDP.
        short = UDP(sport=40000, dport=PORT, len=8 + size // 2, chksum=0x1234) / data
        read(plane.expect(framed(header(at) / short)).frame, at)


@pytest.mark.parametrize("at", CHECKED, ids=str)
def test_checksums_behind_options(plane: Tunnelled, at: Site) -> None:
    if at.inner == 4:
        frame = framed(
            IP(src=at.client, dst=at.vip, options=b"\x01\x01\x01\x00") / TCP(sport=40000, dport=PORT) / b"odd"
        )
    else:
        frame = framed(header(at) / IPv6ExtHdrDestOpt() / TCP(sport=40000, dport=PORT) / b"odd")
    _, inner = read(plane.expect(frame).frame, at)
    assert inner == frame[14:]


@pytest.mark.parametrize("at", CHECKED, ids=str)
def test_a_wrong_checksum_stays_wrong(plane: Tunnelled, at: Site) -> None:
    frame = bytearray(tcp(at, length=100))
    frame[-1] ^= 0x55
    answer = plane.send(bytes(frame))
    assert answer.reason == "new_flow"
    with pytest.raises(AssertionError):
        read(answer.frame, at)


@ALL
def test_fragments(plane: Tunnelled, at: Site) -> None:
    segment = bytes(UDP(sport=40000, dport=PORT, len=1008, chksum=0xBEEF) / random.Random(1).randbytes(1000))
    for place, (first, last) in enumerate(((0, 600), (600, 1008))):
        if at.inner == 4:
            flags = "MF" if place == 0 else ""
            frame = framed(header(at, id=9, flags=flags, frag=first // 8, proto=17) / Raw(segment[first:last]))
        else:
            fragment = IPv6ExtHdrFragment(nh=17, offset=first // 8, m=int(place == 0), id=9)
            frame = framed(header(at) / fragment / Raw(segment[first:last]))
        answer = plane.send(frame)
        assert answer.reason == ("new_flow" if place == 0 else "later_fragment")
        assert without_identification(answer.frame)[14:] == encapsulated(datagram(frame), way(at))
        _, inner = read(answer.frame, at)
        assert inner == frame[14:]


def test_fragments_of_a_datagram_have_one_source_port(plane: Tunnelled) -> None:
    at = site(TunnelKind.GUE)
    ports = []
    for offset, flags in ((0, "MF"), (10, "MF"), (20, "")):
        data = bytes(UDP(sport=1, dport=PORT, len=240, chksum=1)) + bytes(72) if offset == 0 else bytes(80)
        answer = plane.send(framed(header(at, id=5, flags=flags, frag=offset, proto=17) / Raw(data)))
        ports.append(Ether(answer.frame)[UDP].sport)
    assert len(set(ports)) == 1


def test_later_fragments_and_errors_that_are_too_long_are_not_answered(plane: Tunnelled) -> None:
    first = bytes(UDP(sport=40000, dport=PORT, len=3000, chksum=1)) + bytes(64)
    assert plane.send(framed(header(IPIP4, id=5, flags="MF", proto=17) / Raw(first))).reason == "new_flow"
    later = framed(header(IPIP4, id=5, frag=9, proto=17) / Raw(bytes(1480)))
    answer = plane.send(later)
    assert (answer.action, answer.reason) == (Action.DROP, "no_room")


def test_an_icmp_error_about_a_packet_of_a_flow_goes_to_its_server(plane: Tunnelled) -> None:
    at = site(TunnelKind.GUE, checksum=True)
    assert plane.send(tcp(at)).reason == "new_flow"
    quoted = IP(src=at.vip, dst=at.client) / TCP(sport=PORT, dport=40000, flags="A") / b"odd"
    frame = framed(IP(src="192.0.2.99", dst=at.vip) / ICMP(type=3, code=4, nexthopmtu=1400) / bytes(quoted))
    answer = plane.send(frame)
    assert answer.reason == "icmp_error"
    _, inner = read(answer.frame, at)
    assert inner == frame[14:]


def test_flows_differ_in_source_ports_and_labels(plane: Tunnelled) -> None:
    gue, six = site(TunnelKind.GUE), site(TunnelKind.IPIP, 4, 6)
    ports, labels = set(), set()
    for port in range(1024, 1152):
        for at in (gue, six):
            frame = framed(header(at) / TCP(sport=port, dport=PORT, flags="S"))
            outer = Ether(plane.expect(frame).frame)
            if at is gue:
                ports.add(outer[UDP].sport)
            else:
                labels.add(outer[IPv6].fl)
            # Settled, it makes room: five half-open flows of one bucket would be one too many.
            plane.expect(framed(header(at) / TCP(sport=port, dport=PORT, flags="A")))
    assert len(ports) > 120
    assert len(labels) > 120


@pytest.mark.parametrize("at", [IPIP4, site(TunnelKind.GUE, 6, 6, checksum=True)], ids=str)
def test_a_packet_that_is_cut_is_the_kernels(plane: Tunnelled, at: Site) -> None:
    frame = tcp(at, length=100)
    for length in range(14, len(frame)):
        answer = plane.expect(frame[:length])
        assert answer.action is Action.PASS


def test_long_frames_of_several_buffers() -> None:
    with tunnelled(frags=True) as plane:
        for at in SITES:
            plane.serve(at, mtu=9000)
            frame = tcp(at, length=9000 - at.overhead)
            answer = plane.expect(frame)
            assert answer.reason == "new_flow"
            _, inner = read(answer.frame, at)
            assert inner == frame[14:]
            assert plane.expect(tcp(at, length=9001 - at.overhead)).reason == "too_big"
        # The sum of what lies in further buffers is nobody's.
        checked = site(TunnelKind.GRE, checksum=True)
        unsummed = framed(header(checked) / UDP(sport=1, dport=PORT, chksum=0) / bytes(8000))
        assert plane.send(unsummed).reason == "no_room"
        assert (
            plane.send(framed(header(checked) / UDP(sport=1, dport=PORT, chksum=0) / bytes(3000))).reason != "no_room"
        )


def test_only_what_the_configuration_needs() -> None:
    """Without services of IPv6 and long frames: servers may be of IPv6 all the same."""
    with tunnelled(features=replace(FEATURES, ipv6=False, jumbo=False)) as plane:
        for at in SITES:
            if at.inner == 4:
                frame = udp(at, b"")
                answer = plane.expect(frame + bytes(18))
                assert read(answer.frame, at)[1] == frame[14:]
                assert plane.expect(tcp(at, length=MTU)).reason == "too_big"
                unsummed = framed(header(at) / UDP(sport=1, dport=PORT, chksum=0) / b"odd")
                read(plane.expect(unsummed).frame, at)


@settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_packet(plane: Tunnelled, data: st.DataObject) -> None:
    # Else those of all examples would be on record, and now and then five of one bucket.
    plane.reset()
    at = data.draw(st.sampled_from(SITES))
    mtu = data.draw(st.one_of(st.integers(0, 1600), st.just(MTU), st.just(65535)))
    plane.serve(at, mtu=mtu, vlan=data.draw(st.sampled_from([0, 0, 1, 4094])))
    if at.inner == 4:
        options = data.draw(st.sampled_from([b"", b"\x01\x01\x01\x00", bytes([1] * 40)]))
        ip = header(
            at,
            tos=data.draw(st.integers(0, 255)),
            ttl=data.draw(st.integers(0, 255)),
            id=data.draw(st.integers(0, 65535)),
            flags=data.draw(st.sampled_from(["", "DF"])),
            options=options,
        )
    else:
        ip = header(
            at,
            tc=data.draw(st.integers(0, 255)),
            hlim=data.draw(st.integers(0, 255)),
            fl=data.draw(st.integers(0, 0xFFFFF)),
        )
        if data.draw(st.booleans()):
            ip /= IPv6ExtHdrDestOpt()
    payload = random.Random(data.draw(st.integers(0, 9))).randbytes(data.draw(st.integers(0, 1700)))
    port = data.draw(st.integers(1, 65535))
    segment = data.draw(
        st.sampled_from(
            [
                TCP(sport=port, dport=PORT, flags="S"),
                TCP(sport=port, dport=PORT, flags="PA"),
                UDP(sport=port, dport=PORT),
                SCTP(sport=port, dport=PORT) / SCTPChunkInit(),
            ]
        )
    )
    tags = data.draw(st.sampled_from([None, Dot1Q(vlan=3, prio=2), Dot1Q(vlan=3) / Dot1Q(vlan=4)]))
    frame = framed(ip / segment / payload, tags=tags)
    plane.expect(frame + bytes(data.draw(st.integers(0, 40))))


def test_replaced(plane: Tunnelled) -> None:
    """A server's tunnel may change while flows go on."""
    at = IPIP4
    plane.expect(tcp(at))
    changed = replace(at, kind=TunnelKind.GUE)
    plane.serve(changed)
    answer = plane.send(tcp(at, says="A"))
    assert answer.reason == "forwarded"
    assert read(answer.frame, changed)[1] == tcp(at, says="A")[14:]
