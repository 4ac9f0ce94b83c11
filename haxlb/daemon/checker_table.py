"""From pools and neighbours to the wanted table and to what `haxlb show` prints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address

from haxlb.forwarding.wanted import Counters, NextHop, Tally, WantedServer, WantedService, WantedTable
from haxlb.health.pool import Pool, Serving
from haxlb.health.rise_fall import RiseFall
from haxlb.model.addresses import Protocol
from haxlb.model.node import SECOND_US, Check, Scheduler
from haxlb.model.status import RealServerStatus, VirtualServerStatus

_KEEPS_FLOWS = (Scheduler.RR, Scheduler.WRR)
"""Schedulers whose choice another director can know only by asking the one that made it (ADR 3)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """What is known of the way to one address."""

    next_hop: NextHop | None
    reason: str
    """Why there is none: `no ARP answer from 192.168.10.23 on eth0`; empty when there is one."""


Neighbours = Mapping[IPv4Address, Neighbour]
_UNKNOWN = Neighbour(next_hop=None, reason="its link-layer address is not resolved yet")


def wanted_table(pools: Iterable[Pool], neighbours: Neighbours, peer: NextHop | None) -> WantedTable:
    """What the forwarder shall do; `peer` is the way to the other director."""
    return WantedTable(services=tuple(_service(pool, neighbours, peer) for pool in pools))


def _service(pool: Pool, neighbours: Neighbours, peer: NextHop | None) -> WantedService:
    virtual_server = pool.virtual_server
    asks = virtual_server.scheduler in _KEEPS_FLOWS and virtual_server.endpoint.protocol is Protocol.TCP
    return WantedService(
        endpoint=virtual_server.endpoint,
        scheduler=virtual_server.scheduler,
        hash_port=virtual_server.mh_port,
        servers=tuple(_server(each, neighbours) for each in pool.serving()),
        peer=peer if asks else None,
    )


def _server(serving: Serving, neighbours: Neighbours) -> WantedServer:
    return WantedServer(
        address=serving.address,
        port=serving.port,
        weight=serving.weight,
        alive=serving.alive,
        next_hop=neighbours.get(serving.address, _UNKNOWN).next_hop,
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
    in_pool = {
        each.key
        for each in pool.serving()
        if each.alive and each.weight and neighbours.get(each.address, _UNKNOWN).next_hop is not None
    }
    effective = {each.key: each.weight for each in pool.serving()}
    servers = []
    for key, member in pool.members.items():
        neighbour = neighbours.get(member.server.address, _UNKNOWN)
        probed = [each for check in member.server.checks if (each := checks[check].probed_at_us) is not None]
        tally = counters.servers.get((endpoint, key), Tally())
        servers.append(
            RealServerStatus(
                address=member.server.address,
                port=member.server.port,
                weight=effective[key],
                up=member.up,
                in_pool=key in in_pool,
                reason=neighbour.reason if member.up and neighbour.reason else member.reason,
                since_at=epoch.at(member.since_us),
                checked_at=epoch.at(max(probed)) if probed else None,
                mac=neighbour.next_hop.destination_mac if neighbour.next_hop else None,
                packets=tally.packets,
                bytes=tally.bytes,
                flows=tally.flows,
            )
        )
    servers += _sorry_status(pool, neighbours, counters, epoch)
    total = counters.services.get(endpoint, Tally())
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
    )


def _sorry_status(pool: Pool, neighbours: Neighbours, counters: Counters, epoch: Epoch) -> list[RealServerStatus]:
    sorry = pool.virtual_server.sorry_server
    if sorry is None:
        return []
    neighbour = neighbours.get(sorry.address, _UNKNOWN)
    tally = counters.servers.get((pool.virtual_server.endpoint, sorry.key), Tally())
    return [
        RealServerStatus(
            address=sorry.address,
            port=sorry.port,
            weight=max(1, sorry.weight),
            up=True,
            in_pool=pool.sorry_serves and neighbour.next_hop is not None,
            reason=neighbour.reason or ("serves: no quorum" if pool.sorry_serves else "waits: the quorum is up"),
            since_at=epoch.at(pool.quorum_since_us),
            mac=neighbour.next_hop.destination_mac if neighbour.next_hop else None,
            packets=tally.packets,
            bytes=tally.bytes,
            flows=tally.flows,
            is_sorry=True,
        )
    ]
