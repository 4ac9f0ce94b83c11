"""What NAT must do to a frame: the oracle of bpf/nat.h.

Written from docs/explanation/nat.md. Checksums are computed whole, where the program corrects them by what has changed:
one that was wrong stays wrong by as much.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from haxlb.forwarding.reference_packet import ETHERNET, IPV4, Datagram, Link, Packet, Part, parse_datagram
from haxlb.model.addresses import IPAddress, Protocol

_ICMP: Final = {4: 1, 6: 58}
"""Its protocol number, by family."""
_ERRORS: Final = {4: frozenset({3, 4, 11, 12}), 6: frozenset({1, 2, 3, 4})}
"""Types of ICMP that quote a packet: RFC 792, RFC 4443."""
_ICMP_HEADER: Final = 8
_LEAST_QUOTED: Final = 8
_CHECKSUM_AT: Final = {Protocol.TCP.number: 16, Protocol.UDP.number: 6}
_UDP: Final = Protocol.UDP.number


class Way(Enum):
    """Which way a packet goes: what is exchanged is its destination, or its source."""

    TO_SERVER = "to the server"
    TO_CLIENT = "to the client"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An address and port that a packet is given."""

    address: IPAddress
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """The packet that an ICMP error quotes the beginning of."""

    source: IPAddress
    destination: IPAddress
    protocol: Protocol
    source_port: int
    destination_port: int
    at: int
    """Offset of its header in the frame."""
    transport: int
    """Offset of what follows."""


def hops_left(datagram: Datagram) -> int:
    """TTL or hop limit."""
    return datagram.link.frame[datagram.link.offset + (8 if _version(datagram) == 4 else 7)]  # noqa: PLR2004 - the family


def quote_of(datagram: Datagram) -> Quote | None:
    """What an ICMP error is about; None where it is no error, or about no packet of a flow."""
    frame, version = datagram.link.frame, _version(datagram)
    at = datagram.transport + _ICMP_HEADER
    # The quoted packet may be cut: it is read as if it ended where the error does.
    header = bytearray(frame[at : datagram.end])
    length = len(header) if version == 4 else len(header) - 40  # noqa: PLR2004 - the family
    if (
        datagram.protocol != _ICMP[version]
        or datagram.part is not Part.WHOLE
        or length < 0
        or frame[datagram.transport] not in _ERRORS[version]
    ):
        return None
    header[2:4] = header[4:6] = length.to_bytes(2, "big")
    if version == 4:  # noqa: PLR2004 - the family
        header[4:6] = bytes(2)
    inner = parse_datagram(replace(datagram.link, frame=frame[:ETHERNET] + bytes(header), offset=ETHERNET))
    if isinstance(inner, str) or inner.part is Part.LATER_FRAGMENT or inner.protocol not in _CHECKSUM_AT:
        return None
    transport = at + inner.transport - ETHERNET
    if version == 6 and transport - at not in (40, 48):  # noqa: PLR2004 - bare, or behind a fragment header
        return None
    if datagram.end - transport < _LEAST_QUOTED:
        return None
    return Quote(
        source=inner.source,
        destination=inner.destination,
        protocol=Protocol.of(inner.protocol),
        source_port=int.from_bytes(frame[transport : transport + 2], "big"),
        destination_port=int.from_bytes(frame[transport + 2 : transport + 4], "big"),
        at=at,
        transport=transport,
    )


def translated(packet: Datagram | Packet, way: Way, place: Place) -> bytes:
    """The frame of a packet of TCP or UDP, or of a later fragment, as it leaves; MACs are not its matter."""
    datagram = packet.datagram if isinstance(packet, Packet) else packet
    frame = bytearray(datagram.link.frame)
    outer = _Header(frame, datagram.link.offset, _version(datagram))
    ports = None if datagram.part is Part.LATER_FRAGMENT else datagram.transport
    with_port = _Rewriting(frame)
    if ports is not None:
        with_port.transport(outer, ports, datagram.protocol)
    with_port.header(outer)
    outer.exchange(place.address, source=way is Way.TO_CLIENT)
    outer.age()
    if ports is not None:
        at = ports if way is Way.TO_CLIENT else ports + 2
        frame[at : at + 2] = place.port.to_bytes(2, "big")
    with_port.finish()
    return bytes(frame)


def translated_error(datagram: Datagram, quote: Quote, way: Way, place: Place) -> bytes:
    """The same of an ICMP error: what it quotes went the other way."""
    frame, version = bytearray(datagram.link.frame), _version(datagram)
    outer, inner = _Header(frame, datagram.link.offset, version), _Header(frame, quote.at, version)
    rewriting = _Rewriting(frame)
    if quote.transport + _CHECKSUM_AT[quote.protocol.number] + 2 <= datagram.end:
        rewriting.transport(inner, quote.transport, quote.protocol.number)
    rewriting.header(inner)
    rewriting.icmp(outer, datagram.transport, datagram.end)
    rewriting.header(outer)
    to_client = way is Way.TO_CLIENT
    outer.exchange(place.address, source=to_client)
    inner.exchange(place.address, source=not to_client)
    outer.age()
    at = quote.transport + 2 if to_client else quote.transport
    frame[at : at + 2] = place.port.to_bytes(2, "big")
    rewriting.finish()
    return bytes(frame)


def link_of(frame: bytes) -> Link:
    """The link of an untagged frame."""
    return Link(frame=frame, offset=ETHERNET)


def _version(datagram: Datagram) -> int:
    return 4 if datagram.link.kind == IPV4 else 6


class _Header:
    """A header of IP in a frame that is being changed."""

    def __init__(self, frame: bytearray, at: int, version: int) -> None:
        self.frame, self.at, self.version = frame, at, version
        self.size = 4 if version == 4 else 16  # noqa: PLR2004 - the family
        self.source = at + (12 if version == 4 else 8)  # noqa: PLR2004 - the family

    def exchange(self, address: IPAddress, *, source: bool) -> None:
        at = self.source if source else self.source + self.size
        self.frame[at : at + self.size] = address.packed

    def age(self) -> None:
        self.frame[self.at + (8 if self.version == 4 else 7)] -= 1  # noqa: PLR2004 - the family

    def addresses(self) -> bytes:
        return bytes(self.frame[self.source : self.source + 2 * self.size])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checksum:
    at: int
    total: int
    """What it covers and itself, modulo 65535: 0 where it is right."""
    first: int
    last: int
    over: _Header | None = None
    """Whose addresses it covers, too."""
    optional: bool = False
    """UDP: 0 says that there is none."""


class _Rewriting:
    """Keeps checksums as right or wrong as they are, whatever is written meanwhile. Inner ones are named first."""

    def __init__(self, frame: bytearray) -> None:
        self._frame = frame
        self._checksums: list[_Checksum] = []

    def header(self, header: _Header) -> None:
        if header.version == 4:  # noqa: PLR2004 - IPv6 has none
            end = header.at + (self._frame[header.at] & 15) * 4
            self._remember(at=header.at + 10, first=header.at, last=end)

    def transport(self, header: _Header, at: int, protocol: int) -> None:
        """Of what it covers only the ports change, and they are before itself."""
        own = at + _CHECKSUM_AT[protocol]
        if protocol == _UDP and self._frame[own : own + 2] == bytes(2):
            return
        self._remember(at=own, first=at, last=own + 2, over=header, optional=protocol == _UDP)

    def icmp(self, header: _Header, at: int, end: int) -> None:
        self._remember(at=at + 2, first=at, last=end, over=header if header.version == 6 else None)  # noqa: PLR2004

    def finish(self) -> None:
        for each in self._checksums:
            self._frame[each.at : each.at + 2] = bytes(2)
            checksum = (each.total - self._sum(each)) % 0xFFFF
            if not checksum and each.optional:
                checksum = 0xFFFF
            self._frame[each.at : each.at + 2] = checksum.to_bytes(2, "big")

    def _remember(self, *, at: int, first: int, last: int, over: _Header | None = None, optional: bool = False) -> None:
        one = _Checksum(at=at, total=0, first=first, last=last, over=over, optional=optional)
        self._checksums.append(replace(one, total=self._sum(one)))

    def _sum(self, one: _Checksum) -> int:
        covered = bytes(self._frame[one.first : one.last])
        covered += bytes(len(covered) % 2)
        if one.over is not None:
            covered += one.over.addresses()
        return sum(int.from_bytes(covered[at : at + 2], "big") for at in range(0, len(covered), 2)) % 0xFFFF
