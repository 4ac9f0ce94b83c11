"""The Internet checksum (RFC 1071), and the pseudo-headers that version 3 covers with it (RFC 9568 section 5.2.8)."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address

from haxlb.model.addresses import IPAddress

PROTOCOL_NUMBER = 112
"""IP protocol of VRRP (IANA)."""
_WORD = 0xFFFF


def is_good(data: bytes) -> bool:
    """Whether the sum over a message, its checksum included, comes out right."""
    return ones_sum(data) == _WORD


def ones_sum(data: bytes) -> int:
    """Ones' complement sum of 16-bit words; a last odd byte counts as the upper half of a word."""
    padded = data + b"\0" if len(data) % 2 else data
    total: int = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total > _WORD:
        total = (total & _WORD) + (total >> 16)
    return total


def pseudo_header(source: IPAddress, destination: IPAddress, length: int) -> bytes:
    """What a checksum covers besides the message of this length in bytes."""
    if isinstance(source, IPv4Address):
        tail = struct.pack("!BBH", 0, PROTOCOL_NUMBER, length)
    else:
        tail = struct.pack("!I3xB", length, PROTOCOL_NUMBER)
    return source.packed + destination.packed + tail
