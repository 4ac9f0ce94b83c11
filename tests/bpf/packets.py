"""Packets of both families and all transports, byte by byte: also such as no library composes."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address

from haxlb.linux.specimen import OWN_MAC
from haxlb.model.addresses import IPAddress, Protocol
from tests.bpf.frames import CLIENT_MAC

FIN, SYN, RST, PSH, ACK = 0x01, 0x02, 0x04, 0x08, 0x10
INIT, ABORT, SHUTDOWN, SHUTDOWN_COMPLETE, DATA = 1, 6, 7, 14, 0
NO_OPERATION = b"\x01\x01\x01\x01"
EXTENSION = bytes(7)
"""Of eight bytes, without the number of the next header."""


def ethernet(packet: bytes, *, to: str = OWN_MAC, by: str = CLIENT_MAC, tags: bytes = b"", kind: bytes = b"") -> bytes:
    kind = kind or (b"\x86\xdd" if packet[:1] and packet[0] >> 4 == 6 else b"\x08\x00")
    return bytes.fromhex((to + by).replace(":", "")) + tags + kind + packet


def ipv4(source: IPAddress, destination: IPAddress, protocol: int, payload: bytes, *, options: bytes = b"") -> bytes:
    words = 5 + len(options) // 4
    head = struct.pack("!BBHHHBBH", 0x40 | words, 0, words * 4 + len(payload), 7, 0, 64, protocol, 0)
    return head + source.packed + destination.packed + options + payload


def ipv6(
    source: IPAddress, destination: IPAddress, protocol: int, payload: bytes, *, extensions: tuple[int, ...] = ()
) -> bytes:
    """`extensions`: next header numbers of extension headers of eight bytes."""
    for number in reversed(extensions):
        payload = bytes([protocol]) + EXTENSION + payload
        protocol = number
    return struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64) + source.packed + destination.packed + payload


def segment(protocol: Protocol, source: int, destination: int, kind: int, data: bytes = b"") -> bytes:
    """`kind`: TCP's flags, or the type of SCTP's first chunk."""
    ports = struct.pack("!HH", source, destination)
    if protocol is Protocol.TCP:
        return ports + struct.pack("!IIBBHHH", 1, 2, 0x50, kind, 3, 0, 0) + data
    if protocol is Protocol.UDP:
        return ports + struct.pack("!HH", 8 + len(data), 0) + data
    return ports + struct.pack("!II", 1, 0) + struct.pack("!BBH", kind, 0, 4 + len(data)) + data


def frame(
    protocol: Protocol,
    kind: int = 0,
    *,
    source: IPAddress,
    to: IPAddress,
    port: int = 40000,
    service_port: int = 80,
    data: bytes = b"0123456789",
    **ethernet_options: str,
) -> bytes:
    payload = segment(protocol, port, service_port, kind, data)
    compose = ipv4 if isinstance(source, IPv4Address) else ipv6
    return ethernet(compose(source, to, protocol.number, payload), **ethernet_options)  # type: ignore[arg-type]
