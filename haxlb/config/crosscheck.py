"""Checks across blocks: what each block alone cannot tell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from haxlb.config.instances import PlacedInstance
from haxlb.config.vips import PlacedVip, owner_key
from haxlb.model.tracking import TrackKind
from keepalived_compat.diagnostics import Complaints, Severity
from keepalived_compat.nearest import did_you_mean, nearest
from keepalived_compat.preprocess import whole_file
from keepalived_compat.source import Span
from keepalived_compat.tree import Body


def usable_instances(found: Iterable[PlacedInstance], complaints: Complaints) -> list[PlacedInstance]:
    """The instances without those that repeat a name; two with one VRID on one interface are fatal."""
    names: dict[str, Span] = {}
    keys: dict[tuple[str, int], PlacedInstance] = {}
    kept = []
    for each in found:
        instance = each.instance
        if instance.name in names:
            complaints.error(
                "duplicate-name",
                each.name,
                f"a second vrrp_instance is called {instance.name}; it is not used, as in keepalived",
                f"the first stands at {names[instance.name]}",
            )
            continue
        names[instance.name] = each.name
        first = keys.setdefault(instance.key, each)
        if first is not each:
            complaints.fatal(
                "duplicate-vrid",
                each.vrid,
                f"virtual_router_id {instance.vrid} is used twice on {instance.interface}",
                f"{first.instance.name} uses it at {first.vrid}; each instance on an interface needs its own",
            )
        kept.append(each)
    return kept


def usable_vips(instances: Iterable[PlacedInstance], complaints: Complaints) -> list[PlacedInstance]:
    """The instances without addresses that an earlier one has: the one would take away what the other has put there."""
    owners: dict[object, tuple[str, Span]] = {}
    kept = []
    for each in instances:
        lists = [
            tuple(pair for pair in pairs if _is_own(pair, each.instance.name, owners, complaints))
            for pairs in (each.vips, each.excluded)
        ]
        kept.append(_with_vips(each, lists[0], lists[1], complaints))
    return kept


def _is_own(placed: PlacedVip, name: str, owners: dict[object, tuple[str, Span]], complaints: Complaints) -> bool:
    vip, where = placed
    owner, first = owners.setdefault(owner_key(vip), (name, where))
    if owner == name:
        return True
    complaints.error(
        "duplicate-vip",
        where,
        f"{vip.address} stands in {name} and in {owner}, and they would take it from each other:"
        f" it is not used in {name}",
        f"the first stands at {first}; delete one",
    )
    return False


def _with_vips(
    placed: PlacedInstance, vips: tuple[PlacedVip, ...], excluded: tuple[PlacedVip, ...], complaints: Complaints
) -> PlacedInstance:
    if (vips, excluded) == (placed.vips, placed.excluded):
        return placed
    instance = replace(
        placed.instance, vips=tuple(vip for vip, _ in vips), excluded_vips=tuple(vip for vip, _ in excluded)
    )
    if not vips and placed.vips and instance.version == _V3:
        complaints.fatal(
            "no-vip", placed.name, f"{instance.name} has no virtual_ipaddress of its own left, and VRRPv3 needs one"
        )
    return replace(placed, instance=instance, vips=vips, excluded=excluded)


_V3 = 3


def check_interfaces(
    instances: Iterable[PlacedInstance], existing: frozenset[str], complaints: Complaints, *, later: bool
) -> None:
    """Every interface exists on this host, or comes later where that is allowed (dynamic_interfaces)."""
    for each in instances:
        places = {each.instance.interface: each.interface}
        bases = {mac.interface: mac.base for mac in each.instance.virtual_macs}
        for vip, where in (*each.vips, *each.excluded):
            places.setdefault(bases.get(vip.interface, vip.interface), where)
        for interface, where in places.items():
            if interface in existing or not later:
                check_interface(interface, each.instance.name, where, existing=existing, complaints=complaints)
                continue
            complaints.warning(
                "no-such-interface",
                where,
                f"interface {interface} of {each.instance.name} does not exist on this host yet",
                "until it does, the instance is in FAULT (dynamic_interfaces)",
            )
        for tracked in each.tracks:
            name = tracked.track.name
            if tracked.track.kind is TrackKind.INTERFACE and name not in existing:
                complaints.warning(
                    "no-such-interface",
                    tracked.where,
                    f"track_interface: {name} does not exist on this host: it counts as down until it does;"
                    " keepalived does not track it",
                    did_you_mean(name, existing),
                )


def check_interface(
    interface: str, owner: str, where: Span, *, existing: frozenset[str], complaints: Complaints
) -> None:
    """This interface exists on this host."""
    if interface in existing:
        return
    near = nearest(interface, existing)
    meant = f"did you mean `{near}`? " if near else ""
    names = ", ".join(sorted(existing)[:_SHOWN]) + (", …" if len(existing) > _SHOWN else "")
    complaints.fatal(
        "no-such-interface",
        where,
        f"interface {interface} of {owner} does not exist on this host",
        f"{meant}this host has: {names}",
    )


_SHOWN = 12


def check_purpose(tree: Body, complaints: Complaints, path: Path) -> None:
    """There is something to run. Where a block was not understood, that has been complained of."""
    if any(each.keyword.text in _PURPOSES for each in tree.statements):
        return
    if any(each.severity in (Severity.FATAL, Severity.ERROR) for each in complaints.all):
        return
    complaints.warning(
        "nothing-to-do",
        whole_file(path),
        "there is no vrrp_instance and no virtual_server: there is nothing to do",
        "see that this is the right file, and what it includes",
    )


_PURPOSES = ("vrrp_instance", "virtual_server")
