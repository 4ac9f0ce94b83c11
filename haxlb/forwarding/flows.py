"""The flow tables as user space reads them: struct flow and struct wide_flow of bpf/abi.h."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from haxlb.model.addresses import IPAddress

_FLOW: Final = struct.Struct("=4s2sHHBBI")
_WIDE_FLOW: Final = struct.Struct("=H2s2sHHBBI16s")
FLOW_BYTES: Final = _FLOW.size
WIDE_FLOW_BYTES: Final = _WIDE_FLOW.size
SPILLED: Final = 0x80
"""FLOW_SPILLED of abi.h: the bit of a state's byte that is about the bucket."""


class FlowState(IntEnum):
    """FLOW_… of abi.h. Those of TCP are of SCTP, too."""

    EMPTY = 0
    CLAIMED = 1
    TCP_NEW = 2
    TCP_ESTABLISHED = 3
    TCP_CLOSING = 4
    UDP_NEW = 5
    UDP = 6
    TEMPLATE = 7
    TEMPLATE_NEW = 8

    @property
    def of_client(self) -> bool:
        """It is no flow: the server that a persistent service keeps for a client."""
        return self >= FlowState.TEMPLATE


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowEntry:
    """One flow on record."""

    source: IPAddress
    source_port: int
    frontend: int
    backend: int
    incarnation: int
    state: FlowState
    stamp: int
    """jiffies of the last packet, exact to a second."""
    destination_port: int = 0
    """Of an endpoint for all ports; else 0: the endpoint says it."""


def unpack_flows(raw: bytes | memoryview) -> Iterator[FlowEntry]:
    """The flows of some buckets of `flows` or `overflow`, in their order; empty ways and claims are left out."""
    for source, port, frontend, backend, incarnation, state, stamp in _FLOW.iter_unpack(raw):
        if state & ~SPILLED > FlowState.CLAIMED:
            yield FlowEntry(
                source=IPv4Address(source),
                source_port=int.from_bytes(port, "big"),
                frontend=frontend,
                backend=backend,
                incarnation=incarnation,
                state=FlowState(state & ~SPILLED),
                stamp=stamp,
            )


def unpack_wide_flows(raw: bytes | memoryview) -> Iterator[FlowEntry]:
    """The same of `wide_flows` or `wide_overflow`."""
    for _, destination_port, port, frontend, backend, incarnation, state, stamp, source in _WIDE_FLOW.iter_unpack(raw):
        if state & ~SPILLED > FlowState.CLAIMED:
            narrow = not any(source[:12])
            yield FlowEntry(
                source=IPv4Address(source[12:]) if narrow else IPv6Address(source),
                source_port=int.from_bytes(port, "big"),
                frontend=frontend,
                backend=backend,
                incarnation=incarnation,
                state=FlowState(state & ~SPILLED),
                stamp=stamp,
                destination_port=int.from_bytes(destination_port, "big"),
            )
