"""A sync group: its instances are MASTER together or not at all.

Theory of operation. A member's router does not become MASTER by itself. When its timer runs out it *wishes* to, and
whoever drives the routers asks the group after everything that changed a member (`judge`), carries out the orders
that it gives, and asks again until there are none:

* a member in trouble of its own keeps all others in FAULT, until none is;
* a member that leaves MASTER, or accepts another router's advert while others are MASTER, drags all to BACKUP;
* when every member wishes MASTER (or is it), all that are not become it: "prefer backup", as keepalived.

The group's role follows from those of its members and is told to the operator after theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from haxlb.model.groups import SyncGroup
from haxlb.model.instance import Role, VrrpInstance
from haxlb.model.notification import NotifyDue
from haxlb.model.tracking import Track, TrackKind
from haxlb.vrrp.inputs import GroupBackup, Grouped, GroupMaster

Order = Grouped | GroupMaster | GroupBackup
Key = tuple[str, int]


class Seat(Protocol):
    """What the group sees of one member: a `Router` is one."""

    @property
    def instance(self) -> VrrpInstance:
        """Its configuration."""
        ...

    @property
    def role(self) -> Role:
        """Its state."""
        ...

    @property
    def wish(self) -> Role | None:
        """As `Router.wish`."""
        ...

    @property
    def trouble(self) -> str:
        """As `Router.trouble`."""
        ...

    @property
    def grouped(self) -> Grouped:
        """What it was told last."""
        ...


class Group:
    """The machine of one group."""

    def __init__(self, settings: SyncGroup) -> None:
        self.settings = settings
        self.role = Role.INIT
        self._masters: frozenset[Key] = frozenset()
        """Members that were MASTER when the group was last asked; by key, which survives a renaming."""

    def resume(self, members: Sequence[Seat]) -> None:
        """All members are about to be MASTER in the place of a process that has died: the group's role is no news."""
        self.role = Role.MASTER
        self._masters = frozenset(each.instance.key for each in members)

    def judge(self, members: Sequence[Seat]) -> list[tuple[Seat, Order]]:
        """Orders for members, to be carried out before it is asked again; none = all is as it must be."""
        told = self._tell(members)
        if told:
            return told
        masters = [each for each in members if each.role is Role.MASTER]
        others = [each for each in members if each.role is not Role.MASTER]
        if masters:
            leaver = next((each for each in others if self._leaves(each)), None)
            if leaver is not None:
                self._masters = frozenset()
                reason = f"{leaver.instance.name} of sync group {self.settings.name} is {leaver.role.value}"
                return [(each, GroupBackup(reason=reason)) for each in masters]
        if others and all(each.wish is Role.MASTER and each.role is Role.BACKUP for each in others):
            return [(each, GroupMaster()) for each in others]
        self._masters = frozenset(each.instance.key for each in masters)
        return []

    def settle(self, members: Sequence[Seat]) -> NotifyDue | None:
        """Take the role that the members make up; what the operator is to be told, if it is another one."""
        before, self.role = self.role, _role(members)
        if self.role is before or self.role is Role.INIT:
            return None
        return self.due(self.role.value)

    def due(self, state: str) -> NotifyDue:
        """This state of the group, for the operator."""
        return NotifyDue(subject="GROUP", name=self.settings.name, state=state, priority=0)

    def _tell(self, members: Sequence[Seat]) -> list[tuple[Seat, Order]]:
        """Who does not know yet of the others' trouble, or that it is over."""
        ill = [each for each in members if each.trouble][:2]
        orders: list[tuple[Seat, Order]] = []
        for each in members:
            other = next((one for one in ill if one is not each), None)
            trouble = (
                "" if other is None else f"{other.instance.name} of sync group {self.settings.name}: {other.trouble}"
            )
            told = each.grouped
            if told.trouble != trouble or told.group != self.settings.name:
                orders.append((each, Grouped(group=self.settings.name, trouble=trouble)))
        return orders

    def _leaves(self, member: Seat) -> bool:
        """Whether one that is not MASTER keeps the others from being it.

        One that has only just joined, by a reload, is waited for: it must not cost the others their role.
        """
        return member.role is Role.FAULT or member.wish is Role.BACKUP or member.instance.key in self._masters


def effective(instance: VrrpInstance, group: SyncGroup | None) -> VrrpInstance:
    """The instance with all that it tracks as a member of this group.

    The group's tracks count for every member, and win over the member's own of the same thing. As in keepalived a
    member's own weights do not count without `sync_group_tracking_weight`: a weighted interface is tracked without
    weight, and so is a file of weight 1 (the default); other weighted tracks are dropped.
    """
    if group is None:
        return instance
    named = {(each.kind, each.name) for each in group.tracks}
    own = (each for each in instance.tracks if (each.kind, each.name) not in named)
    kept = own if group.tracking_weight else (kept for each in own if (kept := _unweighted(each)) is not None)
    tracks = (*group.tracks, *kept)
    return instance if tracks == instance.tracks else replace(instance, tracks=tracks)


def _unweighted(track: Track) -> Track | None:
    if track.weight == 0:
        return track
    if track.kind is TrackKind.INTERFACE or (track.kind is TrackKind.FILE and track.weight == 1):
        return replace(track, weight=0)
    return None


def may_hurry(instances: Sequence[VrrpInstance]) -> bool:
    """Whether `state MASTER` of the members of a group is heeded: only where all of them have it (keepalived)."""
    return all(each.initial_role is Role.MASTER for each in instances)


def _role(members: Sequence[Seat]) -> Role:
    roles = {each.role for each in members}
    if not roles:
        return Role.INIT
    if Role.FAULT in roles:
        return Role.FAULT
    return roles.pop() if len(roles) == 1 else Role.BACKUP
