"""Why an instance cannot take part in the election, in words."""

from __future__ import annotations

from haxlb.model.addresses import IPAddress
from haxlb.model.instance import VrrpInstance
from haxlb.vrrp.inputs import LinkChanged


def link_trouble(instance: VrrpInstance, link: LinkChanged, source: IPAddress | None) -> str:
    """What is wrong with the interface, the source address or the peers; empty = nothing.

    Without `track_primary` an interface that is down is no fault (keepalived's dont_track_primary); one that is not
    there, or has no address to speak from, is one all the same.
    """
    interface = instance.interface
    if not link.present:
        return f"there is no interface {interface}"
    if not link.up and instance.track_primary:
        return f"{interface} is down"
    if source is None:
        return f"{interface} has no IPv{instance.family} address"
    if instance.track_source and not link.has_source:
        return f"{source} is not an address of this host"
    if instance.unicast_fault_no_peer and not instance.peers:
        return "unicast without a unicast_peer"
    return ""
