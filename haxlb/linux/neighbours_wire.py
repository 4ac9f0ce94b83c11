"""rtnetlink's neighbours, links and routes as values: four short messages by struct.

pyroute2 would read them as well; its import is a third of this process's memory (12 MB).
Layouts and numbers: <linux/neighbour.h>, <linux/rtnetlink.h>, <linux/if_link.h>.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address

from haxlb.linux.rtnetlink import (
    IFLA_IFNAME,
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_DUMP,
    NLM_F_REQUEST,
    RTM_DELLINK,
    RTM_GETLINK,
    RTM_NEWLINK,
    RTMGRP_LINK,
    Rtnetlink,
    attribute,
)

_RTM_NEWROUTE = 24
_RTM_GETROUTE = 26
_RTM_NEWNEIGH, _RTM_DELNEIGH, _RTM_GETNEIGH = 28, 29, 30
_RTMGRP_NEIGH = 0x4
_RTMGRP_IPV4_ROUTE = 0x40
EVENT_GROUPS = RTMGRP_LINK | _RTMGRP_NEIGH | _RTMGRP_IPV4_ROUTE
"""Not the addresses: the VIPs are renewed all the time, and one that comes or goes shows as a local route."""
KIND_NEIGHBOUR = (_RTM_NEWNEIGH, _RTM_DELNEIGH)
KIND_LINK = (RTM_NEWLINK, RTM_DELLINK)

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_NDMSG = struct.Struct("=BxxxiHBB")
_RTMSG = struct.Struct("=BBBBBBBBI")
_IFINFOMSG = struct.Struct("=BxHiII")
_IFF_UP = 0x1
_IFLA_ADDRESS = 1
_NDA_DST, _NDA_LLADDR = 1, 2
_NTF_USE, _NTF_PROXY = 0x01, 0x08
_NUD_REACHABLE, _NUD_STALE, _NUD_DELAY, _NUD_PROBE = 0x02, 0x04, 0x08, 0x10
_NUD_FAILED, _NUD_PERMANENT = 0x20, 0x80
_NUD_USABLE = _NUD_REACHABLE | _NUD_STALE | _NUD_DELAY | _NUD_PROBE | _NUD_PERMANENT
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_VIA = 1, 4, 5, 18
_RTN_UNICAST, _RTN_LOCAL = 1, 2
_MAC_BYTES = 6


class RouteKind(Enum):
    """What the routing table says of an address."""

    CONNECTED = "connected"
    """On the link of an interface: its MAC can be asked for."""
    LOCAL = "local"
    GATEWAY = "gateway"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The way to one address."""

    kind: RouteKind
    interface_index: int = 0
    reason: str = ""
    """Why direct routing cannot use it; empty for CONNECTED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLayer:
    """One interface."""

    index: int
    name: str
    mac: str
    """Empty where it has none of six bytes."""
    up: bool
    exists: bool = True
    """False in the event that it is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of the neighbour table; one that is gone reads as unknown."""

    interface_index: int
    address: IPv4Address
    mac: str
    """Empty while it is not known."""
    failed: bool = False
    """ARP was asked and did not answer."""


def use_request(interface_index: int, address: IPv4Address) -> bytes:
    """Ask the kernel to treat the entry as if it sent a packet there, making it where there is none."""
    body = _NDMSG.pack(socket.AF_INET, interface_index, 0, _NTF_USE, 0) + _attribute(_NDA_DST, address.packed)
    return _message(_RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_ACK, body)


def route_request(address: IPv4Address) -> bytes:
    """Ask for the route that a packet to this address takes."""
    body = _RTMSG.pack(socket.AF_INET, 32, 0, 0, 0, 0, 0, 0, 0) + _attribute(_RTA_DST, address.packed)
    return _message(_RTM_GETROUTE, 0, body)


def read_route(answers: list[bytes]) -> Route:
    """The answer to `route_request`."""
    message = answers[0]
    kind = _RTMSG.unpack_from(message, _HEADER.size)[7]
    destination = IPv4Address(attribute(message, _RTMSG.size, _RTA_DST) or b"\0\0\0\0")
    index = attribute(message, _RTMSG.size, _RTA_OIF)
    gateway = attribute(message, _RTMSG.size, _RTA_GATEWAY)
    if kind == _RTN_LOCAL:
        reason = f"{destination} is an address of this host: forwarding to itself is not supported yet"
        return Route(kind=RouteKind.LOCAL, reason=reason)
    if gateway is not None or attribute(message, _RTMSG.size, _RTA_VIA) is not None:
        through = f"the gateway {IPv4Address(gateway)}" if gateway and len(gateway) == 4 else "a gateway"  # noqa: PLR2004
        reason = f"{destination} is behind {through}: direct routing needs a connected network"
        return Route(kind=RouteKind.GATEWAY, reason=reason)
    if kind != _RTN_UNICAST or index is None:
        return Route(kind=RouteKind.NONE, reason=f"{destination} is not the address of one host")
    return Route(kind=RouteKind.CONNECTED, interface_index=struct.unpack("=I", index)[0])


def dump_links(requests: Rtnetlink) -> Iterator[LinkLayer]:
    """All interfaces."""
    body = _IFINFOMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
    for message in requests.get(_message(RTM_GETLINK, NLM_F_DUMP, body)):
        yield read_link(RTM_NEWLINK, message)


def dump_neighbours(requests: Rtnetlink) -> Iterator[Entry]:
    """All IPv4 entries."""
    body = _NDMSG.pack(socket.AF_INET, 0, 0, 0, 0)
    for message in requests.get(_message(_RTM_GETNEIGH, NLM_F_DUMP, body)):
        entry = read_neighbour(_RTM_NEWNEIGH, message)
        if entry is not None:
            yield entry


def read_link(kind: int, message: bytes) -> LinkLayer:
    """An interface, or (RTM_DELLINK) that it is gone."""
    _, _, index, flags, _ = _IFINFOMSG.unpack_from(message, _HEADER.size)
    name = (attribute(message, _IFINFOMSG.size, IFLA_IFNAME) or b"").rstrip(b"\0").decode(errors="replace")
    mac = _mac(attribute(message, _IFINFOMSG.size, _IFLA_ADDRESS))
    return LinkLayer(index=index, name=name, mac=mac, up=bool(flags & _IFF_UP), exists=kind == RTM_NEWLINK)


def read_neighbour(kind: int, message: bytes) -> Entry | None:
    """An IPv4 entry; None for a bridge's forwarding entry, IPv6, or proxy ARP."""
    family, index, state, flags, _ = _NDMSG.unpack_from(message, _HEADER.size)
    destination = attribute(message, _NDMSG.size, _NDA_DST)
    if family != socket.AF_INET or flags & _NTF_PROXY or destination is None:
        return None
    alive = kind == _RTM_NEWNEIGH
    mac = _mac(attribute(message, _NDMSG.size, _NDA_LLADDR)) if alive and state & _NUD_USABLE else ""
    failed = alive and bool(state & _NUD_FAILED)
    return Entry(interface_index=index, address=IPv4Address(destination), mac=mac, failed=failed)


def _mac(address: bytes | None) -> str:
    if address is None or len(address) != _MAC_BYTES or not any(address):
        return ""
    return address.hex(":")


def _attribute(kind: int, value: bytes) -> bytes:
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value


def _message(kind: int, flags: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, flags | NLM_F_REQUEST, 0, 0) + body
