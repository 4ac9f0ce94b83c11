"""What is tracked, and by whom: definitions, and the track blocks of instances and groups, to values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeVar

from haxlb.config.track_things import Thing, read_thing
from haxlb.config.vips import lines_of
from haxlb.model.tracking import BfdSession, Track, TrackFile, TrackKind, TrackProcess, TrackScript
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.nearest import Hints
from keepalived_compat.section import Entry, Section
from keepalived_compat.source import Span, Word
from keepalived_compat.values_tracking import LIMITS, Weight, read_tracks, read_weight

_DEFINING = {
    "vrrp_script": TrackKind.SCRIPT,
    "track_file": TrackKind.FILE,
    "vrrp_track_file": TrackKind.FILE,
    "vrrp_track_process": TrackKind.PROCESS,
    "bfd_instance": TrackKind.BFD,
}
_BLOCKS = {kind: block for block, kind in reversed(_DEFINING.items())}
_T = TypeVar("_T", TrackScript, TrackFile, TrackProcess, BfdSession)


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """A block that defines something to track."""

    kind: TrackKind
    name: str
    head: Span
    weight: Weight
    position: int
    """Its place among the statements of the top level."""
    thing: Thing | None
    """None = it cannot be used, which has been said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedTrack:
    """A tracked thing with the place of its name."""

    track: Track
    where: Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracking:
    """All that is tracked."""

    scripts: tuple[TrackScript, ...]
    files: tuple[TrackFile, ...]
    processes: tuple[TrackProcess, ...]
    sessions: tuple[BfdSession, ...]
    by_user: dict[Span, tuple[PlacedTrack, ...]]
    """By the place of the keyword `vrrp_instance` or `vrrp_sync_group`."""

    def of(self, user: Span) -> tuple[PlacedTrack, ...]:
        """What the instance or group whose block begins here tracks."""
        return self.by_user.get(user, ())


def read_tracking(root: Section, complaints: Complaints) -> Tracking:
    """Everything that is defined and tracked; names that are not defined are complained of."""
    return _TrackingReader(root, complaints).read()


class _TrackingReader:
    def __init__(self, root: Section, complaints: Complaints) -> None:
        self._root = root
        self._complaints = complaints
        self._hints = Hints()
        self._definitions: dict[tuple[TrackKind, str], Definition] = {}
        self._used: set[tuple[TrackKind, str]] = set()
        self._misspelt: set[TrackKind] = set()
        """Kinds of which a name is tracked that is not defined: it may mean one that seems to be unused."""

    def read(self) -> Tracking:
        users: list[tuple[int, Entry]] = []
        for position, entry in enumerate(self._root.entries):
            name = entry.keyword.name
            if name in _DEFINING:
                self._define(position, entry, _DEFINING[name])
            elif name in ("vrrp_instance", "vrrp_sync_group"):
                users.append((position, entry))
        found = {each.words[0].span: tuple(sorted(self._tracks(position, each), key=_rank)) for position, each in users}
        self._complain_of_unused()
        return Tracking(
            scripts=self._things(TrackScript),
            files=self._things(TrackFile),
            processes=self._things(TrackProcess),
            sessions=self._things(BfdSession),
            by_user=found,
        )

    def _things(self, kind: type[_T]) -> tuple[_T, ...]:
        return tuple(each.thing for each in self._definitions.values() if isinstance(each.thing, kind))

    # Definitions

    def _define(self, position: int, entry: Entry, kind: TrackKind) -> None:
        name = str(entry.value)
        weight = self._weight(entry, kind)
        first = self._definitions.get((kind, name))
        if first is not None:
            self._complaints.warning(
                "duplicate-name",
                entry.argument_span,
                f"a second {entry.keyword.name} is called {name}; it is not used",
                f"the first stands at {first.head}",
            )
            return
        self._definitions[kind, name] = Definition(
            kind=kind,
            name=name,
            head=entry.argument_span,
            weight=weight,
            position=position,
            thing=self._unless_held(entry, read_thing(entry, weight, self._complaints)),
        )

    def _unless_held(self, entry: Entry, thing: Thing | None) -> Thing | None:
        """None for a second session between the same ends: RFC 5881 section 3 knows one only."""
        if not isinstance(thing, BfdSession):
            return thing
        for first in self._things(BfdSession):
            if (first.neighbor, first.source, first.multihop) == (thing.neighbor, thing.source, thing.multihop):
                self._complaints.error(
                    "bad-value",
                    entry.argument_span,
                    f"bfd_instance {thing.name} has the same ends as {first.name}; it is not used, as in keepalived",
                    "remove one of the two",
                )
                return None
        return thing

    def _weight(self, entry: Entry, kind: TrackKind) -> Weight:
        found = entry.section.entry("weight") if entry.section is not None else None
        weight = None
        if found is not None:
            weight = read_weight(
                list(found.words[1:]), self._complaints, block=entry.keyword.name, limit=LIMITS[kind.value]
            )
        return weight or Weight(value=1 if kind is TrackKind.FILE else 0)

    # Uses

    def _tracks(self, position: int, user: Entry) -> Iterator[PlacedTrack]:
        section = user.section
        if section is None:
            return
        own = section.value("interface")
        for kind in TrackKind:
            lines = lines_of(section, kind.value)
            # Of a line that is not used it has been said that it tracks nothing.
            self._used |= {(kind, line[0].text) for line in lines}
            for line in read_tracks(lines, self._complaints, block=kind.value):
                if kind is TrackKind.INTERFACE and line.name == own:
                    self._complaints.warning(
                        "useless-option",
                        line.word,
                        f"track_interface: {own} is the instance's own, whose loss is a fault anyway;"
                        " the line is ignored, as in keepalived",
                        "delete it",
                    )
                    continue
                weight = self._defined(kind, line.word, position)
                if weight is None:
                    continue
                weight = line.weight or weight
                track = Track(kind=kind, name=line.name, weight=weight.value, reverse=weight.reverse)
                yield PlacedTrack(track=track, where=line.word.span)

    def _defined(self, kind: TrackKind, word: Word, position: int) -> Weight | None:
        """The weight of the block that defines a name; None when there is none, which is said."""
        if kind is TrackKind.INTERFACE:
            return Weight(value=0)
        found = self._definitions.get((kind, word.text))
        if found is None:
            self._misspelt.add(kind)
            names = (name for defined, name in self._definitions if defined is kind)
            self._complaints.error(
                "undefined-track",
                word,
                f"{kind.value}: {word.text} is defined nowhere; it is not tracked, as in keepalived",
                self._hints.did_you_mean(word.text, names) or f"define it above: {_BLOCKS[kind]} {word.text} {{ … }}",
            )
            return None
        if found.position > position:
            self._complaints.warning(
                "order",
                word,
                f"{kind.value}: {word.text} is defined below, at {found.head}: keepalived does not track it",
                "define it above what tracks it",
            )
        if found.thing is None:
            return None
        if isinstance(found.thing, BfdSession) and not found.thing.vrrp:
            self._complaints.error(
                "undefined-track",
                word,
                f"{kind.value}: {word.text} is for checkers only; it is not tracked, as in keepalived",
                f"delete `checker` in bfd_instance {word.text}",
            )
            return None
        return found.weight

    def _complain_of_unused(self) -> None:
        for key, each in self._definitions.items():
            if key in self._used or each.kind in self._misspelt:
                continue
            if isinstance(each.thing, BfdSession) and not each.thing.vrrp:
                continue
            self._complaints.note("unused-track", each.head, f"nothing tracks {each.name}: it changes nothing")


def _rank(placed: PlacedTrack) -> int:
    """By kind: the order of blocks in an instance means nothing."""
    return _ORDER.index(placed.track.kind)


_ORDER = list(TrackKind)
