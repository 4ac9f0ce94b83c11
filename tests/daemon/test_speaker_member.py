"""What an instance inside the speaker sends, and what it remembers of what it hears."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest

from haxlb.daemon import speaker_member
from haxlb.daemon.ports import Datagram, Link
from haxlb.daemon.speaker_frames import datagrams, departure, resignation, sign
from haxlb.daemon.speaker_member import OLD_CHECKSUM, Member, key_of
from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.errors import PeerError
from haxlb.model.instance import VirtualMac, VrrpInstance
from haxlb.vrrp.advert import MULTICAST_GROUP, MULTICAST_GROUP6, Expected, decode
from haxlb.vrrp.authentication_header import clock_sequence

US, PEER, THIRD = (IPv4Address(f"192.0.2.{n}") for n in (1, 2, 3))
US6, PEER6 = IPv6Address("fe80::1"), IPv6Address("fe80::2")
NOW_US = 1_800_000_000_000_000
LINK = Link(interface="eth0", up=True, mac="", address=US, address6=US6)
V3 = VrrpInstance(
    name="VI_1",
    interface="eth0",
    vrid=51,
    version=3,
    vips=(Vip(address=IPv4Address("192.0.2.100"), prefix_length=24, interface="eth0"),),
)
UNICAST = replace(V3, peers=(PEER, THIRD), unicast_ttl=64)
V6 = replace(V3, family=6, vips=(Vip(address=IPv6Address("fd00::64"), prefix_length=64, interface="eth0"),))
AH = replace(V3, version=2, auth_pass="secret", auth_ah=True)


def member(instance: VrrpInstance) -> Member:
    made = Member(instance, 1, lambda: NOW_US)
    made.router.handle(made.link_input(LINK), 0)
    return made


def from_peer(
    instance: VrrpInstance, priority: int = 100, source: IPAddress = PEER, *, sequence: int = 0, **changes: object
) -> Datagram:
    """What the peer sends us: over unicast, to our address."""
    peers = {"peers": (US,)} if instance.peers else {}
    (made,) = datagrams(replace(instance, **peers, **changes), source, priority)  # type: ignore[arg-type]
    key = Expected.of(instance).key
    return sign([made], key, sequence)[0] if key else made


def refused(by: Member, datagram: Datagram) -> str:
    with pytest.raises(PeerError) as caught:
        by.hear(datagram)
    return caught.value.reason


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The messages that were not known by their bytes."""
    seen: list[bytes] = []

    def spy(payload: bytes, *args: object, **options: object) -> object:
        seen.append(payload)
        return decode(payload, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(speaker_member, "decode", spy)
    return seen


# -- what is sent


def test_one_datagram_for_each_destination():
    assert [(each.destination, each.ttl) for each in member(UNICAST).frames(100)] == [(PEER, 64), (THIRD, 64)]
    assert [(each.destination, each.ttl) for each in member(V3).frames(100)] == [(MULTICAST_GROUP, 255)]
    (over6,) = member(V6).frames(100)
    assert (over6.source, over6.destination, over6.ttl) == (US6, MULTICAST_GROUP6, 255)


def test_without_an_address_of_its_family_nothing_is_sent():
    made = Member(V6, 1)
    made.router.handle(made.link_input(replace(LINK, address6=None)), 0)
    assert made.frames(100) == []


def test_an_advert_is_encoded_once_until_something_changes():
    made = member(UNICAST)
    assert made.frames(100) is made.frames(100)
    made.router.handle(made.link_input(replace(LINK, address=THIRD)), 0)
    assert {each.source for each in made.frames(100)} == {THIRD}


@pytest.mark.parametrize(
    ("mac", "interface"),
    [
        (None, "eth0"),
        (VirtualMac(interface="vrrp.51", mac="00:00:5e:00:01:33"), "vrrp.51"),
        (VirtualMac(interface="vrrp.51", mac="00:00:5e:00:01:33", xmit_base=True), "eth0"),
    ],
)
def test_adverts_leave_by_the_virtual_mac_unless_by_the_base(mac, interface):
    instance = replace(V3, virtual_mac=mac)
    assert departure(instance) == interface
    assert {each.interface for each in member(instance).frames(100)} == {interface}


def test_a_unicast_instance_without_peers_sends_nothing():
    assert member(replace(V3, unicast_fault_no_peer=True)).frames(0) == []


def test_each_advert_has_its_own_authentication_header():
    made = member(replace(AH, peers=(PEER, THIRD)))
    first, second = made.frames(100), made.frames(100)
    assert {each.ah[8:12] for each in first} == {clock_sequence(NOW_US).to_bytes(4)}
    assert {each.ah[8:12] for each in second} == {(clock_sequence(NOW_US) + 1).to_bytes(4)}
    assert first[0].payload is second[0].payload, "only the header is made anew"


def test_a_resignation_is_the_members_own_advert():
    for instance in (V3, UNICAST, V6):
        assert resignation(instance, LINK) == member(instance).frames(0)
    assert resignation(V6, replace(LINK, address6=None)) == []
    assert resignation(V3, None) == []
    assert resignation(replace(V3, source=THIRD), None)[0].source == THIRD


# -- what is heard


def test_a_message_is_checked_once(decoded):
    made = member(V3)
    first = made.hear(from_peer(V3))
    assert made.hear(from_peer(V3)) is first
    assert len(decoded) == 1


def test_a_bad_message_is_checked_once_too(decoded):
    made = member(V3)
    bad = replace(from_peer(V3), ttl=1)
    assert [refused(made, bad) for _ in range(3)] == ["ip_ttl_err"] * 3
    assert len(decoded) == 1
    assert made.hear(replace(bad, ttl=255)) is not None, "the same bytes with a good header"
    assert refused(made, bad) == "ip_ttl_err"
    made.retune(replace(V3, peers=(PEER,)))
    assert refused(made, replace(bad, ttl=255)) == "addr_list_err", "nothing is remembered across a reload"


def test_a_bad_message_does_not_lengthen_its_traceback():
    made = member(V3)
    depths = set()
    for _ in range(5):
        with pytest.raises(PeerError) as caught:
            made.hear(replace(from_peer(V3), ttl=1))
        depths.add(len(caught.traceback))
    assert len(depths) <= 2


def test_what_is_remembered_is_bounded():
    made = member(V3)
    for number in range(1000):
        made.hear(from_peer(V3, number % 255, IPv4Address(number + 1)))
        refused(made, replace(from_peer(V3, number % 255, IPv4Address(number + 1)), ttl=7))
    assert len(made._heard) <= 64
    assert len(made._refused) <= 64


def test_our_own_advert_is_not_heard():
    for instance in (V3, V6, AH):
        made = member(instance)
        (own,) = made.frames(100)
        assert made.hear(own) is None


def test_what_is_only_prepared_has_not_been_said():
    made = member(V3)
    made.prepare()
    (own,) = datagrams(V3, US, 0)
    assert made.hear(own) is not None, "somebody else has our address"
    made.frames(0)
    assert made.hear(replace(own, ttl=254)) is None, "it comes back"


def test_what_is_prepared_follows_every_change():
    made = member(V3)
    made.prepare()
    made.router.handle(made.link_input(replace(LINK, address=THIRD)), 0)
    made.prepare()
    assert {each.source for priority in (0, 100) for each in made.frames(priority)} == {THIRD}
    assert made.hear(made.frames(0)[0]) is None


def test_an_authentication_header_is_checked_every_time(decoded):
    made = member(AH)
    first = made.hear(from_peer(AH, sequence=5))
    assert made.hear(from_peer(AH, sequence=6)) is first
    assert len(decoded) == 1
    assert refused(made, from_peer(AH, sequence=6)) == "auth_failure"
    forged = from_peer(AH, sequence=7)
    assert refused(made, replace(forged, ah=forged.ah[:-1] + b"\0")) == "auth_failure"
    assert refused(made, replace(forged, ah=b"", ip_header=b"")) == "authtype_mismatch"
    assert made.hear(forged) is first, "what was forged has not used up the number"


def test_a_known_message_with_a_header_that_we_do_not_use_is_refused():
    plain = replace(AH, auth_ah=False)
    made = member(plain)
    made.hear(from_peer(plain))
    signed = from_peer(AH, sequence=1)
    assert refused(made, replace(from_peer(plain), ah=signed.ah, ip_header=signed.ip_header)) == "authtype_mismatch"


def test_whoever_takes_over_counts_on_from_what_it_heard():
    made = member(AH)
    ahead = clock_sequence(NOW_US) + 1000
    made.hear(from_peer(AH, sequence=ahead))
    assert made.frames(100)[0].ah[8:12] == (ahead + 1).to_bytes(4)


# -- what is odd


def test_other_addresses_and_another_interval_are_accepted_and_named():
    made = member(V3)
    vips = (Vip(address=IPv4Address("192.0.2.101"), prefix_length=24, interface="eth0"),)
    heard = made.hear(from_peer(V3, vips=vips, advert_interval_us=250_000))
    assert heard is not None
    assert {each.reason: each.message for each in heard.oddities} == {
        "addr_list_err": "accepted, but its addresses differ: only ours 192.0.2.100, only theirs 192.0.2.101",
        "advert_interval_differs": "accepted, but it advertises every 0.25 s, we every 1 s",
    }


def test_no_address_at_all_is_accepted_and_named():
    heard = member(V3).hear(from_peer(V3, vips=()))
    assert heard is not None
    assert [each.reason for each in heard.oddities] == ["addr_list_err"]
    both_without = replace(V3, vips=())
    heard = member(both_without).hear(from_peer(both_without))
    assert heard is not None
    assert heard.oddities == ()


# -- the checksum of older keepalived


def payloads(made: Member) -> list[bytes]:
    return [each.payload for each in made.frames(100)]


def test_a_peer_with_the_older_checksum_is_answered_with_it_for_good():
    made = member(UNICAST)
    new, old = payloads(made), payloads(member(replace(UNICAST, old_unicast_checksum="always")))
    assert new != old
    assert not made.status(0).old_checksum
    first, again = (made.hear(from_peer(UNICAST, old_unicast_checksum="always")) for _ in range(2))
    assert [[each.reason for each in heard.oddities] for heard in (first, again)] == [[OLD_CHECKSUM], []]
    assert made.status(0).old_checksum
    assert payloads(made) == old
    assert made.hear(from_peer(UNICAST)) is not None, "others may have the right one"
    assert payloads(made) == old
    made.retune(replace(UNICAST, priority=50))
    assert payloads(made) == old
    made.retune(replace(UNICAST, old_unicast_checksum="never"))
    assert payloads(made) == new


def test_never_refuses_the_older_checksum():
    made = member(replace(UNICAST, old_unicast_checksum="never"))
    assert refused(made, from_peer(UNICAST, old_unicast_checksum="always")) == "chk_err"


def test_a_checksum_as_in_version_2():
    ours = replace(V3, checksum_as_v2=True)
    assert payloads(member(ours)) != payloads(member(V3))
    assert member(ours).hear(from_peer(ours)) is not None
    assert member(ours).hear(from_peer(V3)) is not None
    assert refused(member(V3), from_peer(ours)) == "chk_err"


# -- whose it is


def test_the_families_of_one_vrid_are_told_apart():
    assert key_of(from_peer(V3)) == V3.key
    assert key_of(from_peer(V6, source=PEER6)) == V6.key
    assert V3.key != V6.key
    with pytest.raises(PeerError, match="too short"):
        key_of(replace(from_peer(V3), payload=b"1"))
