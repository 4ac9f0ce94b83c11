"""Checks of what sync groups do to the tracking of their members (keepalived's vrrp_sync_set_group())."""

from __future__ import annotations

from collections.abc import Iterable

from haxlb.config.instances import PlacedInstance
from haxlb.config.tracking import PlacedTrack
from haxlb.model.groups import SyncGroup
from haxlb.model.tracking import TrackKind
from keepalived_compat.diagnostics import Complaints


def check_sync_groups(groups: Iterable[SyncGroup], instances: Iterable[PlacedInstance], complaints: Complaints) -> None:
    """What is tracked with a weight by a member of a group that does not weigh; what both of them track."""
    group_of = {member: group for group in groups for member in group.members}
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
