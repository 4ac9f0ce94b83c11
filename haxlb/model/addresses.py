"""Addresses as users write them: endpoints, virtual addresses, link-layer addresses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address, IPv6Address

from haxlb.model.made_often import made_often

IPAddress = IPv4Address | IPv6Address
"""An address of either family."""


class Protocol(Enum):
    """The transport of a virtual server; the value is the IP protocol number's name in IPVS's spelling."""

    TCP = "TCP"
    UDP = "UDP"
    SCTP = "SCTP"

    @property
    def number(self) -> int:
        """IP protocol number (IANA)."""
        return _NUMBERS[self.value]

    @classmethod
    def of(cls, number: int) -> Protocol:
        """The protocol of an IP protocol number. Raises KeyError."""
        return _BY_NUMBER[number]


_NUMBERS = {"TCP": 6, "UDP": 17, "SCTP": 132}
_BY_NUMBER = {each.number: each for each in Protocol}


@made_often
@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a service is offered."""

    address: IPAddress
    port: int
    """1 to 65535; 0 = all ports that no other endpoint of the address has."""
    protocol: Protocol

    def __str__(self) -> str:
        return f"[{self.address}]:{self.protocol.value.lower()}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vip:
    """One line of `virtual_ipaddress` or `virtual_ipaddress_excluded`."""

    address: IPAddress
    prefix_length: int
    interface: str
    """Where the address goes: the instance's interface, or its virtual MAC's, unless the line says `dev`."""
    label: str | None = None
    scope: int = 0
    """rtnetlink scope, IPv4 only: 0 universe, 200 site, 253 link, 254 host."""
    broadcast: IPv4Address | None = None
    peer: IPAddress | None = None
    """The other end of a point-to-point address."""
    preferred_lifetime_s: int | None = None
    """2^32 - 1 = for ever; None = 0 for an IPv6 /128, else for ever."""
    track_group: str = ""
    flags: tuple[str, ...] = ()
    """home, -nodad, mngtmpaddr, noprefixroute, autojoin, no_track."""

    @property
    def family(self) -> int:
        """4 or 6."""
        return self.address.version

    def __str__(self) -> str:
        return f"{self.address}/{self.prefix_length}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticAddress:
    """One line of `static_ipaddress`, in the words of ip-address(8): put on this host while haxlb runs.

    Addresses are text in canonical form, of either family; an empty text or None = not given.
    """

    address: str
    prefix_length: int
    interface: str
    """Where the address goes: `default_interface` unless the line says `dev`."""
    label: str = ""
    scope: int | None = None
    """rtnetlink scope, IPv4 only; None counts as 0, universe."""
    broadcast: str = ""
    peer: str = ""
    preferred_lifetime_s: int | None = None
    """2^32 - 1 = for ever; None = 0 for an IPv6 /128, else for ever."""
    track_group: str = ""
    flags: tuple[str, ...] = ()
    """home, -nodad, mngtmpaddr, noprefixroute, autojoin, no_track, use_vmac."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TtlLimits:
    """The TTLs with which adverts of a unicast peer count (`check_unicast_src`)."""

    peer: IPAddress
    lowest: int | None = None
    highest: int | None = None
    """Inclusive; None = no limit."""
