"""The sync groups of a speaker: asks each group after whatever happened to a member, and carries out its orders."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from haxlb.daemon.ports import NotifyPort
from haxlb.daemon.speaker_member import Member
from haxlb.model.errors import Bug
from haxlb.model.groups import SyncGroup
from haxlb.model.instance import Role, VrrpInstance
from haxlb.vrrp.inputs import Grouped, Input
from haxlb.vrrp.sync_group import Group, effective, may_hurry

_MOST_ROUNDS = 8
"""Of orders for one event: trouble told, FAULT left, MASTER together; more is a group that contradicts itself."""

Key = tuple[str, int]


@dataclass(slots=True)
class _Circle:
    """A group with its members."""

    group: Group
    members: tuple[Member, ...]
    may_hurry: bool
    seen: dict[int, tuple[Role, Role | None, str]] = field(default_factory=dict)
    """By a member's serial: what the group was asked about last."""


class GroupDriver:
    """All sync groups of a node."""

    def __init__(self, *, tell: Callable[[Member, Input, int], None], notify: NotifyPort) -> None:
        """`tell` gives a member's router an input and executes its effects, without asking the group again."""
        self._tell = tell
        self._notify = notify
        self._circles: dict[str, _Circle] = {}
        self._by_serial: dict[int, _Circle] = {}

    def configure(
        self,
        groups: Iterable[SyncGroup],
        wanted: Mapping[Key, VrrpInstance],
        members: Mapping[Key, Member],
        now: int,
        resumed: Collection[str] = (),
    ) -> None:
        """Have these groups of these members; a group of the same name keeps its role, a former member leaves.

        `resumed` names instances that go on as MASTER in the place of a process that has died.
        """
        former, former_members = self._circles, [each for circle in self._circles.values() for each in circle.members]
        self._circles, self._by_serial = {}, {}
        key_of = {each.name: key for key, each in wanted.items()}
        for settings in groups:
            keys = [key_of[name] for name in settings.members if name in key_of]
            chosen = tuple(members[key] for key in keys if members[key].serial not in self._by_serial)
            circle = _Circle(
                group=former[settings.name].group if settings.name in former else Group(settings),
                members=chosen,
                may_hurry=may_hurry([wanted[key] for key in keys]),
            )
            circle.group.settings = settings
            if settings.name not in former and chosen and all(each.instance.name in resumed for each in chosen):
                circle.group.resume([each.router for each in chosen])
            self._circles[settings.name] = circle
            self._by_serial.update({each.serial: circle for each in chosen})
            for each in chosen:
                if each.router.grouped.group != settings.name:
                    self._tell(each, Grouped(group=settings.name), now)
        present = {each.serial for each in members.values()}
        for each in former_members:
            if each.serial in present and each.serial not in self._by_serial:
                self._tell(each, Grouped(group=""), now)
        for name, circle in former.items():
            if name not in self._circles and circle.group.settings.notify.tells_deleted:
                self._notify.notify(circle.group.due("DELETED"))

    def may_hurry(self, member: Member) -> bool:
        """Whether `state MASTER` of this member is heeded at the start."""
        circle = self._by_serial.get(member.serial)
        return circle is None or circle.may_hurry

    def companions(self, member: Member) -> tuple[Member, ...]:
        """The other members of its group."""
        circle = self._by_serial.get(member.serial)
        return () if circle is None else tuple(each for each in circle.members if each is not member)

    def heed(self, member: Member, now: int) -> None:
        """Something was told to this member: see what its group makes of it."""
        circle = self._by_serial.get(member.serial)
        if circle is None:
            return
        router = member.router
        if circle.seen.get(member.serial) != (router.role, router.wish, router.trouble):
            self._settle(circle, now)

    def heed_all(self, now: int) -> None:
        """As `heed`, after a configuration."""
        for circle in self._circles.values():
            self._settle(circle, now)

    def stop(self) -> None:
        """All members have been told to stop."""
        for circle in self._circles.values():
            if circle.group.role is not Role.INIT:
                self._notify.notify(circle.group.due("STOP"))
        self._circles, self._by_serial = {}, {}

    def _settle(self, circle: _Circle, now: int) -> None:
        routers = [each.router for each in circle.members]
        for _ in range(_MOST_ROUNDS):
            orders = circle.group.judge(routers)
            if not orders:
                break
            by_router = {id(each.router): each for each in circle.members}
            for seat, order in orders:
                self._tell(by_router[id(seat)], order, now)
        else:
            raise Bug(f"sync group {circle.group.settings.name} does not come to rest")
        circle.seen = {
            each.serial: (each.router.role, each.router.wish, each.router.trouble) for each in circle.members
        }
        due = circle.group.settle(routers)
        if due is not None:
            self._notify.notify(due)


def by_key(instances: Iterable[VrrpInstance]) -> dict[Key, VrrpInstance]:
    """The instances by what makes them unique. Raises Bug where two have the same."""
    out: dict[Key, VrrpInstance] = {}
    for each in instances:
        if each.key in out:
            raise Bug(f"two instances with virtual_router_id {each.vrid} on {each.interface}")
        out[each.key] = each
    return out


def with_group_tracks(instances: Mapping[Key, VrrpInstance], groups: Iterable[SyncGroup]) -> dict[Key, VrrpInstance]:
    """The instances with what they track as members of their groups; the first group that names one has it."""
    of: dict[str, SyncGroup] = {}
    for group in groups:
        for name in group.members:
            of.setdefault(name, group)
    return {key: effective(each, of.get(each.name)) for key, each in instances.items()}
