"""What `global_defs` says for all instances."""

from __future__ import annotations

from dataclasses import dataclass

from haxlb.model.node import SECOND_US, GarpConfig
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.judgement import Entry, Section

DOWN_TIMER_ADVERTS = 3
"""Adverts missed before a BACKUP takes over (RFC 9568 section 6.1, Active_Down_Interval)."""
MULTICAST_GROUP = "224.0.0.18"


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The defaults of instances."""

    version: int
    garp: GarpConfig
    down_timer_adverts: int
    multicast_group: str


def read_defaults(root: Section, complaints: Complaints) -> Defaults:
    """The defaults for instances; of several `global_defs` the last value counts."""
    found: dict[str, Entry] = {}
    for block in root.all("global_defs"):
        for each in block.section.entries if block.section else ():
            found[each.keyword.canonical] = each
    _complain_of_order(root, complaints)

    def value(name: str, default: int) -> int:
        return int(found[name].value) if name in found else default

    minimal = "vrrp_min_garp" in found and bool(found["vrrp_min_garp"].value)
    delay = value("vrrp_garp_master_delay", 0 if minimal else 5)
    repeat = at_least_one(found.get("vrrp_garp_master_repeat"), 1 if minimal else 5, complaints)
    group = found.get("vrrp_mcast_group4")
    return Defaults(
        version=value("vrrp_version", 2),
        down_timer_adverts=value("vrrp_down_timer_adverts", DOWN_TIMER_ADVERTS),
        multicast_group=str(group.value) if group else MULTICAST_GROUP,
        garp=GarpConfig(
            master_repeat=repeat,
            master_delay_us=delay * SECOND_US,
            master_refresh_us=value("vrrp_garp_master_refresh", 0) * SECOND_US,
            master_refresh_repeat=at_least_one(found.get("vrrp_garp_master_refresh_repeat"), 1, complaints),
            lower_prio_repeat=value("vrrp_garp_lower_prio_repeat", repeat),
            lower_prio_delay_us=value("vrrp_garp_lower_prio_delay", delay) * SECOND_US,
            interval_us=value("vrrp_garp_interval", 0),
        ),
    )


def at_least_one(entry: Entry | None, default: int, complaints: Complaints) -> int:
    """A count of rounds; keepalived takes 0 as 1."""
    if entry is None:
        return default
    if entry.value == 0:
        complaints.warning(
            "inexact-value",
            entry.argument_span,
            f"{entry.keyword.name} 0 is taken as 1, as in keepalived",
            "a master has to announce itself",
        )
    return max(int(entry.value), 1)


def _complain_of_order(root: Section, complaints: Complaints) -> None:
    """Keepalived copies these values into an instance when its block begins, so later ones miss it."""
    instances = False
    for block in root.entries:
        instances = instances or block.keyword.name == "vrrp_instance"
        if not instances or block.keyword.name != "global_defs" or block.section is None:
            continue
        for each in block.section.entries:
            if each.keyword.name.startswith("vrrp_garp_") or each.keyword.name == "vrrp_down_timer_adverts":
                complaints.warning(
                    "order",
                    each.span,
                    f"{each.keyword.name} stands after a vrrp_instance: it counts here, not for keepalived's",
                    "put global_defs first",
                )
