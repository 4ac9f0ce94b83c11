"""What a reload does to a running instance, path by path (docs/reference/reload.md)."""

from __future__ import annotations

import dataclasses
import itertools
from ipaddress import IPv4Address

import pytest

from haxlb.model.instance import Role
from haxlb.model.routes import Route, Rule

PEERS = (IPv4Address("192.0.2.2"), IPv4Address("192.0.2.3"))


@pytest.fixture
def two(instance, make_vip):
    return [instance(), instance(name="VI_2", vrid=52, vips=(make_vip(110),))]


def _settled(lan, *instances, host=1):
    node = lan.node(host, *instances)
    lan.run(10.5)
    node.journal.clear()
    return node


def _pair(lan, instance, **settings):
    high, low = lan.node(1, instance(priority=150, **settings)), lan.node(2, instance(**settings))
    lan.run(10.5)
    assert (high.role(), low.role()) == (Role.MASTER, Role.BACKUP)
    for node in (high, low):
        node.journal.clear()
    return high, low


def _reload(node, *instances):
    node.speaker.configure(instances)
    return node.words()


def _sends(words):
    return [what for what in words if what.startswith("send")]


def _moves(words):
    return [what for what in words if what.split()[0] in ("add", "remove", "route", "unroute")]


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "VI_new"},
        {"nopreempt": True},
        {"preempt_delay_us": 5_000_000},
        {"lower_prio_no_advert": True},
        {"down_timer_adverts": 5},
        {"smtp_alert": True},
        {"initial_role": Role.MASTER},
    ],
    ids=str,
)
def test_what_nobody_sees_sends_nothing_and_keeps_the_schedule(lan, two, changes):
    one, other = two
    node = _settled(lan, one, other)
    alarm = node.alarm
    assert _reload(node, dataclasses.replace(one, **changes), other) == []
    assert node.alarm == alarm
    lan.run(3)
    times = [at for at, each in node.sent if each.payload[1] == 51]
    assert {later - earlier for earlier, later in itertools.pairwise(times)} == {1_000_000}


def test_peers_and_back_keep_the_role(lan, instance):
    node = _settled(lan, instance())
    assert _reload(node, instance(peers=PEERS)) == ["send 100", "send 100"]
    assert [each.destination for _, each in node.sent[-2:]] == list(PEERS)
    assert _reload(node, instance(peers=PEERS[:1])) == ["send 100"]
    assert _reload(node, instance()) == ["send 100"]
    assert node.sent[-1][1].destination.is_multicast
    assert node.role() is Role.MASTER


def test_another_source_is_spoken_from_at_once(lan, instance):
    node = _settled(lan, instance())
    assert _reload(node, instance(source=IPv4Address("192.0.2.77"))) == ["send 100"]
    assert str(node.sent[-1][1].source) == "192.0.2.77"
    assert _reload(node, instance()) == ["send 100"]
    assert node.sent[-1][1].source == node.address


def test_another_interface_is_another_instance(lan, instance):
    """Its addresses stay on while the new one waits for nobody but its timer; the old one resigns, last."""
    node = _settled(lan, instance())
    assert _reload(node, instance(interface="eth1")) == [
        "notify INSTANCE VI_1 BACKUP 100",
        "send 0",
        "remove 192.0.2.100/24",
        "notify INSTANCE VI_1 FAULT 100",
    ]
    lan.run(3.7)
    assert node.role() is Role.MASTER
    assert node.sent[-1][1].interface == "eth1"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"version": 2}, {"version": 3}),
        ({"version": 3}, {"version": 2}),
        ({"auth_pass": "old"}, {"auth_pass": "new"}),
        ({"auth_pass": "old"}, {"auth_pass": "old", "auth_ah": True}),
        ({"advert_interval_us": 1_000_000}, {"advert_interval_us": 2_000_000}),
    ],
    ids=str,
)
@pytest.mark.parametrize("high_first", [True, False])
def test_what_both_must_agree_on(lan, instance, before, after, high_first):
    """Reloaded within master_down_interval of each other, nobody changes its role."""
    high, low = _pair(lan, instance, **before)
    steps = [(high, instance(priority=150, **after)), (low, instance(**after))]
    for node, wanted in steps if high_first else steps[::-1]:
        node.speaker.configure([wanted])
        lan.run(2)
    lan.run(30)
    assert (high.role(), low.role()) == (Role.MASTER, Role.BACKUP)
    for node in (high, low):
        assert not _moves(node.words())


def test_what_only_one_has_makes_two_masters_after_the_wait(lan, instance):
    high, low = _pair(lan, instance)
    high.speaker.configure([instance(priority=150, version=3)])
    lan.run(10)
    assert (high.role(), low.role()) == (Role.MASTER, Role.MASTER)
    low.speaker.configure([instance(version=3)])
    lan.run(1.1)
    assert (high.role(), low.role()) == (Role.MASTER, Role.BACKUP)


def test_a_shorter_interval_takes_effect_at_once(lan, instance):
    node = _settled(lan, instance(version=3, advert_interval_us=10_000_000))
    lan.run(30)
    node.journal.clear()
    now = lan.now
    assert _sends(_reload(node, instance(version=3, advert_interval_us=100_000))) == ["send 100"]
    lan.run(1)
    assert len([at for at, _ in node.sent if at > now]) == 10


def test_yielded_stays_yielded(lan, instance):
    high, low = _pair(lan, instance)
    high.speaker.hand_over((), "maintenance")
    lan.run(2)
    high.speaker.configure([instance(name="VI_new", priority=200)])
    lan.run(20)
    assert (high.role("VI_new"), low.role()) == (Role.BACKUP, Role.MASTER)
    assert high.status("VI_new").yielded


def test_a_backup_goes_on_waiting(lan, instance):
    high, low = _pair(lan, instance)
    crashed = high.sent[-1][0]
    high.crash()
    for _ in range(10):
        lan.run(0.3)
        low.speaker.configure([instance(name=f"VI_{lan.now}")])
    lan.run(1)
    (role,) = (each.role for each in low.speaker.status(0))
    assert role is Role.MASTER
    assert low.changes()[-1][0] * 1e6 == pytest.approx(crashed + 100 + 3_609_375)


# Addresses and routes


def test_excluded_addresses_and_routes_follow_live(lan, instance, make_vip):
    old_route, new_route = Route(destination="203.0.113.0/24"), Route(destination="198.51.100.0/24")
    rule = Rule(family=4, selectors=(("from", "192.0.2.100"),), action=("table", "7"))
    before = instance(excluded_vips=(make_vip(130), make_vip(131)), routes=(old_route,))
    node = _settled(lan, before)
    after = dataclasses.replace(
        before, excluded_vips=(make_vip(131), make_vip(132)), routes=(new_route,), rules=(rule,)
    )
    assert _reload(node, after) == [
        "add 192.0.2.132/24",
        "route 198.51.100.0/24 and 1 rules",
        *["announce 192.0.2.132/24"] * 5,
        "unroute 203.0.113.0/24 and 0 rules",
        "remove 192.0.2.130/24",
    ]


def test_a_route_that_changes_is_replaced(lan, instance):
    before = instance(routes=(Route(destination="203.0.113.0/24", via="192.0.2.1"),))
    node = _settled(lan, before)
    after = dataclasses.replace(before, routes=(Route(destination="203.0.113.0/24", via="192.0.2.2"),))
    assert _reload(node, after) == ["unroute 203.0.113.0/24 and 0 rules", "route 203.0.113.0/24 and 0 rules"]


def test_from_advertised_to_excluded_the_address_stays_on(lan, instance, make_vip):
    node = _settled(lan, instance(vips=(make_vip(100), make_vip(101))))
    words = _reload(node, instance(vips=(make_vip(100),), excluded_vips=(make_vip(101),)))
    assert words == ["send 100"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_an_address_that_moves_to_another_interface_is_put_on_first(lan, two, make_vip, order):
    one, other = two
    node = _settled(lan, one, other)
    changed = [
        dataclasses.replace(one, vips=()),
        dataclasses.replace(other, vips=(*other.vips, make_vip(100, "eth1"))),
    ]
    words = _moves(_reload(node, *(changed[number] for number in order)))
    assert words == ["add 192.0.2.100/24", "remove 192.0.2.100/24"]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_an_address_that_moves_with_another_prefix_length_leaves_nothing_behind(lan, two, make_vip, order):
    one, other = two
    node = _settled(lan, one, other)
    narrow = dataclasses.replace(make_vip(100), prefix_length=32)
    changed = [dataclasses.replace(one, vips=()), dataclasses.replace(other, vips=(*other.vips, narrow))]
    words = _moves(_reload(node, *(changed[number] for number in order)))
    assert words == ["remove 192.0.2.100/24", "add 192.0.2.100/32"]
    assert node.held == {*other.vips, narrow}
    node.speaker.hand_over(("VI_2",), "test")
    assert not node.held


def test_to_a_backup_an_address_goes_off_here_since_it_is_elsewhere(lan, two, instance):
    """The role decides where an address is, not what held it before."""
    one, other = two
    node = lan.node(1, one, other)
    lan.node(2, dataclasses.replace(other, priority=200))
    lan.run(10)
    assert (node.role(), node.role("VI_2")) == (Role.MASTER, Role.BACKUP)
    node.speaker.configure([dataclasses.replace(one, vips=()), dataclasses.replace(other, vips=other.vips + one.vips)])
    assert not node.held


@pytest.mark.parametrize("roles", ["one", "both"])
@pytest.mark.parametrize("gap", [0.0, 0.5])
def test_two_vrids_swapped_on_a_pair(lan, two, roles, gap):
    """Names and addresses trade VRIDs; the VRID keeps the state (keepalived #2364: the addresses vanished)."""
    one, other = two
    mine = [
        dataclasses.replace(one, priority=150),
        dataclasses.replace(other, priority=150 if roles == "both" else 100),
    ]
    theirs = [dataclasses.replace(one, priority=120), dataclasses.replace(other, priority=120)]
    high, low = lan.node(1, *mine), lan.node(2, *theirs)
    lan.run(10.5)
    addresses = {one.vips[0], other.vips[0]}
    off_us = dict.fromkeys(addresses, 0)
    last = [lan.now]

    def watch():
        for vip in addresses - (high.held | low.held):
            off_us[vip] += lan.now - last[0]
        last[0] = lan.now

    lan.watch = watch
    for node, instances in ((high, mine), (low, theirs)):
        swapped = zip(instances, (52, 51), strict=True)
        node.speaker.configure([dataclasses.replace(each, vrid=vrid) for each, vrid in swapped])
        watch()
        lan.run(gap)
    lan.run(20)
    assert high.held | low.held == addresses
    assert not high.held & low.held
    assert high.role("VI_1") is Role.MASTER
    assert (high.role("VI_2"), low.role("VI_2")) == ((Role.MASTER, Role.BACKUP)[:: 1 if roles == "both" else -1])
    # One director has both: nothing is off for a moment. Each has one: what one has let go, the other takes up when it
    # reloads, too; and the priorities, which went with the names, then move the rest by the usual election.
    assert max(off_us.values()) <= (0 if roles == "both" else gap * 1e6)


def test_vrids_swapped_on_one_director_say_so_at_once(lan, two):
    one, other = two
    node = _settled(lan, one, other)
    words = _reload(node, dataclasses.replace(one, vrid=52), dataclasses.replace(other, vrid=51))
    assert not [what for what in words if what.startswith(("remove", "notify"))]
    assert _sends(words) == ["send 100", "send 100"]
    assert [each.role for each in node.speaker.status(0)] == [Role.MASTER, Role.MASTER]
    named = {each.payload[1]: each.payload[8:12] for _, each in node.sent[-2:]}
    assert named == {51: bytes((192, 0, 2, 110)), 52: bytes((192, 0, 2, 100))}


def test_reloads_in_a_row_lose_nothing(lan, two):
    """Every 50 ms for a minute, with something changed each time: each advert on time, no address ever off."""
    one, other = two
    node = _settled(lan, one, other)
    for number in range(1200):
        lan.run(0.05)
        node.speaker.configure([one, dataclasses.replace(other, name=f"VI_{number}")])
    assert not _moves(node.words())
    for vrid in (51, 52):
        times = [at for at, each in node.sent if each.payload[1] == vrid and at > 10_500_000]
        assert {later - earlier for earlier, later in itertools.pairwise(times)} == {1_000_000}
