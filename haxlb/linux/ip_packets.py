"""IP packets that carry VRRP, as raw sockets send and deliver them."""

from __future__ import annotations

import struct
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address

from haxlb.daemon.ports import Datagram
from haxlb.model.addresses import IPAddress
from haxlb.vrrp.advert import ADVERT_TTL, PROTOCOL_NUMBER
from haxlb.vrrp.authentication_header import AH_PROTOCOL_NUMBER

_TOS_INTERNETWORK_CONTROL = 0xC0
_IPV4_HEADER = struct.Struct("!BBHHHBBH4s4s")
_IPV6_HEADER = struct.Struct("!IHBB16s16s")
_IPV6_FIRST_WORD = 6 << 28 | _TOS_INTERNETWORK_CONTROL << 20


def ip_packet(source: IPAddress, destination: IPAddress, payload: bytes, ttl: int = ADVERT_TTL) -> bytes:
    """The packet as IP_HDRINCL and IPV6_HDRINCL want it.

    Of IPv4 the kernel fills in identification and checksum (raw(7)). Of IPv6 it takes the header as it is, and so a
    source address that is not on this host, as it does of IPv4.
    """
    if source.version != 4:  # noqa: PLR2004 - the family
        addresses = (source.packed, destination.packed)
        return _IPV6_HEADER.pack(_IPV6_FIRST_WORD, len(payload), PROTOCOL_NUMBER, ttl, *addresses) + payload
    length = _IPV4_HEADER.size + len(payload)
    addresses = (source.packed, destination.packed)
    header = _IPV4_HEADER.pack(0x45, _TOS_INTERNETWORK_CONTROL, length, 0, 0, ttl, PROTOCOL_NUMBER, 0, *addresses)
    return header + payload


def packet_of(datagram: Datagram) -> bytes:
    """The packet of a datagram; one with an authentication header has brought its IP header along."""
    if datagram.ah:
        return datagram.ip_header + datagram.ah + datagram.payload
    return ip_packet(datagram.source, datagram.destination, datagram.payload, datagram.ttl)


def parse_ip_packet(packet: bytes, interface: str, at_us: int) -> Datagram | None:
    """A received IPv4 packet as a datagram, None where its headers make no sense."""
    if len(packet) < _IPV4_HEADER.size:
        return None
    version_length, _, total, _, _, ttl, protocol, _, source, destination = _IPV4_HEADER.unpack_from(packet)
    header = start = (version_length & 0xF) * 4
    if header < _IPV4_HEADER.size or not header <= total <= len(packet):
        return None
    ah = b""
    if protocol == AH_PROTOCOL_NUMBER:
        if total < header + 2 or packet[header] != PROTOCOL_NUMBER:
            return None  # an authentication header for something else
        start += (packet[header + 1] + 2) * 4
        if total < start:
            return None
        ah = packet[header:start]
    return Datagram(
        interface=interface,
        source=address4(source),
        destination=address4(destination),
        ttl=ttl,
        payload=packet[start:total],
        ah=ah,
        ip_header=packet[:header] if ah else b"",
        at_us=at_us,
    )


@lru_cache(maxsize=512)
def address4(packed: bytes) -> IPv4Address:
    """The address; the same few come again and again."""
    return IPv4Address(packed)


@lru_cache(maxsize=512)
def address6(packed: bytes) -> IPv6Address:
    """The address; the same few come again and again."""
    return IPv6Address(packed)
