"""Connections through a whole daemon: counted, listed, drained, and gone when their time is over."""

from __future__ import annotations

import json

import pytest

from haxlb.model.status import RealServerStatus
from tests.netns.site import Director
from tests.netns.standin import eventually

pytestmark = pytest.mark.netns

VS, RS = "10.8.0.100:53", "10.8.0.10:53"
CONFIGURATION = """
global_defs {
    router_id lb1
    lvs_timeouts tcp 900 tcpfin 120 udp 2
}
vrrp_instance VI_1 {
    version 3
    interface eth0
    virtual_router_id 51
    priority 150
    advert_int 0.1
    virtual_ipaddress {
        10.8.0.100/24
    }
}
virtual_server 10.8.0.100 53 {
    lb_algo lc
    lb_kind DR
    protocol UDP
    real_server 10.8.0.10 53 {
        weight 5
    }
}
"""
SEND = """
import socket, sys
for port in range(30000, 30000 + int(sys.argv[1])):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        channel.bind(("10.8.0.10", port))
        channel.sendto(b"?", ("10.8.0.100", 53))
"""
FLOWS = 20


def server(one: Director) -> RealServerStatus | None:
    status = one.answered()
    servers = [each for service in status.virtual_servers for each in service.real_servers]
    return servers[0] if servers else None


def shows(one: Director, **wanted: object) -> bool:
    found = server(one)
    return found is not None and all(getattr(found, name) == value for name, value in wanted.items())


def comes_to_show(one: Director, **wanted: object) -> None:
    """Wait until it does; what the checker has been told by then it shows a moment later."""
    try:
        eventually(lambda: shows(one, **wanted), f"the server shows {wanted}")
    except AssertionError as problem:
        raise AssertionError(f"{problem}: {server(one)}") from None


def listed(one: Director) -> list[dict[str, object]]:
    return [json.loads(line) for line in one.cli("show", "-c", "--json-lines").stdout.splitlines()]


def test_from_the_first_packet_to_the_end_of_the_flow(site):
    one = site.add("lb1", CONFIGURATION).start()
    comes_to_show(one, in_pool=True, active=0)
    sent = 0

    def counted() -> bool:
        nonlocal sent
        if not sent or shows(one, active=0):
            site.client.run("python3", "-c", SEND, str(FLOWS))
            sent += 1
        return shows(one, active=FLOWS, inactive=0)

    eventually(counted, "all flows are counted")
    found = listed(one)
    assert {each["destination"] for each in found} <= {RS}
    assert {each["virtual"] for each in found} <= {VS}
    eventually(lambda: shows(one, active=0), "flows of two seconds without a packet have ended")
    assert listed(one) == []
    assert "flows_not_swept" not in one.events()
    assert "connection_counts_corrected" not in one.events()

    drained = one.cli("drain", VS, RS, "--wait", "--timeout", "150")
    assert (drained.returncode, drained.stderr) == (0, "")
    assert drained.stdout.splitlines() == [
        "[10.8.0.100]:udp:53 10.8.0.10:53: weight 5 -> 0 (configured: 5)",
        "10.8.0.10:53 has no connections any more",
    ]
    comes_to_show(one, weight=0, configured_weight=5, in_pool=False)
    flows = server(one).flows
    site.client.run("python3", "-c", SEND, str(FLOWS))
    assert one.cli("reload").returncode == 0
    comes_to_show(one, weight=0, configured_weight=5, flows=flows, active=0)
    assert "10.8.0.10:53: * weight 0 was set on this daemon, the configured one is 5" in one.cli("show").stdout

    assert one.cli("enable", "UDP 10.8.0.100:53", "10.8.0.10").returncode == 0
    comes_to_show(one, weight=5, configured_weight=None, in_pool=True)
    assert one.cli("weight", VS, "10.8.0.11:53", "3").returncode == 1
    assert one.stop() == 0
