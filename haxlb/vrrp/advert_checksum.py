"""The checksum of a VRRP message: RFC 1071's sum, with the pseudo-header of its address family where there is one."""

from __future__ import annotations

import struct

from haxlb.model.addresses import IPAddress

PROTOCOL_NUMBER = 112
"""IP protocol of VRRP (IANA)."""

_GOOD = 0xFFFF


def pseudo_header(source: IPAddress, destination: IPAddress, length: int) -> bytes:
    """What RFC 9568 section 5.2.8 puts in front of the message; of IPv6 it is that of RFC 8200 section 8.1."""
    if source.version == 4:  # noqa: PLR2004 - the family
        return source.packed + destination.packed + struct.pack("!BBH", 0, PROTOCOL_NUMBER, length)
    return source.packed + destination.packed + struct.pack("!I3xB", length, PROTOCOL_NUMBER)


def checksum(covered: bytes) -> int:
    """The number that goes into the message, where zeros stand now."""
    return _GOOD ^ _ones_sum(covered)


def is_good(covered: bytes) -> bool:
    """Whether a message, with its pseudo-header, adds up."""
    return _ones_sum(covered) == _GOOD


def _ones_sum(data: bytes) -> int:
    """Ones' complement sum of 16-bit words (RFC 1071); every VRRP message has an even length."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return (total & 0xFFFF) + (total >> 16)
