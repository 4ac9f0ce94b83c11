"""`interface_up_down_delays`: how long a link must be up or down before it counts."""

from __future__ import annotations

from collections.abc import Iterable

from haxlb.config.vips import lines_of
from haxlb.model.instance import VrrpInstance
from haxlb.model.settings import LinkDelay
from haxlb.model.tracking import TrackKind
from haxlb.model.units import SECOND_US
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.section import Section
from keepalived_compat.values_groups import read_delays


def read_link_delays(
    root: Section, instances: Iterable[VrrpInstance], complaints: Complaints, *, tracked: Iterable[str] = ()
) -> tuple[LinkDelay, ...]:
    """One of each interface; `tracked` are those that sync groups track."""
    listed = tuple(instances)
    used = {each.interface for each in listed} | set(tracked)
    used |= {each.name for one in listed for each in one.tracks if each.kind is TrackKind.INTERFACE}
    found: dict[str, LinkDelay] = {}
    for line in read_delays(lines_of(root, "interface_up_down_delays"), complaints):
        name = line.word.text
        if name not in used:
            complaints.warning(
                "useless-option",
                line.word,
                f"interface_up_down_delays: {name} is the interface of no instance, and nobody tracks it",
            )
        elif name in found:
            complaints.warning(
                "given-twice", line.word, f"interface_up_down_delays: {name} a second time; the first line counts"
            )
        else:
            longest = min((_longest(each) for each in listed if each.interface == name), default=line.down_us)
            if line.down_us > longest:
                complaints.warning(
                    "inexact-value",
                    line.word,
                    f"interface_up_down_delays: {name} counts as down after {longest / SECOND_US:g} s, as in"
                    " keepalived: before its peer takes over",
                )
            found[name] = LinkDelay(interface=name, down_us=min(line.down_us, longest), up_us=line.up_us)
    return tuple(found.values())


def _longest(instance: VrrpInstance) -> int:
    """A MASTER that is cut off must have gone before the peer has missed all its adverts, µs."""
    interval = instance.advert_interval_us
    return max(0, (instance.down_timer_adverts - 1) * interval - interval // 256)
