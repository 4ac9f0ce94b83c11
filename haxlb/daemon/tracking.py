"""What of a configuration the tracker has to find out, and what stays known of it across a reload."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from haxlb.daemon.messages import ConfigureTracker
from haxlb.model.node import NodeConfig
from haxlb.model.tracking import BfdSession, TrackFile, TrackKind, TrackProcess, TrackResult, TrackScript

Key = tuple[TrackKind, str]
_Thing = TypeVar("_Thing", TrackScript, TrackFile, TrackProcess, BfdSession)


def tracker_orders(config: NodeConfig, known: Iterable[TrackResult] = ()) -> ConfigureTracker:
    """What instances and sync groups track; what nobody tracks is neither run nor watched (keepalived)."""
    tracks = (*(each.tracks for each in config.instances), *(each.tracks for each in config.sync_groups))
    wanted = {(track.kind, track.name) for listed in tracks for track in listed}

    def used(kind: TrackKind, things: tuple[_Thing, ...]) -> tuple[_Thing, ...]:
        return tuple(each for each in things if (kind, each.name) in wanted)

    return ConfigureTracker(
        scripts=used(TrackKind.SCRIPT, config.track_scripts),
        files=used(TrackKind.FILE, config.track_files),
        processes=used(TrackKind.PROCESS, config.track_processes),
        bfd_sessions=used(TrackKind.BFD, config.bfd_sessions),
        script_settings=config.notification.scripts,
        known=tuple(known),
    )


def anything(orders: ConfigureTracker) -> bool:
    """Whether there is anything to find out."""
    return bool(orders.scripts or orders.files or orders.processes or orders.bfd_sessions)


def same_things(before: ConfigureTracker, after: ConfigureTracker) -> set[Key]:
    """What is tracked before and after and is the same thing: what is known of it holds, however it is weighed."""
    former = _identities(before)
    return {key for key, what in _identities(after).items() if former.get(key) == what}


def _identities(orders: ConfigureTracker) -> dict[Key, object]:
    return {
        **{(TrackKind.SCRIPT, each.name): each.run.argv for each in orders.scripts},
        **{(TrackKind.FILE, each.name): each.path for each in orders.files},
        **{
            (TrackKind.PROCESS, each.name): (each.process, each.parameters, each.match, each.full_command)
            for each in orders.processes
        },
        **{(TrackKind.BFD, each.name): each.neighbor for each in orders.bfd_sessions},
    }
