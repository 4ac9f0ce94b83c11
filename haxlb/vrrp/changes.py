"""What differs between two configurations of one instance, for a reload that touches only that."""

from __future__ import annotations

from dataclasses import dataclass

from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.instance import VrrpInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class VipChanges:
    """Addresses to take off, put on and take off, in this order: nothing is off for longer than it must be."""

    in_the_way: tuple[Vip, ...]
    """Same address and interface as a new one, other prefix length, label or scope."""
    added: tuple[Vip, ...]
    gone: tuple[Vip, ...]


def vip_changes(old: tuple[Vip, ...], new: tuple[Vip, ...]) -> VipChanges:
    """The difference of two lists of addresses."""
    added = tuple(vip for vip in new if vip not in old)
    lost = tuple(vip for vip in old if vip not in new)
    slots = {place(vip) for vip in new}
    return VipChanges(
        in_the_way=tuple(vip for vip in lost if place(vip) in slots),
        added=added,
        gone=tuple(vip for vip in lost if place(vip) not in slots),
    )


def place(vip: Vip) -> tuple[IPAddress, str]:
    """What can be there once only: the address on its interface."""
    return (vip.address, vip.interface)


def same_on_the_wire(one: VrrpInstance, other: VrrpInstance) -> bool:
    """Whether peers cannot tell the two by the adverts that they get."""
    return _shown(one) == _shown(other)


def _shown(instance: VrrpInstance) -> tuple[object, ...]:
    return (
        instance.version,
        instance.priority,
        instance.advert_interval_us,
        instance.auth_pass,
        instance.auth_ah,
        instance.source,
        instance.peers,
        instance.multicast_group,
        instance.unicast_ttl,
        instance.checksum_as_v2,
        instance.old_unicast_checksum,
        instance.virtual_mac,
        tuple(vip.address for vip in instance.vips),
    )
