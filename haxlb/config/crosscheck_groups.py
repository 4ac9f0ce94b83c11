"""Checks of what sync groups do to the tracking of their members (keepalived's vrrp_sync_set_group())."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from haxlb.config.instances import PlacedInstance
from haxlb.config.tracking import PlacedTrack
from haxlb.model.groups import SyncGroup
from haxlb.model.instance import VrrpInstance
from haxlb.model.tracking import TrackKind
from haxlb.vrrp.election import OWNER_PRIORITY
from keepalived_compat.diagnostics import Complaints


def check_sync_groups(groups: Iterable[SyncGroup], instances: Iterable[PlacedInstance], complaints: Complaints) -> None:
    """Weights of a member of a group that does not weigh, or that weigh alone; what both of them track."""
    group_of = {member: group for group in groups for member in group.members}
    instances = list(instances)
    by_name = {each.instance.name: each.instance for each in instances}
    for placed in instances:
        group = group_of.get(placed.instance.name)
        if group is not None:
            own = {(each.kind, each.name): each for each in group.tracks}
            for each in placed.tracks:
                twin = own.get((each.track.kind, each.track.name))
                if twin is not None:
                    _complain_of_twin(placed, each, group, complaints)
                elif each.track.weight and not group.tracking_weight:
                    _complain_of_weight(placed, each, group, complaints)
                elif each.track.weight and placed.instance.priority != OWNER_PRIORITY:
                    steady = [each for each in group.members if each in by_name and _is_steady(by_name[each], group)]
                    if steady:
                        _complain_of_lone_weight(placed, each, group, steady, complaints)


def _is_steady(instance: VrrpInstance, group: SyncGroup) -> bool:
    """Whether no weight ever changes the priority of this member."""
    return instance.priority == OWNER_PRIORITY or not any(each.weight for each in (*instance.tracks, *group.tracks))


def _complain_of_lone_weight(
    placed: PlacedInstance, track: PlacedTrack, group: SyncGroup, steady: Sequence[str], complaints: Complaints
) -> None:
    shown = ", ".join(steady[:_SHOWN]) + (", …" if len(steady) > _SHOWN else "")
    complaints.warning(
        "lone-weight",
        track.where,
        f"{track.track.name} changes the priority of {placed.instance.name} only, and {shown} of vrrp_sync_group"
        f" {group.name} {'keeps its' if len(steady) == 1 else 'keep their'} priority: the peer's group takes over only"
        " when every member of it is better",
        f"track it in vrrp_sync_group {group.name}, where it counts for every member, or with weight 0 (FAULT of all)",
    )


_SHOWN = 4


def _complain_of_twin(placed: PlacedInstance, track: PlacedTrack, group: SyncGroup, complaints: Complaints) -> None:
    complaints.warning(
        "sync-group-weight",
        track.where,
        f"{track.track.name} is tracked by {placed.instance.name} and by its vrrp_sync_group {group.name}:"
        " the group's weight counts, as in keepalived",
        "delete one of the two",
    )


def _complain_of_weight(placed: PlacedInstance, track: PlacedTrack, group: SyncGroup, complaints: Complaints) -> None:
    name = track.track.name
    consequence = f"{name} is not tracked"
    if track.track.kind is TrackKind.INTERFACE:
        consequence = "the weight counts as 0, and its loss is a fault"
    elif track.track.kind is TrackKind.FILE and track.track.weight == 1:
        consequence = "the weight counts as 0, and any number but 0 in the file is a fault"
    complaints.warning(
        "sync-group-weight",
        track.where,
        f"{placed.instance.name} is in vrrp_sync_group {group.name}, whose members weigh alike: {consequence},"
        " as in keepalived",
        "add `sync_group_tracking_weight` to the group, or `weight 0` to the line (its failure is FAULT then)",
    )
