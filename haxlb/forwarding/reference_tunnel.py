"""What becomes of a packet whose server is reached by a tunnel: the oracle of bpf/tunnel.h.

Written from docs/explanation/tunnels.md. Checksums are computed whole, where the program knows the sum of a segment
from its own checksum: of a packet whose checksum is wrong this says something else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from haxlb.forwarding.hashing import address_hash, mix
from haxlb.forwarding.layout import pack_mac
from haxlb.forwarding.reference import Action, Delivery, Verdict
from haxlb.forwarding.reference_packet import ETHERNET, IPV4, IPV6, Datagram, Part
from haxlb.model.addresses import IPAddress
from haxlb.model.virtual_server import TunnelKind

_IPIP, _UDP, _IPV6_IN_IP, _GRE, _ICMPV6 = 4, 17, 41, 47, 58
_ICMP: Final = 1
_WITH_PORTS: Final = (6, 17, 132)
_GUE_BYTES, _GRE_BYTES, _GRE_CHECKED_BYTES = 12, 4, 8
_OUTER_BYTES: Final = {4: 20, 6: 40}
_DONT_FRAGMENT: Final = 0x4000
_LEAST_MTU: Final = {4: 68, 6: 1280}
"""RFC 791, RFC 8200 section 5."""
_QUOTED, _LEAST_QUOTED, _QUOTED_IPV6 = 548, 68, 1232
_ERROR_HOPS: Final = 64
_ERROR_CLASS: Final = 0xC0
_FIRST_PORT: Final = 0xC000
_LOOPBACK, _MULTICAST = 127, 224
_TAG, _PRIORITY = b"\x81\x00", 0xF000


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunnel:
    """The way to one server."""

    source: IPAddress
    destination: IPAddress
    kind: TunnelKind = TunnelKind.IPIP
    port: int = 0
    """Of GUE."""
    checksum: bool = False
    mtu: int = 1500
    """Of the interface that leads there."""

    @property
    def overhead(self) -> int:
        """Bytes before the packet."""
        gre = _GRE_CHECKED_BYTES if self.checksum else _GRE_BYTES
        shim = {TunnelKind.IPIP: 0, TunnelKind.GUE: _GUE_BYTES, TunnelKind.GRE: gre}[self.kind]
        return _OUTER_BYTES[self.destination.version] + shim

    @property
    def room(self) -> int:
        """Length of the longest packet that fits."""
        return self.mtu - self.overhead


def deliver(delivery: Delivery) -> Verdict:
    """TUN, as `Reference.deliveries` takes it: the outer identification is 0."""
    server, hop, datagram = delivery.server, delivery.hop, delivery.packet.datagram
    frame = datagram.link.frame
    if datagram.transport > datagram.end:
        # A later fragment whose length ends amid its headers; the padding behind it has been cut off by then.
        return Verdict(action=Action.PASS, reason="malformed", frame=frame[: datagram.end])
    if hop.source is None:
        return Verdict(action=Action.DROP, reason="no_server", frame=frame)
    tunnel = Tunnel(
        source=hop.source,
        destination=server.address,
        kind=server.tunnel,
        port=server.tunnel_port,
        checksum=server.tunnel_checksum,
        mtu=hop.mtu,
    )
    if datagram.length > tunnel.room:
        error = too_big(datagram, tunnel.room)
        if error is None:
            return Verdict(action=Action.DROP, reason="no_room", frame=frame)
        return Verdict(action=Action.SEND, reason="too_big", frame=_turned_back(datagram) + error)
    tag = b""
    if hop.vlan:
        # The priority and the drop eligibility of the tag that it came with stay.
        tagged = datagram.link.offset > ETHERNET
        priority = int.from_bytes(frame[ETHERNET : ETHERNET + 2], "big") & _PRIORITY if tagged else 0
        tag = _TAG + (priority | hop.vlan).to_bytes(2, "big")
    kind = IPV4 if server.address.version == 4 else IPV6  # noqa: PLR2004 - the family
    changed = pack_mac(hop.destination_mac) + pack_mac(hop.source_mac) + tag + kind + encapsulated(datagram, tunnel)
    return Verdict(action=Action.SEND, reason=delivery.reason, frame=changed, interface=hop.interface_index)


def encapsulated(datagram: Datagram, tunnel: Tunnel, *, identification: int = 0) -> bytes:
    """The outer packet. `identification` counts where it may be fragmented."""
    frame, at = datagram.link.frame, datagram.link.offset
    inner = frame[at : datagram.end]
    if inner[0] >> 4 == 4:  # noqa: PLR2004 - the version
        protocol, traffic_class, hops = _IPIP, inner[1], inner[8]
        fixed = bool(int.from_bytes(inner[6:8], "big") & _DONT_FRAGMENT)
    else:
        protocol, traffic_class, hops = _IPV6_IN_IP, int.from_bytes(inner[:2], "big") >> 4 & 0xFF, inner[7]
        fixed = False
    hashed = _hash(datagram)
    addresses = tunnel.source.packed + tunnel.destination.packed
    shim = b""
    if tunnel.kind is TunnelKind.GUE:
        length = (_GUE_BYTES + len(inner)).to_bytes(2, "big")
        ports = (_FIRST_PORT | hashed >> 18).to_bytes(2, "big") + tunnel.port.to_bytes(2, "big")
        # Version 0, no private fields, not a control message.
        gue = bytes((0, protocol, 0, 0))
        pseudo = addresses + length + bytes((0, _UDP))
        checksum = bytes(2)
        if tunnel.checksum:
            # 0 would say that there is none.
            checksum = (internet_checksum(pseudo + ports + length + gue + inner) or 0xFFFF).to_bytes(2, "big")
        shim, protocol = ports + length + checksum + gue, _UDP
    elif tunnel.kind is TunnelKind.GRE:
        kind = IPV4 if protocol == _IPIP else IPV6
        shim, protocol = bytes(2) + kind, _GRE
        if tunnel.checksum:
            checksum = internet_checksum(b"\x80\x00" + kind + inner).to_bytes(2, "big")
            shim = b"\x80\x00" + kind + checksum + bytes(2)
    payload = shim + inner
    if tunnel.destination.version == 4:  # noqa: PLR2004 - the family
        beginning = _ipv4_beginning(traffic_class, len(payload), None if fixed else identification)
        return _ipv4(beginning, bytes((hops, protocol)), addresses) + payload
    label = 6 << 28 | traffic_class << 20 | hashed >> 12
    header = label.to_bytes(4, "big") + len(payload).to_bytes(2, "big") + bytes((protocol, hops))
    return header + addresses + payload


def too_big(datagram: Datagram, room: int) -> bytes | None:
    """The ICMP error that tells the sender how long a packet may be; None where there is none to be sent."""
    packet = datagram.link.frame[datagram.link.offset : datagram.end]
    if datagram.part is Part.LATER_FRAGMENT:
        return None
    first = datagram.source.packed[0]
    if datagram.source.version == 6:  # noqa: PLR2004 - the family
        nobody = datagram.source.is_unspecified or datagram.source.is_multicast
        if datagram.protocol == _ICMPV6 or nobody or len(packet) <= _LEAST_MTU[6]:
            return None
        mtu = max(room, _LEAST_MTU[6])
        message = b"\x02\x00\x00\x00" + mtu.to_bytes(4, "big") + packet[:_QUOTED_IPV6]
        addresses = datagram.destination.packed + datagram.source.packed
        pseudo = addresses + len(message).to_bytes(4, "big") + bytes((0, 0, 0, _ICMPV6))
        checksum = internet_checksum(pseudo + message).to_bytes(2, "big")
        header = (6 << 28 | _ERROR_CLASS << 20).to_bytes(4, "big") + len(message).to_bytes(2, "big")
        return header + bytes((_ICMPV6, _ERROR_HOPS)) + addresses + message[:2] + checksum + message[4:]
    if datagram.protocol == _ICMP or first in (0, _LOOPBACK) or first >= _MULTICAST or room < _LEAST_MTU[4]:
        return None
    quoted = packet[: _QUOTED if len(packet) >= _QUOTED else _LEAST_QUOTED]
    message = bytes((3, 4, 0, 0, 0, 0)) + room.to_bytes(2, "big") + quoted
    message = message[:2] + internet_checksum(message).to_bytes(2, "big") + message[4:]
    addresses = datagram.destination.packed + datagram.source.packed
    beginning = _ipv4_beginning(_ERROR_CLASS, len(message), None)
    return _ipv4(beginning, bytes((_ERROR_HOPS, _ICMP)), addresses) + message


def internet_checksum(data: bytes) -> int:
    """RFC 1071."""
    padded = data + bytes(len(data) % 2)
    total = sum(int.from_bytes(padded[at : at + 2], "big") for at in range(0, len(padded), 2))
    while total > 0xFFFF:  # noqa: PLR2004 - 16 bits
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _ipv4_beginning(traffic_class: int, payload: int, identification: int | None) -> bytes:
    """Eight bytes; without an identification it must not be fragmented."""
    place = _DONT_FRAGMENT if identification is None else 0
    words = (_OUTER_BYTES[4] + payload, identification or 0, place)
    return bytes((0x45, traffic_class)) + b"".join(word.to_bytes(2, "big") for word in words)


def _ipv4(beginning: bytes, hops_and_protocol: bytes, addresses: bytes) -> bytes:
    header = beginning + hops_and_protocol + bytes(2) + addresses
    return header[:10] + internet_checksum(header).to_bytes(2, "big") + header[12:]


def _hash(datagram: Datagram) -> int:
    """Of its flow; the fragments of a datagram stay together."""
    ports = 0
    if datagram.part is Part.WHOLE and datagram.protocol in _WITH_PORTS:
        frame = datagram.link.frame
        ports = int.from_bytes(frame[datagram.transport : datagram.transport + 4], "little")
    return mix(address_hash(datagram.source), ports)


def _turned_back(datagram: Datagram) -> bytes:
    """The Ethernet header of an answer, with all tags."""
    frame = datagram.link.frame
    return frame[6:12] + frame[:6] + frame[12 : datagram.link.offset]
