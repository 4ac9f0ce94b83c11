"""`track_group` blocks to values, and what they make of their instances.

An instance of a group tracks the interface of every static entry that names the group: keepalived 2.2.7 puts an entry
that somebody deletes back at once, so only the loss of its interface remains, which is a fault of the instance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from haxlb.config.instances import PlacedInstance
from haxlb.config.static_entries import Tie
from haxlb.config.tracking import PlacedTrack
from haxlb.config.vips import lines_of
from haxlb.model.groups import TrackGroup
from haxlb.model.tracking import Track, TrackKind
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.nearest import Hints
from keepalived_compat.section import Section
from keepalived_compat.source import Span


def read_track_groups(root: Section, complaints: Complaints) -> tuple[TrackGroup, ...]:
    """The groups in file order; members that do not exist are complained of and left out, as in keepalived."""
    known = {str(each.value) for each in root.all("vrrp_instance")}
    hints = Hints()
    found: dict[str, TrackGroup] = {}
    for entry in root.all("track_group"):
        name, section = str(entry.value), entry.section
        if section is None:
            continue
        if name in found:
            complaints.error(
                "duplicate-name",
                entry.argument_span,
                f"a second track_group is called {name}; it is not used, as in keepalived",
            )
            continue
        words = [word for line in lines_of(section, "group") for word in line]
        for word in words:
            if word.text not in known:
                complaints.error(
                    "undefined-member",
                    word,
                    f"track_group: there is no vrrp_instance {word.text}; it is left out, as in keepalived",
                    hints.did_you_mean(word.text, known),
                )
        members = dict.fromkeys(word.text for word in words if word.text in known)
        if members:
            found[name] = TrackGroup(name=name, members=tuple(members))
        elif not words and "group" not in section.refused:
            complaints.error(
                "missing-keyword",
                entry.argument_span,
                f"track_group {name} has no instance and is not used, as in keepalived",
                "add `group { INSTANCE … }`",
            )
    return tuple(found.values())


def tie_instances(
    instances: Iterable[PlacedInstance],
    groups: tuple[TrackGroup, ...],
    ties: Iterable[Tie],
    complaints: Complaints,
    *,
    declared: frozenset[str],
) -> list[PlacedInstance]:
    """The instances with what their groups make them track; `declared` are the names of all blocks, usable or not."""
    hints = Hints()
    places: dict[str, dict[str, Span]] = {}
    for tie in ties:
        if tie.group not in declared:
            complaints.error(
                "undefined-track",
                tie.word,
                f"{tie.block}: there is no track_group {tie.group}; the entry is tied to none",
                hints.did_you_mean(tie.group, declared),
            )
        elif tie.no_track or not tie.interface:
            why = "has no_track, too" if tie.no_track else "names no interface (dev, of a rule iif)"
            complaints.warning(
                "useless-option",
                tie.word,
                f"{tie.block}: the entry {why}: it is tied to no instance, as in keepalived",
                "delete no_track, or the group" if tie.no_track else "name it, or delete the group",
            )
        else:
            places.setdefault(tie.group, {}).setdefault(tie.interface, tie.word.span)
    return [_tied(each, groups, places) for each in instances]


def _tied(placed: PlacedInstance, groups: tuple[TrackGroup, ...], places: dict[str, dict[str, Span]]) -> PlacedInstance:
    instance = placed.instance
    wanted: dict[str, Span] = {}
    for group in groups:
        if instance.name in group.members:
            wanted = {**places.get(group.name, {}), **wanted}
    if instance.track_primary:
        wanted.pop(instance.interface, None)
    if not wanted:
        return placed
    tracks = tuple(_merged(placed.tracks, wanted, own=instance.interface))
    return replace(placed, instance=replace(instance, tracks=tuple(each.track for each in tracks)), tracks=tracks)


def _merged(present: tuple[PlacedTrack, ...], wanted: dict[str, Span], *, own: str) -> Iterator[PlacedTrack]:
    """In keepalived the group's tracking has no weight, also of an interface that the instance tracks with one."""
    interfaces = [each for each in present if each.track.kind is TrackKind.INTERFACE]
    for each in interfaces:
        name = each.track.name
        yield replace(each, track=_track(name)) if name in wanted else each
    named = {each.track.name for each in interfaces}
    # Its own interface has no line in a track_interface block: it is last, so that a printed file reads the same.
    for name in sorted(wanted.keys() - named, key=lambda each: (each == own, list(wanted).index(each))):
        yield PlacedTrack(track=_track(name), where=wanted[name])
    yield from (each for each in present if each.track.kind is not TrackKind.INTERFACE)


def _track(interface: str) -> Track:
    return Track(kind=TrackKind.INTERFACE, name=interface)
