"""The forwarder's hash (`mix` in bpf/flow.h): directors that share a configuration choose the same slot."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Final

_WORD: Final = 0xFFFFFFFF
_LONG: Final = 0xFFFFFFFFFFFFFFFF


def mix(a: int, b: int) -> int:
    """32 bits of two times 32."""
    mixed = (a << 32 | b) * 0x9E3779B97F4A7C15 & _LONG
    mixed ^= mixed >> 29
    return (mixed * 0xBF58476D1CE4E5B9 & _LONG) >> 32


def ring_hash(source: IPv4Address, port: int | None) -> int:
    """Hash of a client for sh and mh; `port` None where only the address counts."""
    # The program reads address and port from the wire as a little-endian machine does.
    wire_port = 0 if port is None else int.from_bytes(port.to_bytes(2, "big"), "little")
    return mix(int.from_bytes(source.packed, "little"), wire_port)


def bucket_index(source: IPv4Address, port: int, service: int, *, seed: int, buckets: int) -> int:
    """Which bucket of the flow table a flow belongs to."""
    address = int.from_bytes(source.packed, "little") ^ seed
    wire_port = int.from_bytes(port.to_bytes(2, "big"), "little")
    return mix(address & _WORD, service << 16 | wire_port) & (buckets - 1)
