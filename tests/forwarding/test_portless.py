"""Which addresses have but one way for packets that do not tell their ports; the tag's bit in a server's record."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest

from haxlb.forwarding.portless import portless_endpoints
from haxlb.forwarding.records import BackendRecord, is_portless, is_withdrawn, pack_endpoint, pack_portless
from haxlb.forwarding.reference_tags import retag
from haxlb.forwarding.wanted import NextHop, WantedServer, WantedService
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.virtual_server import ForwardingMethod, Scheduler

VIP = ip_address("10.0.0.1")


def at(port, protocol=Protocol.UDP, address=VIP):
    return Endpoint(address=address, port=port, protocol=protocol)


def service(*endpoints, name="one", scheduler=Scheduler.MH, method=ForwardingMethod.DR, **more):
    server = WantedServer(address=ip_address("10.0.1.1"), port=0, weight=1, alive=True, next_hop=None, method=method)
    return WantedService(name=name, endpoints=endpoints, scheduler=scheduler, servers=(server,), **more)


@pytest.mark.parametrize("scheduler", [Scheduler.MH, Scheduler.SH, Scheduler.DH])
def test_one_service_that_has_all_endpoints_of_an_address(scheduler):
    one = service(at(53), at(54), scheduler=scheduler)
    assert portless_endpoints([one]) == {at(0): one}


def test_each_protocol_and_address_for_itself():
    other = ip_address("fd00::1")
    one, two = service(at(53), at(53, address=other)), service(at(53, Protocol.TCP), name="two", scheduler=Scheduler.RR)
    assert portless_endpoints([one, two]) == {at(0): one, at(0, address=other): one}


@pytest.mark.parametrize(
    "service_of",
    [
        lambda: service(at(53), scheduler=Scheduler.RR),
        lambda: service(at(53), scheduler=Scheduler.WLC),
        lambda: service(at(53), hash_port=True),
        lambda: service(at(53), persistence_s=60),
        lambda: service(at(53), one_packet=True),
        lambda: service(at(53), method=ForwardingMethod.NAT),
    ],
)
def test_none_where_the_ring_does_not_say_it_all(service_of):
    assert portless_endpoints([service_of()]) == {}


def test_none_where_two_services_share_the_address():
    assert portless_endpoints([service(at(53)), service(at(54), name="two")]) == {}
    assert portless_endpoints([service(at(53)), service(at(0), name="two")]) == {}


@pytest.mark.parametrize("endpoint", [at(0), at(0, address=ip_address("fd00::1"))])
def test_its_key_is_no_other_endpoints(endpoint):
    key = pack_portless(endpoint)
    assert key != pack_endpoint(endpoint)
    assert (is_portless(key), is_withdrawn(key)) == (True, False)


@pytest.mark.parametrize(("state", "vlans", "tagged"), [(1, (5, 0), 8), (3, (5, 0), 0), (3, (0, 6), 8), (1, (0, 6), 0)])
def test_a_record_says_whether_the_way_in_force_has_a_tag(state, vlans, tagged):
    hops = [NextHop(interface_index=2, source_mac="02:00:00:00:00:01", destination_mac="02:00:00:00:00:02")] * 2
    record = BackendRecord(
        service=1, address=ip_address("10.0.1.1"), port=80, state=state, hops=(hops[0], hops[1]), vlans=vlans
    )
    assert record.pack()[0] == state | tagged
    assert BackendRecord.unpack(record.pack()) == record
    assert BackendRecord.unpack(replace(record, vlans=(0, 0)).pack()).state == state


@pytest.mark.parametrize("vlan", [0, 10])
def test_to_tag_twice_is_to_tag_once(vlan):
    for tags in (b"", b"\x81\x00\x60\x05", b"\x88\xa8\x60\x05\x81\x00\x20\x06"):
        once = retag(bytes(12) + tags + b"\x08\x00E", vlan)
        assert retag(once, vlan) == once
