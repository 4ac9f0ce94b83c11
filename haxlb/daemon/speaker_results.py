"""What a speaker knows of the things that its instances track: as the tracker has said, and how interfaces are."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from haxlb.daemon.ports import Link
from haxlb.model.instance import VrrpInstance
from haxlb.model.tracking import TrackKind, TrackResult
from haxlb.vrrp.inputs import Tracked


class KnownResults:
    """The last result of everything that is tracked."""

    def __init__(self, link: Callable[[str], Link | None]) -> None:
        """`link` tells how an interface is now."""
        self._link = link
        self._results: dict[tuple[TrackKind, str], TrackResult] = {}

    def inherit(self, results: Iterable[TrackResult]) -> None:
        """So it was found to be before there was this speaker; what is known already is newer."""
        for each in results:
            self._results.setdefault((each.kind, each.name), each)

    def take(self, results: Iterable[TrackResult]) -> None:
        """So it is now."""
        for each in results:
            self._results[each.kind, each.name] = each

    def follow(self, instances: Iterable[VrrpInstance]) -> None:
        """Look at the interfaces that are tracked from now on, and forget what is tracked no longer."""
        tracks = dict.fromkeys((each.kind, each.name) for instance in instances for each in instance.tracks)
        self._results = {key: value for key, value in self._results.items() if key in tracks}
        for kind, name in tracks:
            if kind is TrackKind.INTERFACE and (kind, name) not in self._results:
                self._results[kind, name] = _of_interface(name, self._link(name))

    def of(self, instance: VrrpInstance) -> Tracked:
        """What is known of the things that this instance tracks."""
        keys = ((each.kind, each.name) for each in instance.tracks)
        return Tracked(results=tuple(self._results[key] for key in keys if key in self._results))

    def of_link(self, link: Link) -> tuple[TrackResult, ...]:
        """What follows for those that track this interface; empty where nobody does."""
        tracked = (TrackKind.INTERFACE, link.interface) in self._results
        return (_of_interface(link.interface, link),) if tracked else ()


def _of_interface(name: str, link: Link | None) -> TrackResult:
    return TrackResult(kind=TrackKind.INTERFACE, name=name, value=int(link is not None and link.up))
