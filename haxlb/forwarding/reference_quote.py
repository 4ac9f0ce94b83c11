"""What an ICMP error quotes: the beginning of the packet that it is about (RFC 792, RFC 4443)."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from haxlb.forwarding.reference_packet import IPV4, Datagram, Part
from haxlb.model.addresses import IPAddress, Protocol

_ICMP, _ICMPV6 = 1, 58
_ERRORS: Final = (3, 4, 11, 12)
"""Destination unreachable, source quench, time exceeded, parameter problem."""
_ERRORS6: Final = (1, 2, 3, 4)
"""Destination unreachable, packet too big, time exceeded, parameter problem."""
_ICMP_HEADER: Final = 8
_PORTS: Final = 8
"""Bytes of a transport header that an IPv4 error quotes at least."""
_IPV4_HEADER, _IPV6_HEADER = 20, 40
_HOP_BY_HOP, _ROUTING, _FRAGMENT, _DESTINATION = 0, 43, 44, 60
_MOST_EXTENSIONS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """Whose packet an error is about."""

    source: IPAddress
    destination: IPAddress
    protocol: Protocol
    source_port: int
    destination_port: int


def quoted_by(datagram: Datagram) -> Quote | None:
    """None where it is no error, or about nothing that has ports and tells them."""
    narrow = datagram.link.kind == IPV4
    message = datagram.link.frame[datagram.transport : datagram.end]
    if datagram.part is not Part.WHOLE or datagram.protocol != (_ICMP if narrow else _ICMPV6) or not message:
        return None
    if message[0] not in (_ERRORS if narrow else _ERRORS6):
        return None
    quoted = message[_ICMP_HEADER:]
    return _quoted4(quoted) if narrow else _quoted6(quoted)


def _quoted4(ip: bytes) -> Quote | None:
    if len(ip) < _IPV4_HEADER:
        return None
    header = (ip[0] & 0x0F) * 4
    if ip[0] >> 4 != 4 or header < _IPV4_HEADER or int.from_bytes(ip[6:8], "big") & 0x1FFF:  # noqa: PLR2004 - the version
        return None
    return _quote(IPv4Address(ip[12:16]), IPv4Address(ip[16:20]), ip[9], ip[header:])


def _quoted6(ip: bytes) -> Quote | None:
    if len(ip) < _IPV6_HEADER or ip[0] >> 4 != 6:  # noqa: PLR2004 - the version
        return None
    protocol, at = ip[6], _IPV6_HEADER
    for _ in range(_MOST_EXTENSIONS):
        if protocol not in (_HOP_BY_HOP, _ROUTING, _FRAGMENT, _DESTINATION):
            break
        if len(ip) < at + 8 or (protocol == _FRAGMENT and int.from_bytes(ip[at + 2 : at + 4], "big") & 0xFFF8):
            return None
        size = 8 if protocol == _FRAGMENT else (ip[at + 1] + 1) * 8
        protocol = ip[at]
        at += size
    return _quote(IPv6Address(ip[8:24]), IPv6Address(ip[24:40]), protocol, ip[at:])


def _quote(source: IPAddress, destination: IPAddress, number: int, transport: bytes) -> Quote | None:
    protocol = {each.number: each for each in Protocol}.get(number)
    if protocol is None or len(transport) < _PORTS:
        return None
    return Quote(
        source=source,
        destination=destination,
        protocol=protocol,
        source_port=int.from_bytes(transport[:2], "big"),
        destination_port=int.from_bytes(transport[2:4], "big"),
    )
