"""rtnetlink's neighbours and routes as values: three short messages by struct, of either family.

Layouts and numbers: <linux/neighbour.h>, <linux/rtnetlink.h>.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address, IPv6Address

from haxlb.linux.link_layers import read_mac
from haxlb.linux.rtnetlink import (
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_DUMP,
    RTMGRP_LINK,
    Rtnetlink,
    attach,
    attribute,
    nested,
    request,
)
from haxlb.model.addresses import IPAddress

_RTM_GETROUTE = 26
_RTM_NEWNEIGH, _RTM_DELNEIGH, _RTM_GETNEIGH = 28, 29, 30
_RTMGRP_NEIGH = 0x4
_RTMGRP_IPV4_ROUTE = 0x40
_RTMGRP_IPV6_ROUTE = 0x400
EVENT_GROUPS = RTMGRP_LINK | _RTMGRP_NEIGH | _RTMGRP_IPV4_ROUTE | _RTMGRP_IPV6_ROUTE
"""Not the addresses: the VIPs are renewed all the time, and one that comes or goes shows as a local route."""
KIND_NEIGHBOUR = (_RTM_NEWNEIGH, _RTM_DELNEIGH)

_HEADER_BYTES = 16
_NDMSG = struct.Struct("=BxxxiHBB")
_RTMSG = struct.Struct("=BBBBBBBBI")
_NUMBER = struct.Struct("=I")
_NDA_DST, _NDA_LLADDR = 1, 2
_NTF_USE, _NTF_PROXY = 0x01, 0x08
_NUD_REACHABLE, _NUD_STALE, _NUD_DELAY, _NUD_PROBE = 0x02, 0x04, 0x08, 0x10
_NUD_FAILED, _NUD_PERMANENT = 0x20, 0x80
_NUD_USABLE = _NUD_REACHABLE | _NUD_STALE | _NUD_DELAY | _NUD_PROBE | _NUD_PERMANENT
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PREFSRC, _RTA_METRICS, _RTA_VIA = 1, 4, 5, 7, 8, 18
_RTAX_MTU = 2
_RTN_UNICAST, _RTN_LOCAL = 1, 2
_RTN_REFUSED = (6, 7, 8)
"""RTN_BLACKHOLE, RTN_UNREACHABLE, RTN_PROHIBIT."""
_FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
_RTVIA_HEAD = 2
"""struct rtvia: the family, then the address."""


class RouteKind(Enum):
    """What the routing table says of an address."""

    CONNECTED = "connected"
    """On the link of an interface: its MAC can be asked for."""
    GATEWAY = "gateway"
    """Behind one that is."""
    LOCAL = "local"
    """This host itself."""
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The way to one address."""

    kind: RouteKind
    interface_index: int = 0
    via: IPAddress | None = None
    """Whose MAC frames have: the address itself, without a scope, or the gateway, which may be of the other family."""
    source: IPAddress | None = None
    """This host's address on packets that go there."""
    mtu: int = 0
    """Of the route, or of the path as far as it was found out; 0 = the interface's."""
    reason: str = ""
    """Why there is none; empty but for NONE."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of the neighbour table; one that is gone reads as unknown."""

    interface_index: int
    address: IPAddress
    mac: str
    """Empty while it is not known."""
    failed: bool = False
    """It was asked and did not answer."""


def use_request(interface_index: int, address: IPAddress) -> bytes:
    """Ask the kernel to treat the entry as if it sent a packet there, making it where there is none."""
    body = _NDMSG.pack(_FAMILIES[address.version], interface_index, 0, _NTF_USE, 0)
    return request(_RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_ACK, body + attach(_NDA_DST, address.packed))


def route_request(address: IPAddress, interface_index: int = 0) -> bytes:
    """Ask for the route that a packet to this address takes; `interface_index` for an address that needs a scope."""
    body = _RTMSG.pack(_FAMILIES[address.version], address.max_prefixlen, 0, 0, 0, 0, 0, 0, 0)
    body += attach(_RTA_DST, address.packed)
    if interface_index:
        body += attach(_RTA_OIF, _NUMBER.pack(interface_index))
    return request(_RTM_GETROUTE, 0, body)


def read_route(answers: list[bytes], address: IPAddress) -> Route:
    """The answer to `route_request` for this address."""
    message = answers[0]
    kind = _RTMSG.unpack_from(message, _HEADER_BYTES)[7]

    def value(wanted: int) -> bytes | None:
        return attribute(message, _RTMSG.size, wanted)

    if kind in _RTN_REFUSED:
        return Route(kind=RouteKind.NONE, reason=f"no route to {address}")
    index = _number(value(_RTA_OIF))
    if kind not in (_RTN_UNICAST, _RTN_LOCAL) or not index:
        return Route(kind=RouteKind.NONE, reason=f"{address} is not the address of one host")
    source = _address(value(_RTA_PREFSRC))
    mtu = _number(nested(value(_RTA_METRICS) or b"", _RTAX_MTU))
    if kind == _RTN_LOCAL:
        return Route(kind=RouteKind.LOCAL, interface_index=index, source=source, mtu=mtu)
    via = value(_RTA_VIA)
    gateway = _address(via[_RTVIA_HEAD:]) if via else _address(value(_RTA_GATEWAY))
    return Route(
        kind=RouteKind.CONNECTED if gateway is None else RouteKind.GATEWAY,
        interface_index=index,
        via=gateway or _address(address.packed),
        source=source,
        mtu=mtu,
    )


def dump_neighbours(requests: Rtnetlink) -> Iterator[Entry]:
    """All entries of both families."""
    for family in _FAMILIES.values():
        body = _NDMSG.pack(family, 0, 0, 0, 0)
        for message in requests.get(request(_RTM_GETNEIGH, NLM_F_DUMP, body)):
            entry = read_neighbour(_RTM_NEWNEIGH, message)
            if entry is not None:
                yield entry


def read_neighbour(kind: int, message: bytes) -> Entry | None:
    """An entry; None for a bridge's forwarding entry, and for what this host answers for others (proxy ARP)."""
    family, index, state, flags, _ = _NDMSG.unpack_from(message, _HEADER_BYTES)
    address = _address(attribute(message, _NDMSG.size, _NDA_DST))
    if family not in _FAMILIES.values() or flags & _NTF_PROXY or address is None:
        return None
    alive = kind == _RTM_NEWNEIGH
    mac = read_mac(attribute(message, _NDMSG.size, _NDA_LLADDR)) if alive and state & _NUD_USABLE else ""
    failed = alive and bool(state & _NUD_FAILED)
    return Entry(interface_index=index, address=address, mac=mac, failed=failed)


def _address(packed: bytes | None) -> IPAddress | None:
    if packed is None:
        return None
    if len(packed) == 4:  # noqa: PLR2004 - bytes of an address
        return IPv4Address(packed)
    return IPv6Address(packed) if len(packed) == 16 else None  # noqa: PLR2004 - bytes of an address


def _number(value: bytes | None) -> int:
    number: int = _NUMBER.unpack(value)[0] if value and len(value) == _NUMBER.size else 0
    return number
