"""Checks across blocks: what each block alone cannot tell."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address

from haxlb.config.instances import PlacedInstance
from haxlb.config.servers import PlacedServer
from haxlb.model.addresses import Endpoint
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.nearest import nearest
from keepalived_compat.source import Span


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


def check_vips(instances: Iterable[PlacedInstance], complaints: Complaints) -> None:
    """No address in two instances: one would take away what the other has put there."""
    owners: dict[IPv4Address, tuple[str, Span]] = {}
    for each in instances:
        for vip, where in each.vips:
            name, first = owners.setdefault(vip.address, (each.instance.name, where))
            if name != each.instance.name:
                complaints.fatal(
                    "duplicate-vip",
                    where,
                    f"{vip.address} stands in {each.instance.name} and in {name}: they would take it from each other",
                    f"the first stands at {first}; delete one",
                )


def check_interfaces(instances: Iterable[PlacedInstance], existing: frozenset[str], complaints: Complaints) -> None:
    """Every interface exists on this host."""
    for each in instances:
        places = {each.instance.interface: each.interface}
        for vip, where in each.vips:
            places.setdefault(vip.interface, where)
        for interface, where in places.items():
            check_interface(interface, each.instance.name, where, existing=existing, complaints=complaints)


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


def usable_servers(found: Iterable[PlacedServer], complaints: Complaints) -> list[PlacedServer]:
    """The virtual servers without those that repeat an endpoint."""
    endpoints: dict[Endpoint, Span] = {}
    kept = []
    for each in found:
        endpoint = each.virtual_server.endpoint
        first = endpoints.setdefault(endpoint, each.head)
        if first is not each.head:
            complaints.error(
                "duplicate-server",
                each.head,
                f"a second virtual_server has {endpoint}; it is not used",
                f"the first stands at {first}",
            )
            continue
        kept.append(each)
    return kept


def check_ownership(servers: Iterable[PlacedServer], instances: list[PlacedInstance], complaints: Complaints) -> None:
    """Every virtual server's address is a VIP of some instance, else it does not move with the master."""
    owned = {vip.address for each in instances for vip in each.instance.vips}
    seen: set[IPv4Address] = set()
    for each in servers:
        address = each.virtual_server.endpoint.address
        if address in owned or address in seen:
            continue
        seen.add(address)
        complaints.warning(
            "unowned-address",
            each.head,
            f"no vrrp_instance has {address} in its virtual_ipaddress: it does not move to the other director",
            f"add {address} to virtual_ipaddress",
        )
