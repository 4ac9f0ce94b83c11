"""NAT, both directions: what leaves is what the oracle says, and every checksum is right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, IPerror
from scapy.layers.inet6 import ICMPv6PacketTooBig, IPerror6, IPv6, IPv6ExtHdrFragment
from scapy.layers.l2 import Ether
from scapy.layers.sctp import SCTP

from haxlb.forwarding.layout import pack_mac
from haxlb.forwarding.reference_nat import Place, Way, link_of, quote_of, translated, translated_error
from haxlb.forwarding.reference_packet import parse_datagram, parse_packet
from haxlb.forwarding.replies import Answer
from haxlb.forwarding.wanted import NextHop
from haxlb.linux.replies import forget_replies
from haxlb.model.addresses import Protocol
from tests.bpf import natted
from tests.bpf.natted import (
    ALL,
    ALL6,
    CLIENT,
    CLIENT6,
    CLIENT_MAC,
    DIRECT,
    DNS,
    DNS6,
    OTHER_INTERFACE,
    OWN_MAC,
    REPLIES,
    ROUTER_MAC,
    SINGLE,
    TWIN,
    WEB,
    WEB6,
    Natted,
    Site,
    answer,
    error,
    expect_checksums,
    packet,
)

pytestmark = pytest.mark.bpf

ROUTER, ROUTER6 = "203.0.113.9", "fd98::9"
NATTED = (WEB, DNS, ALL, WEB6, DNS6, ALL6)
EACH = pytest.mark.parametrize("site", NATTED, ids=lambda site: f"{site.vip}-{site.protocol.value}-{site.port}")


@pytest.fixture(scope="module")
def loaded() -> Iterator[Natted]:
    with natted.natted() as made:
        yield made


@pytest.fixture
def plane(loaded: Natted) -> Natted:
    loaded.reset()
    return loaded


def client_of(site: Site) -> str:
    return CLIENT6 if ":" in site.vip else CLIENT


def router_of(site: Site) -> str:
    return ROUTER6 if ":" in site.vip else ROUTER


def to_server(frame: bytes, site: Site) -> bytes:
    """As the oracle has the server get it."""
    datagram = parse_datagram(link_of(frame))
    assert not isinstance(datagram, str)
    whole = parse_packet(datagram)
    port = site.server_port or (0 if isinstance(whole, str) else whole.destination_port)
    place = Place(address=ip_address(site.server), port=port)
    return pack_mac(site.mac) + pack_mac(OWN_MAC) + translated(datagram, Way.TO_SERVER, place)[12:]


def to_client(frame: bytes, site: Site, port: int, *, mac: str = CLIENT_MAC) -> bytes:
    """As the oracle has the client get it."""
    datagram = parse_datagram(link_of(frame))
    assert not isinstance(datagram, str)
    place = Place(address=ip_address(site.vip), port=site.vport(port))
    return pack_mac(mac) + pack_mac(OWN_MAC) + translated(datagram, Way.TO_CLIENT, place)[12:]


def error_to_client(frame: bytes, site: Site, port: int) -> bytes:
    datagram = parse_datagram(link_of(frame))
    assert not isinstance(datagram, str)
    quote = quote_of(datagram)
    assert quote is not None
    place = Place(address=ip_address(site.vip), port=site.vport(port))
    return pack_mac(CLIENT_MAC) + pack_mac(OWN_MAC) + translated_error(datagram, quote, Way.TO_CLIENT, place)[12:]


def error_to_server(frame: bytes, site: Site) -> bytes:
    datagram = parse_datagram(link_of(frame))
    assert not isinstance(datagram, str)
    quote = quote_of(datagram)
    assert quote is not None
    place = Place(address=ip_address(site.server), port=site.server_port or quote.source_port)
    return pack_mac(site.mac) + pack_mac(OWN_MAC) + translated_error(datagram, quote, Way.TO_SERVER, place)[12:]


def key(site: Site, port: int) -> Answer:
    return Answer(
        client=ip_address(client_of(site)),
        client_port=port,
        server=ip_address(site.server),
        server_port=site.server_port or site.vport(port),
        protocol=site.protocol,
    )


@EACH
def test_a_request_and_its_answer(plane: Natted, site: Site) -> None:
    asked = packet(site, client_of(site), 40000, data=b"odd")
    sent = plane.send(asked)
    assert (sent.verdict, sent.reason) == ("send", "new_flow")
    assert sent.frame == to_server(asked, site)
    expect_checksums(sent.frame)
    said = answer(site, client_of(site), 40000, data=b"odd too")
    back = plane.send(said)
    assert (back.verdict, back.reason) == ("send", "reply")
    assert back.frame == to_client(said, site, 40000)
    expect_checksums(back.frame)
    made = Ether(back.frame)
    assert (made[1].src, made[2].sport) == (site.vip, site.vport(40000))
    assert list(plane.replies()) == [key(site, 40000)]


@EACH
def test_an_answer_that_nobody_asked_for_is_the_kernels(plane: Natted, site: Site) -> None:
    plane.send(packet(site, client_of(site), 40000))
    for said in (answer(site, client_of(site), 40001), answer(replace(site, server_port=9), client_of(site), 40000)):
        back = plane.send(said)
        assert (back.verdict, back.reason, back.frame) == ("pass", "no_service", said)


def test_only_frames_to_us_are_translated_back(plane: Natted) -> None:
    plane.send(packet(WEB, CLIENT, 40000))
    flooded = answer(WEB, CLIENT, 40000, to="02:00:00:00:00:ee")
    back = plane.send(flooded)
    assert (back.verdict, back.reason, back.frame) == ("pass", "not_for_us", flooded)


@pytest.mark.parametrize("ttl", [0, 1])
def test_a_packet_at_the_end_of_its_ttl(plane: Natted, ttl: int) -> None:
    for site in (WEB, WEB6):
        asked = plane.send(packet(site, client_of(site), 40000, ttl=ttl))
        assert (asked.verdict, asked.reason) == ("drop", "hop_limit")
        plane.send(packet(site, client_of(site), 40000))
        back = plane.send(answer(site, client_of(site), 40000, ttl=ttl))
        assert (back.verdict, back.reason) == ("pass", "hop_limit")


def test_ip_options_stay(plane: Natted) -> None:
    asked = packet(WEB, CLIENT, 40000, ip={"options": [b"\x01" * 36]}, data=b"x" * 100)
    sent = plane.send(asked)
    assert sent.frame == to_server(asked, WEB)
    expect_checksums(sent.frame)


@pytest.mark.parametrize("site", [DNS, DNS6], ids=["IPv4", "IPv6"])
def test_udp_without_a_checksum_stays_so(plane: Natted, site: Site) -> None:
    asked = bytearray(packet(site, client_of(site), 40000, data=b"query"))
    at = len(asked) - len(b"query") - 2
    asked[at : at + 2] = bytes(2)
    sent = plane.send(bytes(asked))
    assert sent.frame[at : at + 2] == bytes(2)
    assert sent.frame == to_server(bytes(asked), site)


def test_udp_whose_new_checksum_is_zero_says_ffff(plane: Natted) -> None:
    """RFC 768: an all zero transmitted checksum value means that the transmitter generated no checksum."""
    without = to_server(packet(DNS, CLIENT, 40000, data=b"\0\0"), DNS)
    sent = plane.send(packet(DNS, CLIENT, 40000, data=without[40:42]))
    assert sent.frame[40:42] == b"\xff\xff"
    expect_checksums(sent.frame)


@pytest.mark.parametrize("site", [WEB, DNS, WEB6, DNS6], ids=lambda site: f"{site.vip}-{site.protocol.value}")
def test_a_wrong_checksum_stays_wrong(plane: Natted, site: Site) -> None:
    asked = bytearray(packet(site, client_of(site), 40000, data=b"query"))
    asked[-1] ^= 0x55
    sent = plane.send(bytes(asked))
    assert sent.frame == to_server(bytes(asked), site)
    with pytest.raises(AssertionError):
        expect_checksums(sent.frame)


@EACH
@pytest.mark.parametrize("most", [28, 200], ids=["least quoted", "whole"])
def test_a_router_tells_the_client_of_a_request(plane: Natted, site: Site, most: int) -> None:
    forwarded = plane.send(packet(site, client_of(site), 40000, data=b"x" * 60)).frame
    told = error(forwarded, router_of(site), most=most + 20 * (":" in site.vip))
    back = plane.send(told)
    assert (back.verdict, back.reason) == ("send", "reply")
    assert back.frame == error_to_client(told, site, 40000)
    expect_checksums(back.frame)
    outer = Ether(back.frame)
    assert (outer[1].src, outer[1].dst) == (site.vip, client_of(site))


@EACH
@pytest.mark.parametrize("most", [28, 200], ids=["least quoted", "whole"])
def test_a_router_tells_the_server_of_an_answer(plane: Natted, site: Site, most: int) -> None:
    plane.send(packet(site, client_of(site), 40000))
    answered = plane.send(answer(site, client_of(site), 40000, data=b"y" * 61)).frame
    told = error(answered, router_of(site), most=most + 20 * (":" in site.vip))
    sent = plane.send(told)
    assert (sent.verdict, sent.reason) == ("send", "icmp_error")
    assert sent.frame == error_to_server(told, site)
    expect_checksums(sent.frame)


def test_an_error_that_quotes_too_little_is_the_kernels(plane: Natted) -> None:
    forwarded = plane.send(packet(WEB, CLIENT, 40000)).frame
    told = error(forwarded, ROUTER, most=27)
    back = plane.send(told)
    assert (back.verdict, back.frame) == ("pass", told)


def test_an_error_to_another_than_the_client_is_the_kernels(plane: Natted) -> None:
    forwarded = plane.send(packet(WEB, CLIENT, 40000)).frame
    told = bytearray(error(forwarded, ROUTER))
    told[33] ^= 1
    back = plane.send(bytes(told))
    assert (back.verdict, back.reason) == ("pass", "other_protocol")


def test_an_echo_request_of_a_server_is_the_kernels(plane: Natted) -> None:
    plane.send(packet(WEB, CLIENT, 40000))
    echo = bytes(Ether(dst=OWN_MAC, src=WEB.mac) / IP(src=WEB.server, dst=CLIENT) / ICMP() / (b"z" * 40))
    assert plane.send(echo).reason == "other_protocol"


@pytest.mark.parametrize("site", [DNS, DNS6], ids=["IPv4", "IPv6"])
def test_fragments_follow_their_first(plane: Natted, site: Site) -> None:
    client = client_of(site)
    whole = packet(site, client, 40000, data=b"q" * 2400)
    parts = fragments(whole, 7)
    assert len(parts) == 2
    translated_parts = [plane.send(part) for part in parts]
    assert [each.reason for each in translated_parts] == ["new_flow", "later_fragment"]
    assert [each.frame for each in translated_parts] == [to_server(part, site) for part in parts]
    assert joined([each.frame for each in translated_parts]) == to_server(whole, site)[14:]
    said = answer(site, client, 40000, data=b"r" * 2400)
    parts = fragments(said, 8)
    back = [plane.send(part) for part in parts]
    assert [each.reason for each in back] == ["reply", "reply"]
    assert [each.frame for each in back] == [to_client(part, site, 40000) for part in parts]
    assert joined([each.frame for each in back]) == to_client(said, site, 40000)[14:]


@pytest.mark.parametrize("site", [DNS, DNS6], ids=["IPv4", "IPv6"])
def test_a_later_fragment_before_its_first_is_the_kernels(plane: Natted, site: Site) -> None:
    for whole in (
        packet(site, client_of(site), 40000, data=b"q" * 2400),
        answer(site, client_of(site), 40000, data=b"r" * 2400),
    ):
        later = fragments(whole, 9)[1]
        got = plane.send(later)
        assert (got.verdict, got.reason, got.frame) == ("pass", "fragment", later)


def fragments(frame: bytes, identification: int) -> list[bytes]:
    """Two, of an untagged frame of UDP."""
    made = Ether(frame)
    header, body, size = frame[:14], bytes(made[2]), 1400
    parts = []
    for at in range(0, len(body), size):
        last = at + size >= len(body)
        if IPv6 in made:
            fragment = IPv6ExtHdrFragment(nh=17, offset=at // 8, m=not last, id=identification)
            network = IPv6(src=made[1].src, dst=made[1].dst, hlim=made[1].hlim) / fragment
        else:
            network = IP(src=made[1].src, dst=made[1].dst, ttl=made[1].ttl, id=identification, proto=17)
            network.frag, network.flags = at // 8, "" if last else "MF"
        parts.append(header + bytes(network / body[at : at + size]))
    return parts


def joined(frames: list[bytes]) -> bytes:
    """The packet that the fragments are, without what made it fragments."""
    first = Ether(frames[0])
    if IPv6 in first:
        body = b"".join(frame[14 + 40 + 8 :] for frame in frames)
        return bytes(IPv6(src=first[1].src, dst=first[1].dst, hlim=first[1].hlim, nh=17) / body)
    body = b"".join(frame[34:] for frame in frames)
    return bytes(IP(src=first[1].src, dst=first[1].dst, ttl=first[1].ttl, proto=17) / body)


def state_of(plane: Natted) -> str:
    (flow,) = plane.flows()
    return flow.state.name


def test_what_the_server_says_of_a_connection(plane: Natted) -> None:
    plane.send(packet(WEB, CLIENT, 40000))
    plane.send(answer(WEB, CLIENT, 40000, flags="SA"))
    assert state_of(plane) == "TCP_NEW", "a forger of SYNs would settle flows"
    plane.send(packet(WEB, CLIENT, 40000, flags="A"))
    plane.send(answer(WEB, CLIENT, 40000, flags="A"))
    assert state_of(plane) == "TCP_ESTABLISHED"
    plane.send(answer(WEB, CLIENT, 40000, flags="FA"))
    assert state_of(plane) == "TCP_CLOSING"
    assert plane.send(answer(WEB, CLIENT, 40000, flags="A")).reason == "reply", "it lasts as long as its flow"


def test_a_refused_connection_is_closing(plane: Natted) -> None:
    plane.send(packet(WEB, CLIENT, 40000))
    plane.send(answer(WEB, CLIENT, 40000, flags="RA"))
    assert state_of(plane) == "TCP_CLOSING"


@pytest.mark.parametrize("site", [WEB, DNS, ALL, WEB6], ids=lambda site: f"{site.vip}-{site.protocol.value}")
def test_answers_keep_a_flow(plane: Natted, site: Site) -> None:
    """A download without a word of the client."""
    client = client_of(site)
    plane.send(packet(site, client, 40000))
    plane.send(packet(site, client, 40000, flags="A"))
    plane.age(200)
    (before,) = plane.flows()
    plane.send(answer(site, client, 40000, flags="A"))
    (after,) = plane.flows()
    assert after.stamp - before.stamp >= 199 * plane.ticks_per_second()
    assert after.state == before.state


def test_syn_and_ack_do_not_keep_a_half_open_flow(plane: Natted) -> None:
    plane.send(packet(WEB, CLIENT, 40000))
    plane.age(20)
    (before,) = plane.flows()
    plane.send(answer(WEB, CLIENT, 40000, flags="SA"))
    assert plane.flows() == [before]


def test_without_its_flow_an_answer_is_forgotten(plane: Natted) -> None:
    plane.send(packet(WEB, CLIENT, 40000))
    for name in ("flows", "overflow"):
        with plane.table(name) as table:
            table[:] = bytes(len(table))
    said = answer(WEB, CLIENT, 40000)
    back = plane.send(said)
    assert (back.verdict, back.reason, back.frame) == ("pass", "no_service", said)
    assert not plane.replies()


@pytest.mark.parametrize("site", [WEB, DNS, ALL, WEB6, ALL6], ids=lambda site: f"{site.vip}-{site.protocol.value}")
def test_evicted_flows_take_their_answers_along(plane: Natted, site: Site) -> None:
    """A thousand clients in a table of few: what answers is always what is on record."""
    client = client_of(site)
    for port in range(1024, 1924):
        plane.send(packet(site, client, port))
        plane.age(4)
    recorded = {flow.source_port for flow in plane.flows()}
    answered = {each.client_port for each in plane.replies()}
    assert len(recorded) < 900
    assert answered == recorded & answered
    assert len(answered) == min(REPLIES, len(recorded))


def test_a_full_table_drops_and_evicts_nothing(plane: Natted) -> None:
    for port in range(2000, 2000 + REPLIES):
        assert plane.send(packet(WEB, CLIENT, port)).reason == "new_flow"
        assert plane.send(packet(WEB, CLIENT, port, flags="A")).reason == "forwarded"
    full = plane.send(packet(WEB, CLIENT, 5000))
    assert (full.verdict, full.reason) == ("drop", "table_full")
    for port in range(2000, 2000 + REPLIES):
        assert plane.send(answer(WEB, CLIENT, port, flags="A")).reason == "reply"
    assert plane.send(packet(WEB, CLIENT, 5000)).reason == "table_full", "its retransmission, too"


def test_two_services_of_one_server_and_the_same_port_of_a_client(plane: Natted) -> None:
    """The server could not tell the two connections apart: the second is refused while the first lasts."""
    plane.send(packet(WEB, CLIENT, 40000))
    second = plane.send(packet(TWIN, CLIENT, 40000))
    assert (second.verdict, second.reason) == ("drop", "table_full")
    back = plane.send(answer(WEB, CLIENT, 40000))
    assert Ether(back.frame)[IP].src == WEB.vip
    for name in ("flows", "overflow"):
        with plane.table(name) as table:
            table[:] = bytes(len(table))
    assert plane.send(packet(TWIN, CLIENT, 40000)).reason == "new_flow"
    assert Ether(plane.send(answer(TWIN, CLIENT, 40000)).frame)[IP].src == TWIN.vip


def test_the_client_is_where_its_last_packet_came_from(plane: Natted) -> None:
    plane.send(packet(WEB, CLIENT, 40000))
    plane.send(packet(WEB, CLIENT, 40000, flags="A", by=ROUTER_MAC))
    said = answer(WEB, CLIENT, 40000, flags="A")
    assert plane.send(said).frame == to_client(said, WEB, 40000, mac=ROUTER_MAC)


def test_what_the_other_director_passes_on_moves_no_client(plane: Natted) -> None:
    peer = NextHop(interface_index=1, source_mac=OWN_MAC, destination_mac="02:00:00:00:00:bb")
    plane.serve(WEB, peer=peer)
    plane.send(packet(WEB, CLIENT, 40000))
    passed_on = plane.send(packet(WEB, CLIENT, 40000, flags="A", by="02:00:00:00:00:bb"))
    assert passed_on.reason == "forwarded"
    said = answer(WEB, CLIENT, 40000, flags="A")
    assert plane.send(said).frame == to_client(said, WEB, 40000)


def test_a_server_behind_another_interface(plane: Natted) -> None:
    hop = NextHop(interface_index=OTHER_INTERFACE, source_mac=OWN_MAC, destination_mac=WEB.mac)
    plane.serve(WEB, hop=hop)
    asked = packet(WEB, CLIENT, 40000)
    sent = plane.send(asked)
    assert (sent.verdict, sent.reason, sent.frame) == ("redirect", "new_flow", to_server(asked, WEB))


def tagged(frame: bytes, *tags: int) -> bytes:
    return frame[:12] + b"".join(b"\x81\x00" + tag.to_bytes(2, "big") for tag in tags) + frame[12:]


@pytest.mark.parametrize("site", [WEB, WEB6], ids=["IPv4", "IPv6"])
def test_a_client_on_a_vlan(plane: Natted, site: Site) -> None:
    """The server is on none: the tag goes, and comes back."""
    asked = packet(site, client_of(site), 40000)
    sent = plane.send(tagged(asked, 7))
    assert (sent.reason, sent.frame) == ("new_flow", to_server(asked, site))
    said = answer(site, client_of(site), 40000)
    back = plane.send(said)
    assert (back.reason, back.frame) == ("reply", tagged(to_client(said, site, 40000), 7))


def test_a_server_on_a_vlan(plane: Natted) -> None:
    hop = NextHop(interface_index=1, source_mac=OWN_MAC, destination_mac=WEB.mac, vlan=9)
    plane.serve(WEB, hop=hop)
    asked = packet(WEB, CLIENT, 40000)
    sent = plane.send(asked)
    assert (sent.reason, sent.frame) == ("new_flow", tagged(to_server(asked, WEB), 9))
    said = answer(WEB, CLIENT, 40000)
    back = plane.send(tagged(said, 9))
    assert (back.reason, back.frame) == ("reply", to_client(said, WEB, 40000))


def test_a_client_behind_two_tags_is_not_served(plane: Natted) -> None:
    got = plane.send(tagged(packet(WEB, CLIENT, 40000), 7, 8))
    assert (got.verdict, got.reason) == ("drop", "no_room")


@pytest.mark.parametrize("site", [WEB, WEB6], ids=["IPv4", "IPv6"])
def test_a_packet_that_does_not_fit_on_the_way_to_the_server(plane: Natted, site: Site) -> None:
    hop = NextHop(interface_index=1, source_mac=OWN_MAC, destination_mac=site.mac, mtu=1400)
    plane.serve(site, hop=hop)
    header = len(packet(site, client_of(site), 40000)) - 14
    fits = packet(site, client_of(site), 40000, data=b"x" * (1400 - header))
    assert plane.send(fits).reason == "new_flow"
    got = plane.send(packet(site, client_of(site), 40000, data=b"x" * (1401 - header)))
    assert (got.verdict, got.reason) == ("send", "too_big")
    told = Ether(got.frame)
    assert (told[1].src, told[1].dst, told.dst) == (site.vip, client_of(site), CLIENT_MAC)
    assert (told[ICMPv6PacketTooBig].mtu if IPv6 in told else told[ICMP].nexthopmtu) == 1400
    quoted = told[IPerror6] if IPv6 in told else told[IPerror]
    assert (quoted.src, quoted.dst) == (client_of(site), site.vip)


def test_client_and_server_behind_one_router(plane: Natted) -> None:
    hop = NextHop(interface_index=1, source_mac=OWN_MAC, destination_mac=CLIENT_MAC)
    plane.serve(WEB, hop=hop)
    assert plane.send(packet(WEB, CLIENT, 40000)).reason == "new_flow"


def test_a_server_that_asks_itself(plane: Natted) -> None:
    asked = packet(WEB, WEB.server, 40000, by=WEB.mac)
    sent = plane.send(asked)
    assert (sent.verdict, sent.reason, sent.frame) == ("pass", "loop", asked)


def test_a_server_that_is_a_client_of_another(plane: Natted) -> None:
    asked = packet(ALL, WEB.server, 40000, by=WEB.mac)
    assert plane.send(asked).reason == "new_flow"
    said = answer(ALL, WEB.server, 40000)
    back = plane.send(said)
    assert back.reason == "reply"
    assert back.frame == to_client(said, ALL, 40000, mac=WEB.mac)


def test_packets_that_are_flows_of_their_own_keep_nothing(plane: Natted) -> None:
    asked = packet(SINGLE, CLIENT, 40000)
    sent = plane.send(asked)
    assert (sent.reason, sent.frame) == ("new_flow", to_server(asked, SINGLE))
    assert not plane.replies()
    assert plane.send(answer(SINGLE, CLIENT, 40000)).reason == "no_service"


def test_a_direct_service_beside_it(plane: Natted) -> None:
    asked = packet(DIRECT, CLIENT, 40000)
    assert plane.send(asked).frame == pack_mac(DIRECT.mac) + pack_mac(OWN_MAC) + asked[12:]
    assert not plane.replies()


def test_an_index_of_another_server(plane: Natted) -> None:
    plane.send(packet(WEB, CLIENT, 40000))
    plane.send(packet(ALL, CLIENT, 40000))
    assert forget_replies(plane.maps, frozenset({WEB.number, ALL.number})) == 0
    moved = replace(WEB, server="192.168.1.99")
    plane.serve(moved, incarnation=1)
    assert forget_replies(plane.maps, frozenset({WEB.number, ALL.number})) == 1
    assert list(plane.replies()) == [key(ALL, 40000)]
    assert plane.send(answer(WEB, CLIENT, 40000)).reason == "no_service"
    assert plane.send(packet(moved, CLIENT, 40000)).reason == "new_flow"
    assert set(plane.replies()) == {key(moved, 40000), key(ALL, 40000)}


def test_a_server_of_the_other_family_gets_nothing(plane: Natted) -> None:
    plane.serve(replace(WEB, server="fd01::10"))
    got = plane.send(packet(WEB, CLIENT, 40000))
    assert (got.verdict, got.reason) == ("drop", "no_server")


@EACH
def test_frames_that_are_cut_at_every_length(plane: Natted, site: Site) -> None:
    """The program reads nothing beyond them, and passes what it cannot read whole."""
    client = client_of(site)
    plane.send(packet(site, client, 40000))
    forwarded = plane.send(packet(site, client, 40000, flags="A", data=b"x" * 8)).frame
    for whole in (answer(site, client, 40000, flags="A", data=b"x" * 8), error(forwarded, router_of(site))):
        for length in range(14, len(whole)):
            got = plane.send(whole[:length])
            assert (got.verdict, got.frame) == ("pass", whole[:length])


PORTS = 4
STEP = st.tuples(
    st.sampled_from(NATTED),
    st.sampled_from(("request", "answer", "error", "error back")),
    st.integers(0, PORTS - 1),
    st.sampled_from(("S", "SA", "A", "PA", "FA", "R")),
    st.integers(0, 70),
    st.integers(2, 255),
    st.booleans(),
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps=st.lists(STEP, min_size=1, max_size=40))
def test_any_sequence_leaves_as_the_oracle_says(plane: Natted, steps: list[tuple]) -> None:
    plane.reset()
    ports = plane.ports_with_room(PORTS)
    known: set[tuple[int, int]] = set()
    for site, kind, which, flags, size, ttl, spoilt in steps:
        port = ports[which]
        client = client_of(site)
        data = bytes(size)
        met = (site.number, port) in known
        if kind == "request":
            frame = packet(site, client, port, flags=flags, data=data, ttl=ttl)
            told = to_server
            known.add((site.number, port))
        elif kind == "answer":
            frame = answer(site, client, port, flags=flags, data=data, ttl=ttl)
        elif kind == "error":
            frame = error(to_server(packet(site, client, port, flags=flags, data=data, ttl=ttl), site), router_of(site))
        else:
            said = answer(site, client, port, flags=flags, data=data, ttl=ttl)
            frame = error(to_client(said, site, port), router_of(site))
        if spoilt and data and kind in ("request", "answer"):
            frame = frame[:-1] + bytes([frame[-1] ^ 0x77])
        got = plane.send(frame)
        if kind == "request":
            assert got.frame == told(frame, site)
            assert got.reason in ("new_flow", "unknown_flow", "forwarded")
        elif not met:
            assert (got.verdict, got.frame) == ("pass", frame)
        elif kind == "answer":
            assert (got.reason, got.frame) == ("reply", to_client(frame, site, port))
        elif kind == "error":
            assert (got.reason, got.frame) == ("reply", error_to_client(frame, site, port))
        else:
            assert (got.reason, got.frame) == ("icmp_error", error_to_server(frame, site))
        if not spoilt:
            expect_checksums(got.frame)
    assert {(each.frontend, answer_.client_port) for answer_, each in plane.replies().items()} == known


def test_sctp_is_dropped(plane: Natted) -> None:
    """Its CRC covers the whole packet: the configuration refuses the two together."""
    site = replace(WEB, protocol=Protocol.SCTP)
    plane.serve(site)
    init = bytes(
        Ether(dst=OWN_MAC, src=CLIENT_MAC) / IP(src=CLIENT, dst=WEB.vip) / SCTP(sport=40000, dport=80) / (b"\1" * 20)
    )
    got = plane.send(init)
    assert (got.verdict, got.reason, got.frame) == ("drop", "no_server", init)
    assert not plane.replies()
