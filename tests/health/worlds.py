"""Checks and virtual servers for the tests of health checking."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any

from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.check import Check, CheckKind
from haxlb.model.units import SECOND_US
from haxlb.model.virtual_server import RealServer, VirtualServer

VIP = Endpoint(address=IPv4Address("192.168.10.100"), port=80, protocol=Protocol.TCP)
OTHER_VIP = Endpoint(address=IPv4Address("192.168.10.101"), port=80, protocol=Protocol.TCP)


def seconds(value: float) -> int:
    return round(value * SECOND_US)


def check(host: int = 21, **changes: Any) -> Check:
    values: dict[str, Any] = {
        "kind": CheckKind.TCP,
        "address": IPv4Address(f"192.168.10.{host}"),
        "port": 80,
        "connect_timeout_us": seconds(1),
        "delay_loop_us": seconds(10),
    }
    return Check(**(values | changes))


def server(host: int = 21, **changes: Any) -> RealServer:
    values: dict[str, Any] = {"address": IPv4Address(f"192.168.10.{host}"), "port": 80, "checks": (check(host),)}
    return RealServer(**(values | changes))


def virtual_server(*servers: RealServer, **changes: Any) -> VirtualServer:
    return VirtualServer(**({"endpoint": VIP, "real_servers": servers or (server(),)} | changes))
