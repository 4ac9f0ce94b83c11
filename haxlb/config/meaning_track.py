"""What becomes of an instance when something fails that it tracks."""

from __future__ import annotations

from collections.abc import Sequence

from haxlb.config.crosscheck_election import highest_priority, lowest_priority
from haxlb.config.printer import in_seconds
from haxlb.model.instance import VrrpInstance
from haxlb.model.node import NodeConfig
from haxlb.model.tracking import Track, TrackKind, TrackScript
from haxlb.vrrp.election import OWNER_PRIORITY


def _noticed_us(script: TrackScript) -> int:
    """The worst case: it begins to hang right after a run that was well, and each run lasts its whole timeout.

    keepalived skips runs that are due while one is under way.
    """
    interval, timeout = script.interval_us, script.timeout_us
    period = max(-(-timeout // interval), 1) * interval
    return interval + (script.fall - 1) * period + timeout


def _in_a_row(fall: int) -> str:
    return "" if fall == 1 else f", {fall} times in a row"


def track_sentence(
    instance: VrrpInstance, track: Track, config: NodeConfig, companions: Sequence[VrrpInstance] = ()
) -> str:
    """What one thing that it tracks does to it; `companions` are the other members of its sync group, as they track."""
    scripts = {each.name: each for each in config.track_scripts}
    script = scripts.get(track.name) if track.kind is TrackKind.SCRIPT else None
    what = f"{track.name} {'being well' if track.reverse else 'failing'}"
    if script is not None:
        noticed = _noticed_us(script)
        what += (
            f" ({script.run}, every {in_seconds(script.interval_us)} s{_in_a_row(script.fall)}:"
            f" noticed after at most {in_seconds(noticed)} s)"
        )
    if track.kind is TrackKind.FILE and track.weight:
        return f"{track.name} adds {track.weight} times the number in its file to the priority {instance.priority}"
    if not track.weight:
        return f"{what} makes it FAULT: it gives up its addresses, and any peer takes over"
    if instance.priority == OWNER_PRIORITY:
        return f"{what} changes nothing: priority 255 has no weights"
    well = highest_priority(instance)
    after = min(max(well - abs(track.weight), 1), 254)
    text = f"{what} makes {well} → {after}; "
    if companions:
        text += (
            f"the peer's group takes over only when every member of it is better (here: has more than {after}) or hears"
            f" no MASTER{_unmoved(track, companions)}"
        )
    else:
        text += f"a peer needs more than {after} to take over"
    if lowest_priority(instance) < after:
        text += f" (all of them failing: {lowest_priority(instance)})"
    return text


def _unmoved(track: Track, companions: Sequence[VrrpInstance]) -> str:
    """Which of the other members this does not change."""
    key = (track.kind, track.name)
    kept = [
        f"{each.name} keeps {highest_priority(each)}"
        for each in companions
        if each.priority == OWNER_PRIORITY or key not in {(one.kind, one.name) for one in each.tracks if one.weight}
    ]
    return f"; {', '.join(kept)}" if kept else ""
