from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.vrrp.disagreement import About
from haxlb.vrrp.dissect import Form, dissect
from haxlb.vrrp.envelope import Layer, unwrap
from haxlb.vrrp.intrusions import Intrusions
from haxlb.vrrp.segment import MOST_ROUTERS, MOST_SPEAKERS, Router, Segment
from tests.vrrp.frames import OTHER, SOURCE, VIP, ah, ethernet, ipv4, ipv6, message

A, B, C = SOURCE, OTHER, IPv4Address("10.9.0.3")
SECOND = 1_000_000


def advert(source=A, shape=2, *, destination=None, mac=None, ttl=255, vlans=(), **fields):
    to = {} if destination is None else {"destination": destination}
    data = message(shape, source=source, **to, **fields)
    envelope = unwrap(
        ethernet(
            ipv4(data, source=source, ttl=ttl, **to),
            source_mac=mac or f"02:00:00:00:00:{int(source) & 0xFF:02x}",
            vlans=vlans,
        ),
        Layer.ETHERNET,
    )
    assert envelope is not None
    return dissect(envelope)


class Link:
    """A segment and its clock."""

    def __init__(self) -> None:
        self.segment = Segment()
        self.now = 0
        self.events = []

    def say(self, *adverts, every_us: int = SECOND, rounds: int = 1):
        for _ in range(rounds):
            for each in adverts:
                self.events += self.segment.hear(each, self.now)
                self.now += every_us // len(adverts)
        return self

    def wait(self, span_us: int):
        self.now += span_us
        self.events += self.segment.tick(self.now)
        return self

    @property
    def told(self):
        return [(each.kind, each.source) for each in self.events]

    @property
    def about(self):
        return {each.about: each.message for each in self.segment.disagreements}


@pytest.fixture
def link():
    return Link()


def test_one_speaker_is_told_once_and_disagrees_with_nobody(link):
    link.say(advert(), rounds=20)
    assert link.told == [("speaks", "10.9.0.1")]
    assert link.events[0].message == "v2, priority 150, every 1 s, TTL 255 to 224.0.0.18, VIPs 10.9.0.100"
    assert link.segment.disagreements == ()
    (speaker,) = link.segment.speakers
    assert (speaker.adverts, speaker.state, speaker.mac) == (20, "speaking", "02:00:00:00:00:01")
    assert (speaker.version, speaker.priority, speaker.interval_us, speaker.ttl) == (2, 150, SECOND, 255)
    assert speaker.addresses == (VIP,)
    assert speaker.destinations == (IPv4Address("224.0.0.18"),)


def test_what_a_speaker_changes_is_told(link):
    link.say(advert(), advert(), advert(priority=130))
    assert link.told == [("speaks", "10.9.0.1"), ("says", "10.9.0.1")]
    assert "priority 130" in link.events[1].message


def test_resignation_silence_and_return(link):
    link.say(advert(), advert(priority=0)).wait(60 * SECOND).say(advert()).wait(2_900_000).say(advert()).wait(3_100_000)
    assert [kind for kind, _ in link.told] == ["speaks", "resigned", "speaks", "silent"]
    assert link.segment.speakers[0].state == "silent"
    assert link.events[-1].message == "nothing for 4.1 s"


def test_a_take_over_is_no_disagreement(link):
    """The old master's last advert crosses the new one's first; then the old one is back, as quickly."""
    low, high = advert(A, priority=100), advert(B, priority=150)
    link.say(low, rounds=5).say(high, low, high, every_us=30_000).say(high, rounds=5)
    link.say(advert(B, priority=0)).say(low, rounds=3).say(high, rounds=6)
    assert link.segment.disagreements == ()
    assert {kind for kind, _ in link.told} == {"speaks", "resigned", "silent"}


@pytest.mark.parametrize("rounds", [4, 10])
def test_two_masters(link, rounds):
    link.say(advert(A, priority=100), advert(B, priority=150), rounds=rounds)
    (found,) = link.segment.disagreements
    assert (found.about, found.message) == (About.MASTERS, "2 masters at once: 10.9.0.1 and 10.9.0.2")
    assert found.until_us is None
    assert [kind for kind, _ in link.told] == ["speaks", "speaks", "disagree"]
    link.say(advert(B, priority=150), rounds=60)
    (found,) = link.segment.disagreements
    assert found.until_us is not None
    assert [kind for kind, _ in link.told[3:]] == ["silent", "agree"]


def test_two_masters_of_unequal_speed(link):
    fast, slow = advert(A, 3, interval=1), advert(B, 3, interval=100)
    for _ in range(4):
        link.say(slow, every_us=10_000).say(fast, every_us=10_000, rounds=99)
    assert set(link.about) == {About.MASTERS}, "version 3 learns the interval"


def test_two_masters_end_with_a_resignation(link):
    link.say(advert(A), advert(B), rounds=4).say(advert(A, priority=0))
    assert link.told[-1] == ("agree", "")
    assert link.segment.disagreements[0].until_us == link.now - SECOND


def test_two_hosts_with_one_address_are_two(link):
    link.say(advert(A, mac="02:00:00:00:00:aa"), advert(A, mac="02:00:00:00:00:bb"), rounds=4)
    assert len(link.segment.speakers) == 2
    assert (
        link.about[About.MASTERS] == "2 masters at once: 10.9.0.1 [02:00:00:00:00:aa] and 10.9.0.1 [02:00:00:00:00:bb]"
    )


@pytest.mark.parametrize(
    ("one", "two", "about", "message"),
    [
        (advert(A), advert(B, 3), About.VERSION, "version: 10.9.0.1 2, 10.9.0.2 3"),
        (advert(A), advert(B, interval=2), About.INTERVAL, "interval: 10.9.0.1 1 s, 10.9.0.2 2 s"),
        (
            advert(A),
            advert(B, auth_type=1, auth_data=b"secret\0\0"),
            About.AUTHENTICATION,
            "authentication: 10.9.0.1 none, 10.9.0.2 PASS",
        ),
        (
            advert(A, auth_type=1, auth_data=b"secret\0\0"),
            advert(B, auth_type=1, auth_data=b"hidden\0\0"),
            About.AUTHENTICATION,
            "the passwords of 10.9.0.1, 10.9.0.2 differ",
        ),
        (
            advert(A, addresses=(VIP, C)),
            advert(B, addresses=(VIP,)),
            About.ADDRESSES,
            "addresses besides the 1 that all have: 10.9.0.1 10.9.0.3; 10.9.0.2 none",
        ),
        (advert(A, addresses=(C,)), advert(B), About.ADDRESSES, "addresses: 10.9.0.1 10.9.0.3; 10.9.0.2 10.9.0.100"),
        (
            advert(A, 3),
            advert(B, 3, form=Form.BARE),
            About.CHECKSUM,
            "checksum: 10.9.0.1 good, 10.9.0.2 without the pseudo-header",
        ),
        (
            advert(A, destination=B),
            advert(B),
            About.CAST,
            "unicast and multicast: 10.9.0.1 unicast, 10.9.0.2 multicast",
        ),
    ],
)
def test_each_disagreement_also_when_they_never_speak_at_once(link, one, two, about, message):
    link.say(one, rounds=5).wait(60 * SECOND).say(two, rounds=5)
    assert link.about == {about: message}
    assert [kind for kind, _ in link.told if kind in {"disagree", "agree"}] == ["disagree"]


def test_a_disagreement_ends_when_they_agree(link):
    link.say(advert(A), rounds=2).wait(9 * SECOND).say(advert(B, interval=2)).say(advert(B))
    (found,) = link.segment.disagreements
    assert found.until_us == 12 * SECOND
    assert link.events[-1].message == "no longer: interval: 10.9.0.1 1 s, 10.9.0.2 2 s"


def test_the_order_of_addresses_and_the_interval_of_version_3_do_not_matter(link):
    link.say(advert(A, 3, addresses=(VIP, C)), rounds=2).wait(9 * SECOND)
    link.say(advert(B, 3, addresses=(C, VIP), interval=50))
    assert link.segment.disagreements == ()


def test_vlans_families_and_vrids_are_apart(link):
    six = unwrap(ethernet(ipv6(message(3, family=6))), Layer.ETHERNET)
    assert six is not None
    link.say(advert(A), advert(B, vlans=(7,)), advert(C, vrid=52), dissect(six), rounds=5)
    assert link.segment.disagreements == ()
    assert [str(each.router) for each in link.segment.speakers] == [
        "VRID 51 IPv4",
        "VRID 52 IPv4",
        "VRID 51 IPv6",
        "VRID 51 IPv4 VLAN 7",
    ]


def test_a_unicast_speaker_with_several_peers_says_one_thing(link):
    link.say(advert(A, destination=B), advert(A, destination=C), rounds=4)
    assert link.told == [("speaks", "10.9.0.1")]
    assert link.segment.speakers[0].destinations == (B, C)


def test_what_is_dropped_is_told_once_counted_and_not_believed(link):
    broken = advert(A, version=4)
    link.say(advert(A), rounds=2).say(broken, rounds=3).say(advert(A, ttl=9), rounds=2)
    assert [kind for kind, _ in link.told] == ["speaks", "dropped", "dropped", "says"]
    assert link.segment.speakers[0].problems == {"vers_err": 3, "ip_ttl_err": 2}
    assert "ip_ttl_err at offset 22: TTL 9" in link.events[2].message
    assert link.segment.disagreements == ()


def test_what_is_odd_is_told_once(link):
    link.say(advert(A, 3, reserved=5), rounds=3)
    assert [kind for kind, _ in link.told] == ["odd", "speaks"]


def test_types_of_authentication_by_name(link):
    envelope = unwrap(ethernet(ipv4(ah(message(2, auth_type=2)), protocol=51)), Layer.ETHERNET)
    assert envelope is not None
    link.say(dissect(envelope))
    assert link.segment.speakers[0].authentication == "AH"


def test_a_message_without_an_ip_header_has_no_speaker(link):
    envelope = unwrap(message(2), Layer.VRRP)
    assert envelope is not None
    assert link.segment.hear(dissect(envelope), 0) == ()


def test_invented_speakers_and_routers_cost_a_bounded_amount():
    segment = Segment()
    for number in range(MOST_SPEAKERS + 5):
        segment.hear(advert(IPv4Address(int(A) + number)), number)
    assert len(segment.speakers) == MOST_SPEAKERS
    assert segment.unlisted == 5
    assert segment.disagreements == (), "each of them has spoken once"
    for number in range(MOST_ROUTERS + 5):
        segment.hear(advert(A, vrid=number % 255 + 1, vlans=(number // 255 + 1,)), 100)
    assert len({each.router for each in segment.speakers}) == MOST_ROUTERS
    assert segment.unlisted == 5 + 6


def test_long_lists_are_cut_in_a_sentence(link):
    many = tuple(IPv4Address(f"10.9.1.{host}") for host in range(20))
    link.say(advert(A, addresses=many)).wait(9 * SECOND).say(advert(B, addresses=()))
    assert "10.9.1.7 and 12 more; 10.9.0.2 none" in link.about[About.ADDRESSES]


def test_intrusions_that_are_far_apart_or_crowded_do_not_count():
    intrusions = Intrusions()
    timing = {"down_us": 30, "interval_us": 10}
    assert [intrusions.note(0, 1, at, **timing) for at in (0, 4, 200, 301)] == [False] * 4
    assert intrusions.masters == ()
    assert intrusions.note(0, 1, 306, **timing)
    assert not intrusions.note(0, 1, 312, **timing)
    assert intrusions.masters == (0, 1)
    assert not intrusions.expire(612)
    assert intrusions.expire(613)
    assert intrusions.masters == ()


def test_a_take_over_after_a_crash_is_no_intrusion(link):
    """Also where the skew makes the backup faster than the most patient one."""
    link.say(advert(A, priority=250), rounds=4).wait(3_100_000 - SECOND).say(advert(B, priority=249), rounds=9)
    link.wait(1).say(advert(A, priority=250), rounds=9)
    assert link.segment.disagreements == ()


def test_two_masters_that_starve_each_other(link):
    """As two keepaliveds do: runs of one, then of the other."""
    low, high = advert(A, priority=100), advert(B, priority=150)
    link.say(high).say(low, rounds=3)
    assert set(link.about) == {About.MASTERS}
    link.say(low, rounds=6).say(high, rounds=6).say(low, rounds=7)
    assert [kind for kind, _ in link.told if kind in {"disagree", "agree"}] == ["disagree"]


def test_equal_priorities_are_two_masters_when_the_lower_address_goes_on(link):
    link.say(advert(B), advert(A), rounds=4)
    assert set(link.about) == {About.MASTERS}


HEARD = [
    advert(source, shape, priority=priority, **fields)
    for source in (A, B, C)
    for shape in (2, 3)
    for priority in (0, 100, 255)
    for fields in ({}, {"interval": 3}, {"addresses": ()}, {"version": 5}, {"vrid": 52}, {"interval": 0})
]


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.lists(st.tuples(st.sampled_from(HEARD), st.integers(0, 9 * SECOND)), max_size=60))
def test_whatever_is_heard_makes_sense(heard):
    segment, now, events = Segment(), 0, []
    for each, pause_us in heard:
        now += pause_us
        events += segment.tick(now)
        events += segment.hear(each, now)
    assert sum(each.adverts for each in segment.speakers) == len(heard)
    assert {each.source for each in segment.speakers} == {each.envelope.source for each, _ in heard}
    for router in {each.router for each in segment.speakers}:
        kinds = [each.kind for each in events if each.router == router and each.kind in {"disagree", "agree"}]
        still = [each for each in segment.disagreements if each.router == router and each.until_us is None]
        assert kinds.count("disagree") - kinds.count("agree") == len(still)
    for each in segment.disagreements:
        assert 0 <= each.since_us <= (now if each.until_us is None else each.until_us) <= now
        assert len([one for one in segment.speakers if one.router == each.router]) > 1
    segment.tick(now + 4000 * SECOND)
    assert all(each.state != "speaking" for each in segment.speakers)


def test_router_in_words():
    assert str(Router(vlans=(5, 7), family=6, vrid=9)) == "VRID 9 IPv6 VLAN 5.7"
    assert IPv6Address("::1").version == Router(vlans=(), family=6, vrid=1).family
