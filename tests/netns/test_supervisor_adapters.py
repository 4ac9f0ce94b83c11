"""What the supervisor does on the wire by itself, without a daemon around it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from lab import Lab

from haxlb.daemon.messages import PeersKnown
from haxlb.linux import neighbour_solicitation
from haxlb.linux.announcer import garp_request
from haxlb.linux.arp_watch import ArpWatch
from haxlb.linux.neighbour_advertisement import unsolicited_advertisement
from haxlb.linux.peer_probe import PeerProbe
from haxlb.linux.resign import Bequest
from haxlb.model.addresses import Vip
from haxlb.model.facts import ForeignMacHeard
from haxlb.model.instance import VrrpInstance
from haxlb.vrrp.advert import Expected, decode
from tests.netns.standin import LIMIT_S, Ear, addresses, eventually, inside, vip

pytestmark = pytest.mark.netns

ONE, TWO = IPv4Address("10.7.0.1"), IPv4Address("10.7.0.2")
GROUP = IPv4Address("224.0.0.18")
INSTANCE = VrrpInstance(name="VI_1", interface="eth0", vrid=51, priority=150, vips=(vip("10.7.0.100", 24),))


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(f"hxsa{os.getpid()}") as made:
        made.host("d1", "10.7.0.1/24")
        made.host("d2", "10.7.0.2/24")
        yield made


# -- the bequest


@pytest.mark.parametrize("peers", [(), (TWO,)], ids=["multicast", "unicast"])
@pytest.mark.parametrize("version", [2, 3])
def test_priority_zero_goes_out_as_the_speaker_would_have_sent_it(lab, version, peers):
    instance = replace(INSTANCE, version=version, peers=peers, auth_pass="s3cret" if version == 2 else None)
    d1, d2 = lab.hosts["d1"], lab.hosts["d2"]
    with Ear(d2.namespace) as ear, inside(d1.namespace):
        bequest = Bequest()
        bequest.prepare((instance,))
        assert bequest.execute(frozenset({"VI_1"})) == ()
        bequest.close()
        (farewell,) = eventually(ear.adverts, "the advert")
        assert farewell.source == ONE
        assert farewell.destination == (peers or (GROUP,))[0]
        advert = decode(
            farewell.vrrp,
            farewell.source,
            farewell.destination,
            ttl=farewell.ttl,
            expected=Expected.of(replace(instance, peers=(ONE,) if peers else ())),
        )
        assert advert.priority == 0


def test_all_addresses_go_and_only_for_masters_priority_zero_is_sent(lab):
    other = VrrpInstance(name="VI_2", interface="eth0", vrid=52, vips=(vip("10.7.0.101", 32), vip("10.7.0.102", 24)))
    d1, d2 = lab.hosts["d1"], lab.hosts["d2"]
    for address in ("10.7.0.100/24", "10.7.0.101/32", "10.7.0.102/24"):
        d1.run("ip", "address", "add", address, "dev", "eth0")
    with Ear(d2.namespace) as ear, inside(d1.namespace):
        bequest = Bequest()
        bequest.prepare((INSTANCE, other))
        assert bequest.execute(frozenset({"VI_2"})) == ()
        assert addresses(d1) == {ONE}
        assert bequest.execute(frozenset({"VI_2"})) == (), "what is off already is no problem"
        bequest.close()
        eventually(lambda: len(ear.adverts()) == 2, "two adverts")
        assert [each.vrrp[1] for each in ear.adverts()] == [52, 52]


def test_our_own_vips_are_not_taken_for_the_source_address(lab):
    """After a reload while MASTER the VIP may be the first address of the interface."""
    d1, d2 = lab.hosts["d1"], lab.hosts["d2"]
    d1.run("ip", "address", "flush", "dev", "eth0")
    d1.run("ip", "address", "add", "10.7.0.100/24", "dev", "eth0")
    d1.run("ip", "address", "add", "10.7.0.1/24", "dev", "eth0")
    with Ear(d2.namespace) as ear, inside(d1.namespace):
        bequest = Bequest()
        bequest.prepare((INSTANCE,))
        assert bequest.execute(frozenset({"VI_1"})) == ()
        bequest.close()
        assert eventually(ear.adverts, "the advert")[0].source == ONE


def test_what_cannot_be_sent_is_said_and_the_rest_is_done(lab):
    d1 = lab.hosts["d1"]
    d1.run("ip", "address", "add", "10.7.0.100/24", "dev", "eth0")
    gone = replace(INSTANCE, name="VI_9", interface="eth9", vrid=59, vips=(vip("10.7.0.109", 24, "eth9"),))
    with inside(d1.namespace):
        bequest = Bequest()
        bequest.prepare((gone, INSTANCE))
        problems = bequest.execute(frozenset({"VI_9", "VI_1"}))
        bequest.close()
    assert problems == ("no priority 0 for VI_9: its interface has no address",)
    assert addresses(d1) == {ONE}


# -- the peer probe


def probe(namespace: str, instance: VrrpInstance, *asked: str) -> str:
    with inside(namespace):
        return asyncio.run(PeerProbe().probe(instance, asked))


def test_who_listens_to_the_vrrp_group_is_found(lab):
    d1, d2 = lab.hosts["d1"], lab.hosts["d2"]
    assert probe(d1.namespace, INSTANCE) == ""
    with inside(d2.namespace), socket.socket(socket.AF_INET, socket.SOCK_RAW, 112) as member:
        index = socket.if_nametoindex("eth0")
        membership = struct.pack("=4s4si", GROUP.packed, bytes(4), index)
        member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        assert probe(d1.namespace, INSTANCE) == "10.7.0.2 listens to VRRP (224.0.0.18) on eth0"
    assert probe(d1.namespace, INSTANCE) == ""


def test_whether_a_host_is_up_is_seen_by_arp_and_soon(lab):
    def is_up(address: str) -> bool:
        with inside(lab.hosts["d1"].namespace):
            return asyncio.run(PeerProbe().is_up("eth0", ip_address(address)))

    assert is_up("10.7.0.2")
    lab.hosts["d2"].unplug()
    assert not is_up("10.7.0.2")
    lab.hosts["d2"].plug()
    eventually(lambda: is_up("10.7.0.2"), "it answers again")
    assert not is_up("10.7.0.250")


def test_whether_a_host_is_up_is_seen_by_neighbour_discovery_too(lab, six):
    with inside(lab.hosts["d1"].namespace):
        assert asyncio.run(PeerProbe().is_up("eth0", ip_address(six["d2"])))
        assert not asyncio.run(PeerProbe().is_up("eth0", ip_address("fe80::99")))


@pytest.fixture
def six(lab):
    """The lab with IPv6 on its links; the link-local addresses by host."""
    found = {}
    for name in ("d1", "d2"):
        host = lab.hosts[name]
        host.sysctl(net__ipv6__conf__all__disable_ipv6=0, net__ipv6__conf__eth0__disable_ipv6=0)
        host.run("ip", "address", "flush", "dev", "eth0", "scope", "link")
        found[name] = f"fe80::{name}"
        host.run("ip", "address", "add", f"{found[name]}/64", "dev", "eth0", "nodad")
    return found


def test_who_listens_to_the_vrrp_group_of_ipv6_is_found(lab, six):
    """It used to end the command: a planned hand-over of an IPv6 instance was not to be had."""
    instance = replace(INSTANCE, family=6, vips=())
    d1, d2 = lab.hosts["d1"], lab.hosts["d2"]
    assert probe(d1.namespace, instance) == ""
    with contextlib.ExitStack() as joined:
        for host in (d1, d2):  # our own membership is no peer
            with inside(host.namespace):
                member = joined.enter_context(socket.socket(socket.AF_INET6, socket.SOCK_DGRAM))
                wanted = ip_address("ff02::12").packed + struct.pack("=i", socket.if_nametoindex("eth0"))
                member.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, wanted)
                said = probe(d1.namespace, instance)
                assert said == ("" if host is d1 else f"{six['d2']} listens to VRRP (ff02::12) on eth0")
    assert probe(d1.namespace, instance) == ""
    said = probe(d1.namespace, instance, "fe80::99", six["d2"])
    assert said.startswith(f"{six['d2']} answers neighbour discovery ({d2.mac()})")
    assert probe(d1.namespace, replace(instance, interface="eth9"), six["d2"]) == ""


def test_our_own_membership_is_no_peer(lab):
    d1 = lab.hosts["d1"]
    with inside(d1.namespace), socket.socket(socket.AF_INET, socket.SOCK_RAW, 112) as member:
        membership = struct.pack("=4s4si", GROUP.packed, bytes(4), socket.if_nametoindex("eth0"))
        member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        assert probe(d1.namespace, INSTANCE) == ""


def test_a_known_address_that_answers_arp_is_weaker_evidence(lab):
    d1, d2 = lab.hosts["d1"], lab.hosts["d2"]
    said = probe(d1.namespace, INSTANCE, "10.7.0.9", "10.7.0.2")
    assert said.startswith(f"10.7.0.2 answers ARP ({d2.mac()})")
    assert "backup is silent" in said
    unicast = replace(INSTANCE, peers=(IPv4Address("10.7.0.9"), TWO))
    assert probe(d1.namespace, unicast, "10.7.0.9", "10.7.0.2").startswith("10.7.0.2 answers ARP")
    assert probe(d1.namespace, unicast) == ""  # the peer that has resigned is not asked for
    d2.unplug()
    assert probe(d1.namespace, unicast, "10.7.0.2") == ""


def test_a_missing_interface_is_no_evidence_and_no_error(lab):
    assert probe(lab.hosts["d1"].namespace, replace(INSTANCE, interface="eth9"), "10.7.0.2") == ""


# -- the ARP watch


def hear(
    namespace: str,
    *,
    vips: tuple[Vip, ...] = INSTANCE.vips,
    peers: tuple[IPv4Address, ...] = (),
    count: int = 1,
    settle_s: float = LIMIT_S,
) -> list:
    """Watch the VIP until so many facts have come, or for `settle_s`."""
    facts: list[ForeignMacHeard] = []

    class Clock:
        def now(self) -> int:
            return round(asyncio.get_running_loop().time() * 1_000_000)

    async def watch() -> None:
        enough = asyncio.Event()

        def take(fact: ForeignMacHeard) -> None:
            if len(facts) < count:  # a second after one there may be another, before it is looked at
                facts.append(fact)
            if len(facts) >= count:
                enough.set()

        watching = ArpWatch(Clock(), take, lambda level, event, **fields: None, period_s=0.1)
        watching.watch(vips, (PeersKnown(interface="eth0", peers=peers),))
        try:
            async with asyncio.timeout(settle_s):
                await enough.wait()
        except TimeoutError:
            pass
        finally:
            watching.close()

    with inside(namespace):
        asyncio.run(watch())
    return facts


def test_a_stranger_and_a_director_with_our_address_are_told_apart(lab):
    d1, d2 = lab.hosts["d1"], lab.hosts["d2"]
    d1.run("ip", "address", "add", "10.7.0.100/24", "dev", "eth0")
    assert hear(d1.namespace, settle_s=0.5) == []
    d2.run("ip", "address", "add", "10.7.0.100/24", "dev", "eth0")
    (stranger,) = hear(d1.namespace)
    assert (stranger.vip, stranger.interface, stranger.mac) == (INSTANCE.vips[0].address, "eth0", d2.mac())
    assert stranger.director is None
    facts = hear(d1.namespace, peers=(TWO,), count=2)
    assert facts[-1].director == TWO
    assert facts[-1].at_us - facts[-2].at_us >= 1_000_000, "one fact a second is enough"


def test_an_announcement_is_heard_without_being_asked_for(lab):
    d1, d2 = lab.hosts["d1"], lab.hosts["d2"]
    mac = d2.mac()
    d2.start(
        "python3",
        "-c",
        "import socket, sys, time\n"
        "s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n"
        "s.bind(('eth0', 0))\n"
        "while True:\n"
        "    s.send(bytes.fromhex(sys.argv[1]))\n"
        "    time.sleep(0.1)\n",
        garp_request(mac, IPv4Address("10.7.0.100")).hex(),
    )
    assert hear(d1.namespace)[0].mac == mac


def test_an_interface_that_goes_down_ends_nothing(lab):
    d1, d2 = lab.hosts["d1"], lab.hosts["d2"]
    d2.run("ip", "address", "add", "10.7.0.100/24", "dev", "eth0")
    d1.run("ip", "link", "set", "eth0", "down")
    assert hear(d1.namespace, settle_s=0.5) == []
    d1.run("ip", "link", "set", "eth0", "up")
    assert hear(d1.namespace)


def test_another_host_with_an_ipv6_vip_is_heard(lab):
    d1, d2 = lab.hosts["d1"], lab.hosts["d2"]
    for host in (d1, d2):
        host.sysctl(net__ipv6__conf__eth0__disable_ipv6=0)
    both = (*INSTANCE.vips, Vip(address=IPv6Address("2001:db8::100"), prefix_length=128, interface="eth0"))
    d1.run("ip", "address", "add", "2001:db8::100/128", "dev", "eth0", "nodad")
    assert hear(d1.namespace, vips=both, settle_s=0.5) == []
    d2.run("ip", "address", "add", "2001:db8::100/128", "dev", "eth0", "nodad")
    (stranger,) = hear(d1.namespace, vips=both)
    assert (str(stranger.vip), stranger.mac, stranger.director) == ("2001:db8::100", d2.mac(), None)
    # Asking has changed nothing: our own address is still usable.
    assert "dadfailed" not in d1.run("ip", "address", "show", "dev", "eth0").stdout


@pytest.mark.parametrize(
    "message",
    [
        b"",
        bytes([136, 0]) + bytes(21),
        bytes([135, 0]) + bytes(22) + bytes([2, 1]) + bytes(6),
        bytes([136, 1]) + bytes(22) + bytes([2, 1]) + bytes(6),
        bytes([136, 0]) + bytes(22),
        bytes([136, 0]) + bytes(22) + bytes([2, 0]) + bytes(6),
        bytes([136, 0]) + bytes(22) + bytes([2, 1]) + bytes(5),
        bytes([136, 0]) + bytes(22) + bytes([1, 1]) + bytes(6),
        bytes([136, 0]) + bytes(22) + bytes([2]),
    ],
)
def test_what_is_no_sound_advertisement_is_nothing(message):
    assert neighbour_solicitation.parse(message) is None


def test_an_advertisement_names_its_target_and_its_mac():
    frame = unsolicited_advertisement("02:00:00:00:00:01", IPv6Address("2001:db8::1"))
    heard = neighbour_solicitation.parse(frame[54:])
    assert heard is not None
    assert (heard.mac, str(heard.address)) == ("02:00:00:00:00:01", "2001:db8::1")
