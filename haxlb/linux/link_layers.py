"""Interfaces as the link layer sees them: MACs, MTUs, and what carries the frames of one that is made on another.

By struct: pyroute2 would read them as well; its import is a third of the checker's memory (12 MB).
Layouts and numbers: <linux/rtnetlink.h>, <linux/if_link.h>.
"""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from haxlb.linux.rtnetlink import (
    IFLA_ADDRESS,
    IFLA_IFNAME,
    IFLA_MTU,
    NLM_F_DUMP,
    RTM_DELLINK,
    RTM_GETLINK,
    RTM_NEWLINK,
    Rtnetlink,
    attach,
    attribute,
    nested,
    request,
)
from haxlb.model.errors import HostError

KIND_LINK = (RTM_NEWLINK, RTM_DELLINK)

_IFINFOMSG = struct.Struct("=BxHiII")
_NUMBER = struct.Struct("=I")
_IFF_UP, _IFF_LOOPBACK = 0x1, 0x8
_IFLA_LINK, _IFLA_LINKINFO, _IFLA_LINK_NETNSID = 5, 18, 37
_IFLA_INFO_KIND, _IFLA_INFO_DATA = 1, 2
_IFLA_VLAN_ID, _IFLA_VLAN_PROTOCOL = 1, 5
_ETH_P_8021Q = 0x8100
_MAC_BYTES = 6
_ON_ANOTHER = ("macvlan", "macvtap", "ipvlan")
"""Kinds that send what they are given out of the interface below, as it is. A veth has an IFLA_LINK, too: its peer."""
_MOST_LAYERS = 8
"""The kernel allows as many (include/linux/netdevice.h, MAX_NEST_DEV)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLayer:
    """One interface."""

    index: int
    name: str
    mac: str
    """Empty where it has none of six bytes, or of zeros alone."""
    up: bool = True
    """Of IPv4 no event says that routes have gone with an interface that was set down: this one does."""
    mtu: int = 1500
    kind: str = ""
    """vlan, macvlan, veth, …; empty for a device."""
    below: int = 0
    """Index of the interface that it is made on; 0 = none, or one of another network namespace."""
    vlan: int = 0
    """Of kind vlan: its id."""
    vlan_protocol: int = _ETH_P_8021Q
    """EtherType of its tag."""
    loopback: bool = False
    exists: bool = True
    """False in the event that it is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """What a frame of some interface goes out of, and comes in by."""

    index: int
    vlan: int = 0
    """802.1Q tag that it has there; 0 = none."""
    problem: str = ""
    """Why an XDP program there cannot send such frames; empty when it can."""


def carrier(links: Mapping[int, LinkLayer], index: int) -> Carrier:
    """Follow an interface down to the one that an XDP program has its frames on."""
    vlan = 0
    for _ in range(_MOST_LAYERS):
        link = links.get(index)
        if link is None or link.below not in links:
            break
        if link.kind == "vlan":
            if link.vlan_protocol != _ETH_P_8021Q:
                return Carrier(
                    index=index, problem=f"{link.name} has tags of type {link.vlan_protocol:#06x}, not 802.1Q"
                )
            if vlan:
                return Carrier(
                    index=index, problem=f"{link.name} is a VLAN below another one: one tag is all it can be"
                )
            vlan = link.vlan
        elif link.kind not in _ON_ANOTHER:
            break
        index = link.below
    return Carrier(index=index, vlan=vlan)


def carrier_of(interface: str) -> tuple[str, int]:
    """Name of the interface that carries the frames of this one, itself where it is a device, and their 802.1Q tag.

    Raises HostError where there is no such interface, and where no XDP program could have its frames.
    """
    requests = Rtnetlink()
    try:
        link = _look(requests, attach(IFLA_IFNAME, interface.encode() + b"\0"))
        links = {link.index: link}
        while link.below and link.below not in links and len(links) < _MOST_LAYERS:
            link = _look(requests, b"", link.below)
            links[link.index] = link
    except OSError as problem:
        raise HostError(
            f"there is no interface {interface}", remedy="name one that `ip link` lists, or create it first"
        ) from problem
    finally:
        requests.close()
    found = carrier(links, next(iter(links)))
    if found.problem:
        raise HostError(
            f"{interface} cannot be forwarded on: {found.problem}", remedy="name another one in forwarding.interfaces"
        )
    return links[found.index].name, found.vlan


def _look(requests: Rtnetlink, name: bytes, index: int = 0) -> LinkLayer:
    """One interface, by its name as an attribute or by its index. Raises OSError where there is none."""
    body = _IFINFOMSG.pack(socket.AF_UNSPEC, 0, index, 0, 0) + name
    link = read_link(RTM_NEWLINK, requests.get(request(RTM_GETLINK, 0, body))[0])
    if link is None:
        raise OSError(errno.ENODEV, "no such interface")
    return link


def dump_links(requests: Rtnetlink) -> Iterator[LinkLayer]:
    """All interfaces."""
    body = _IFINFOMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
    for message in requests.get(request(RTM_GETLINK, NLM_F_DUMP, body)):
        link = read_link(RTM_NEWLINK, message)
        if link is not None:
            yield link


def read_link(kind: int, message: bytes) -> LinkLayer | None:
    """An interface, or (RTM_DELLINK) that it is gone; None for a bridge's word on one of its ports."""
    family, _, index, flags, _ = _IFINFOMSG.unpack_from(message, 16)
    if family != socket.AF_UNSPEC:
        return None

    def value(wanted: int) -> bytes | None:
        return attribute(message, _IFINFOMSG.size, wanted)

    info = value(_IFLA_LINKINFO) or b""
    below = 0 if value(_IFLA_LINK_NETNSID) is not None else _number(value(_IFLA_LINK))
    what = (nested(info, _IFLA_INFO_KIND) or b"").rstrip(b"\0").decode(errors="replace")
    data = (nested(info, _IFLA_INFO_DATA) or b"") if what == "vlan" else b""
    identity, protocol = nested(data, _IFLA_VLAN_ID), nested(data, _IFLA_VLAN_PROTOCOL)
    return LinkLayer(
        index=index,
        name=(value(IFLA_IFNAME) or b"").rstrip(b"\0").decode(errors="replace"),
        mac=read_mac(value(IFLA_ADDRESS)),
        up=bool(flags & _IFF_UP),
        mtu=_number(value(IFLA_MTU)),
        kind=what,
        below=below,
        vlan=struct.unpack("=H", identity)[0] if identity and len(identity) == 2 else 0,  # noqa: PLR2004 - a u16
        vlan_protocol=int.from_bytes(protocol, "big") if protocol else _ETH_P_8021Q,
        loopback=bool(flags & _IFF_LOOPBACK),
        exists=kind == RTM_NEWLINK,
    )


def read_mac(address: bytes | None) -> str:
    """Six bytes as text; empty for anything else, and for zeros."""
    if address is None or len(address) != _MAC_BYTES or not any(address):
        return ""
    return address.hex(":")


def _number(value: bytes | None) -> int:
    number: int = _NUMBER.unpack(value)[0] if value and len(value) == _NUMBER.size else 0
    return number
