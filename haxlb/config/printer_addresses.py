"""Static addresses, peers and groups of services as lines of keepalived.conf."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address

from haxlb.config.printer_words import word
from haxlb.model.addresses import StaticAddress, TtlLimits
from haxlb.model.groups import AddressRange, VirtualServerGroup
from keepalived_compat.values_addresses import FOREVER, SCOPES

_SCOPES = {number: name for name, number in reversed(SCOPES.items())}


def static_address_line(address: StaticAddress) -> str:
    """One line of `static_ipaddress`; it is read to the same address."""
    return " ".join(_static_address(address))


def group_lines(group: VirtualServerGroup) -> Iterator[str]:
    """The lines of a `virtual_server_group`."""
    yield from map(_range, group.ranges)
    yield from map(str, group.marks)


def peer_line(peer: IPv4Address, limits: tuple[TtlLimits, ...]) -> str:
    """One line of `unicast_peer`, with the peer's own of the limits."""
    words = [str(peer)]
    for each in limits:
        if each.peer == peer:
            words += [] if each.lowest is None else ["min_ttl", str(each.lowest)]
            words += [] if each.highest is None else ["max_ttl", str(each.highest)]
    return " ".join(words)


def _range(addresses: AddressRange) -> str:
    span = addresses.first if addresses.first == addresses.last else f"{addresses.first}-{addresses.last}"
    return span if addresses.port is None else f"{span} {addresses.port}"


def _static_address(address: StaticAddress) -> Iterator[str]:
    whole = 128 if ":" in address.address else 32
    # With a peer, a written prefix would count for the peer.
    bare = bool(address.peer) and address.prefix_length == whole
    yield address.address if bare else f"{address.address}/{address.prefix_length}"
    yield from ("dev", word(address.interface))
    if address.scope is not None:
        yield from ("scope", _SCOPES.get(address.scope, str(address.scope)))
    if address.broadcast:
        yield from ("brd", address.broadcast)
    if address.label:
        yield from ("label", word(address.label))
    if address.peer:
        yield from ("peer", address.peer)
    lifetime = address.preferred_lifetime_s
    if lifetime is not None:
        yield from ("preferred_lft", "forever" if lifetime == FOREVER else str(lifetime))
    if address.track_group:
        yield from ("track_group", word(address.track_group))
    yield from address.flags
