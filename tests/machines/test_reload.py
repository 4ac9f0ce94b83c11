"""`configure`: what is the same is not touched, what differs follows without a role change."""

from __future__ import annotations

import dataclasses
from ipaddress import IPv4Address

import pytest

from haxlb.model.errors import Bug
from haxlb.model.instance import Role
from haxlb.model.notification import NotifyScripts


def _settled(lan, *instances):
    node = lan.node(1, *instances)
    lan.run(10.5)
    node.journal.clear()
    node.facts.clear()
    return node


def test_left_over_addresses_go_before_the_start(lan, instance):
    node = lan.node(1, instance())
    assert node.words() == ["remove 192.0.2.100/24", "notify INSTANCE VI_1 BACKUP 100"]
    assert node.role() is Role.BACKUP


def test_the_same_again_is_not_touched_at_all(lan, instance):
    node = _settled(lan, instance())
    alarm, alarms_set, status = node.alarm, node.alarms_set, node.status()
    node.speaker.configure([dataclasses.replace(instance())])
    assert (node.words(), node.facts) == ([], [])
    assert (node.alarm, node.alarms_set, node.status()) == (alarm, alarms_set, status)


def test_a_change_of_one_leaves_the_other_on_its_schedule(lan, instance, make_vip):
    one, two = instance(), instance(name="VI_2", vrid=52, vips=(make_vip(110),))
    node = _settled(lan, one, two)
    before = [at for at, datagram in node.sent if datagram.payload[1] == 52][-1]
    node.speaker.configure([dataclasses.replace(one, priority=200), two])
    assert node.words() == ["send 200"]
    lan.run(1)
    after = [at for at, datagram in node.sent if datagram.payload[1] == 52][-1]
    assert after - before == 1_000_000


def test_order_in_the_file_is_no_change(lan, instance, make_vip):
    one, two = instance(), instance(name="VI_2", vrid=52, vips=(make_vip(110),))
    node = _settled(lan, one, two)
    node.speaker.configure([two, one])
    assert node.words() == []
    assert [each.name for each in node.speaker.status(0)] == ["VI_2", "VI_1"]


@pytest.mark.parametrize(("tells_deleted", "told"), [(False, "FAULT"), (True, "DELETED")])
def test_a_new_instance_starts_and_a_missing_one_resigns_last(lan, instance, make_vip, tells_deleted, told):
    node = _settled(lan, instance(notify=NotifyScripts(tells_deleted=tells_deleted)))
    node.speaker.configure([instance(name="VI_2", vrid=52, vips=(make_vip(110),))])
    assert node.words() == [
        "remove 192.0.2.110/24",
        "notify INSTANCE VI_2 BACKUP 100",
        "send 0",
        "remove 192.0.2.100/24",
        f"notify INSTANCE VI_1 {told} 100",
    ]
    lan.run(10)
    assert {str(vip) for vip in node.held} == {"192.0.2.110/24"}
    assert [status.name for status in node.speaker.status(0)] == ["VI_2"]


def test_a_renamed_instance_stays(lan, instance):
    node = _settled(lan, instance())
    node.speaker.configure([instance(name="VI_renamed")])
    assert node.words() == []
    assert node.role("VI_renamed") is Role.MASTER


def test_addresses_follow_live(lan, instance, make_vip):
    node = _settled(lan, instance(vips=(make_vip(100), make_vip(101))))
    node.speaker.configure([instance(vips=(make_vip(101), make_vip(102)))])
    assert node.words() == [
        "add 192.0.2.102/24",
        *["announce 192.0.2.102/24"] * 5,
        "remove 192.0.2.100/24",
        "send 100",
    ]
    assert [str(each) for each in _addresses(node.sent[-1][1])] == ["192.0.2.101", "192.0.2.102"]


def _addresses(datagram):
    payload = datagram.payload
    return [IPv4Address(payload[8 + 4 * i : 12 + 4 * i]) for i in range(payload[3])]


@pytest.mark.parametrize("giver_first", [True, False])
def test_an_address_that_moves_between_instances_is_never_off(lan, instance, make_vip, giver_first):
    giver = instance(vips=(make_vip(100), make_vip(105)))
    taker = instance(name="VI_2", vrid=52, vips=(make_vip(110),))
    node = _settled(lan, giver, taker)
    changed = [
        dataclasses.replace(giver, vips=(make_vip(100),)),
        dataclasses.replace(taker, vips=(make_vip(110), make_vip(105))),
    ]
    node.speaker.configure(changed if giver_first else changed[::-1])
    assert not [word for word in node.words() if word.startswith("remove")]
    assert make_vip(105) in node.held
    # And the new holder does let it go.
    node.speaker.configure([changed[0]])
    assert node.held == {make_vip(100)}


def test_vrids_swapped_between_two_instances(lan, instance, make_vip):
    one, two = instance(), instance(name="VI_2", vrid=52, vips=(make_vip(110),))
    node = _settled(lan, one, two)
    node.speaker.configure([dataclasses.replace(one, vrid=52), dataclasses.replace(two, vrid=51)])
    lan.run(10)
    assert node.held == {make_vip(100), make_vip(110)}
    assert node.role("VI_1") is node.role("VI_2") is Role.MASTER


def test_a_new_vrid_is_another_instance(lan, instance):
    node = _settled(lan, instance())
    node.speaker.configure([instance(vrid=99)])
    # Not taken off by the new one as a left-over, but by the old one when it goes.
    assert node.words() == [
        "notify INSTANCE VI_1 BACKUP 100",
        "send 0",
        "remove 192.0.2.100/24",
        "notify INSTANCE VI_1 FAULT 100",
    ]
    lan.run(10)
    assert node.role() is Role.MASTER


def test_from_multicast_to_unicast_and_to_version_3(lan, instance):
    node = _settled(lan, instance())
    peers = (IPv4Address("192.0.2.2"), IPv4Address("192.0.2.3"))
    node.speaker.configure([instance(version=3, peers=peers)])
    assert node.words() == ["send 100", "send 100"]
    last = [datagram for _, datagram in node.sent[-2:]]
    assert tuple(datagram.destination for datagram in last) == peers
    assert {datagram.payload[0] for datagram in last} == {0x31}
    assert last[0].payload != last[1].payload, "version 3's checksum covers the destination"


def test_a_new_password_is_used_and_demanded(lan, instance):
    high = _settled(lan, instance(priority=150, auth_pass="old"))
    low = lan.node(2, instance(auth_pass="old"))
    lan.run(5)
    for node, priority in ((high, 150), (low, 100)):
        node.speaker.configure([instance(priority=priority, auth_pass="new")])
    lan.run(10)
    assert (high.role(), low.role()) == (Role.MASTER, Role.BACKUP)
    assert high.sent[-1][1].payload.endswith(b"new\0\0\0\0\0")
    # One old advert may have been under way.
    assert low.status().adverts_rejected.get("auth_failure", 0) <= 1


def test_what_was_believed_under_the_old_password_is_not_under_the_new(lan, instance):
    _settled(lan, instance(priority=150, auth_pass="old"))
    low = lan.node(2, instance(auth_pass="old"))
    lan.run(5)
    low.speaker.configure([instance(auth_pass="new")])
    received = low.status().adverts_received
    lan.run(3)
    assert low.status().adverts_received == received
    assert low.status().adverts_rejected == {"auth_failure": 3}


def test_a_changed_interval_of_a_backup_and_its_master(lan, instance):
    high = _settled(lan, instance(priority=150))
    low = lan.node(2, instance())
    lan.run(5)
    for node, priority in ((high, 150), (low, 100)):
        node.speaker.configure([instance(priority=priority, advert_interval_us=2_000_000)])
    lan.run(30)
    assert (high.role(), low.role()) == (Role.MASTER, Role.BACKUP)
    assert low.changes() == [(10.5, "INIT -> BACKUP: started")]


def test_a_faulty_instance_can_be_repaired_by_reload(lan, instance):
    node = _settled(lan, instance(interface="eth7"))
    assert node.status().reason == "there is no interface eth7"
    node.speaker.configure([instance()])
    lan.run(10)
    assert node.role() is Role.MASTER


def test_two_instances_of_one_key_are_our_bug(lan, instance):
    node = lan.node(1)
    with pytest.raises(Bug, match="two instances with virtual_router_id 51 on eth0"):
        node.speaker.configure([instance(), instance(name="VI_2")])


def test_after_stop_nothing_happens(lan, instance):
    node = _settled(lan, instance())
    node.speaker.stop("stop")
    assert node.words() == ["send 0", "remove 192.0.2.100/24", "notify INSTANCE VI_1 STOP 100"]
    node.speaker.on_wake()
    node.set_link(up=False)
    lan.run(10)
    assert (node.words(), node.alarm) == ([], None)
