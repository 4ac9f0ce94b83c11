"""The wanted table: what the forwarder shall do, and the counters that it hands back. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Address

from haxlb.model.addresses import Endpoint
from haxlb.model.node import Scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class NextHop:
    """How a frame reaches a server (or the other director) on the link layer."""

    interface_index: int
    """Outgoing interface; XDP_TX where the frame came in by it, redirect otherwise."""
    source_mac: str
    """MAC of the outgoing interface."""
    destination_mac: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedServer:
    """One real server of one service."""

    address: IPv4Address
    port: int
    weight: int
    """Share of new flows; 0 = none, established flows stay."""
    alive: bool
    """False = its flows move, it gets nothing."""
    next_hop: NextHop | None
    """None = link-layer address unknown: treated as not alive."""

    @property
    def key(self) -> str:
        """`address:port`."""
        return f"{self.address}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedService:
    """One virtual server."""

    endpoint: Endpoint
    scheduler: Scheduler
    hash_port: bool
    servers: tuple[WantedServer, ...]
    """All of its servers, dead and drained ones included; the sorry server only while it serves."""
    peer: NextHop | None = None
    """The other director: gets TCP packets of unknown flows of rr and wrr that did not come from it (ADR 3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedTable:
    """All services, in configuration order."""

    services: tuple[WantedService, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """Packets and bytes (IP length) forwarded, and new flows."""

    packets: int = 0
    bytes: int = 0
    flows: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """A reading of the forwarder's counters."""

    verdicts: dict[str, int] = field(default_factory=dict)
    """Packets by verdict reason; names in bpf/abi.h order, e.g. `forwarded`, `not_ipv4`, `no_server`."""
    services: dict[Endpoint, Tally] = field(default_factory=dict)
    servers: dict[tuple[Endpoint, str], Tally] = field(default_factory=dict)
    """By endpoint and server key."""
