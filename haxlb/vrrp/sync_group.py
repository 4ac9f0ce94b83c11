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
from dataclasses import dataclass, replace

from haxlb.model.groups import SyncGroup
from haxlb.model.node import Role, VrrpInstance
from haxlb.model.notification import NotifyDue
from haxlb.model.tracking import Track, TrackKind
from haxlb.vrrp.inputs import GroupBackup, Grouped, GroupMaster

Order = Grouped | GroupMaster | GroupBackup


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberState:
    """What the group knows of one member."""

    key: tuple[str, int]
    """`VrrpInstance.key`: survives a renaming."""
    name: str
    role: Role
    wish: Role | None
    """As `Router.wish`."""
    trouble: str
    """As `Router.trouble`."""
    told: Grouped
    """What it was told last."""


class Group:
    """The machine of one group."""

    def __init__(self, settings: SyncGroup) -> None:
        self.settings = settings
        self.role = Role.INIT
        self._masters: frozenset[tuple[str, int]] = frozenset()
        """Members that were MASTER when the group was last asked."""

    def judge(self, members: Sequence[MemberState]) -> list[tuple[tuple[str, int], Order]]:
        """Orders for members, by key, to be carried out before it is asked again; none = all is as it must be."""
        told = self._tell(members)
        if told:
            return told
        if any(each.trouble or each.role is Role.FAULT for each in members):
            return self._drag(members)  # a MASTER that has heard of the fault is in FAULT itself
        masters = [each for each in members if each.role is Role.MASTER]
        if masters and len(masters) < len(members):
            left = next((each for each in members if each.role is not Role.MASTER and self._leaves(each)), None)
            if left is not None:
                self._masters = frozenset()
                return [(each.key, self._follow(left)) for each in masters]
        waiting = [each for each in members if each.role is not Role.MASTER]
        if waiting and all(each.role is Role.BACKUP and each.wish is Role.MASTER for each in waiting):
            return [(each.key, GroupMaster()) for each in waiting]
        self._masters = frozenset(each.key for each in masters)
        return []

    def settle(self, members: Sequence[MemberState]) -> NotifyDue | None:
        """Take the role that the members make up; what the operator is to be told, if it is another one."""
        before, self.role = self.role, _role(members)
        if self.role is before or self.role is Role.INIT:
            return None
        return self.due(self.role.value)

    def due(self, state: str) -> NotifyDue:
        """This state of the group, for the operator."""
        return NotifyDue(subject="GROUP", name=self.settings.name, state=state, priority=0)

    def _tell(self, members: Sequence[MemberState]) -> list[tuple[tuple[str, int], Order]]:
        orders: list[tuple[tuple[str, int], Order]] = []
        for each in members:
            ill = next((other for other in members if other.trouble and other.key != each.key), None)
            trouble = "" if ill is None else f"{ill.name} of sync group {self.settings.name}: {ill.trouble}"
            wanted = Grouped(group=self.settings.name, trouble=trouble)
            if each.told != wanted:
                orders.append((each.key, wanted))
        return orders

    def _drag(self, members: Sequence[MemberState]) -> list[tuple[tuple[str, int], Order]]:
        self._masters = frozenset()
        faulty = next(each for each in members if each.trouble or each.role is Role.FAULT)
        return [(each.key, self._follow(faulty)) for each in members if each.role is Role.MASTER]

    def _leaves(self, member: MemberState) -> bool:
        # One that has only just joined, by a reload, is waited for: it must not cost the others their role.
        return member.key in self._masters or member.wish is Role.BACKUP

    def _follow(self, member: MemberState) -> GroupBackup:
        return GroupBackup(reason=f"{member.name} of sync group {self.settings.name} is {member.role.value}")


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


def _role(members: Sequence[MemberState]) -> Role:
    roles = {each.role for each in members}
    if not roles:
        return Role.INIT
    if Role.FAULT in roles:
        return Role.FAULT
    return roles.pop() if len(roles) == 1 else Role.BACKUP
