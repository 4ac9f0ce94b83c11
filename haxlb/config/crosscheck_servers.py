"""Checks of virtual servers against each other, against instances, and against this host's networks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from ipaddress import IPv4Network, ip_address

from haxlb.config.instances import PlacedInstance
from haxlb.config.server_groups import MOST_ENDPOINTS
from haxlb.config.servers import PlacedServer
from haxlb.model.addresses import Endpoint, IPAddress
from haxlb.model.virtual_server import ForwardingMethod
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.keywords import KEEPALIVED
from keepalived_compat.source import Span
from keepalived_compat.tree import Body, Statement

_SHOWN = 12


def usable_servers(found: Iterable[PlacedServer], complaints: Complaints) -> list[PlacedServer]:
    """The virtual servers without those that repeat one, and without addresses that an earlier one serves."""
    names: dict[str, Span] = {}
    owners: dict[Endpoint, PlacedServer] = {}
    kept = []
    for each in found:
        server = each.virtual_server
        first = names.setdefault(server.name, each.head)
        if first is not each.head:
            complaints.error(
                "duplicate-server",
                each.head,
                f"a second virtual_server has {server.name}; it is not used",
                f"the first stands at {first}; delete one",
            )
            continue
        if len(owners) + len(server.endpoints) > MOST_ENDPOINTS:
            complaints.error(
                "too-many-endpoints",
                each.head,
                f"with {server.name} there would be more than {MOST_ENDPOINTS} addresses and ports: it is left out",
                "serve networks by fewer addresses, or all ports of an address by one virtual_server",
            )
            continue
        taken = [endpoint for endpoint in server.endpoints if owners.setdefault(endpoint, each) is not each]
        if not taken:
            kept.append(each)
            continue
        _complain_of_taken(each, taken, owners[taken[0]], complaints)
        own = tuple(endpoint for endpoint in server.endpoints if owners[endpoint] is each)
        if own:
            kept.append(replace(each, virtual_server=replace(server, endpoint=own[0], more_endpoints=own[1:])))
    return kept


def _complain_of_taken(
    placed: PlacedServer, taken: list[Endpoint], owner: PlacedServer, complaints: Complaints
) -> None:
    more = f" and {len(taken) - 1} more" if len(taken) > 1 else ""
    complaints.error(
        "duplicate-server",
        placed.head,
        f"{taken[0]}{more} of {placed.virtual_server.name} is served by {owner.virtual_server.name} already,"
        " and not by it",
        f"the first stands at {owner.head}; an address and port belong to one virtual_server",
    )


def check_targets(servers: Iterable[PlacedServer], instances: Iterable[PlacedInstance], complaints: Complaints) -> None:
    """No real server has an address that moves between the directors: the master would be its own server."""
    virtual = {
        vip.address: each.instance.name
        for each in instances
        for vip in (*each.instance.vips, *each.instance.excluded_vips)
    }
    seen: set[IPAddress] = set()
    for placed in servers if virtual else ():
        served = {each.address for each in placed.virtual_server.endpoints}
        for server, line in placed.targets:
            owner = virtual.get(server.address)
            # That of its own virtual server has been complained of.
            if owner is None or server.address in seen | served:
                continue
            seen.add(server.address)
            complaints.warning(
                "server-is-vip",
                line.argument,
                f"{server.key} is a virtual address of {owner}: packets would go to whoever is MASTER of it",
                "name the server's own address",
            )


def check_ownership(
    servers: Iterable[PlacedServer], instances: list[PlacedInstance], tree: Body, complaints: Complaints
) -> None:
    """Every virtual server's address is a VIP of some instance, else it does not move with the master.

    Addresses that stand somewhere in the file but are not used have been complained of there. A file without
    instances belongs to a host whose addresses somebody else moves.
    """
    if not any(each.keyword.text == "vrrp_instance" for each in tree.statements):
        return
    owned = {
        vip.address for each in instances for vip in (*each.instance.vips, *each.instance.excluded_vips)
    } | _written_addresses(tree)
    seen: set[IPAddress] = set()
    for placed in servers:
        lacking = dict.fromkeys(each.address for each in placed.virtual_server.endpoints)
        lost = [each for each in lacking if each not in owned and each not in seen]
        seen.update(lost)
        if not lost:
            continue
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        verb = "they do not move" if more else "it does not move"
        complaints.warning(
            "unowned-address",
            placed.head,
            f"no vrrp_instance has {lost[0]}{more} in its virtual_ipaddress: {verb} to the other director",
            f"add {lost[0]}{more} to virtual_ipaddress, or to virtual_ipaddress_excluded",
        )


def _written_addresses(tree: Body) -> set[IPAddress]:
    """Also those in blocks that are not used, or whose name is misspelt."""
    blocks = []
    for each in tree.statements:
        if each.keyword.text == "static_ipaddress":
            blocks.append(each)
        elif each.body is not None and (
            each.keyword.text == "vrrp_instance" or each.keyword.text not in KEEPALIVED[""]
        ):
            blocks += [inner for inner in each.body.statements if _may_hold_vips(inner.keyword.text)]
    return {address for each in blocks for address in _addresses(each)}


def _may_hold_vips(block: str) -> bool:
    return block.startswith("virtual_ipaddress") or block not in KEEPALIVED["vrrp_instance"]


def _addresses(block: Statement) -> Iterator[IPAddress]:
    for line in block.body.statements if block.body is not None else ():
        try:
            yield ip_address(line.keyword.text.partition("/")[0])
        except ValueError:
            continue


def check_links(servers: Iterable[PlacedServer], networks: tuple[IPv4Network, ...], complaints: Complaints) -> None:
    """Every IPv4 server by DR is in a network that this host is connected to: DR reaches nobody else.

    `networks` are those of the director; not to be called for a file that is looked at elsewhere.
    """
    seen: set[IPAddress] = set()
    for each in servers:
        for server, line in each.targets:
            address = server.address
            if server.method is not ForwardingMethod.DR or address.version != 4 or address in seen:  # noqa: PLR2004 - the family
                continue
            if any(address in network for network in networks):
                continue
            seen.add(address)
            complaints.warning(
                "off-link-server",
                line.argument,
                f"{address} is in none of this host's networks: DR reaches servers on the same link only",
                f"this host is connected to {', '.join(map(str, networks[:_SHOWN]))}; lvs_method TUN goes through"
                " routers",
            )
