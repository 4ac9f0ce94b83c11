"""Advert sockets between two hosts: both families, authentication header, macvlans, filters, and lost interfaces."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest
from lab import Host, Lab

from haxlb.daemon.ports import Datagram
from haxlb.daemon.speaker_frames import datagrams, sign
from haxlb.linux import adverts as adverts_module
from haxlb.linux.advert_filter import SAMPLE
from haxlb.linux.advert_socket import FLOOD_PAUSE_US, FLOOD_WINDOW_US
from haxlb.linux.adverts import AdvertSockets
from haxlb.linux.ip_packets import ip_packet, parse_ip_packet
from haxlb.linux.log import Complaints
from haxlb.linux.resign import Bequest
from haxlb.linux.timerfd import MonotonicClock
from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.instance import VirtualMac, VrrpInstance
from haxlb.vrrp.advert import MULTICAST_GROUP, MULTICAST_GROUP6, Expected, decode
from tests.netns.advert_hosts import (
    LOCAL6,
    MULTICAST,
    MULTICAST6,
    ONE,
    ONE6,
    TWO,
    TWO6,
    Clock,
    Lines,
    Sockets,
    received,
    received_until,
    send,
    two_hosts,
)
from tests.netns.standin import Ear, eventually, inside, vip

pytestmark = pytest.mark.netns

GROUP = MULTICAST_GROUP
UNICAST = replace(MULTICAST, vrid=52, source=TWO, peers=(ONE,))


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(f"hxadv{os.getpid()}") as made:
        two_hosts(made)
        yield made


@pytest.fixture
def one(lab: Lab) -> Host:
    return lab.hosts["d1"]


@pytest.fixture
def two(lab: Lab) -> Host:
    return lab.hosts["d2"]


def datagram(source: IPv4Address, destination: IPv4Address, payload: bytes) -> Datagram:
    return Datagram(interface="eth0", source=source, destination=destination, ttl=255, payload=payload, at_us=0)


def payload(vrid: int, fill: bytes = b"x" * 18) -> bytes:
    return bytes([0x21, vrid]) + fill


def test_multicast_arrives_with_what_its_ip_header_said(one: Host, two: Host) -> None:
    with Sockets(one, MULTICAST) as sender, Sockets(two, MULTICAST) as receiver:
        for n in range(3):
            sender.send(datagram(ONE, GROUP, payload(51, bytes([n]))))
        taken = received(receiver, 3)
        assert sorted(each.payload for each in taken) == [payload(51, bytes([n])) for n in range(3)]
        assert {(each.interface, each.source, each.destination, each.ttl) for each in taken} == {
            ("eth0", ONE, GROUP, 255)
        }
        assert sender.receive() == [], "own adverts are not looped back"


def test_multicast_of_ipv6_arrives_with_what_its_ip_header_said(one: Host, two: Host) -> None:
    with Sockets(one, MULTICAST6) as sender, Sockets(two, MULTICAST6) as receiver:
        sender_frames = datagrams(MULTICAST6, LOCAL6["d1"], 100)
        send(sender, one, sender_frames)
        (taken,) = received(receiver, 1)
        assert (taken.interface, taken.source, taken.destination, taken.ttl) == (
            "eth0",
            LOCAL6["d1"],
            MULTICAST_GROUP6,
            255,
        )
        expected = Expected.of(MULTICAST6)
        assert decode(taken.payload, taken.source, taken.destination, ttl=taken.ttl, expected=expected).priority == 100
        assert sender.receive() == [], "own adverts are not looped back"


def test_the_source_address_is_honoured_also_when_it_is_not_on_the_host(one: Host, two: Host) -> None:
    elsewhere = IPv6Address("fe80::77")
    with Sockets(one, MULTICAST, MULTICAST6) as sender, Sockets(two, MULTICAST, MULTICAST6) as receiver:
        sender.send(datagram(IPv4Address("10.9.0.77"), GROUP, payload(51)))
        send(sender, one, datagrams(MULTICAST6, elsewhere, 100))
        assert {each.source for each in received(receiver, 2)} == {IPv4Address("10.9.0.77"), elsewhere}


def test_unicast_and_multicast_side_by_side_are_heard_once_each(one: Host, two: Host) -> None:
    mixed = replace(UNICAST, source=ONE, peers=(TWO,))
    with Sockets(one, MULTICAST, mixed) as sender, Sockets(two, MULTICAST, UNICAST) as receiver:
        sender.send(datagram(ONE, TWO, payload(52)))
        sender.send(datagram(ONE, GROUP, payload(51)))
        sender.send(datagram(ONE, GROUP, payload(51, b"end")))
        sender.send(datagram(ONE, TWO, payload(52, b"end")))
        taken = received(receiver, 4)
        assert sorted((str(each.destination), each.payload) for each in taken) == [
            ("10.9.0.2", payload(52, b"end")),
            ("10.9.0.2", payload(52)),
            ("224.0.0.18", payload(51, b"end")),
            ("224.0.0.18", payload(51)),
        ]


def test_unicast_and_multicast_of_ipv6_side_by_side_are_heard_once_each(one: Host, two: Host) -> None:
    """A socket of IPv6 that is bound to no address hears multicast, too, unless its filter says no."""
    here = replace(MULTICAST6, vrid=62, source=ONE6, peers=(TWO6,), unicast_ttl=64)
    there = replace(here, source=TWO6, peers=(ONE6,))
    same_vrid = replace(MULTICAST6, name="VI_7", vrid=62)
    with Sockets(one, here, MULTICAST6) as sender, Sockets(two, there, MULTICAST6) as receiver:
        send(sender, one, datagrams(here, ONE6, 100))
        send(sender, one, datagrams(MULTICAST6, LOCAL6["d1"], 100))
        send(sender, one, datagrams(same_vrid, LOCAL6["d1"], 1))
        send(sender, one, datagrams(MULTICAST6, LOCAL6["d1"], 2))
        send(sender, one, datagrams(here, ONE6, 2))
        taken = received(receiver, 4)
        assert sorted((each.destination, each.ttl, each.payload[2]) for each in taken) == [
            (TWO6, 64, 2),
            (TWO6, 64, 100),
            (MULTICAST_GROUP6, 255, 2),
            (MULTICAST_GROUP6, 255, 100),
        ]


def test_unicast_between_link_local_addresses(one: Host, two: Host) -> None:
    here = replace(MULTICAST6, peers=(LOCAL6["d2"],))
    there = replace(MULTICAST6, peers=(LOCAL6["d1"],))
    with Sockets(one, here) as sender, Sockets(two, there) as receiver:
        send(sender, one, datagrams(here, LOCAL6["d1"], 100))
        (taken,) = received(receiver, 1)
        assert (taken.interface, taken.source, taken.destination) == ("eth0", LOCAL6["d1"], LOCAL6["d2"])


@pytest.mark.parametrize("peers", [((), ()), ((TWO,), (ONE,))], ids=["multicast", "unicast"])
def test_an_authentication_header_arrives_as_it_was_signed(one: Host, two: Host, peers) -> None:
    here, there = (replace(MULTICAST, auth_pass="secret", auth_ah=True, unicast_ttl=64, peers=each) for each in peers)
    key = Expected.of(here).key
    assert key is not None
    with Sockets(one, here) as sender, Sockets(two, there) as receiver:
        frames = sign(datagrams(here, ONE, 100), key, 4711)
        send(sender, one, frames)
        (taken,) = received(receiver, 1)
        assert (taken.ah, taken.payload, taken.ttl) == (frames[0].ah, frames[0].payload, frames[0].ttl)
        assert key.verify(taken.ip_header, taken.ah, taken.payload) == 4711


def test_a_peer_with_another_kind_of_authentication_is_heard(one: Host, two: Host) -> None:
    """Else both would be MASTER, and neither would say why."""
    signed = replace(MULTICAST, auth_pass="secret", auth_ah=True)
    plain = replace(MULTICAST, auth_pass="secret")
    key = Expected.of(signed).key
    assert key is not None
    with Sockets(one, signed) as sender, Sockets(two, plain) as receiver:
        send(sender, one, sign(datagrams(signed, ONE, 100), key, 1))
        assert received(receiver, 1)[0].ah
        send(receiver, two, datagrams(plain, TWO, 100))
        assert not received(sender, 1)[0].ah


def test_an_own_multicast_group(one: Host, two: Host) -> None:
    own = replace(MULTICAST, vrid=53, multicast_group=IPv4Address("239.1.2.3"))
    own6 = replace(MULTICAST6, vrid=63, multicast_group=IPv6Address("ff02::77"))
    with Sockets(one, MULTICAST, own, own6) as sender, Sockets(two, MULTICAST, own, own6) as receiver:
        send(sender, one, datagrams(own, ONE, 100) + datagrams(own6, LOCAL6["d1"], 100))
        taken = {each.destination: each.payload[1] for each in received(receiver, 2)}
        assert taken == {own.multicast_group: 53, own6.multicast_group: 63}


def test_unicast_that_comes_in_by_another_interface_is_the_instances(lab: Lab) -> None:
    router, far = lab.host("rt", "10.9.0.3/24"), lab.host("far", "10.9.0.4/24")
    # The peer reaches 10.8.0.1, which is on lo here, by eth0.
    router.run("ip", "address", "add", "10.8.0.1/32", "dev", "lo")
    far.run("ip", "route", "add", "10.8.0.1/32", "via", "10.9.0.3")
    here = replace(UNICAST, interface="lo", source=IPv4Address("10.8.0.1"), peers=(IPv4Address("10.9.0.4"),))
    there = replace(UNICAST, source=IPv4Address("10.9.0.4"), peers=(IPv4Address("10.8.0.1"),))
    with Sockets(router, here) as receiver, Sockets(far, there) as sender:
        sender.send(datagram(IPv4Address("10.9.0.4"), IPv4Address("10.8.0.1"), payload(52)))
        assert received(receiver, 1)[0].interface == "lo"


# -- virtual MACs


@contextlib.contextmanager
def macvlan(host: Host, mac: VirtualMac | None) -> Iterator[None]:
    """The virtual router's MAC on a private macvlan, as keepalived makes it."""
    if mac is None:
        yield
        return
    host.run("ip", "link", "add", mac.interface, "link", "eth0", "type", "macvlan", "mode", "private")
    host.run("ip", "link", "set", mac.interface, "address", mac.mac, "up")
    yield
    host.run("ip", "link", "del", mac.interface)


MAC = VirtualMac(interface="vrrp.51", mac="00:00:5e:00:01:33")


@pytest.mark.parametrize(
    ("here", "there"),
    [
        (MAC, MAC),
        (MAC, replace(MAC, xmit_base=True)),
        (replace(MAC, xmit_base=True), MAC),
        (replace(MAC, xmit_base=True), replace(MAC, xmit_base=True)),
        (MAC, None),
        (None, MAC),
    ],
    ids=["both", "to a base", "from a base", "base to base", "to one without", "from one without"],
)
def test_a_virtual_mac(one: Host, two: Host, here: VirtualMac | None, there: VirtualMac | None) -> None:
    sending, hearing = replace(MULTICAST, virtual_mac=here), replace(MULTICAST, virtual_mac=there)
    with (
        macvlan(one, here),
        macvlan(two, there),
        Sockets(one, sending) as sender,
        Sockets(two, hearing) as receiver,
        Ear(two.namespace) as ear,
    ):
        send(sender, one, datagrams(sending, ONE, 100))
        (taken,) = received(receiver, 1)
        assert (taken.interface, taken.source) == ("eth0", ONE)
        (frame,) = eventually(ear.adverts, "the frame")
        assert frame.source_mac == (MAC.mac if here and not here.xmit_base else one.mac())
        assert (sender.receive(), receiver.receive()) == ([], []), "neither looped back nor heard twice"


def test_a_virtual_mac_over_ipv6(one: Host, two: Host) -> None:
    """The source is the base's address, which the macvlan does not have."""
    mac = VirtualMac(interface="vrrp6.61", mac="00:00:5e:00:02:3d")
    instance = replace(MULTICAST6, virtual_mac=mac)
    with macvlan(one, mac), macvlan(two, mac):
        for host in (one, two):
            host.run("ip", "link", "set", mac.interface, "addrgenmode", "none")
            host.run("sysctl", "-qw", f"net/ipv6/conf/{mac.interface}/disable_ipv6=0")
        with Sockets(one, instance) as sender, Sockets(two, instance) as receiver, Ear(two.namespace) as ear:
            send(sender, one, datagrams(instance, LOCAL6["d1"], 100))
            (taken,) = received(receiver, 1)
            assert (taken.interface, taken.source) == ("eth0", LOCAL6["d1"])
            frames = eventually(lambda: [each for each in ear.frames() if taken.payload in each.frame], "the frame")
            assert [each.source_mac for each in frames] == [mac.mac]
            assert (sender.receive(), receiver.receive()) == ([], [])


def test_more_addresses_than_fit_into_a_packet(one: Host, two: Host) -> None:
    many = tuple(Vip(address=IPv6Address(f"fd00:9::1:{n:x}"), prefix_length=64, interface="eth0") for n in range(300))
    instance = replace(MULTICAST6, vips=many)
    instance4 = replace(MULTICAST, vips=tuple(vip(f"10.7.{n // 250}.{n % 250 + 1}") for n in range(300)))
    sockets = Sockets(one, instance, instance4)
    with sockets as sender, Sockets(two, instance, instance4) as receiver:
        send(sender, one, datagrams(instance, LOCAL6["d1"], 100) + datagrams(instance4, ONE, 100))
        assert {each.payload[1]: each.payload[3] for each in received(receiver, 2)} == {61: 90, 51: 255}
        assert sockets.log.lines == []


def test_unicast_of_a_vrf_is_bound_to_its_device(one: Host, two: Host) -> None:
    """This kernel need not have VRFs: SO_BINDTODEVICE, which is all there is to it, takes any device."""
    here, there = replace(UNICAST, source=ONE, peers=(TWO,)), replace(UNICAST, vrf="eth0")
    elsewhere = replace(there, vrf="lo")
    with Sockets(one, here) as sender, Sockets(two, there) as receiver, Sockets(two, elsewhere) as deaf:
        sender.send(datagram(ONE, TWO, payload(52)))
        assert received(receiver, 1)[0].interface == "eth0"
        assert deaf.receive() == []
        sockets = Sockets(two)
        assert list(sockets.configure(replace(there, vrf="absent"))) == [there.key]
        sockets.adverts.close()


def test_a_macvlan_that_is_missing_makes_its_instance_deaf(one: Host) -> None:
    sockets = Sockets(one)
    deaf = sockets.configure(replace(MULTICAST, virtual_mac=replace(MAC, interface="vrrp.99")), UNICAST)
    assert list(deaf) == [MULTICAST.key]
    assert deaf[MULTICAST.key].startswith("cannot listen for VRRP on vrrp.99: there is no such interface")
    sockets.adverts.close()


# -- what is not heard


def test_a_flood_of_strangers_costs_no_memory_and_hides_nothing(one: Host, two: Host) -> None:
    """All but a sample of them is dropped by the kernel; the sample is how they are counted."""
    with Sockets(one, MULTICAST) as sender, Sockets(two, MULTICAST) as receiver:
        for _ in range(20 * SAMPLE):
            sender.send(datagram(ONE, GROUP, payload(99)))
        sender.send(datagram(ONE, GROUP, payload(51)))
        assert [each.payload for each in received(receiver, 1)] == [payload(51)]
        # 20 are expected in the sample; that there is none, or three times as many, has a probability of 10^-9.
        assert SAMPLE <= receiver.strangers <= 60 * SAMPLE
        assert receiver.strangers % SAMPLE == 0


def test_strangers_are_handed_on_where_that_is_asked_for(one: Host, two: Host) -> None:
    with Sockets(one, MULTICAST) as sender, Sockets(two, MULTICAST, strangers=True) as receiver:
        sender.send(datagram(ONE, GROUP, payload(99)))
        assert [(each.interface, each.payload[1]) for each in received(receiver, 1)] == [("eth0", 99)]
        assert receiver.strangers == 1


def test_in_a_flood_the_kernel_judges_and_a_good_advert_gets_through(one: Host, two: Host) -> None:
    clock = Clock()
    good = replace(MULTICAST, auth_pass="secret")
    bad = replace(good, auth_pass="other")
    (good_frame,), (bad_frame,) = datagrams(good, ONE, 100), datagrams(bad, ONE, 100)
    sockets = Sockets(two, good, clock=clock)
    with Sockets(one, good) as sender, sockets as receiver:
        for _ in range(adverts_module.FLOOD_COUNT + 60):
            sender.send(bad_frame)
        received(receiver, adverts_module.FLOOD_COUNT + 5)
        receiver.receive()
        assert [event for event, _ in sockets.log.lines] == ["advert_flood"]
        for _ in range(4 * SAMPLE):
            sender.send(bad_frame)
        sender.send(good_frame)
        taken = received_until(
            receiver, lambda all_: good_frame.payload in {each.payload for each in all_}, "a good advert gets through"
        )
        assert len(taken) < 60, "of four thousand a handful"

        clock.us += FLOOD_PAUSE_US
        receiver.receive()
        for _ in range(10):
            sender.send(bad_frame)
        received_until(receiver, lambda all_: len(all_) == 10, "the flood is over: each is counted again")


@pytest.mark.parametrize(
    ("instance", "peer", "strangers"),
    [
        (MULTICAST, ONE, [IPv4Address(f"10.9.7.{n}") for n in range(1, 201)]),
        (MULTICAST6, LOCAL6["d1"], [IPv6Address(f"fe80::7:{n:x}") for n in range(1, 201)]),
    ],
    ids=["IPv4", "IPv6"],
)
def test_in_a_flood_of_good_adverts_who_was_heard_before_is_heard(
    one: Host, two: Host, instance: VrrpInstance, peer: IPAddress, strangers: list[IPAddress]
) -> None:
    clock = Clock()
    good = datagrams(instance, peer, 150)
    flood = [each for sender in strangers for each in datagrams(instance, sender, 100)]
    with Sockets(one, instance) as sender, Sockets(two, instance, clock=clock) as receiver:
        for _ in range(3):
            send(sender, one, good)
            received(receiver, 1)
            clock.us += 2 * FLOOD_WINDOW_US
        for _ in range(6):
            send(sender, one, [*flood, *good])
            receiver.receive()
        while receiver.receive():
            pass
        send(sender, one, [*flood, *good])
        taken = received_until(receiver, lambda all_: peer in {each.source for each in all_}, "the peer is heard")
        assert len(taken) < 20, "of two hundred strangers next to nobody"
        clock.us += FLOOD_PAUSE_US
        receiver.receive()
        send(sender, one, flood[:5])
        again = set(strangers[:5])
        received_until(receiver, lambda all_: again <= {each.source for each in all_}, "strangers are heard again")


def test_one_call_takes_a_bounded_batch(one: Host, two: Host) -> None:
    many = adverts_module.BATCH + 10
    with Sockets(one, MULTICAST) as sender, Sockets(two, MULTICAST) as receiver, Sockets(two, MULTICAST) as other:
        for _ in range(many):
            sender.send(datagram(ONE, GROUP, payload(51)))
        received(other, many)  # the kernel hands each to both
        assert len(receiver.receive()) == adverts_module.BATCH
        assert len(received(receiver, 10)) == 10


@pytest.mark.parametrize(
    "packet",
    [
        b"",
        b"E" * 19,
        ip_packet(ONE, TWO, b"abc")[:-1],
        b"\x41" + ip_packet(ONE, TWO, b"abc")[1:],
        ip_packet(ONE, TWO, b"").replace(b"\x70", b"\x33"),
        ip_packet(ONE, TWO, b"\x70\x04" + bytes(21)).replace(b"\xff\x70", b"\xff\x33"),
        ip_packet(ONE, TWO, b"\x70\xff" + bytes(40)).replace(b"\xff\x70", b"\xff\x33"),
        ip_packet(ONE, TWO, b"\x06\x04" + bytes(40)).replace(b"\xff\x70", b"\xff\x33"),
    ],
    ids=["empty", "short", "truncated", "header too short", "no AH", "AH cut", "AH too long", "AH for TCP"],
)
def test_a_packet_without_sound_headers_is_none(packet: bytes) -> None:
    assert parse_ip_packet(packet, "eth0", 0) is None


def test_ip_options_and_trailing_bytes_are_not_payload() -> None:
    packet = bytearray(ip_packet(ONE, TWO, b"\0" * 4 + b"vrrp"))
    packet[0] = 0x46
    assert parse_ip_packet(bytes(packet) + b"padding", "eth0", 7) == Datagram(
        interface="eth0", source=ONE, destination=TWO, ttl=255, payload=b"vrrp", at_us=7
    )


# -- what goes wrong


def test_a_failing_send_is_counted_and_logged_once_a_second(one: Host) -> None:
    clock = Clock()
    sockets = Sockets(one, MULTICAST, replace(UNICAST, source=ONE, peers=(TWO,)), clock=clock)
    with sockets as sender:
        for _ in range(50):
            sender.send(datagram(ONE, IPv4Address("203.0.113.1"), payload(52)))  # no route
        sender.send(replace(datagram(ONE, GROUP, payload(51)), interface="absent"))
        assert sockets.complaints.counts == {"advert_not_sent": 51}
        assert [event for event, _ in sockets.log.lines] == ["advert_not_sent"]
        assert sockets.log.lines[0][1]["reason"] == "Network is unreachable"
        clock.us += 1_000_000
        sender.send(datagram(ONE, IPv4Address("203.0.113.1"), payload(52)))
        assert [fields.get("left_out") for _, fields in sockets.log.lines] == [None, 50]


def test_an_interface_without_multicast_makes_its_instances_deaf_and_says_why(one: Host) -> None:
    adverts = AdvertSockets(MonotonicClock(), Complaints(Lines(), MonotonicClock()))
    ghost = replace(MULTICAST, interface="ghost0")
    with inside(one.namespace):
        deaf = adverts.configure([MULTICAST, ghost], {"eth0": socket.if_nametoindex("eth0"), "ghost0": 4711}, {})
    assert list(deaf) == [("ghost0", 51)]
    assert "cannot listen for VRRP on ghost0" in str(deaf["ghost0", 51])
    assert len(adverts.sockets) == 2
    adverts.close()


def test_an_interface_that_vanishes_and_comes_back_is_heard_again(lab: Lab, two: Host) -> None:
    for side in ("a", "b"):
        two.run("ip", "link", "del", f"{side}0", check=False)
    pair = ("ip", "link", "add", "a0", "type", "veth", "peer", "name", "b0")
    instance, peer = (replace(MULTICAST, interface=each, vrid=54) for each in ("a0", "b0"))

    def configure(adverts: AdvertSockets, each: VrrpInstance) -> None:
        with inside(two.namespace):
            indices = {name: number for number, name in socket.if_nameindex()}
            assert adverts.configure([each], indices, {}) == {}
            adverts.retire()

    log = Lines()
    hearing, speaking = (AdvertSockets(MonotonicClock(), Complaints(log, MonotonicClock())) for _ in range(2))
    for round_number in range(2):
        two.run(*pair)
        for name in ("a0", "b0"):
            two.run("ip", "link", "set", name, "up")
        configure(hearing, instance)
        configure(speaking, peer)
        send(speaking, two, datagrams(peer, ONE, 100 + round_number))
        assert received(hearing, 1)[0].payload[2] == 100 + round_number
        two.run("ip", "link", "del", "a0")
        send(speaking, two, datagrams(peer, ONE, 1))
        hearing.receive()
        configure(hearing, instance)
        configure(speaking, peer)
    assert "advert_not_sent" in {event for event, _ in log.lines}
    hearing.close()
    speaking.close()


# -- in a dead speaker's stead


BEQUESTS = {
    "v2 PASS": replace(MULTICAST, auth_pass="secret"),
    "v2 AH": replace(MULTICAST, auth_pass="secret", auth_ah=True),
    "v2 AH unicast": replace(MULTICAST, auth_pass="secret", auth_ah=True, peers=(TWO,)),
    "v3 old checksum": replace(MULTICAST, version=3, peers=(TWO,), old_unicast_checksum="always"),
    "IPv6": MULTICAST6,
    "IPv6 unicast": replace(MULTICAST6, source=ONE6, peers=(TWO6,), unicast_ttl=3),
    "IPv6, own source": replace(MULTICAST6, source=IPv6Address("fe80::77")),
    "own group": replace(MULTICAST, multicast_group=IPv4Address("239.1.2.3")),
    "a macvlan that is gone": replace(MULTICAST, virtual_mac=replace(MAC, interface="vrrp.99")),
}


@pytest.mark.parametrize("case", BEQUESTS)
def test_priority_zero_goes_out_as_the_speaker_would_have_sent_it(one: Host, two: Host, case: str) -> None:
    instance = BEQUESTS[case]
    addresses6 = {ONE6: TWO6}
    there = replace(
        instance,
        source=addresses6.get(instance.source) if isinstance(instance.source, IPv6Address) else None,
        peers=() if not instance.peers else (ONE6,) if instance.family == 6 else (ONE,),
        virtual_mac=None,
    )
    with Sockets(two, there) as receiver, inside(one.namespace):
        bequest = Bequest()
        bequest.prepare((instance,))
        assert bequest.execute(frozenset({instance.name})) == ()
        bequest.close()
        (taken,) = received(receiver, 1)
    advert = decode(
        taken.payload,
        taken.source,
        taken.destination,
        ttl=taken.ttl,
        expected=Expected.of(there),
        ah=taken.ah,
        ip_header=taken.ip_header,
    )
    assert advert.priority == 0
    assert advert.old_checksum == (case == "v3 old checksum")
    assert taken.ttl == (3 if case == "IPv6 unicast" else 255)
