"""What a status says of a server that is this host, to which NAT changes no port."""

from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from haxlb.daemon.checker_table import Epoch, Neighbour, virtual_server_status
from haxlb.forwarding.wanted import Counters, NextHop
from haxlb.health.pool import Pool
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.virtual_server import ForwardingMethod, RealServer, Scheduler, VirtualServer

VIP, HERE, OTHER = map(IPv4Address, ("192.168.10.100", "192.168.10.11", "192.168.10.21"))
NEIGHBOURS = {
    HERE: Neighbour(
        next_hop=NextHop(interface_index=1, source_mac="00:00:00:00:00:00", destination_mac="00:00:00:00:00:00"),
        reason="",
    ),
    OTHER: Neighbour(
        next_hop=NextHop(interface_index=2, source_mac="02:00:00:00:00:11", destination_mac="02:00:00:00:00:21"),
        reason="",
    ),
}
KEPT = "it is this host: packets to it are not translated, they keep port 80"
WAITS = "waits: the quorum is up"
UNCHECKED = "no check configured"


def reasons(method: ForwardingMethod, address: IPv4Address, port: int) -> list[str]:
    """Of a server, and of the same one as sorry server."""
    server = RealServer(address=address, port=port, method=method)
    virtual_server = VirtualServer(
        endpoint=Endpoint(address=VIP, protocol=Protocol.TCP, port=80),
        scheduler=Scheduler.RR,
        real_servers=(server,),
        sorry_server=server,
    )
    pool = Pool(virtual_server, now=0)
    pool.configure(virtual_server, {}, now=0)
    pool.refresh(pool.members.values(), {}, {address: True}, 0)
    status = virtual_server_status(pool, {}, NEIGHBOURS, Counters(), Epoch(offset_us=0))
    return [each.reason for each in status.real_servers]


@pytest.mark.parametrize(
    ("method", "address", "port", "server", "sorry"),
    [
        (ForwardingMethod.NAT, HERE, 8080, KEPT, KEPT),
        (ForwardingMethod.NAT, HERE, 80, UNCHECKED, WAITS),
        (ForwardingMethod.NAT, HERE, 0, UNCHECKED, WAITS),
        (ForwardingMethod.NAT, OTHER, 8080, UNCHECKED, WAITS),
        (ForwardingMethod.DR, HERE, 80, UNCHECKED, WAITS),
    ],
)
def test_a_port_that_is_not_changed_is_said(
    method: ForwardingMethod, address: IPv4Address, port: int, server: str, sorry: str
) -> None:
    assert reasons(method, address, port) == [server, sorry]
