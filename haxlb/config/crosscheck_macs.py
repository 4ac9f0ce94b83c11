"""Checks of virtual MACs against each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from haxlb.config.instances import PlacedInstance
from haxlb.config.vips import PlacedVip
from keepalived_compat.diagnostics import Complaints


def separate_macs(instances: Iterable[PlacedInstance], complaints: Complaints) -> list[PlacedInstance]:
    """The instances without virtual MACs of addresses that another one has on the same interface.

    Two macvlans with one MAC cannot be up on one interface (macvlan_open). keepalived disables the later instance; here
    the addresses have the MAC of their interface.
    """
    listed = list(instances)
    owners: dict[tuple[str, str], str] = {}
    for each in listed:
        mac = each.instance.virtual_mac
        if mac is not None and mac.mac:
            owners.setdefault((each.instance.interface, mac.mac), each.instance.name)
    return [_separate(each, owners, complaints) for each in listed]


def _separate(placed: PlacedInstance, owners: dict[tuple[str, str], str], complaints: Complaints) -> PlacedInstance:
    instance = placed.instance
    lost: dict[str, str] = {}
    for mac in instance.address_macs:
        owner = owners.setdefault((mac.base, mac.mac), instance.name)
        if owner == instance.name:
            continue
        lost[mac.interface] = mac.base
        complaints.error(
            "duplicate-mac",
            next(where for vip, where in (*placed.vips, *placed.excluded) if vip.interface == mac.interface),
            f"{owner} has the virtual MAC {mac.mac} on {mac.base}: the addresses of {instance.name} there have the MAC"
            f" of {mac.base}; keepalived does not run {instance.name}",
            "give one of the two another virtual_router_id",
        )
    if not lost:
        return placed
    vips, excluded = (
        tuple[PlacedVip, ...](
            (replace(vip, interface=lost.get(vip.interface, vip.interface)), where) for vip, where in listed
        )
        for listed in (placed.vips, placed.excluded)
    )
    instance = replace(
        instance,
        vips=tuple(vip for vip, _ in vips),
        excluded_vips=tuple(vip for vip, _ in excluded),
        address_macs=tuple(each for each in instance.address_macs if each.interface not in lost),
    )
    return replace(placed, instance=instance, vips=vips, excluded=excluded)
