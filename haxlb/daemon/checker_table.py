"""From pools and neighbours to the wanted table and to what `haxlb show` prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from haxlb.forwarding.wanted import Counters, NextHop, Tally, WantedServer, WantedService, WantedTable
from haxlb.health.pool import Pool, Serving
from haxlb.health.rise_fall import RiseFall
from haxlb.model.addresses import IPAddress
from haxlb.model.check import Check
from haxlb.model.status import RealServerStatus, VirtualServerStatus
from haxlb.model.units import SECOND_US
from haxlb.model.virtual_server import ForwardingMethod, RealServer, VirtualServer

_IPV4_BITS = 32
_IPV6_BITS = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """What is known of the way to one address."""

    next_hop: NextHop | None
    reason: str
    """Why there is none: `no ARP answer from 192.168.10.23 on eth0`; empty when there is one."""
    gateway: IPAddress | None = None
    """The router on the way; None = the address is on the link, or this host's own."""


Neighbours = Mapping[IPAddress, Neighbour]
_UNKNOWN = Neighbour(next_hop=None, reason="its link-layer address is not resolved yet")


def way_to(server: RealServer, neighbours: Neighbours) -> Neighbour:
    """How packets reach a server by its method of forwarding. DR changes the frame only: no router may be between."""
    known = neighbours.get(server.address, _UNKNOWN)
    if known.gateway is None or server.method is not ForwardingMethod.DR:
        return known
    reason = (
        f"{server.address} is behind the gateway {known.gateway}: DR needs the real server on the link;"
        " `lvs_method TUN` or NAT reaches it"
    )
    return replace(known, next_hop=None, reason=reason)


def _kept_port(virtual_server: VirtualServer, server: RealServer, way: Neighbour) -> str:
    """Why clients do not get to a server by NAT that is this host and listens elsewhere; empty where that is not so.

    Its packets are the kernel's as they are: whoever listens on the virtual port has them.
    """
    kept = {each.port for each in virtual_server.endpoints} - {0, server.port}
    translated = server.method is ForwardingMethod.NAT and way.next_hop is not None and way.next_hop.local
    if not (translated and server.port and kept):
        return ""
    return f"it is this host: packets to it are not translated, they keep port {min(kept)}"


def wanted_table(pools: Iterable[Pool], neighbours: Neighbours, peer: NextHop | None) -> WantedTable:
    """What the forwarder shall do; `peer` is the way to the other director."""
    return WantedTable(services=tuple(_service(pool, neighbours, peer) for pool in pools))


def _service(pool: Pool, neighbours: Neighbours, peer: NextHop | None) -> WantedService:
    virtual_server = pool.virtual_server
    bits = virtual_server.persistence_granularity
    ipv4 = virtual_server.endpoint.address.version == 4  # noqa: PLR2004 - the family
    servers = _servers(pool, neighbours)
    return WantedService(
        name=virtual_server.name,
        endpoints=virtual_server.endpoints,
        scheduler=virtual_server.scheduler,
        hash_port=virtual_server.mh_port,
        servers=servers,
        peer=_whom_to_ask(peer, servers),
        persistence_s=virtual_server.persistence_s,
        persistence_mask=bits if bits is not None and ipv4 else _IPV4_BITS,
        persistence_prefix=bits if bits is not None and not ipv4 else _IPV6_BITS,
        one_packet=virtual_server.one_packet,
        ports_kept=_keeps_ports(virtual_server.sorry_server),
    )


def _keeps_ports(sorry: RealServer | None) -> bool:
    """Were flows recorded otherwise while it serves, those of inhibited servers would be found no more."""
    return sorry is not None and sorry.method is ForwardingMethod.NAT and not sorry.port


def _whom_to_ask(peer: NextHop | None, servers: Iterable[WantedServer]) -> NextHop | None:
    """The other director, but where this host is a server and that one is known by a link that leads to no server.

    What it has placed here then comes from another MAC of it. Taken for a client's packet of an unknown flow it would
    be a question, the answer the same packet again, and so on without an end.
    """
    ways = [each.next_hop for each in servers if each.next_hop is not None]
    links = {(way.interface_index, way.vlan) for way in ways if not way.local}
    if peer is None or not any(way.local for way in ways) or not links:
        return peer
    return peer if (peer.interface_index, peer.vlan) in links else None


def _servers(pool: Pool, neighbours: Neighbours) -> tuple[WantedServer, ...]:
    blocks = {each.server.key: each.server for each in pool.members.values()}
    sorry = pool.virtual_server.sorry_server
    # Where the sorry server is one of the real ones it takes that one's place, being the last: twice in a table, one
    # server would be asked to live and to be dead.
    serving = {each.key: each for each in pool.serving()}
    return tuple(
        _server(each, sorry if each.is_sorry and sorry else blocks[key], neighbours) for key, each in serving.items()
    )


def _server(serving: Serving, server: RealServer, neighbours: Neighbours) -> WantedServer:
    return WantedServer(
        address=serving.address,
        port=serving.port,
        weight=serving.weight,
        alive=serving.alive,
        next_hop=way_to(server, neighbours).next_hop,
        method=server.method,
        tunnel=server.tunnel,
        tunnel_port=server.tunnel_port,
        tunnel_checksum=server.tunnel_checksum,
        upper_threshold=server.upper_threshold,
        lower_threshold=server.lower_threshold,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """Turns the node's monotonic µs into seconds since the epoch."""

    offset_us: int

    def at(self, monotonic_us: int) -> float:
        """Seconds since the epoch."""
        return (monotonic_us + self.offset_us) / SECOND_US


def virtual_server_status(
    pool: Pool, checks: Mapping[Check, RiseFall], neighbours: Neighbours, counters: Counters, epoch: Epoch
) -> VirtualServerStatus:
    """One virtual server; its sorry server is always the last of the list, in the pool only while it serves."""
    virtual_server = pool.virtual_server
    endpoint = virtual_server.endpoint
    serving = {(each.address, each.port): each for each in pool.serving() if not each.is_sorry}
    servers = []
    for member in pool.members.values():
        server = member.server
        effective = serving[server.address, server.port]
        way = way_to(server, neighbours)
        doubt = way.reason or _kept_port(virtual_server, server, way)
        probed = [each for check in server.checks if (each := checks[check].probed_at_us) is not None]
        servers.append(
            _with_counters(
                RealServerStatus(
                    address=server.address,
                    port=server.port,
                    weight=effective.weight,
                    up=member.up,
                    in_pool=effective.alive and bool(effective.weight) and way.next_hop is not None,
                    reason=doubt if member.up and doubt else member.reason,
                    since_at=epoch.at(member.since_us),
                    checked_at=epoch.at(max(probed)) if probed else None,
                    mac=way.next_hop.destination_mac if way.next_hop else None,
                    method=server.method.value,
                    upper_threshold=server.upper_threshold,
                    lower_threshold=server.lower_threshold,
                    local=way.next_hop is not None and way.next_hop.local,
                ),
                virtual_server,
                server,
                counters,
            )
        )
    servers += _sorry_status(pool, neighbours, counters, epoch)
    total = counters.services.get(virtual_server.name, Tally())
    return VirtualServerStatus(
        address=endpoint.address,
        port=endpoint.port,
        protocol=endpoint.protocol.value,
        scheduler=virtual_server.scheduler.value,
        quorum_up=pool.quorum.up,
        sorry=pool.sorry_serves,
        real_servers=tuple(servers),
        packets=total.packets,
        bytes=total.bytes,
        flows=total.flows,
        name=virtual_server.name,
        endpoints=tuple(map(str, virtual_server.endpoints)),
        persistence_s=virtual_server.persistence_s,
    )


def _sorry_status(pool: Pool, neighbours: Neighbours, counters: Counters, epoch: Epoch) -> list[RealServerStatus]:
    sorry = pool.virtual_server.sorry_server
    if sorry is None:
        return []
    way = way_to(sorry, neighbours)
    status = RealServerStatus(
        address=sorry.address,
        port=sorry.port,
        weight=0 if sorry.inhibit_on_failure and not pool.sorry_serves else max(1, sorry.weight),
        up=True,
        in_pool=pool.sorry_serves and way.next_hop is not None,
        reason=way.reason
        or _kept_port(pool.virtual_server, sorry, way)
        or ("serves: no quorum" if pool.sorry_serves else "waits: the quorum is up"),
        since_at=epoch.at(pool.quorum_since_us),
        mac=way.next_hop.destination_mac if way.next_hop else None,
        method=sorry.method.value,
        local=way.next_hop is not None and way.next_hop.local,
        is_sorry=True,
    )
    return [_with_counters(status, pool.virtual_server, sorry, counters)]


def _with_counters(
    status: RealServerStatus, virtual_server: VirtualServer, server: RealServer, counters: Counters
) -> RealServerStatus:
    """The same with what the forwarder has counted for it."""
    key = (virtual_server.name, server.key)
    tally, load = counters.servers.get(key, Tally()), counters.loads.get(key)
    status = replace(status, packets=tally.packets, bytes=tally.bytes, flows=tally.flows)
    if load is None:
        return status
    return replace(status, active=load.active, inactive=load.inactive, overloaded=load.overloaded)
