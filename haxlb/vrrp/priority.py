"""The effective priority of an instance: the configured one, and what the things that it tracks make of it.

A weighted track adds to the priority, one without weight is a fault of the instance while the thing is not well. The
arithmetic is keepalived's (vrrp_track.c), since the two directors of a pair compare the sums.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from haxlb.model.status import Contribution
from haxlb.model.tracking import Track, TrackKind, TrackResult

OWNER = 255
"""Priority of the address owner (RFC 9568 section 5.2.4): no track changes it, faults are faults all the same."""
LOWEST = 1
HIGHEST = 254
FILE_FAULT = -254
"""A file whose number times its weight is this or less is a fault."""
FILE_HIGHEST = 253

_Key = tuple[TrackKind, str]
_ILL = {
    TrackKind.INTERFACE: "{name} is down",
    TrackKind.SCRIPT: "script {name} fails",
    TrackKind.PROCESS: "process {name} has not its quorum",
    TrackKind.BFD: "BFD session {name} is down",
}
_WELL = {
    TrackKind.INTERFACE: "{name} is up",
    TrackKind.SCRIPT: "script {name} succeeds",
    TrackKind.PROCESS: "process {name} has its quorum",
    TrackKind.BFD: "BFD session {name} is up",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Share:
    """What one track comes to at present."""

    well: bool | None
    change: int = 0
    fault: str = ""
    waits: bool = False


class Tally:
    """The sum of one instance.

    A track of which nothing has been heard yet adds nothing; one without weight makes the instance wait. Once the
    instance has been configured, nothing that is new to it makes it wait any more: what a reload brings counts as well
    until it is heard of, and so does what was known and no longer is (keepalived: a reload must not cost the role).
    """

    def __init__(self, base_priority: int, tracks: Iterable[Track] = ()) -> None:
        self._base = base_priority
        self._tracks = tuple(tracks)
        self._values: dict[_Key, int] = {}
        self._assumed: set[_Key] = set()
        """Not known, and taken to be well."""
        self._void: set[_Key] = set()
        """Cannot be known, and do not count."""

    @property
    def base(self) -> int:
        """The configured priority."""
        return self._base

    @property
    def effective(self) -> int:
        """The priority to advertise; 255 stays 255."""
        if self._base == OWNER:
            return OWNER
        return max(LOWEST, min(HIGHEST, self._base + sum(self._share(each).change for each in self._tracks)))

    @property
    def faults(self) -> tuple[str, ...]:
        """Why the instance must be in FAULT, a clause for each track: `script chk_web fails`."""
        return tuple(fault for each in self._tracks if (fault := self._share(each).fault))

    @property
    def waiting(self) -> tuple[str, ...]:
        """Names of tracks without weight of which nothing was heard since the start: no role before they are known."""
        return tuple(each.name for each in self._tracks if self._share(each).waits)

    def contributions(self) -> tuple[Contribution, ...]:
        """What each track comes to, in the order of the configuration."""
        shares = ((each, self._share(each)) for each in self._tracks)
        return tuple(
            Contribution(
                kind=track.kind.value,
                name=track.name,
                well=share.well,
                change=0 if self._base == OWNER else share.change,
                fault=bool(share.fault),
            )
            for track, share in shares
        )

    def take(self, results: Iterable[TrackResult]) -> bool:
        """Hear how things are; those that are not named are as before. Whether it changes anything shown here."""
        before = self._state()
        tracked = {(each.kind, each.name) for each in self._tracks}
        for each in results:
            key = (each.kind, each.name)
            if key not in tracked:
                continue
            heard_of = key in self._values or key in self._void
            self._void.discard(key)
            if not each.counts:
                self._values.pop(key, None)
                self._void.add(key)
            elif each.value is not None:
                self._values[key] = each.value
                self._assumed.discard(key)
            elif heard_of:
                self._values.pop(key, None)
                self._assumed.add(key)
        return self._state() != before

    def reconfigure(self, base_priority: int, tracks: Iterable[Track]) -> None:
        """Other settings of the same instance; what is known stays known."""
        former = {(each.kind, each.name) for each in self._tracks}
        self._base, self._tracks = base_priority, tuple(tracks)
        present = {(each.kind, each.name) for each in self._tracks}
        self._values = {key: value for key, value in self._values.items() if key in present}
        self._assumed = (self._assumed & present) | (present - former)
        self._void &= present

    def _state(self) -> tuple[object, ...]:
        return self.effective, self.faults, self.waiting, self.contributions()

    def _share(self, track: Track) -> _Share:
        key = (track.kind, track.name)
        if key in self._void:
            return _Share(well=None)
        value = self._values.get(key)
        if value is None:
            return _unknown_share(track, assumed=key in self._assumed)
        return _file_share(track, value) if track.kind is TrackKind.FILE else _simple_share(track, well=value != 0)


def _unknown_share(track: Track, *, assumed: bool) -> _Share:
    if not assumed:
        return _Share(well=None, waits=track.weight == 0)
    if track.kind is TrackKind.FILE or track.weight == 0:
        return _Share(well=None)
    return _Share(well=None, change=_weighted(track, well=True))


def _simple_share(track: Track, *, well: bool) -> _Share:
    if track.weight:
        return _Share(well=well, change=_weighted(track, well=well))
    if well != track.reverse:
        return _Share(well=well)
    return _Share(well=well, fault=(_WELL if well else _ILL)[track.kind].format(name=track.name))


def _weighted(track: Track, *, well: bool) -> int:
    """A positive weight counts while the thing is well, a negative one while it is not; `reverse` turns the sign."""
    if (track.weight > 0) != well:
        return 0
    return -track.weight if track.reverse else track.weight


def _file_share(track: Track, value: int) -> _Share:
    if track.weight == 0:
        if (value != 0) == track.reverse:
            return _Share(well=True)
        return _Share(well=False, fault=f"file {track.name} says {value}")
    product = value * (-track.weight if track.reverse else track.weight)
    if product <= FILE_FAULT:
        return _Share(well=False, fault=f"file {track.name} says {value}, times {track.weight}")
    return _Share(well=product >= 0, change=min(product, FILE_HIGHEST))
