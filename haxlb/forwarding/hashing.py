"""The forwarder's hashes (`mix`, `ring_hash`, `identify` of bpf/): directors alike choose the same slot."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address
from typing import Final

from haxlb.forwarding.layout import ADDRESS_BITS
from haxlb.model.addresses import IPAddress

_LONG: Final = 0xFFFFFFFFFFFFFFFF


def mix(a: int, b: int) -> int:
    """32 bits of two times 32."""
    mixed = (a << 32 | b) * 0x9E3779B97F4A7C15 & _LONG
    mixed ^= mixed >> 29
    return (mixed * 0xBF58476D1CE4E5B9 & _LONG) >> 32


def mixed(several: Iterable[int], b: int, mask: int) -> list[int]:
    """`mix(a, b) & mask` of each, without a call for each: thousands of slots are looked for at once."""
    return [
        ((product := (a << 32 | b) * 0x9E3779B97F4A7C15 & _LONG) ^ product >> 29) * 0xBF58476D1CE4E5B9 >> 32 & mask
        for a in several
    ]


def _mix_address(seed: int, packed: bytes) -> int:
    """Of the sixteen bytes of an IPv6 address, read as a little-endian machine reads them."""
    words = [int.from_bytes(packed[at : at + 4], "little") for at in (0, 4, 8, 12)]
    first = mix(words[0] ^ seed, words[1])
    return mix(words[2] ^ first, words[3])


def _wire_port(port: int) -> int:
    return int.from_bytes(port.to_bytes(2, "big"), "little")


def address_hash(address: IPAddress) -> int:
    """32 bits that stand for an address: an IPv4 one itself, as a little-endian machine reads it."""
    if isinstance(address, IPv4Address):
        return int.from_bytes(address.packed, "little")
    return _mix_address(0, address.packed)


def ring_hash(address: IPAddress, port: int | None) -> int:
    """Hash of a packet for sh, mh (of its source) and dh (of its destination); `port` None: the address alone."""
    wire_port = 0 if port is None else _wire_port(port)
    if isinstance(address, IPv4Address):
        return mix(int.from_bytes(address.packed, "little"), wire_port)
    return mix(_mix_address(0, address.packed), wire_port)


def any_port_bit(address: IPAddress) -> int:
    """Which bit of `any_port_bits` says that the address has endpoints for all ports (`address_bit` of bpf/flow.h)."""
    if isinstance(address, IPv4Address):
        return ((address_hash(address) << 32) * 0x9E3779B97F4A7C15 & _LONG) * ADDRESS_BITS >> 64
    return ring_hash(address, None) % ADDRESS_BITS


def flow_hash(source: IPv4Address, port: int, frontend: int, *, seed: int) -> int:
    """What says in which bucket of `flows` and `overflow` a flow is: the lower bits count."""
    address = int.from_bytes(source.packed, "little")
    return mix(address ^ seed, frontend << 16 | _wire_port(port))


def wide_flow_hash(source: IPAddress, port: int, frontend: int, *, seed: int, destination_port: int = 0) -> int:
    """The same of `wide_flows` and `wide_overflow`; `destination_port` of an endpoint for all ports, else 0."""
    packed = source.packed.rjust(16, b"\0")
    low = _wire_port(destination_port) << 16 | 1
    return mix(low ^ _mix_address(seed, packed), frontend << 16 | _wire_port(port))
