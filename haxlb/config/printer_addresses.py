"""Virtual and static addresses, peers and groups of services as lines of keepalived.conf."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from haxlb.config.printer_words import word
from haxlb.model.addresses import IPAddress, StaticAddress, TtlLimits, Vip
from haxlb.model.groups import AddressRange, VirtualServerGroup
from keepalived_compat.values_addresses import FOREVER, SCOPES

_SCOPES = {number: name for name, number in reversed(SCOPES.items())}


def static_address_line(address: StaticAddress) -> str:
    """One line of `static_ipaddress`; it is read to the same address."""
    return " ".join(_static_address(address))


def vip_line(vip: Vip, bases: Mapping[str, str] = MappingProxyType({})) -> str:
    """One line of `virtual_ipaddress`; `bases` by the interfaces that are made for addresses alone."""
    # With a peer, a written prefix would be ignored.
    bare = vip.peer is not None and vip.prefix_length == vip.address.max_prefixlen
    words = [str(vip.address) if bare else str(vip), "dev", word(bases.get(vip.interface, vip.interface))]
    if vip.interface in bases:
        words.append("use_vmac")
    if vip.scope:
        words += ["scope", _SCOPES.get(vip.scope, str(vip.scope))]
    if vip.broadcast is not None:
        words += ["brd", str(vip.broadcast)]
    if vip.label is not None:
        words += ["label", word(vip.label)]
    return " ".join((*words, *_options(vip)))


def option_words(address: StaticAddress | Vip) -> str:
    """The options that an address of either kind may have: `peer 192.0.2.7 no_track`."""
    return " ".join(_options(address))


def group_lines(group: VirtualServerGroup) -> Iterator[str]:
    """The lines of a `virtual_server_group`."""
    yield from map(_range, group.ranges)
    yield from map(str, group.marks)


def peer_line(peer: IPAddress, limits: tuple[TtlLimits, ...]) -> str:
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
    yield from _options(address)


def _options(options: StaticAddress | Vip) -> Iterator[str]:
    if options.peer:
        yield from ("peer", str(options.peer))
    lifetime = options.preferred_lifetime_s
    if lifetime is not None:
        yield from ("preferred_lft", "forever" if lifetime == FOREVER else str(lifetime))
    if options.track_group:
        yield from ("track_group", word(options.track_group))
    yield from options.flags
