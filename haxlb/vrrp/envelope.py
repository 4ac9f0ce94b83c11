"""What is around a VRRP message on the wire: link layer, IP, authentication header; with the place of every fault.

Lenient: what can be read is read, and what is wrong with it is a Finding. For people who look at a link or a capture;
the speaker's own sockets need none of it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Address, IPv6Address

from haxlb.model.addresses import IPAddress
from haxlb.vrrp.advert_checksum import PROTOCOL_NUMBER, is_good
from haxlb.vrrp.authentication_header import AH_PROTOCOL_NUMBER

_ETHERNET_LENGTH = 14
_VLAN_LENGTH = 4
_VLAN_TYPES = (0x8100, 0x88A8)
_MOST_VLANS = 2
_IPV4, _IPV6 = 0x0800, 0x86DD
_SHORTEST_IPV4 = 20
_IPV6_LENGTH = 40
_AH_LENGTH = 12
"""Without the integrity check value (RFC 4302 section 2)."""
_EXTENSIONS = (0, 43, 60)
"""Hop-by-hop options, routing, destination options."""
_FRAGMENT = 44
_MOST_EXTENSIONS = 8


class Layer(Enum):
    """What the first byte belongs to."""

    ETHERNET = "ethernet"
    SLL = "Linux cooked"
    SLL2 = "Linux cooked, version 2"
    NULL = "BSD loopback"
    IP = "ip"
    VRRP = "vrrp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong, and where."""

    offset: int
    """Of the first byte concerned, from the beginning of what was looked at."""
    reason: str
    """keepalived's counter where there is one."""
    message: str
    fatal: bool = True
    """Receivers drop it; else it is only odd."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthenticationHeader:
    """An IPsec AH (RFC 4302); whether its value is right cannot be said without the key."""

    offset: int
    spi: int
    sequence: int
    icv: bytes
    raw: bytes
    """All of it."""
    ip_header: bytes
    """In front of it; empty over IPv6."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A VRRP message and what was around it; what was not there is empty or None."""

    payload: bytes
    offset: int
    """Of the message."""
    source: IPAddress | None = None
    destination: IPAddress | None = None
    ttl: int | None = None
    """TTL or hop limit."""
    ttl_offset: int = 0
    source_mac: str = ""
    destination_mac: str = ""
    vlans: tuple[int, ...] = ()
    """Outermost first."""
    auth: AuthenticationHeader | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def multicast(self) -> bool | None:
        """Whether it went to a group; None when there is no IP header."""
        return None if self.destination is None else self.destination.is_multicast


def guess(data: bytes) -> Layer:
    """What these bytes begin with: a frame or a packet only when VRRP is in it, else they are taken for a message."""
    for layer in (Layer.ETHERNET, Layer.IP):
        if unwrap(data, layer) is not None:
            return layer
    return Layer.VRRP


def unwrap(data: bytes, layer: Layer) -> Envelope | None:
    """The message in a frame, packet or message; None when there is none of VRRP."""
    if layer is Layer.VRRP:
        return Envelope(payload=data, offset=0)
    link = _link(data, layer)
    if link is None:
        return None
    version = data[link.end] >> 4 if len(data) > link.end else 0
    if version == 4 and link.ethertype in (0, _IPV4):  # noqa: PLR2004 - the version's number
        return _ipv4(data, link)
    if version == 6 and link.ethertype in (0, _IPV6):  # noqa: PLR2004
        return _ipv6(data, link)
    return None


@dataclass(slots=True)
class _Link:
    """A link-layer header: the offset of what follows, and what that is."""

    end: int
    ethertype: int = 0
    """0 = not said."""
    source_mac: str = ""
    destination_mac: str = ""
    vlans: tuple[int, ...] = ()


@dataclass(slots=True, kw_only=True)
class _Packet:
    """An IP header, whatever its version."""

    source: IPAddress
    destination: IPAddress
    ttl: int
    ttl_offset: int
    protocol: int
    """Of what follows the header and its extensions."""
    start: int
    end: int
    findings: list[Finding]


def _link(data: bytes, layer: Layer) -> _Link | None:
    match layer:
        case Layer.ETHERNET if len(data) >= _ETHERNET_LENGTH:
            return _ethernet(data)
        case Layer.SLL if len(data) >= 16:  # noqa: PLR2004 - LINKTYPE_LINUX_SLL
            length = min(int.from_bytes(data[4:6]), 8)
            return _Link(16, int.from_bytes(data[14:16]), data[6 : 6 + length].hex(":"))
        case Layer.SLL2 if len(data) >= 20:  # noqa: PLR2004 - LINKTYPE_LINUX_SLL2
            length = min(data[11], 8)
            return _Link(20, int.from_bytes(data[0:2]), data[12 : 12 + length].hex(":"))
        case Layer.NULL if len(data) >= 4:  # noqa: PLR2004 - LINKTYPE_NULL: a family whose numbers differ by system
            return _Link(4)
        case Layer.IP:
            return _Link(0)
    return None


def _ethernet(data: bytes) -> _Link | None:
    at = 12
    vlans: list[int] = []
    kind = int.from_bytes(data[at : at + 2])
    while kind in _VLAN_TYPES and len(vlans) < _MOST_VLANS and len(data) >= at + _VLAN_LENGTH + 2:
        vlans.append(int.from_bytes(data[at + 2 : at + 4]) & 0x0FFF)
        at += _VLAN_LENGTH
        kind = int.from_bytes(data[at : at + 2])
    if kind not in (_IPV4, _IPV6):
        return None
    return _Link(at + 2, kind, data[6:12].hex(":"), data[0:6].hex(":"), tuple(vlans))


def _ipv4(data: bytes, link: _Link) -> Envelope | None:
    at = link.end
    if len(data) < at + _SHORTEST_IPV4:
        return None
    header = (data[at] & 0xF) * 4
    total, _, fragment, ttl, protocol = struct.unpack_from("!HHHBB", data, at + 2)
    if protocol not in (PROTOCOL_NUMBER, AH_PROTOCOL_NUMBER):
        return None
    findings: list[Finding] = []
    if header < _SHORTEST_IPV4 or header > min(total, len(data) - at):
        findings.append(_wrong_length(at, f"an IP header of {header} bytes in a packet of {total} bytes"))
        header = _SHORTEST_IPV4
    elif not is_good(data[at : at + header]):
        findings.append(Finding(offset=at + 10, reason="ip_chk_err", message="the IP header's checksum is wrong"))
    if fragment & 0x3FFF:
        findings.append(Finding(offset=at + 6, reason="fragment", message="a fragment: the message is not whole"))
    end = _end(data, at, total, at + 2, findings)
    packet = _Packet(
        source=IPv4Address(data[at + 12 : at + 16]),
        destination=IPv4Address(data[at + 16 : at + 20]),
        ttl=ttl,
        ttl_offset=at + 8,
        protocol=protocol,
        start=at + header,
        end=end,
        findings=findings,
    )
    return _message(data, link, packet)


def _ipv6(data: bytes, link: _Link) -> Envelope | None:
    at = link.end
    if len(data) < at + _IPV6_LENGTH:
        return None
    length, following, hop_limit = struct.unpack_from("!HBB", data, at + 4)
    findings: list[Finding] = []
    start = at + _IPV6_LENGTH
    for _ in range(_MOST_EXTENSIONS):
        if following == _FRAGMENT:
            findings.append(Finding(offset=start, reason="fragment", message="a fragment: the message is not whole"))
        elif following not in _EXTENSIONS:
            break
        if len(data) < start + 8:
            return None
        skip = 8 if following == _FRAGMENT else (data[start + 1] + 1) * 8
        following, start = data[start], start + skip
    if following not in (PROTOCOL_NUMBER, AH_PROTOCOL_NUMBER):
        return None
    end = _end(data, at, _IPV6_LENGTH + length, at + 4, findings)
    packet = _Packet(
        source=IPv6Address(data[at + 8 : at + 24]),
        destination=IPv6Address(data[at + 24 : at + 40]),
        ttl=hop_limit,
        ttl_offset=at + 7,
        protocol=following,
        start=start,
        end=end,
        findings=findings,
    )
    return _message(data, link, packet)


def _end(data: bytes, at: int, total: int, offset: int, findings: list[Finding]) -> int:
    """Where the packet ends; what a frame has behind it is Ethernet's padding."""
    if at + total > len(data):
        findings.append(_wrong_length(offset, f"the IP header says {total} bytes, there are {len(data) - at}"))
    return min(at + total, len(data))


def _message(data: bytes, link: _Link, packet: _Packet) -> Envelope | None:
    start, end, findings = packet.start, packet.end, packet.findings
    auth = None
    if packet.protocol == AH_PROTOCOL_NUMBER:
        if end - start < _AH_LENGTH:
            return None
        following, words, _, spi, sequence = struct.unpack_from("!BBHII", data, start)
        if following != PROTOCOL_NUMBER:
            return None
        length = (words + 2) * 4
        if length < _AH_LENGTH or start + length > end:
            findings.append(_wrong_length(start + 1, f"an authentication header of {length} bytes does not fit"))
            length = min(max(length, _AH_LENGTH), end - start)
        icv = data[start + _AH_LENGTH : start + length]
        auth = AuthenticationHeader(
            offset=start,
            spi=spi,
            sequence=sequence,
            icv=icv,
            raw=data[start : start + length],
            ip_header=data[link.end : start] if packet.source.version == 4 else b"",  # noqa: PLR2004 - the family
        )
        start += length
    return Envelope(
        payload=data[start:end],
        offset=min(start, len(data)),
        source=packet.source,
        destination=packet.destination,
        ttl=packet.ttl,
        ttl_offset=packet.ttl_offset,
        source_mac=link.source_mac,
        destination_mac=link.destination_mac,
        vlans=link.vlans,
        auth=auth,
        findings=tuple(findings),
    )


def _wrong_length(offset: int, message: str) -> Finding:
    return Finding(offset=offset, reason="packet_len_err", message=message)
