"""Unsolicited neighbour advertisements (RFC 4861 section 7.2.6), put together without scapy."""

from __future__ import annotations

import struct
from ipaddress import IPv6Address
from pathlib import Path

ALL_NODES = IPv6Address("ff02::1")
_ETHERTYPE_IPV6 = 0x86DD
_ICMPV6 = 58
_HOP_LIMIT = 255
"""Receivers drop any other (RFC 4861 section 7.1.2)."""
_NEIGHBOUR_ADVERTISEMENT = 136
_ROUTER = 0x80000000
_OVERRIDE = 0x20000000
_TARGET_LINK_LAYER_ADDRESS = 2


def unsolicited_advertisement(mac: str, vip: IPv6Address, *, router: bool = False) -> bytes:
    """The frame that tells all nodes that the VIP has this MAC, whatever they knew before.

    `router` says that this host forwards: without it, neighbours would strike the address from their default routers.
    """
    hardware = bytes.fromhex(mac.replace(":", ""))
    body = (
        struct.pack("!I", _OVERRIDE | (_ROUTER if router else 0))
        + vip.packed
        + struct.pack("!BB", _TARGET_LINK_LAYER_ADDRESS, 1)
        + hardware
    )
    return icmpv6_frame(hardware, vip, ALL_NODES, _NEIGHBOUR_ADVERTISEMENT, body)


def icmpv6_frame(mac: bytes, source: IPv6Address, group: IPv6Address, kind: int, body: bytes) -> bytes:
    """An ICMPv6 message of neighbour discovery to a multicast group; `body` has an even length."""
    length = 4 + len(body)
    pseudo_header = source.packed + group.packed + struct.pack("!IxxxB", length, _ICMPV6)
    checksum = _checksum(pseudo_header + struct.pack("!BBH", kind, 0, 0) + body)
    # RFC 2464 section 7: the group's last four bytes.
    ethernet = b"\x33\x33" + group.packed[-4:] + mac + struct.pack("!H", _ETHERTYPE_IPV6)
    header = struct.pack("!IHBB", 6 << 28, length, _ICMPV6, _HOP_LIMIT) + source.packed + group.packed
    return ethernet + header + struct.pack("!BBH", kind, 0, checksum) + body


def forwards_ipv6(interface: str, *, settings: Path = Path("/proc/sys/net/ipv6/conf")) -> bool:
    """Whether this host is a router on the interface; not where it has no IPv6."""
    try:
        return (settings / interface / "forwarding").read_text().strip() != "0"
    except OSError:
        return False


def _checksum(data: bytes) -> int:
    """RFC 1071, of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
