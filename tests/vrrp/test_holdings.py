"""What follows the master: routes go in the reverse of the order in which they came, one may lead over the other."""

from __future__ import annotations

import dataclasses
from ipaddress import IPv4Address

from haxlb.model.addresses import Vip
from haxlb.model.instance import VirtualMac, VrrpInstance
from haxlb.model.routes import Route
from haxlb.vrrp.holdings import put_on, swap, take_off
from haxlb.vrrp.inputs import AddRoutes, AddVips, RemoveRoutes, RemoveVips

VIP = Vip(address=IPv4Address("192.0.2.100"), prefix_length=24, interface="eth0")
GATEWAY = Route(destination="198.51.100.1/32", device="eth0")
BEYOND = Route(destination="203.0.113.0/24", via="198.51.100.1")
ROUTED = VrrpInstance(name="VI_1", interface="eth0", vrid=51, vips=(VIP,), routes=(GATEWAY, BEYOND))


def test_on_and_off() -> None:
    assert put_on(ROUTED) == [AddVips(vips=(VIP,)), AddRoutes(routes=(GATEWAY, BEYOND), rules=())]
    assert take_off(ROUTED) == [RemoveVips(vips=(VIP,)), RemoveRoutes(routes=(BEYOND, GATEWAY), rules=())]


def test_at_a_reload() -> None:
    bare = dataclasses.replace(ROUTED, routes=())
    assert swap(bare, ROUTED) == ([AddRoutes(routes=(GATEWAY, BEYOND), rules=())], (), [])
    assert swap(ROUTED, bare) == ([], (), [RemoveRoutes(routes=(BEYOND, GATEWAY), rules=())])


def test_a_route_that_changes_makes_room_first() -> None:
    other = dataclasses.replace(GATEWAY, metric=5)
    changed = dataclasses.replace(ROUTED, routes=(other, BEYOND))
    coming, _, going = swap(ROUTED, changed)
    assert coming == [RemoveRoutes(routes=(GATEWAY,), rules=()), AddRoutes(routes=(other,), rules=())]
    assert going == []


def test_addresses_come_back_to_an_interface_that_is_made_anew() -> None:
    mac = VirtualMac(interface="vrrp.51", mac="00:00:5e:00:01:33", base="eth1")
    abroad = dataclasses.replace(VIP, interface="vrrp.51")
    before = dataclasses.replace(ROUTED, vips=(VIP, abroad), address_macs=(mac,))
    for other in (dataclasses.replace(mac, base="eth2"), dataclasses.replace(mac, mac="02:00:00:00:00:01")):
        after = dataclasses.replace(before, address_macs=(other,))
        assert swap(before, after) == ([AddVips(vips=(abroad,))], (abroad,), [])
    same = dataclasses.replace(before, address_macs=(dataclasses.replace(mac, group=7),))
    assert swap(before, same) == ([], (), [])
