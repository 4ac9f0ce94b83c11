"""Later fragments and ICMP errors: they reach the server of their flow, or the kernel as they came."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from scapy.layers.inet import ICMP, IP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6, IPv6ExtHdrFragment

from haxlb.forwarding.features import Features
from haxlb.forwarding.reference import Action
from haxlb.model.addresses import Protocol
from haxlb.model.virtual_server import Scheduler
from tests.bpf.hand_filled import PEER_MAC, HandFilled, hand_filled
from tests.bpf.related_frames import (
    ANY,
    CLIENTS,
    CLIENTS6,
    DNS,
    EACH,
    HASHED,
    HASHED6,
    PEER,
    WEB,
    WEB6,
    about,
    error,
    everything,
    fragments,
    frame,
    is6,
    piece,
    quoted,
    servers,
    service,
    whole,
)

pytestmark = pytest.mark.bpf
CLIENT, CLIENT6 = CLIENTS[0], CLIENTS6[0]
UDP = Protocol.UDP
FEATURES = Features(list=False, thresholds=False, tunnel=False, nat=False)


@pytest.fixture(scope="module")
def loaded() -> Iterator[HandFilled]:
    with hand_filled(FEATURES) as made:
        yield made


@pytest.fixture
def plane(loaded: HandFilled) -> HandFilled:
    loaded.reset()
    return loaded


@pytest.mark.parametrize(
    ("client", "vip", "protocol", "vport"),
    [(CLIENT, WEB, Protocol.TCP, 80), (CLIENT, DNS, UDP, 53), (CLIENT, HASHED, UDP, 53), (CLIENT, EACH, UDP, 53),
     (CLIENT6, WEB6, Protocol.TCP, 80), (CLIENT6, HASHED6, UDP, 53), (CLIENT, ANY, Protocol.TCP, 8080)],
)  # fmt: skip
def test_later_fragments_follow_their_first_one(plane, client, vip, protocol, vport):
    plane.apply(*everything())
    plane.expect(whole(client, vip, 4000, protocol=protocol, vport=vport))
    first, *later = fragments(client, vip, 4000, protocol=protocol, vport=vport)
    to = plane.expect(first).to
    assert [plane.expect(each, "later_fragment").to for each in later] == [to] * len(later)


def test_the_fragments_of_two_datagrams_go_their_ways(plane):
    plane.apply(*everything())
    one, other = (fragments(CLIENT, DNS, port, identification=port) for port in (4000, 4001))
    to_one, to_other = plane.expect(one[0], "new_flow").to, plane.expect(other[0], "new_flow").to
    assert to_one != to_other
    assert plane.expect(one[1], "later_fragment").to == to_one
    assert plane.expect(other[1], "later_fragment").to == to_other


def test_an_identification_that_is_used_again_belongs_to_the_last_datagram(plane):
    plane.apply(*everything())
    plane.expect(fragments(CLIENT, DNS, 4000)[0])
    to = plane.expect(fragments(CLIENT, DNS, 4001)[0]).to
    assert plane.expect(fragments(CLIENT, DNS, 4001)[1], "later_fragment").to == to


@pytest.mark.parametrize(("client", "vip"), [(CLIENT, DNS), (CLIENT6, WEB6)])
def test_a_later_fragment_without_its_first_one_is_the_kernels(plane, client, vip):
    plane.apply(*everything())
    assert plane.expect(fragments(client, vip, 4000)[1], "fragment").action is Action.PASS


def test_protocol_and_addresses_tell_datagrams_apart(plane):
    plane.apply(*everything())
    plane.expect(fragments(CLIENT, DNS, 4000)[0])
    plane.expect(frame(piece(CLIENT, DNS, 6, bytes(64))), "fragment")
    plane.expect(frame(piece(CLIENTS[1], DNS, 17, bytes(64))), "fragment")
    plane.expect(frame(piece(CLIENT, DNS, 17, bytes(64), identification=8)), "fragment")
    plane.expect(frame(piece(CLIENT, DNS, 17, bytes(64))), "later_fragment")


def test_fragments_of_ipv6_need_not_agree_on_the_next_header(plane):
    plane.apply(*everything())
    to = plane.expect(fragments(CLIENT6, HASHED6, 4000)[0]).to
    later = IPv6(src=CLIENT6, dst=HASHED6) / IPv6ExtHdrFragment(nh=60, offset=25, m=0, id=7) / bytes(64)
    assert plane.expect(frame(later), "later_fragment").to == to


@pytest.mark.parametrize(("seconds", "reason"), [(29, "later_fragment"), (31, "fragment")])
def test_a_first_fragment_is_remembered_for_thirty_seconds(plane, seconds, reason):
    plane.apply(*everything())
    first, later, _ = fragments(CLIENT, DNS, 4000)
    plane.expect(first)
    plane.age(seconds)
    plane.expect(later, reason)


def test_a_dead_server_gets_no_later_fragment(plane):
    plane.apply(service(DNS, 53, protocol=UDP))
    first, later, _ = fragments(CLIENT, DNS, 4000)
    to = int(plane.expect(first).to[-2:], 16)
    plane.apply(service(DNS, 53, protocol=UDP, those=servers(dead=(to,))))
    plane.expect(later, "fragment")


def test_fragments_to_a_server_that_is_this_host_are_the_kernels(plane):
    plane.apply(service(DNS, 53, protocol=UDP, those=servers(1, local=(1,))))
    first, later, _ = fragments(CLIENT, DNS, 4000)
    plane.expect(first, "local")
    plane.expect(later, "local")


def test_a_fragment_that_is_not_addressed_to_us_is_left_alone(plane):
    plane.apply(*everything())
    first, later, _ = fragments(CLIENT, DNS, 4000)
    plane.expect(first)
    plane.expect(b"\x02\0\0\0\0\x99" + later[6:], "not_for_us")


@pytest.mark.parametrize(("client", "vip"), [(CLIENT, HASHED), (CLIENT6, HASHED6)])
def test_where_the_ring_says_it_all_a_later_fragment_may_come_first(plane, client, vip):
    plane.apply(service(vip, 53, 54, protocol=UDP, scheduler=Scheduler.MH))
    first, later, _ = fragments(client, vip, 4000)
    to = plane.expect(later, "later_fragment").to
    assert plane.expect(first, "hashed").to == to


def test_not_where_the_hash_covers_the_port(plane):
    plane.apply(service(HASHED, 53, protocol=UDP, scheduler=Scheduler.MH, hash_port=True))
    plane.expect(fragments(CLIENT, HASHED, 4000)[1], "fragment")


def test_nor_where_the_address_has_two_services_of_the_protocol(plane):
    plane.apply(
        service(HASHED, 53, protocol=UDP, scheduler=Scheduler.MH),
        service(HASHED, 54, protocol=UDP, scheduler=Scheduler.MH),
    )
    plane.expect(fragments(CLIENT, HASHED, 4000)[1], "fragment")


def test_nor_in_a_slot_whose_flows_may_be_elsewhere(plane):
    plane.apply(service(HASHED, 53, protocol=UDP, scheduler=Scheduler.MH))
    before = [(client, plane.expect(fragments(client, HASHED, 4000)[1]).to) for client in many_clients(40)]
    plane.apply(service(HASHED, 53, protocol=UDP, scheduler=Scheduler.MH, those=servers(dead=(2,))))
    reasons = {plane.expect(fragments(client, HASHED, 4000)[1]).reason for client, to in before if to.endswith(":02")}
    assert reasons == {"fragment"}
    assert {plane.expect(fragments(client, HASHED, 4000)[1]).to for client, to in before if to.endswith(":01")} == {
        "02:00:00:00:01:01"
    }


def many_clients(count):
    return [f"198.51.100.{number}" for number in range(1, count + 1)]


def test_later_fragments_go_to_the_peer_that_was_asked_about_the_first(plane):
    plane.apply(*everything(peer=PEER))
    first, later, _ = fragments(CLIENT, WEB, 4000, protocol=Protocol.TCP, vport=80)
    assert plane.expect(first, "asked_peer").to == PEER_MAC
    assert plane.expect(later, "asked_peer").to == PEER_MAC


def test_and_are_not_sent_back_to_it(plane):
    plane.apply(*everything(peer=PEER))
    first, later, _ = fragments(CLIENT, WEB, 4000, protocol=Protocol.TCP, vport=80)
    plane.expect(first, "asked_peer")
    plane.expect(from_peer(later), "fragment")


def from_peer(sent, kind=b""):
    sent = sent[:6] + bytes.fromhex(PEER_MAC.replace(":", "")) + sent[12:]
    return sent[:12] + kind + sent[14:] if kind else sent


def test_what_the_peer_asks_about_is_followed_like_a_whole_packet(plane):
    plane.apply(*everything(peer=PEER))
    first, later, _ = fragments(CLIENT, WEB, 4000, protocol=Protocol.TCP, vport=80)
    to = plane.expect(from_peer(first), "unknown_flow").to
    assert plane.expect(from_peer(later), "later_fragment").to == to


def test_where_the_directors_are_servers_the_answer_takes_the_way_of_the_first(plane):
    """Asked by 0x88b5, sent back by 0x88b6, placed by who asked: first one and later ones alike."""
    plane.apply(service(WEB, 80, those=servers(3, local=(1,)), peer=PEER))
    first, later, _ = fragments(CLIENT, WEB, 4000, protocol=Protocol.TCP, vport=80)
    assert plane.expect(first, "asked_peer").frame[12:14] == b"\x88\xb5"
    assert plane.expect(later, "asked_peer").frame[12:14] == b"\x88\xb5"
    placed = plane.expect(from_peer(first, b"\x88\xb6"))
    assert placed.reason in ("unknown_flow", "local")
    assert plane.expect(later).to == placed.to


def test_and_the_one_that_is_asked_sends_all_of_them_back(plane):
    plane.apply(service(WEB, 80, those=servers(3, local=(1,)), peer=PEER))
    first, later, _ = fragments(CLIENT, WEB, 4000, protocol=Protocol.TCP, vport=80)
    assert plane.expect(from_peer(first, b"\x88\xb5"), "asked_peer").frame[12:14] == b"\x88\xb6"
    assert plane.expect(from_peer(later, b"\x88\xb5"), "asked_peer").frame[12:14] == b"\x88\xb6"
    plane.expect(from_peer(later), "local")


@pytest.mark.parametrize("kind", [3, 4, 11, 12])
def test_an_error_about_a_flow_reaches_its_server(plane, kind):
    plane.apply(*everything())
    to = plane.expect(whole(CLIENT, WEB, 4000)).to
    before = plane.flows()
    assert plane.expect(error(quoted(WEB, CLIENT, 80, 4000), WEB, kind=kind), "icmp_error").to == to
    assert plane.flows() == before


@pytest.mark.parametrize("kind", [1, 2, 3, 4])
def test_of_ipv6_likewise(plane, kind):
    plane.apply(*everything())
    to = plane.expect(whole(CLIENT6, WEB6, 4000)).to
    before = plane.flows()
    assert plane.expect(error(quoted(WEB6, CLIENT6, 80, 4000), WEB6, kind=kind), "icmp_error").to == to
    assert plane.flows() == before


def test_an_error_about_a_flow_of_an_endpoint_for_all_ports(plane):
    plane.apply(*everything())
    to = plane.expect(whole(CLIENT, ANY, 4000, vport=8080)).to
    assert plane.expect(about(ANY, CLIENT, 4000, vport=8080), "icmp_error").to == to
    plane.expect(about(ANY, CLIENT, 4000, vport=8081), "other_protocol")


@pytest.mark.parametrize(("client", "vip"), [(CLIENT, HASHED), (CLIENT6, HASHED6)])
def test_an_error_about_a_flow_that_only_the_ring_knows(plane, client, vip):
    plane.apply(*everything())
    to = plane.expect(whole(client, vip, 4000, protocol=UDP, vport=53), "hashed").to
    assert plane.expect(about(vip, client, 4000, vport=53, protocol=UDP), "icmp_error").to == to


def test_an_error_about_a_flow_that_a_change_of_the_ring_left_elsewhere(plane):
    plane.apply(service(HASHED, 80, scheduler=Scheduler.MH, those=servers(2)))
    clients = many_clients(60)
    before = {client: plane.expect(whole(client, HASHED, 4000)).to for client in clients}
    plane.apply(service(HASHED, 80, scheduler=Scheduler.MH, those=servers(3)))
    moved = [client for client in clients if plane.expect(about(HASHED, client, 4000)).to != before[client]]
    assert not moved
    news = {client: plane.expect(whole(client, HASHED, 5000)).to for client in clients}
    assert any(news[client] != before[client] for client in clients)
    assert {client: plane.expect(about(HASHED, client, 5000), "icmp_error").to for client in clients} == news


@pytest.mark.parametrize("peer", [None, PEER])
def test_an_error_about_an_unknown_flow_begins_none(plane, peer):
    plane.apply(*everything(peer=peer))
    before = plane.flows()
    answer = plane.expect(about(WEB, CLIENT, 4000), "asked_peer" if peer else "other_protocol")
    assert answer.to == (PEER_MAC if peer else answer.to)
    assert plane.flows() == before
    plane.expect(from_peer(about(WEB, CLIENT, 4000)), "other_protocol")
    plane.expect(about(EACH, CLIENT, 4000, vport=53, protocol=UDP), "other_protocol")


def test_where_the_directors_are_servers_the_peer_is_asked_in_its_own_frame(plane):
    plane.apply(service(WEB, 80, those=servers(3, local=(1,)), peer=PEER))
    assert plane.expect(about(WEB, CLIENT, 4000), "asked_peer").frame[12:14] == b"\x88\xb5"
    plane.expect(from_peer(about(WEB, CLIENT, 4000), b"\x88\xb5"), "other_protocol")
    plane.expect(from_peer(about(WEB, CLIENT, 4000)), "local")


def test_an_error_about_a_flow_of_a_dead_server_is_nobodys(plane):
    plane.apply(service(WEB, 80))
    to = int(plane.expect(whole(CLIENT, WEB, 4000)).to[-2:], 16)
    plane.apply(service(WEB, 80, those=servers(dead=(to,)), peer=PEER))
    plane.expect(about(WEB, CLIENT, 4000), "other_protocol")


def test_a_clients_template_is_no_flow(plane):
    plane.apply(service(WEB, 80, persistence_s=300))
    plane.expect(whole(CLIENT, WEB, 4000), "new_flow")
    plane.expect(about(WEB, CLIENT, 0), "other_protocol")
    plane.expect(about(WEB, CLIENT, 4000), "icmp_error")


def plain(client, vip):
    return IPv6(src=client, dst=vip) if is6(client) else IP(src=client, dst=vip)


@pytest.mark.parametrize(
    "sent",
    [
        frame(IP(src=CLIENT, dst=WEB) / ICMP(type=8) / quoted(WEB, CLIENT, 80, 4000)),
        frame(IP(src=CLIENT, dst=WEB) / ICMP(type=0) / quoted(WEB, CLIENT, 80, 4000)),
        error(quoted(WEB, CLIENT, 80, 4000), WEB, kind=5),
        error(quoted(WEB, CLIENT, 80, 4000), HASHED),
        error(quoted(WEB, CLIENT, 81, 4000), WEB),
        error(quoted(WEB, CLIENT, 80, 4000, frag=1), WEB),
        error(quoted(WEB, CLIENT, 80, 4000, most=27), WEB),
        error(b"\x44" + quoted(WEB, CLIENT, 80, 4000)[1:], WEB),
        error(b"\x55" + quoted(WEB, CLIENT, 80, 4000)[1:], WEB),
        error(b"", WEB),
        error(quoted(CLIENT, WEB, 4000, 80), WEB),
        error(bytes(IP(src=WEB, dst=CLIENT, proto=47) / bytes(64)), WEB),
        frame(IPv6(src=CLIENT6, dst=WEB6) / ICMPv6EchoRequest(data=quoted(WEB6, CLIENT6, 80, 4000))),
        error(quoted(WEB6, CLIENT6, 80, 4000, most=27), WEB6, kind=2),
        error(bytes(IPv6(src=WEB6, dst=CLIENT6) / IPv6ExtHdrFragment(nh=6, offset=1, id=3) / bytes(64)), WEB6, kind=2),
        error(quoted(CLIENT6, WEB6, 4000, 80), WEB6, kind=2),
    ],
    ids=itertools.count(),
)
def test_what_is_no_error_of_ours_reaches_the_kernel_as_it_came(plane, sent):
    plane.apply(*everything())
    plane.expect(whole(CLIENT, WEB, 4000))
    plane.expect(whole(CLIENT6, WEB6, 4000))
    answer = plane.expect(sent, "other_protocol")
    assert (answer.action, answer.frame) == (Action.PASS, sent)


@pytest.mark.parametrize(
    ("inner", "vip"),
    [
        (quoted(WEB, CLIENT, 80, 4000, options=True), WEB),
        (quoted(WEB, CLIENT, 80, 4000, flags="MF"), WEB),
        (quoted(WEB, CLIENT, 80, 4000, most=60, chksum=1), WEB),
        (quoted(WEB6, CLIENT6, 80, 4000, options=True), WEB6),
        (bytes(IPv6(src=WEB6, dst=CLIENT6) / IPv6ExtHdrFragment(nh=6, offset=0, m=1, id=3))
         + quoted(WEB6, CLIENT6, 80, 4000)[40:], WEB6),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_options_first_fragments_and_wrong_checksums_are_for_the_server_to_judge(plane, inner, vip):
    plane.apply(*everything())
    to = plane.expect(whole(CLIENT6 if is6(vip) else CLIENT, vip, 4000)).to
    wrong = bytearray(error(inner, vip, kind=2 if is6(vip) else 3))
    assert plane.expect(bytes(wrong), "icmp_error").to == to
    wrong[56 if is6(vip) else 36] ^= 0xFF
    assert plane.expect(bytes(wrong), "icmp_error").to == to


def test_a_fragment_of_an_error_is_the_kernels(plane):
    plane.apply(*everything())
    plane.expect(whole(CLIENT, WEB, 4000))
    plane.expect(error(quoted(WEB, CLIENT, 80, 4000), WEB, flags="MF"), "other_protocol")


def test_an_error_that_ends_before_its_quotation_is_not_read_into_the_padding(plane):
    plane.apply(*everything())
    plane.expect(whole(CLIENT, WEB, 4000))
    sent = bytearray(error(quoted(WEB, CLIENT, 80, 4000), WEB))
    sent[16:18] = (20 + 8 + 20).to_bytes(2, "big")
    plane.expect(bytes(sent), "other_protocol")


def test_an_error_that_the_server_itself_sent_does_not_go_back(plane):
    plane.apply(*everything())
    to = plane.expect(whole(CLIENT, WEB, 4000)).to
    plane.expect(about(WEB, CLIENT, 4000, by=to), "loop")


def test_an_error_that_is_not_addressed_to_us_is_left_alone(plane):
    plane.apply(*everything())
    plane.expect(whole(CLIENT, WEB, 4000))
    plane.expect(about(WEB, CLIENT, 4000, to="02:00:00:00:00:99"), "not_for_us")


def test_an_error_about_a_packet_of_a_service_to_itself_is_nobodys(plane):
    plane.apply(*everything())
    plane.expect(about(HASHED, HASHED, 4000, vport=53, protocol=UDP), "other_protocol")


SORTS = (
    (WEB, Protocol.TCP, 80), (DNS, UDP, 53), (HASHED, UDP, 53), (HASHED, Protocol.TCP, 80), (ANY, Protocol.TCP, 8080),
    (EACH, UDP, 53), (WEB6, Protocol.TCP, 80), (HASHED6, UDP, 53), (HASHED6, UDP, 54),
)  # fmt: skip


def any_frame(chance: random.Random) -> bytes:
    """Of some flow: whole, in fragments, or an error about it; now and then of the peer, and now and then damaged."""
    vip, protocol, vport = chance.choice(SORTS)
    client = chance.choice(CLIENTS6 if is6(vip) else CLIENTS)
    port = chance.randrange(4000, 4004)
    kind = chance.randrange(4)
    if kind == 0:
        sent = whole(client, vip, port, protocol=protocol, vport=vport, flags=chance.choice(("S", "A", "FA")))
    elif kind <= 2:
        flags = chance.choice(("S", "A"))
        number = chance.randrange(4)
        sent = chance.choice(
            fragments(client, vip, port, protocol=protocol, vport=vport, flags=flags, identification=number)
        )
    else:
        inner = quoted(
            vip, client, vport, port, protocol=protocol, most=chance.randrange(20, 60), options=chance.random() < 0.2
        )
        sent = error(inner, vip, kind=chance.randrange(1, 5) if is6(vip) else chance.choice((3, 4, 11, 12)))
    if chance.random() < 0.2:
        sent = from_peer(sent, chance.choice((b"", b"\x88\xb5", b"\x88\xb6")))
    if chance.random() < 0.1:
        sent = sent[: chance.randrange(14, len(sent))]
    if len(sent) > 14 and chance.random() < 0.2:
        damaged = bytearray(sent)
        damaged[chance.randrange(14, min(len(sent), 100))] ^= 1 << chance.randrange(8)
        sent = bytes(damaged)
    return sent


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("peer", [None, PEER, "shared"], ids=["alone", "peer", "shared"])
def test_program_and_oracle_agree_on_any_stream(plane, seed, peer):
    chance = random.Random(seed)
    kind = {"local": (1,)} if peer == "shared" else {}
    services = everything(peer=PEER if peer else None, **kind)
    plane.apply(*services)
    for step in range(400):
        plane.expect(any_frame(chance))
        if step % 100 == 99:
            dead = chance.randrange(1, 4)
            plane.apply(*(
                replace(each, servers=tuple(
                    replace(server, alive=number != dead) for number, server in enumerate(each.servers, 1)
                ))
                for each in services
            ))  # fmt: skip
