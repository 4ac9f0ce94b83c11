"""For tests: VRRP messages in any envelope, right or wrong in one chosen way, made without haxlb's own encoder."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address, IPv6Address

from haxlb.model.addresses import IPAddress
from haxlb.vrrp.dissect import Form

GROUP, GROUP6 = IPv4Address("224.0.0.18"), IPv6Address("ff02::12")
SOURCE, SOURCE6 = IPv4Address("10.9.0.1"), IPv6Address("fe80::1")
OTHER = IPv4Address("10.9.0.2")
VIP = IPv4Address("10.9.0.100")


def total(data: bytes) -> int:
    value = sum(int.from_bytes(data[at : at + 2].ljust(2, b"\0")) for at in range(0, len(data), 2))
    while value >> 16:
        value = (value & 0xFFFF) + (value >> 16)
    return value


def message(
    shape: int,
    *,
    family: int = 4,
    version: int | None = None,
    kind: int = 1,
    vrid: int = 51,
    priority: int = 150,
    count: int | None = None,
    addresses: tuple[IPAddress, ...] | None = None,
    interval: int | None = None,
    auth_type: int = 0,
    auth_data: bytes = bytes(8),
    reserved: int = 0,
    source: IPAddress | None = None,
    destination: IPAddress | None = None,
    form: Form = Form.GOOD,
) -> bytes:
    """`shape` is the version whose layout it has; `interval` is in that version's unit."""
    if addresses is None:
        addresses = (VIP,) if family == 4 else (IPv6Address("fe80::100"),)
    named = len(addresses) if count is None else count
    head = bytes((((shape if version is None else version) << 4) | kind, vrid, priority, named))
    if shape == 2:
        head += bytes((auth_type, 1 if interval is None else interval))
    else:
        head += struct.pack("!H", reserved << 12 | (100 if interval is None else interval))
    body = b"".join(each.packed for each in addresses) + (auth_data if (shape, family) == (2, 4) else b"")
    source = source or (SOURCE if family == 4 else SOURCE6)
    destination = destination or (GROUP if family == 4 else GROUP6)
    if form is Form.OLD_UNICAST:
        destination = GROUP
    length = 8 + len(body)
    cover = b""
    if (shape, family) != (2, 4) and form is not Form.BARE:
        tail = struct.pack("!BBH", 0, 112, length) if family == 4 else struct.pack("!IHBB", length, 0, 0, 112)
        cover = source.packed + destination.packed + tail
    checksum = 0xFFFF ^ total(cover + head + b"\0\0" + body)
    return head + struct.pack("!H", checksum) + body


def ipv4(
    payload: bytes,
    *,
    source: IPv4Address = SOURCE,
    destination: IPv4Address = GROUP,
    ttl: int = 255,
    protocol: int = 112,
    options: bytes = b"",
    fragment: int = 0,
    first: int | None = None,
) -> bytes:
    size = 20 + len(options)
    lead = 0x40 | size // 4 if first is None else first
    parts = (lead, 0xC0, size + len(payload), 1, fragment, ttl, protocol)
    addresses = source.packed + destination.packed + options
    checksum = 0xFFFF ^ total(struct.pack("!BBHHHBBH", *parts, 0) + addresses)
    return struct.pack("!BBHHHBBH", *parts, checksum) + addresses + payload


def ipv6(
    payload: bytes,
    *,
    source: IPv6Address = SOURCE6,
    destination: IPv6Address = GROUP6,
    hop_limit: int = 255,
    following: int = 112,
) -> bytes:
    head = struct.pack("!IHBB", 0x6C000000, len(payload), following, hop_limit)
    return head + source.packed + destination.packed + payload


def ah(payload: bytes, *, following: int = 112, sequence: int = 9) -> bytes:
    return struct.pack("!BBHII", following, 4, 0, int(SOURCE), sequence) + bytes(range(12)) + payload


def ethernet(
    packet: bytes,
    *,
    source_mac: str = "02:00:00:00:00:01",
    destination_mac: str = "01:00:5e:00:00:12",
    vlans: tuple[int, ...] = (),
    ethertype: int | None = None,
) -> bytes:
    tags = b"".join(struct.pack("!HH", 0x8100, 0xA000 | each) for each in vlans)
    kind = ethertype or (0x86DD if packet[:1] and packet[0] >> 4 == 6 else 0x0800)
    macs = bytes.fromhex(destination_mac.replace(":", "") + source_mac.replace(":", ""))
    return macs + tags + struct.pack("!H", kind) + packet
