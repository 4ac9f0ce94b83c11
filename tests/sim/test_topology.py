from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address

import pytest

from haxlb.model.errors import ConfigError
from haxlb.model.groups import SyncGroup
from haxlb.model.instance import Role, VirtualMac
from haxlb.model.tracking import Track, TrackKind, TrackScript
from haxlb.sim import Nature, World
from haxlb.sim.topology import Station, plan
from tests.sim.clusters import PAIR, node

A6, B6 = IPv6Address("fe80::a"), IPv6Address("fe80::b")
A, B, C = (IPv4Address(f"10.1.1.{n}") for n in (1, 2, 3))


def parts(stations: tuple[Station, ...]) -> list[tuple[str, int]]:
    return [(each.config.instances[0].initial_role.value, each.config.instances[0].priority) for each in stations]


@pytest.mark.parametrize(
    ("role", "priority", "nopreempt", "expected"),
    [
        (Role.MASTER, 150, False, [("BACKUP", 100), ("BACKUP", 50)]),
        (Role.MASTER, 255, False, [("BACKUP", 205), ("BACKUP", 155)]),
        (Role.MASTER, 30, False, [("BACKUP", 1), ("BACKUP", 1)]),
        (Role.BACKUP, 150, True, [("BACKUP", 100), ("BACKUP", 50)]),
        (Role.BACKUP, 100, False, [("MASTER", 150), ("BACKUP", 50)]),
        (Role.BACKUP, 90, True, [("BACKUP", 140), ("BACKUP", 40)]),
    ],
)
def test_counterparts_mirror_role_and_priority(
    *, role: Role, priority: int, nopreempt: bool, expected: list[tuple[str, int]]
) -> None:
    instance = replace(PAIR, initial_role=role, priority=priority, nopreempt=nopreempt)
    stations = plan(node(instance), nodes=3)
    assert parts(stations) == [(role.value, priority), *expected]
    assert [each.derived for each in stations] == [False, True, True]
    assert stations[0].config.instances == (instance,)


def test_the_counterpart_of_a_multicast_node_is_on_the_same_segment_with_another_address() -> None:
    one, other = plan(node(PAIR))
    assert [(each.nics[0].segment, each.nics[0].interface) for each in (one, other)] == [("eth0", "eth0")] * 2
    assert one.nics[0].addresses != other.nics[0].addresses
    assert one.nics[0].mac != other.nics[0].mac


def test_unicast_addresses_are_mirrored() -> None:
    one, other = plan(node(replace(PAIR, source=A, peers=(B,))))
    assert other.config.instances[0].source == B
    assert other.config.instances[0].peers == (A,)
    assert one.config.instances[0].peers == (B,)
    assert other.nics[0].addresses[0] == B


def test_unicast_peers_say_how_many_directors_there_are() -> None:
    stations = plan(node(replace(PAIR, source=A, peers=(B, C))))
    assert [each.config.instances[0].source for each in stations] == [A, B, C]
    assert [each.config.instances[0].peers for each in stations] == [(B, C), (A, C), (A, B)]


def test_a_third_director_is_added_to_the_unicast_peers_of_all() -> None:
    one, two, three = plan(node(replace(PAIR, source=A, peers=(B,))), nodes=3)
    third = three.config.instances[0].source
    assert third is not None
    assert one.config.instances[0].peers == (B, third)
    assert two.config.instances[0].peers == (A, third)


def test_a_unicast_node_without_source_has_the_address_that_its_peer_sends_to() -> None:
    one = node(replace(PAIR, peers=(B,)))
    other = node(replace(PAIR, source=B, peers=(A,), initial_role=Role.BACKUP, priority=100), name="lb2")
    stations = plan(one, (other,))
    assert [each.config.instances[0].source for each in stations] == [A, B]


def test_the_peers_file_is_taken_as_it_is_and_joined_by_vrid() -> None:
    other = node(replace(PAIR, interface="ens3", priority=42, auth_pass="other"), name="lb1")
    one, two = plan(node(PAIR), (other,))
    assert two.config.node == "lb1-2"
    assert two.config.instances == other.instances
    assert two.nics[0].segment == one.nics[0].segment == "eth0"
    assert not two.derived


def test_a_vip_on_another_interface_needs_a_nic_there() -> None:
    vip = replace(PAIR.vips[0], interface="eth9")
    one, _ = plan(node(replace(PAIR, vips=(vip,))))
    assert [each.interface for each in one.nics] == ["eth0", "eth9"]


def test_nothing_to_rehearse_is_said() -> None:
    with pytest.raises(ConfigError, match="no vrrp_instance"):
        plan(node())


@pytest.mark.parametrize("nodes", [1, 10])
def test_a_number_of_directors_that_makes_no_sense_is_refused(nodes: int) -> None:
    with pytest.raises(ConfigError, match="not possible"):
        plan(node(PAIR), nodes=nodes)


def test_an_ipv6_router_of_the_same_vrid_is_another_one_and_has_link_local_addresses() -> None:
    six = replace(PAIR, name="VI_6", version=3, auth_pass=None, family=6, vips=())
    one, other = plan(node(PAIR, six))
    assert [str(each) for each in one.nics[0].addresses] == ["198.18.0.1", "fe80::1"]
    assert [str(each) for each in other.nics[0].addresses] == ["198.18.0.2", "fe80::2"]
    world = World((one, other), 1, Nature())
    assert list(world.routers) == [("eth0", 51), ("eth0", 51 + 256)]


def test_made_up_unicast_addresses_are_of_the_instances_family() -> None:
    six = replace(
        PAIR, version=3, auth_pass=None, family=6, source=IPv6Address("fe80::a"), peers=(IPv6Address("fe80::b"),)
    )
    _, _, third = plan(node(six), nodes=3)
    source = third.config.instances[0].source
    assert isinstance(source, IPv6Address)
    assert source in third.nics[0].addresses


def test_a_macvlan_is_on_the_segment_of_its_base_and_has_the_virtual_mac() -> None:
    mac = VirtualMac(interface="vrrp.51", mac="00:00:5e:00:01:33")
    vip = replace(PAIR.vips[0], interface="vrrp.51")
    for station in plan(node(replace(PAIR, virtual_mac=mac, vips=(vip,)))):
        base, virtual = station.nics
        assert (virtual.interface, virtual.segment, virtual.base) == ("vrrp.51", base.segment, base.interface)
        assert virtual.mac == mac.mac
        assert virtual.addresses == base.addresses


def test_a_tracked_interface_is_there() -> None:
    track = Track(kind=TrackKind.INTERFACE, name="eth7")
    one, _ = plan(node(replace(PAIR, tracks=(track,))))
    assert [each.interface for each in one.nics] == ["eth0", "eth7"]


def test_counterparts_have_the_sync_groups_and_what_is_tracked() -> None:
    config = replace(
        node(PAIR),
        sync_groups=(SyncGroup(name="G", members=("VI_1",)),),
        track_scripts=(TrackScript(name="chk"),),
    )
    _, other = plan(config)
    assert (other.config.sync_groups, other.config.track_scripts) == (config.sync_groups, config.track_scripts)
