"""The pure group, with routers of its own: laws that hold for any sequence of events."""

from __future__ import annotations

import dataclasses
from ipaddress import IPv4Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.model.groups import SyncGroup
from haxlb.model.instance import Role, VrrpInstance
from haxlb.model.tracking import Track, TrackKind
from haxlb.vrrp.advert import Advert
from haxlb.vrrp.inputs import AdvertReceived, HandOver, LinkChanged, Notify, Start, TimerExpired
from haxlb.vrrp.router import Router
from haxlb.vrrp.sync_group import Group, effective, may_hurry

US = IPv4Address("192.0.2.5")
NAMES = ("VI_1", "VI_2", "VI_3")
FILE, SCRIPT, LINK, PROCESS = TrackKind.FILE, TrackKind.SCRIPT, TrackKind.INTERFACE, TrackKind.PROCESS


def _instance(number: int, **changes) -> VrrpInstance:
    name = f"VI_{number}"
    return dataclasses.replace(VrrpInstance(name=name, interface=f"eth{number}", vrid=number), **changes)


class Team:
    """Three routers and their group, as a speaker drives them."""

    def __init__(self) -> None:
        self.routers = [Router(_instance(number)) for number in (1, 2, 3)]
        self.group = Group(SyncGroup(name="VG", members=NAMES))
        self.now = 0
        self.told: list[str] = []
        for router in self.routers:
            self.say(router, LinkChanged(up=True, address=US), ask=False)
        self.ask()
        for router in self.routers:
            self.say(router, Start(), ask=False)
        self.ask()

    @property
    def roles(self) -> list[Role]:
        return [each.role for each in self.routers]

    def say(self, router: Router, what, *, ask: bool = True) -> None:
        effects = router.handle(what, self.now)
        self.told += [each.due.state for each in effects if isinstance(each, Notify)]
        if ask:
            self.ask()

    def ask(self) -> None:
        for _ in range(8):
            orders = self.group.judge(self.routers)
            if not orders:
                break
            for router, order in orders:
                self.say(router, order, ask=False)
        else:
            pytest.fail("it does not come to rest")
        due = self.group.settle(self.routers)
        if due is not None:
            self.told.append(f"group {due.state}")


EVENTS = st.sampled_from(
    [
        *(
            AdvertReceived(
                source=IPv4Address("192.0.2.9"),
                advert=Advert(version=2, vrid=1, priority=priority, interval_us=1_000_000, addresses=()),
            )
            for priority in (0, 50, 100, 200)
        ),
        LinkChanged(up=True, address=US),
        LinkChanged(up=False, address=US),
        HandOver(reason="test"),
        "wait",
        "wait",
        "wait",
    ]
)


@settings(derandomize=True, deadline=None, max_examples=400)
@given(steps=st.lists(st.tuples(st.sampled_from((0, 1, 2)), EVENTS), max_size=40))
def test_laws(steps):
    team = Team()
    for number, what in steps:
        router = team.routers[number]
        before, told = team.group.role, len(team.told)
        if what == "wait":
            deadline = router.next_deadline()
            if deadline is not None:
                team.now = max(team.now, deadline)
                team.say(router, TimerExpired())
        else:
            team.say(router, what)
        roles = set(team.roles)
        assert Role.MASTER not in roles or roles == {Role.MASTER}, "MASTER together or not at all"
        assert Role.FAULT not in roles or roles == {Role.FAULT}, "a fault of one is a fault of all"
        groups = [each for each in team.told[told:] if each.startswith("group")]
        assert groups == ([f"group {team.group.role.value}"] if team.group.role is not before else [])
        if groups:
            assert team.told[-1] == groups[0], "after the members' own"
        assert team.group.role is next(iter(roles))


def test_they_become_master_when_the_last_one_wishes_it():
    team = Team()
    one, two, three = team.routers
    for router in (one, two):
        team.now = max(team.now, router.next_deadline())
        team.say(router, TimerExpired())
        assert set(team.roles) == {Role.BACKUP}
    team.say(three, TimerExpired())
    assert set(team.roles) == {Role.MASTER}


@pytest.mark.parametrize(
    ("own", "kept"),
    [
        (Track(kind=SCRIPT, name="a"), Track(kind=SCRIPT, name="a")),
        (Track(kind=SCRIPT, name="a", weight=5), None),
        (Track(kind=PROCESS, name="a", weight=-5), None),
        (Track(kind=LINK, name="eth1", weight=5), Track(kind=LINK, name="eth1")),
        (Track(kind=FILE, name="a", weight=1), Track(kind=FILE, name="a")),
        (Track(kind=FILE, name="a", weight=2), None),
    ],
    ids=str,
)
def test_what_a_member_tracks(own, kept):
    group = SyncGroup(name="VG", members=NAMES, tracks=(Track(kind=SCRIPT, name="common", weight=3),))
    instance = _instance(1, tracks=(own,))
    assert effective(instance, group).tracks == (*group.tracks, *([kept] if kept else []))
    assert effective(instance, dataclasses.replace(group, tracking_weight=True)).tracks == (*group.tracks, own)
    assert effective(instance, None) is instance


def test_nothing_to_merge_is_the_very_instance():
    instance = _instance(1, tracks=(Track(kind=SCRIPT, name="a"),))
    assert effective(instance, SyncGroup(name="VG", members=NAMES)) is instance


def test_state_master_must_be_everybodys():
    master, backup = _instance(1, initial_role=Role.MASTER), _instance(2)
    assert may_hurry([master, master])
    assert not may_hurry([master, backup])
