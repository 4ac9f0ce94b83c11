"""What the oracle reads of a frame: the other half of bpf/parse.h and of PROGRAM_ANY."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from haxlb.model.addresses import Endpoint, IPAddress, Protocol

ETHERNET: Final = 14
IPV4, IPV6 = b"\x08\x00", b"\x86\xdd"
IN_DOUBT, ANSWERED = b"\x88\xb5", b"\x88\xb6"
"""EtherTypes of packets that directors send each other (ADR 3)."""
FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10
_TAGS: Final = (b"\x81\x00", b"\x88\xa8")
_MOST_TAGS: Final = 2
_TAG_BYTES: Final = 4
_MOST_EXTENSIONS: Final = 6
_HOP_BY_HOP, _ROUTING, _FRAGMENT, _DESTINATION = 0, 43, 44, 60
_IPV4_HEADER, _IPV6_HEADER, _SCTP_HEADER = 20, 40, 12
_LEAST: Final = {Protocol.TCP: 20, Protocol.UDP: 8, Protocol.SCTP: _SCTP_HEADER + 1}
"""Bytes of a transport header that are read; of SCTP (RFC 9260 section 3) the type of the first chunk, too."""
_TCP_FLAGS: Final = 13
_SCTP_FLAGS: Final = {1: SYN, 6: RST, 7: FIN, 14: FIN}
"""INIT, ABORT, SHUTDOWN, SHUTDOWN COMPLETE as the flags of TCP that mean the same."""


class Standing(Enum):
    """How a frame of the other director is to be read."""

    PLAIN = "plain"
    IN_DOUBT = "in doubt"
    ANSWERED = "answered"


class Part(IntEnum):
    """Of a datagram."""

    WHOLE = 0
    FIRST_FRAGMENT = 1
    LATER_FRAGMENT = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A frame down to its packet."""

    frame: bytes
    """With the EtherType of the packet itself."""
    offset: int
    """Of the packet."""
    standing: Standing = Standing.PLAIN

    @property
    def destination_mac(self) -> bytes:
        """To whom it is addressed."""
        return self.frame[:6]

    @property
    def source_mac(self) -> bytes:
        """Who sent it."""
        return self.frame[6:12]

    @property
    def kind(self) -> bytes:
        """EtherType of the packet."""
        return self.frame[self.offset - 2 : self.offset]

    def with_kind(self, kind: bytes) -> bytes:
        """The frame with another EtherType."""
        return self.frame[: self.offset - 2] + kind + self.frame[self.offset :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Datagram:
    """A packet of IP, as far as its own headers tell."""

    link: Link
    source: IPAddress
    destination: IPAddress
    protocol: int
    transport: int
    """Offset of what follows the headers of IP."""
    length: int
    """Of IP, headers included."""
    part: Part = Part.WHOLE
    identification: int = 0

    @property
    def end(self) -> int:
        """Offset in the frame."""
        return self.link.offset + self.length


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """What counts of a frame that may be a service's."""

    datagram: Datagram
    protocol: Protocol
    source_port: int
    destination_port: int
    flags: int
    """TCP's, 0 for UDP; of SCTP those that mean the same."""

    @property
    def link(self) -> Link:
        """Its frame."""
        return self.datagram.link

    @property
    def source(self) -> IPAddress:
        """The client."""
        return self.datagram.source

    @property
    def destination(self) -> IPAddress:
        """The service's address."""
        return self.datagram.destination

    def endpoint(self, *, any_port: bool = False) -> Endpoint:
        """Where it goes."""
        port = 0 if any_port else self.destination_port
        return Endpoint(address=self.destination, port=port, protocol=self.protocol)

    @property
    def is_syn(self) -> bool:
        """Asks for a connection."""
        return self.flags & (SYN | ACK | RST | FIN) == SYN

    @property
    def ends(self) -> bool:
        """Ends a connection, or its sender's half."""
        return bool(self.flags & (FIN | RST))

    @property
    def begins(self) -> bool:
        """May be the first of its flow."""
        return self.protocol is Protocol.UDP or self.is_syn


def parse_link(frame: bytes, *, for_us: bool) -> Link | str:
    """The frame down to its packet, or the reason to leave it to the kernel. `for_us`: it is addressed to us."""
    if len(frame) < ETHERNET:
        return "malformed"
    offset = ETHERNET
    for _ in range(_MOST_TAGS):
        if frame[offset - 2 : offset] not in _TAGS:
            break
        if len(frame) < offset + _TAG_BYTES:
            return "malformed"
        offset += _TAG_BYTES
    link = Link(frame=frame, offset=offset)
    standing = {IN_DOUBT: Standing.IN_DOUBT, ANSWERED: Standing.ANSWERED}.get(link.kind)
    if standing is not None and for_us:
        if len(frame) == offset:
            return "malformed"
        restored = link.with_kind(IPV6 if frame[offset] >> 4 == 6 else IPV4)  # noqa: PLR2004 - the version
        link = replace(link, frame=restored, standing=standing)
    return link if link.kind in (IPV4, IPV6) else "not_ip"


def parse_datagram(link: Link) -> Datagram | str:
    """The packet, or `malformed`. Of a later fragment no more than that it is one."""
    return _parse_ipv4(link) if link.kind == IPV4 else _parse_ipv6(link)


def _parse_ipv4(link: Link) -> Datagram | str:
    ip = link.frame[link.offset :]
    if len(ip) < _IPV4_HEADER:
        return "malformed"
    header = (ip[0] & 0x0F) * 4
    length = int.from_bytes(ip[2:4], "big")
    if ip[0] >> 4 != 4 or header < _IPV4_HEADER or not header <= length <= len(ip):  # noqa: PLR2004 - the version
        return "malformed"
    place = int.from_bytes(ip[6:8], "big")
    part = Part.LATER_FRAGMENT if place & 0x1FFF else Part.FIRST_FRAGMENT if place & 0x2000 else Part.WHOLE
    return Datagram(
        link=link,
        source=IPv4Address(ip[12:16]),
        destination=IPv4Address(ip[16:20]),
        protocol=ip[9],
        transport=link.offset + header,
        length=length,
        part=part,
        identification=int.from_bytes(ip[4:6], "big"),
    )


def _parse_ipv6(link: Link) -> Datagram | str:
    ip = link.frame[link.offset :]
    if len(ip) < _IPV6_HEADER or ip[0] >> 4 != 6:  # noqa: PLR2004 - the version
        return "malformed"
    length = _IPV6_HEADER + int.from_bytes(ip[4:6], "big")
    if length > min(len(ip), 0xFFFF):
        return "malformed"
    protocol, at, part, identification = ip[6], _IPV6_HEADER, Part.WHOLE, 0
    for _ in range(_MOST_EXTENSIONS):
        if protocol not in (_HOP_BY_HOP, _ROUTING, _FRAGMENT, _DESTINATION):
            break
        if len(ip) < at + 8:
            return "malformed"
        size = (ip[at + 1] + 1) * 8
        if protocol == _FRAGMENT:
            size = 8
            place = int.from_bytes(ip[at + 2 : at + 4], "big")
            identification = int.from_bytes(ip[at + 4 : at + 8], "big")
            part = Part.LATER_FRAGMENT if place & 0xFFF8 else Part.FIRST_FRAGMENT if place & 1 else part
        protocol = ip[at]
        at += size
        if part is Part.LATER_FRAGMENT:
            break
    if at > length and part is not Part.LATER_FRAGMENT:
        return "malformed"
    return Datagram(
        link=link,
        source=IPv6Address(ip[8:24]),
        destination=IPv6Address(ip[24:40]),
        protocol=protocol,
        transport=link.offset + at,
        length=length,
        part=part,
        identification=identification,
    )


def parse_packet(datagram: Datagram) -> Packet | str:
    """Ports and flags, or why there are none: `fragment`, `other_protocol`, `malformed`."""
    if datagram.part is Part.LATER_FRAGMENT:
        return "fragment"
    protocol = {each.number: each for each in Protocol}.get(datagram.protocol)
    if protocol is None:
        return "other_protocol"
    segment = datagram.link.frame[datagram.transport : datagram.end]
    if len(segment) < _LEAST[protocol]:
        return "malformed"
    flags = 0
    if protocol is Protocol.TCP:
        flags = segment[_TCP_FLAGS]
    elif protocol is Protocol.SCTP:
        flags = _SCTP_FLAGS.get(segment[_SCTP_HEADER], ACK)
    return Packet(
        datagram=datagram,
        protocol=protocol,
        source_port=int.from_bytes(segment[:2], "big"),
        destination_port=int.from_bytes(segment[2:4], "big"),
        flags=flags,
    )
