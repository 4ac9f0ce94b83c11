"""The wanted table: what the forwarder shall do, and the counters that it hands back. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field

from haxlb.model.addresses import Endpoint, IPAddress
from haxlb.model.virtual_server import ForwardingMethod, Scheduler, TunnelKind


@dataclass(frozen=True, slots=True, kw_only=True)
class NextHop:
    """How a frame reaches a server (or the other director) on the link layer."""

    interface_index: int
    """Outgoing interface; XDP_TX where the frame came in by it, redirect otherwise."""
    source_mac: str
    """MAC of the outgoing interface."""
    destination_mac: str
    vlan: int = 0
    """802.1Q tag of frames that go there; 0 = none."""
    source: IPAddress | None = None
    """This host's address on the way: the outer source of a tunnel."""
    mtu: int = 1500

    @property
    def local(self) -> bool:
        """The way leads to this host itself."""
        return self.source_mac == self.destination_mac


def server_key(address: IPAddress, port: int) -> str:
    """`address:port`, of IPv6 `[address]:port`."""
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"  # noqa: PLR2004 - the family


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedServer:
    """One real server of one service."""

    address: IPAddress
    port: int
    """0 = that of the packet."""
    weight: int
    """Share of new flows; 0 = none, established flows stay."""
    alive: bool
    """False = its flows move, it gets nothing."""
    next_hop: NextHop | None
    """None = link-layer address unknown: treated as not alive."""
    method: ForwardingMethod = ForwardingMethod.DR
    tunnel: TunnelKind = TunnelKind.IPIP
    tunnel_port: int = 0
    """UDP port of GUE."""
    tunnel_checksum: bool = False
    upper_threshold: int = 0
    """Flows with which it gets no more; 0 = any number."""
    lower_threshold: int = 0
    """Until it has fewer than this again; 0 = three quarters of the upper one."""

    @property
    def key(self) -> str:
        """What `server_key` says."""
        return server_key(self.address, self.port)

    @property
    def gets_packets(self) -> bool:
        """It is alive and can be reached."""
        return self.alive and self.next_hop is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedService:
    """One virtual server: one set of servers behind one or more endpoints of one protocol."""

    name: str
    """What makes it the same one across reloads and restarts: `[10.0.0.1]:tcp:80`, `group web tcp`, `fwmark 5 tcp`."""
    endpoints: tuple[Endpoint, ...]
    """Port 0 = all ports that no other endpoint of the address has."""
    scheduler: Scheduler
    servers: tuple[WantedServer, ...]
    """All of its servers, dead and drained ones included; the sorry server while it serves, an inhibited one always."""
    hash_port: bool = False
    peer: NextHop | None = None
    """The other director: gets packets of unknown flows that did not come from it (ADR 3)."""
    persistence_s: int = 0
    """A client keeps its server for so long after its last packet; 0 = only for a flow."""
    persistence_mask: int = 32
    """Bits of an IPv4 client's address that count."""
    persistence_prefix: int = 128
    """The same of an IPv6 client's."""
    one_packet: bool = False
    """`ops`: each packet is a flow of its own (UDP)."""
    ports_kept: bool = False
    """A server of NAT that has no port of its own may join (the sorry server): flows are recorded as if it had."""

    @property
    def thresholds(self) -> bool:
        """Some server takes a limited number of flows."""
        return any(each.upper_threshold for each in self.servers)

    @property
    def stateless(self) -> bool:
        """The ring says which server a packet has: nothing is recorded but what a change of the ring would move."""
        return (
            self.scheduler.hashes
            and not self.persistence_s
            and not self.one_packet
            and not self.thresholds
            and all(each.method is not ForwardingMethod.NAT for each in self.servers)
        )

    @property
    def shared(self) -> bool:
        """The two-box set-up: a director is a server, this host or the other one."""
        if self.peer is None:
            return False
        hops = [each.next_hop for each in self.servers if each.next_hop is not None]
        return any(hop.local or hop.destination_mac == self.peer.destination_mac for hop in hops)


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
class Load:
    """Flows on record, as `ipvsadm -Ln` counts them."""

    active: int = 0
    inactive: int = 0
    """Closing."""
    overloaded: bool = False
    """It has reached its upper threshold and not yet fallen below the lower one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """A reading of the forwarder's counters."""

    verdicts: dict[str, int] = field(default_factory=dict)
    """Packets by verdict reason; names in bpf/abi.h order, e.g. `forwarded`, `not_ip`, `no_server`."""
    services: dict[str, Tally] = field(default_factory=dict)
    """By the service's name."""
    servers: dict[tuple[str, str], Tally] = field(default_factory=dict)
    """By service name and server key."""
    loads: dict[tuple[str, str], Load] = field(default_factory=dict)
    """Likewise; none for the servers of a stateless service."""
