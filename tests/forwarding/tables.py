"""Wanted tables for tests."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from haxlb.forwarding.wanted import NextHop, WantedServer, WantedService, WantedTable
from haxlb.linux.specimen import LOOPBACK, OWN_MAC, PORT, VIP
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.virtual_server import Scheduler

PEER_MAC = "02:00:00:00:00:bb"
PEER = NextHop(interface_index=LOOPBACK, source_mac=OWN_MAC, destination_mac=PEER_MAC)
WEB = Endpoint(address=VIP, port=PORT, protocol=Protocol.TCP)
DNS = Endpoint(address=VIP, port=PORT, protocol=Protocol.UDP)


def mac(number: int) -> str:
    return f"02:00:00:00:{number >> 8:02x}:{number & 0xFF:02x}"


def server(number: int, *, weight: int = 1, alive: bool = True, port: int = PORT, **hop: Any) -> WantedServer:
    way = NextHop(interface_index=LOOPBACK, source_mac=OWN_MAC, destination_mac=mac(0x100 + number))
    return WantedServer(
        address=IPv4Address("10.0.0.0") + number,
        port=port,
        weight=weight,
        alive=alive,
        next_hop=replace(way, **hop),
    )


def server6(number: int, **hop: Any) -> WantedServer:
    return replace(server(number, **hop), address=IPv6Address("2001:db8::") + number)


def unreachable(number: int) -> WantedServer:
    return replace(server(number), next_hop=None)


def service(
    *servers: WantedServer,
    scheduler: Scheduler = Scheduler.RR,
    endpoint: Endpoint = WEB,
    endpoints: tuple[Endpoint, ...] = (),
    name: str = "",
    hash_port: bool = True,
    **options: Any,
) -> WantedService:
    return WantedService(
        name=name or str(endpoint),
        endpoints=endpoints or (endpoint,),
        scheduler=scheduler,
        hash_port=hash_port,
        servers=servers,
        **options,
    )


def table(*servers: WantedServer, **options: Any) -> WantedTable:
    return WantedTable(services=(service(*servers, **options),))
