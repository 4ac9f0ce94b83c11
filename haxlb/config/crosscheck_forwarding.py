"""Checks of what the forwarder must see and does not: frames to a MAC that is not the interface's."""

from __future__ import annotations

from collections.abc import Iterable

from haxlb.config.instances import PlacedInstance
from haxlb.config.servers import PlacedServer
from haxlb.model.addresses import IPAddress
from keepalived_compat.diagnostics import Complaints


def check_virtual_macs(
    servers: Iterable[PlacedServer], instances: Iterable[PlacedInstance], complaints: Complaints
) -> None:
    """No virtual server has an address that lives on a macvlan (`use_vmac`, `use_vmac_addr`).

    The forwarder takes frames to the MAC of the interface that it is attached to and no other. An ipvlan has that MAC,
    and an address that names a `dev` of its own does not live on the macvlan.
    """
    behind: dict[IPAddress, PlacedInstance] = {}
    for placed in instances:
        made = {mac.interface for mac in placed.instance.virtual_macs if not mac.ipvlan}
        for vip in (*placed.instance.vips, *placed.instance.excluded_vips):
            if vip.interface in made:
                behind.setdefault(vip.address, placed)
    for each in servers:
        server = each.virtual_server
        served = next((endpoint for endpoint in server.endpoints if endpoint.address in behind), None)
        if served is None:
            continue
        owner = behind[served.address]
        entry = owner.section.entry("use_vmac") or owner.section.entry("use_vmac_addr")
        place = "" if entry is None else f" ({entry.words[0].span})"
        word = "use_vmac" if entry is None else entry.keyword.name
        complaints.error(
            "vmac-not-forwarded",
            each.head,
            f"virtual_server {served} is not served: {owner.instance.name} has {word}, and the forwarder"
            " does not take frames to a virtual MAC yet",
            f"remove {word} from vrrp_instance {owner.instance.name}{place}",
        )
