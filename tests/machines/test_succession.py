"""A speaker that takes the place of a dead one: the real Speaker, its peer, and a client on a fake LAN."""

from __future__ import annotations

import dataclasses
import itertools
from ipaddress import IPv4Address

import pytest

from haxlb.daemon.speaker import datagrams
from haxlb.model.facts import RoleChanged
from haxlb.model.groups import SyncGroup
from haxlb.model.instance import Role
from haxlb.model.routes import Route
from haxlb.model.settings import SpeakerSettings
from haxlb.model.succession import Succession
from haxlb.model.tracking import Track, TrackKind, TrackResult

SECOND = 1_000_000


class Records:
    """RecorderPort."""

    def __init__(self) -> None:
        self.last: dict[tuple[str, int], int] = {}

    def sent(self, key, at_us):
        self.last[key] = at_us

    def left(self, key):
        self.last[key] = 0


def succession(name="VI_1", *, until, since=0):
    return Succession(instance=name, until_us=until, since_us=since, reason="no advert for 3.414 s")


def replace_speaker(lan, dead, host, instances, *, held=True, **orders):
    """The process dies at once, with its addresses on, and another one takes its place."""
    dead.alive = False
    lan.nodes.remove(dead)
    node = lan.node(host)
    if held:
        node.held = set(dead.held)
    node.interfaces = dead.interfaces
    node.speaker.configure(instances, **orders)
    return node


@pytest.fixture
def pair(lan, instance, client):
    """The first is MASTER of the client's address."""
    instances = (instance(priority=150, routes=(Route(destination="198.51.100.0/24", device="eth0"),)),)
    one = lan.node(1, *instances)
    two = lan.node(2, instance(priority=100))
    lan.run(5)
    assert (one.role(), two.role()) == (Role.MASTER, Role.BACKUP)
    return one, two, instances


@pytest.mark.parametrize("old", [False, True])
def test_the_heir_speaks_with_the_checksum_that_the_peer_wants(lan, instance, old):
    unicast = instance(version=3, peers=(IPv4Address("192.0.2.2"),))
    node = lan.node(1)
    heir = dataclasses.replace(succession(until=lan.now + 1), old_checksum=old)
    node.speaker.configure([unicast], successions=[heir])
    assert node.role() is Role.MASTER
    assert node.status().old_checksum is old
    told = dataclasses.replace(unicast, old_unicast_checksum="always") if old else unicast
    (expected,) = datagrams(told, node.address, 100)
    assert node.sent[0][1].payload == expected.payload


def test_the_role_goes_on_and_nobody_notices(lan, pair, client):
    one, two, instances = pair
    lan.run(0.7)
    heir = replace_speaker(lan, one, 1, instances, successions=[succession(until=lan.now + 1, since=123_456)])
    assert heir.words() == [
        "send 150",
        "add 192.0.2.100/24",
        "route 198.51.100.0/24 and 0 rules",
        "announce 192.0.2.100/24",
    ]
    lan.run(20)
    assert (heir.role(), two.role()) == (Role.MASTER, Role.BACKUP)
    assert heir.facts == []
    assert [change for _, change in two.changes()] == ["INIT -> BACKUP: started"]
    assert client.darkness_us(lan.now) == 0
    assert heir.status().reason == "no advert for 3.414 s"
    assert heir.status().since_at == pytest.approx(0.123456 - lan.now / SECOND, abs=1e-6)  # epoch_us = 0 is now
    announced = [what for what in heir.words() if what.startswith("announce")]
    assert announced == [], "no second set"


def test_adverts_follow_one_another_as_if_nothing_had_happened(lan, pair):
    one, _, instances = pair
    lan.run(0.7)
    heir = replace_speaker(lan, one, 1, instances, successions=[succession(until=lan.now + 1)])
    lan.run(5)
    times = [at for at, _ in (*one.sent, *heir.sent)]
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) <= SECOND


def test_whoever_comes_too_late_takes_off_what_is_left_and_begins_anew(lan, pair, client):
    one, two, instances = pair
    heir = replace_speaker(lan, one, 1, instances, successions=[succession(until=lan.now)])
    assert heir.held == set()
    assert heir.role() is Role.BACKUP
    assert heir.words()[:2] == ["remove 192.0.2.100/24", "unroute 198.51.100.0/24 and 0 rules"] or heir.facts
    lan.run(20)
    assert (heir.role(), two.role()) == (Role.MASTER, Role.BACKUP)


def test_a_link_that_is_down_meanwhile_is_a_fault_and_the_address_goes(lan, pair):
    one, _, instances = pair
    one.interfaces["eth0"] = dataclasses.replace(one.interfaces["eth0"], up=False)
    heir = replace_speaker(lan, one, 1, instances, successions=[succession(until=lan.now + SECOND)])
    assert heir.role() is Role.FAULT
    assert heir.held == set()
    assert [(fact.before, fact.after) for fact in heir.facts if isinstance(fact, RoleChanged)] == [
        (Role.INIT, Role.FAULT)
    ]


def test_a_peer_of_higher_priority_that_took_over_wins_at_once(lan, instance, client):
    """As any two MASTERs: the supervisor had proof that nobody could have, and it was wrong."""
    mine = (instance(priority=100),)
    one = lan.node(1, *mine)
    lan.run(5)
    two = lan.node(2, instance(priority=150))
    one.frozen = True
    lan.run(5)
    assert two.role() is Role.MASTER
    heir = replace_speaker(lan, one, 1, mine, successions=[succession(until=lan.now + SECOND)])
    assert heir.role() is Role.MASTER
    lan.run(2)
    assert (heir.role(), two.role()) == (Role.BACKUP, Role.MASTER)
    assert heir.held == set()
    assert client.believes is two


def test_an_instance_without_a_succession_starts_as_ever_beside_one_that_has_one(lan, instance, make_vip):
    instances = (instance(name="VI_2", vrid=52, vips=(make_vip(110),)), instance())
    one = lan.node(1, *instances)
    lan.run(5)
    heir = replace_speaker(lan, one, 1, instances, successions=[succession(until=lan.now + SECOND)])
    assert heir.words()[0] == "send 100", "who is waited for comes first"
    assert (heir.role("VI_1"), heir.role("VI_2")) == (Role.MASTER, Role.BACKUP)
    assert heir.held == {make_vip(100)}
    lan.run(5)
    assert heir.role("VI_2") is Role.MASTER


def test_a_sync_group_goes_on_without_telling_the_operator(lan, instance, make_vip):
    instances = (instance(), instance(name="VI_2", vrid=52, vips=(make_vip(110),)))
    groups = (SyncGroup(name="G", members=("VI_1", "VI_2")),)
    one = lan.node(1)
    one.speaker.configure(instances, groups)
    lan.run(8)
    assert [one.role(name) for name in ("VI_1", "VI_2")] == [Role.MASTER] * 2
    heirs = [succession(name, until=lan.now + SECOND) for name in ("VI_1", "VI_2")]
    heir = replace_speaker(lan, one, 1, instances, groups=groups, successions=heirs)
    lan.run(8)
    assert [heir.role(name) for name in ("VI_1", "VI_2")] == [Role.MASTER] * 2
    assert not [what for what in heir.words() if what.startswith(("notify", "remove"))]
    # It is a group as before: one that leaves takes the other along.
    heir.speaker.hand_over(["VI_2"], "test")
    assert [heir.role(name) for name in ("VI_1", "VI_2")] == [Role.BACKUP] * 2


def test_a_sync_group_of_which_one_cannot_go_on_leaves_together(lan, instance, make_vip):
    instances = (instance(), instance(name="VI_2", vrid=52, interface="eth1", vips=(make_vip(110, "eth1"),)))
    groups = (SyncGroup(name="G", members=("VI_1", "VI_2")),)
    one = lan.node(1)
    one.speaker.configure(instances, groups)
    lan.run(8)
    one.interfaces["eth1"] = dataclasses.replace(one.interfaces["eth1"], up=False)
    heirs = [succession(name, until=lan.now + SECOND) for name in ("VI_1", "VI_2")]
    heir = replace_speaker(lan, one, 1, instances, groups=groups, successions=heirs)
    assert [heir.role(name) for name in ("VI_1", "VI_2")] == [Role.FAULT] * 2
    assert heir.held == set()


def test_what_a_script_has_said_before_counts(lan, instance):
    tracked = (instance(tracks=(Track(kind=TrackKind.SCRIPT, name="chk", weight=0),)),)
    well = TrackResult(kind=TrackKind.SCRIPT, name="chk", value=1)
    ill = TrackResult(kind=TrackKind.SCRIPT, name="chk", value=0)
    for results, role in (((well,), Role.MASTER), ((ill,), Role.FAULT), ((), Role.INIT)):
        node = lan.node(1)
        node.held = {tracked[0].vips[0]}
        node.speaker.configure(tracked, successions=[succession(until=lan.now + SECOND)], results=results)
        assert node.role() is role
        assert bool(node.held) is (role is Role.MASTER)


def test_the_delay_of_a_start_is_not_for_a_successor(lan, pair):
    one, _, instances = pair
    settings = SpeakerSettings(startup_delay_us=60 * SECOND)
    heir = replace_speaker(lan, one, 1, instances, settings=settings, successions=[succession(until=lan.now + SECOND)])
    lan.inject(heir, dataclasses.replace(one.sent[-1][1], source=lan.nodes[0].address))
    assert heir.status().adverts_received == 1


def test_the_recorder_knows_when_each_was_master_last(lan, instance):
    node = lan.node(1)
    records = Records()
    node.speaker._executor._recorder = records
    node.speaker.configure((instance(),))
    assert not records.last.get(instance().key)
    lan.run(5.25)
    last = node.sent[-1][0]
    assert records.last == {instance().key: last}
    seen = []
    node.write = lambda what: seen.append((what, dict(records.last)))
    node.speaker.hand_over((), "test")
    assert seen[0] == ("send 0", {instance().key: 0}), "told before anything is done about it"
    assert {each[instance().key] for _, each in seen} == {0}, "a resignation is no advert of a MASTER"
