"""Sync groups: MASTER together or not at all."""

from __future__ import annotations

import dataclasses

import pytest

from haxlb.daemon.ports import Link
from haxlb.model.groups import SyncGroup
from haxlb.model.instance import Role
from haxlb.model.notification import NotifyScripts
from haxlb.model.tracking import Track, TrackKind, TrackResult
from tests.machines.conftest import Client

SCRIPT = TrackKind.SCRIPT
GROUP = SyncGroup(name="VG", members=("VI_1", "VI_2"))


@pytest.fixture
def two(instance, make_vip):
    """The two instances of one director, inside and outside."""

    def build(priority: int = 100, **settings):
        inside = instance(priority=priority, **settings)
        outside = instance(name="VI_2", interface="eth1", vrid=52, vips=(make_vip(120, "eth1"),), priority=priority)
        return [inside, dataclasses.replace(outside, **settings)]

    return build


def _node(lan, host, instances, group=GROUP, **settings):
    node = lan.node(host)
    node.speaker.configure(instances, (dataclasses.replace(group, **settings),))
    return node


def _roles(node) -> list[str]:
    return [each.role.value for each in node.speaker.status(0)]


def _group_notifies(node) -> list[str]:
    return [what.split()[3] for _, what in node.journal if what.startswith("notify GROUP VG")]


def _pair(lan, two, **settings):
    high, low = _node(lan, 1, two(150), **settings), _node(lan, 2, two(100), **settings)
    lan.run(20)
    assert (_roles(high), _roles(low)) == (["MASTER"] * 2, ["BACKUP"] * 2)
    return high, low


def _set(node, interface: str, **changes) -> None:
    node.interfaces[interface] = dataclasses.replace(node.interfaces[interface], **changes)
    node.speaker.on_link(node.interfaces[interface])


def test_master_together_and_told_after_the_members(lan, two):
    node = _node(lan, 1, two())
    lan.run(3.6)
    assert [what for _, what in node.journal if what.startswith("notify")] == [
        "notify INSTANCE VI_1 BACKUP 100",
        "notify INSTANCE VI_2 BACKUP 100",
        "notify GROUP VG BACKUP 0",
    ]
    node.journal.clear()
    lan.run(1)
    assert [what for _, what in node.journal if what.startswith("notify")] == [
        "notify INSTANCE VI_1 MASTER 100",
        "notify INSTANCE VI_2 MASTER 100",
        "notify GROUP VG MASTER 0",
    ]
    assert node.status().reason == "no advert for 3.609 s; all of sync group VG want MASTER"
    assert node.status().sync_group == "VG"


def test_nobody_is_master_before_all_want_it(lan, two):
    """The outside hears a MASTER of higher priority, the inside hears nobody."""
    node = _node(lan, 1, two())
    lan.node(2, dataclasses.replace(two()[1], priority=200))
    lan.run(60)
    assert _roles(node) == ["BACKUP", "BACKUP"]
    assert node.status().next_what == "wants MASTER"
    assert not node.held


def test_when_the_last_one_wants_it_all_become_it_at_once(lan, two):
    node = _node(lan, 1, two())
    other = lan.node(2, dataclasses.replace(two()[1], priority=200))
    lan.run(30)
    other.speaker.stop("stop")
    lan.run(0.65)
    assert _roles(node) == ["MASTER", "MASTER"]


def test_a_fault_of_one_is_a_fault_of_all(lan, two):
    high, low = _pair(lan, two)
    high.journal.clear()
    _set(high, "eth1", up=False)
    assert _roles(high) == ["FAULT", "FAULT"]
    assert not high.held
    assert [each.reason for each in high.speaker.status(0)] == [
        "VI_2 of sync group VG: eth1 is down",
        "eth1 is down",
    ]
    words = high.words()
    assert words.count("send 0") == 4, "all of them resign"
    assert words[-1] == "notify GROUP VG FAULT 0"
    lan.run(1)
    assert _roles(low) == ["BACKUP", "BACKUP"], "the outside has not heard the resignation: the link is down"
    lan.run(3)
    assert _roles(low) == ["MASTER", "MASTER"]
    _set(high, "eth1", up=True)
    assert _roles(high) == ["BACKUP", "BACKUP"]
    assert high.status().reason == "over: VI_2 of sync group VG: eth1 is down"
    lan.run(5)
    assert (_roles(high), _roles(low)) == (["MASTER"] * 2, ["BACKUP"] * 2)


def test_two_faults_and_both_must_end(lan, two):
    high, _ = _pair(lan, two)
    _set(high, "eth1", up=False)
    _set(high, "eth0", up=False)
    _set(high, "eth1", up=True)
    assert _roles(high) == ["FAULT", "FAULT"]
    assert high.status("VI_2").reason == "VI_1 of sync group VG: eth0 is down"
    _set(high, "eth0", up=True)
    assert _roles(high) == ["BACKUP", "BACKUP"]


def test_one_that_is_outranked_drags_the_others_without_resigning(lan, two):
    high, low = _pair(lan, two)
    low.journal.clear()
    high.crash()
    lan.run(10)
    low.journal.clear()
    third = lan.node(3, dataclasses.replace(two()[0], priority=200))
    lan.run(4)
    assert third.role() is Role.MASTER
    assert _roles(low) == ["BACKUP", "BACKUP"]
    words = [what for what in low.words() if not what.startswith("announce")]
    assert words[words.index("remove 192.0.2.100/24") :] == [
        "remove 192.0.2.100/24",
        "send 100",
        "notify INSTANCE VI_1 BACKUP 100",
        "remove 192.0.2.120/24",
        "notify INSTANCE VI_2 BACKUP 100",
        "notify GROUP VG BACKUP 0",
    ]
    assert low.status("VI_2").reason == "VI_1 of sync group VG is BACKUP"


def test_a_hand_over_takes_the_whole_group(lan, two):
    high, low = _pair(lan, two)
    assert high.speaker.hand_over(("VI_2",), "maintenance") == ("VI_1", "VI_2")
    lan.run(1)
    assert (_roles(high), _roles(low)) == (["BACKUP"] * 2, ["MASTER"] * 2)
    lan.run(30)
    assert _roles(high) == ["BACKUP"] * 2
    high.speaker.resume(("VI_1",))
    lan.run(5)
    assert (_roles(high), _roles(low)) == (["MASTER"] * 2, ["BACKUP"] * 2)


@pytest.mark.parametrize(("roles", "quick"), [((Role.MASTER, Role.MASTER), True), ((Role.MASTER, Role.BACKUP), False)])
def test_state_master_is_heeded_if_all_have_it(lan, two, roles, quick):
    instances = [dataclasses.replace(each, initial_role=role) for each, role in zip(two(), roles, strict=True)]
    node = _node(lan, 1, instances)
    lan.run(1.1)
    assert _roles(node) == (["MASTER"] * 2 if quick else ["BACKUP"] * 2)


def test_owners_are_master_at_once_together(lan, two):
    node = _node(lan, 1, two(255))
    lan.run(0)
    assert _roles(node) == ["MASTER", "MASTER"]
    assert _group_notifies(node) == ["BACKUP", "MASTER"]
    half = [two(255)[0], dataclasses.replace(two(100)[1])]
    other = _node(lan, 4, half)
    lan.run(0.1)
    assert _roles(other) == ["BACKUP", "BACKUP"]


def test_the_group_announces_together_when_a_lower_one_is_heard(lan, two):
    high, low = _pair(lan, two)
    lan.cut = {(high, low)}
    lan.run(4)
    high.journal.clear()
    lan.run(1)
    assert "announce 192.0.2.100/24" in high.words()
    lan.nodes.remove(low)
    stranger = lan.node(3, dataclasses.replace(two()[0], priority=50))
    lan.cut = {(high, stranger)}
    lan.run(4)
    high.journal.clear()
    lan.run(1)
    words = high.words()
    assert words.count("announce 192.0.2.100/24") == words.count("announce 192.0.2.120/24") == 5


@pytest.mark.parametrize("host", [100, 120])
@pytest.mark.parametrize("phase", range(4))
def test_after_a_split_no_clients_of_any_member_are_left_behind(lan, two, make_vip, host, phase):
    lan.client = Client(make_vip(host, "eth0" if host == 100 else "eth1"))
    high, low = _pair(lan, two)
    lan.cut = {(high, low), (low, high)}
    lan.run(10 + phase / 4)
    assert lan.client.believes is low
    before = lan.client.darkness_us(lan.now)
    lan.cut = set()
    lan.run(10)
    assert (_roles(high), _roles(low)) == (["MASTER"] * 2, ["BACKUP"] * 2)
    assert lan.client.believes is high
    assert lan.client.darkness_us(lan.now) - before <= 1_005_000, "an advert interval"


# What is tracked


def _tracked(node, name: str, value: int | None) -> None:
    node.speaker.on_tracked((TrackResult(kind=SCRIPT, name=name, value=value),))


def test_the_groups_tracks_are_every_members(lan, two):
    node = _node(lan, 1, two(), tracks=(Track(kind=SCRIPT, name="chk"),))
    assert _roles(node) == ["INIT", "INIT"]
    assert node.status("VI_2").reason == "waits for the first result of chk"
    _tracked(node, "chk", 1)
    assert _roles(node) == ["BACKUP", "BACKUP"]
    lan.run(4)
    assert _roles(node) == ["MASTER", "MASTER"]
    _tracked(node, "chk", 0)
    assert _roles(node) == ["FAULT", "FAULT"]
    assert {each.reason for each in node.speaker.status(0)} == {"script chk fails"}


def test_a_member_that_waits_keeps_all_from_being_master(lan, two):
    inside, outside = two()
    node = _node(lan, 1, [dataclasses.replace(inside, tracks=(Track(kind=SCRIPT, name="chk"),)), outside])
    lan.run(30)
    assert _roles(node) == ["INIT", "BACKUP"]
    _tracked(node, "chk", 1)
    lan.run(4)
    assert _roles(node) == ["MASTER", "MASTER"]


@pytest.mark.parametrize(("counts", "priority"), [(False, 100), (True, 80)])
def test_weights_of_members_count_only_if_asked_for(lan, two, counts, priority):
    inside, outside = two()
    inside = dataclasses.replace(inside, tracks=(Track(kind=SCRIPT, name="chk", weight=-20),))
    node = _node(lan, 1, [inside, outside], tracking_weight=counts)
    _tracked(node, "chk", 0)
    assert [each.priority for each in node.speaker.status(0)] == [priority, 100]


def test_the_groups_weight_wins(lan, two):
    own, common = Track(kind=SCRIPT, name="chk"), Track(kind=SCRIPT, name="chk", weight=-30)
    instances = [dataclasses.replace(each, tracks=(own,)) for each in two()]
    node = _node(lan, 1, instances, tracks=(common,))
    _tracked(node, "chk", 0)
    assert [each.priority for each in node.speaker.status(0)] == [70, 70]
    assert _roles(node) == ["BACKUP", "BACKUP"]


# Reload


def test_the_same_again_is_nothing(lan, two):
    high, _ = _pair(lan, two)
    high.journal.clear()
    alarm = high.alarm
    high.speaker.configure(two(150), (GROUP,))
    assert (high.words(), high.alarm) == ([], alarm)


def test_a_group_is_made_of_two_masters_without_a_stir(lan, two):
    node = lan.node(1, *two())
    lan.run(10)
    node.journal.clear()
    node.speaker.configure(two(), (GROUP,))
    assert node.words() == ["notify GROUP VG MASTER 0"]
    lan.run(5)
    assert _roles(node) == ["MASTER", "MASTER"]


def test_a_master_joins_a_backup_that_hears_its_master(lan, two):
    node = lan.node(1, *two())
    lan.node(2, dataclasses.replace(two()[1], priority=200))
    lan.run(10)
    assert _roles(node) == ["MASTER", "BACKUP"]
    node.speaker.configure(two(), (GROUP,))
    assert _roles(node) == ["BACKUP", "BACKUP"]


def test_a_new_member_is_waited_for(lan, two, instance, make_vip):
    """It must not cost the others their role."""
    high, low = _pair(lan, two)
    third = instance(name="VI_3", vrid=53, vips=(make_vip(130),))
    wider = dataclasses.replace(GROUP, members=("VI_1", "VI_2", "VI_3"))
    high.journal.clear()
    high.speaker.configure([*two(150), third], (wider,))
    lan.run(3)
    assert _roles(high) == ["MASTER", "MASTER", "BACKUP"]
    lan.run(1)
    assert _roles(high) == ["MASTER"] * 3
    assert not [what for what in high.words() if what.startswith("remove") and "130" not in what]
    assert _roles(low) == ["BACKUP"] * 2


def test_a_new_member_whose_master_is_elsewhere_drags(lan, two, instance, make_vip):
    high, low = _pair(lan, two)
    third = instance(name="VI_3", vrid=53, vips=(make_vip(130),))
    lan.node(3, dataclasses.replace(third, priority=200))
    lan.run(5)
    wider = dataclasses.replace(GROUP, members=("VI_1", "VI_2", "VI_3"))
    high.speaker.configure([*two(150), third], (wider,))
    lan.run(2)
    assert _roles(high) == ["BACKUP"] * 3
    lan.run(5)
    assert _roles(low) == ["MASTER"] * 2


def test_a_group_that_is_dissolved_sets_its_members_free(lan, two):
    high, _ = _pair(lan, two)
    _set(high, "eth1", up=False)
    high.journal.clear()
    high.speaker.configure(two(150))
    assert _roles(high) == ["BACKUP", "FAULT"]
    assert high.status().sync_group == ""
    assert not [what for what in high.words() if "GROUP" in what]


def test_a_deleted_group_is_told_where_that_is_asked_for(lan, two):
    high, _ = _pair(lan, two, notify=NotifyScripts(tells_deleted=True))
    high.journal.clear()
    high.speaker.configure(two(150))
    assert high.words() == ["notify GROUP VG DELETED 0"]


def test_members_are_known_by_what_they_are_not_by_their_names(lan, two):
    high, _ = _pair(lan, two)
    high.journal.clear()
    renamed = [dataclasses.replace(each, name=f"{each.name}_new") for each in two(150)]
    high.speaker.configure(renamed, (dataclasses.replace(GROUP, members=("VI_1_new", "VI_2_new")),))
    assert high.words() == []
    _set(high, "eth1", up=False)
    assert [each.role for each in high.speaker.status(0)] == [Role.FAULT, Role.FAULT]


def test_a_member_is_removed(lan, two):
    high, _ = _pair(lan, two)
    high.journal.clear()
    high.speaker.configure(two(150)[:1], (GROUP,))
    assert _roles(high) == ["MASTER"]
    assert [what for what in high.words() if what.startswith("notify")] == ["notify INSTANCE VI_2 FAULT 150"]


def test_stop_is_told_of_the_group_last(lan, two):
    high, low = _pair(lan, two)
    high.journal.clear()
    high.speaker.stop("stop")
    assert high.words()[-1] == "notify GROUP VG STOP 0"
    lan.run(1)
    assert _roles(low) == ["MASTER", "MASTER"], "resigned, not dragged"


def test_a_name_that_is_no_instance_and_an_empty_group(lan, two):
    node = lan.node(1)
    groups = (dataclasses.replace(GROUP, members=("VI_1", "VI_9")), SyncGroup(name="empty", members=()))
    node.speaker.configure(two(), groups)
    lan.run(5)
    assert _roles(node) == ["MASTER", "MASTER"]


def test_an_interface_that_vanishes_and_one_that_was_never_there(lan, two):
    node = lan.node(1)
    del node.interfaces["eth1"]
    node.speaker.configure(two(), (GROUP,))
    assert _roles(node) == ["FAULT", "FAULT"]
    node.interfaces["eth1"] = Link(interface="eth1", up=True, mac="02:00:00:00:00:99", address=node.address)
    node.speaker.on_link(node.interfaces["eth1"])
    lan.run(4)
    assert _roles(node) == ["MASTER", "MASTER"]


def test_three_directors_hand_the_group_down(lan, two):
    nodes = [_node(lan, host, two(200 - 40 * host)) for host in (1, 2, 3)]
    torn: list[int] = []

    def watch():
        alive = [set(_roles(node)) for node in nodes if node.alive]
        if any(len(roles) > 1 and "MASTER" in roles for roles in alive):
            torn.append(lan.now)

    lan.watch = watch
    for expected in nodes:
        lan.run(20)
        assert [_roles(node)[0] for node in nodes if node.alive] == [
            "MASTER" if node is expected else "BACKUP" for node in nodes if node.alive
        ]
        expected.crash()
    assert not torn
