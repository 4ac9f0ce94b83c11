"""Checks of what decides who is MASTER: priorities, weights, who is listened to."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from haxlb.config.instances import PlacedInstance
from haxlb.config.tracking import PlacedTrack
from haxlb.model.instance import VrrpInstance
from haxlb.model.tracking import Track, TrackKind
from keepalived_compat.diagnostics import Complaints

LOWEST, HIGHEST = 1, 254
"""Where keepalived clamps a priority that weights have changed; 255 is the addresses' owner."""
_OWNER = 255


def check_election(instances: list[PlacedInstance], complaints: Complaints) -> None:
    """All of them."""
    _complain_of_pairs(instances, complaints)
    for each in instances:
        _complain_of_weights(each, complaints)
    _complain_of_unchecked_sources(instances, complaints)


def lowest_priority(instance: VrrpInstance) -> int:
    """With everything failed that is tracked by weight."""
    return _clamped(instance.priority + sum(min(each.weight, 0) for each in _weighing(instance)))


def highest_priority(instance: VrrpInstance) -> int:
    """With everything well."""
    return _clamped(instance.priority + sum(max(each.weight, 0) for each in _weighing(instance)))


def _weighing(instance: VrrpInstance) -> Iterator[Track]:
    if instance.priority != _OWNER:
        yield from (each for each in instance.tracks if each.kind is not TrackKind.FILE)


def _clamped(priority: int) -> int:
    return priority if priority == _OWNER else min(max(priority, LOWEST), HIGHEST)


def _complain_of_pairs(instances: list[PlacedInstance], complaints: Complaints) -> None:
    """Instances of one file that talk to each other: a rehearsal, or several hosts of one."""
    by_vrid: dict[tuple[int, int], list[PlacedInstance]] = {}
    for each in instances:
        by_vrid.setdefault((each.instance.family, each.instance.vrid), []).append(each)
    for group in by_vrid.values():
        for one, other in combinations(group, 2):
            if _see_each_other(one.instance, other.instance):
                _complain_of_pair(one, other, complaints)


def _see_each_other(one: VrrpInstance, other: VrrpInstance) -> bool:
    return one.source in other.peers and other.source in one.peers


def _complain_of_pair(one: PlacedInstance, other: PlacedInstance, complaints: Complaints) -> None:
    first, second = one.instance, other.instance
    if first.priority == second.priority:
        complaints.warning(
            "equal-priority",
            other.priority,
            f"{second.name} has priority {second.priority} as its peer {first.name} has:"
            " of two that begin at once, the one with the higher address becomes MASTER",
            "name two priorities",
        )
        return
    better, worse = (first, second) if first.priority > second.priority else (second, first)
    tracked = any(each.weight for each in (*_weighing(better), *_weighing(worse)))
    if tracked and lowest_priority(better) > highest_priority(worse):
        complaints.warning(
            "useless-weight",
            (one if better is first else other).priority,
            f"the weights change nothing: {better.name} has at least {lowest_priority(better)},"
            f" its peer {worse.name} at most {highest_priority(worse)}",
            "a weight must be larger than the difference of the priorities",
        )


def _complain_of_weights(placed: PlacedInstance, complaints: Complaints) -> None:
    instance = placed.instance
    for each in placed.tracks:
        track = each.track
        if not track.weight:
            continue
        if instance.priority == _OWNER:
            complaints.warning(
                "useless-weight",
                each.where,
                f"{instance.name} has priority 255, which no weight changes: {track.name} has no effect",
                "name a priority below 255, or weight 0: then the loss makes the instance FAULT",
            )
        elif track.kind is not TrackKind.FILE:
            _complain_of_clamping(instance, each, complaints)
        if instance.nopreempt and track.kind is not TrackKind.FILE:
            complaints.note(
                "useless-weight",
                each.where,
                f"{instance.name} has nopreempt: if its peer has it too, a priority that {track.name} lowers makes"
                " nobody take over",
                "with weight 0 the loss makes the instance FAULT, and the peer takes over",
            )


def _complain_of_clamping(instance: VrrpInstance, placed: PlacedTrack, complaints: Complaints) -> None:
    track = placed.track
    sum_ = instance.priority + track.weight
    if _clamped(sum_) != sum_:
        complaints.warning(
            "clamped-priority",
            placed.where,
            f"{instance.name}: priority {instance.priority} and the weight {track.weight:+d} of {track.name} make"
            f" {sum_}, which is taken as {_clamped(sum_)}, as in keepalived",
            "two directors that end at the same priority are told apart by their addresses only",
        )


def _complain_of_unchecked_sources(instances: list[PlacedInstance], complaints: Complaints) -> None:
    """Once for a file."""
    for each in instances:
        if each.instance.peers and not each.instance.check_unicast_src:
            complaints.note(
                "unchecked-source",
                each.name,
                f"{each.instance.name} takes adverts of every source, not only of its peers, as in keepalived without"
                " check_unicast_src: whoever can reach it may take its addresses away",
                "add `check_unicast_src`, or `vrrp_check_unicast_src` to global_defs",
            )
            return
