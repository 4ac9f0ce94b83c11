"""The speaker's own duties: routing, rejections, refusals of the kernel, scripts, resignation for another."""

from __future__ import annotations

import dataclasses
from ipaddress import IPv4Address

import pytest

from haxlb.daemon.ports import Datagram, Link
from haxlb.daemon.speaker import datagrams, resignation
from haxlb.model.facts import AdvertRejected, AlarmCleared, AlarmRaised
from haxlb.model.instance import Role
from haxlb.model.routes import Route, Rule
from haxlb.vrrp.advert import MULTICAST_GROUP, decode

PEER = IPv4Address("192.0.2.9")


def _from_peer(instance, priority=200, source=PEER, **header):
    return dataclasses.replace(datagrams(instance, source, priority)[0], **header)


def test_routing_by_interface_and_vrid(lan, instance, make_vip):
    instances = [
        instance(),
        instance(name="VI_2", vrid=52, vips=(make_vip(110),)),
        instance(name="VI_3", interface="eth1", vips=(make_vip(120, "eth1"),)),
    ]
    node = lan.node(1, *instances)
    lan.inject(node, _from_peer(instances[2]))
    assert [node.status(f"VI_{i}").adverts_received for i in (1, 2, 3)] == [0, 0, 1]
    lan.inject(node, _from_peer(instances[1]))
    assert [node.status(f"VI_{i}").adverts_received for i in (1, 2, 3)] == [0, 1, 1]


def test_an_unknown_vrid_is_told_once(lan, instance):
    node = lan.node(1, instance())
    for _ in range(5):
        lan.run(1)
        lan.inject(node, _from_peer(instance(vrid=99)))
    facts = [fact for fact in node.facts if isinstance(fact, AdvertRejected)]
    assert [(fact.instance, fact.reason, fact.detail) for fact in facts] == [
        (None, "unknown_vrid", "no instance on eth0 has virtual_router_id 99")
    ]


def test_whoever_takes_over_from_a_speaker_that_stopped_is_no_stranger(lan, instance):
    node = lan.node(1, instance())
    node.speaker.stop("SIGTERM")
    lan.inject(node, _from_peer(instance()))
    assert [fact for fact in node.facts if isinstance(fact, AdvertRejected)] == []


def test_a_message_too_short_for_a_vrid(lan, instance):
    node = lan.node(1, instance())
    lan.inject(node, dataclasses.replace(_from_peer(instance()), payload=b"\x21"))
    assert [fact.reason for fact in node.facts if isinstance(fact, AdvertRejected)] == ["packet_len_err"]


def test_rejections_are_counted_exactly_and_told_once_a_second(lan, instance):
    node = lan.node(1, instance())
    bad = _from_peer(instance(), ttl=254)
    for _ in range(30):
        lan.inject(node, bad)
        lan.run(0.1)
    assert node.status().adverts_rejected == {"ip_ttl_err": 30}
    assert node.status().last_rejected == "192.0.2.9: TTL 254 instead of 255: it came through a router"
    assert node.status().last_rejected_at == pytest.approx(-0.1)
    facts = [fact for fact in node.facts if isinstance(fact, AdvertRejected)]
    assert len(facts) == 3
    assert facts[0].detail == "TTL 254 instead of 255: it came through a router"


def test_a_flood_of_sources_neither_fills_the_log_nor_hides_the_count(lan, instance):
    node = lan.node(1, instance())
    for number in range(2000):
        source = IPv4Address(0xC6336400 + number)
        lan.inject(node, _from_peer(instance(), source=source, ttl=1))
    assert node.status().adverts_rejected == {"ip_ttl_err": 2000}
    assert len([fact for fact in node.facts if isinstance(fact, AdvertRejected)]) == 256


def test_strangers_do_not_mute_what_matters(lan, instance):
    node = lan.node(1, instance())
    for number in range(2000):
        lan.inject(node, _from_peer(instance(vrid=99), source=IPv4Address(0xC6336400 + number)))
    node.facts.clear()
    lan.inject(node, _from_peer(instance(), ttl=1))
    assert [fact.reason for fact in node.facts] == ["ip_ttl_err"]


def test_a_rejected_advert_changes_nothing(lan, instance):
    node = lan.node(1, instance())
    lan.run(3)
    before = node.speaker._members["eth0", 51].router.next_deadline()
    lan.inject(node, _from_peer(instance(), ttl=1))
    assert node.speaker._members["eth0", 51].router.next_deadline() == before


def test_recognised_bytes_are_still_judged_by_their_header(lan, instance):
    """The same message once with TTL 255 and once without: the memory of the first must not let the second pass."""
    node = lan.node(1, instance())
    good = _from_peer(instance())
    lan.inject(node, good)
    lan.inject(node, dataclasses.replace(good, ttl=254))
    lan.inject(node, dataclasses.replace(good, source=IPv4Address("192.0.2.10")))
    lan.inject(node, good)
    status = node.status()
    assert (status.adverts_received, status.adverts_rejected) == (3, {"ip_ttl_err": 1})
    assert [str(peer.address) for peer in status.peers] == ["192.0.2.9", "192.0.2.10"]


def test_our_own_adverts_looped_back_are_ignored(lan, instance):
    node = lan.node(1, instance())
    lan.run(10)
    for _, datagram in list(node.sent):
        lan.inject(node, datagram)
    assert node.status().adverts_received == 0
    assert node.role() is Role.MASTER


def test_our_address_in_use_elsewhere_is_told(lan, instance):
    node = lan.node(1, instance())
    lan.run(10)
    lan.inject(node, _from_peer(instance(vips=()), priority=100, source=node.address))
    assert "duplicate_address" in [fact.reason for fact in node.facts if isinstance(fact, AdvertRejected)]
    assert node.role() is Role.MASTER


def test_multicast_is_not_for_an_instance_with_peers(lan, instance):
    node = lan.node(1, instance(peers=(PEER,)))
    lan.inject(node, _from_peer(instance()))
    assert node.status().adverts_rejected == {"addr_list_err": 1}
    assert node.status().adverts_received == 0


def test_what_waits_is_taken_before_the_timer(lan, instance):
    """At the very moment of the deadline an advert lies in the socket."""
    node = lan.node(1, instance())
    lan.now = 3_609_375
    node.inbox = [_from_peer(instance())]
    node.speaker.on_wake()
    assert node.role() is Role.BACKUP
    assert node.status().adverts_received == 1


def test_woken_too_early_it_asks_again(lan, instance):
    node = lan.node(1, instance())
    wanted = node.alarm
    node.alarm = None
    node.speaker.on_wake()
    assert node.alarm == wanted
    assert node.role() is Role.BACKUP


def test_a_refused_address_keeps_master_and_is_tried_each_second(lan, instance):
    node = lan.node(1, instance())
    node.refuse_add = True
    lan.run(6)
    assert node.role() is Role.MASTER
    alarms = [fact for fact in node.facts if isinstance(fact, AlarmRaised)]
    assert len(alarms) == 1
    assert alarms[0].key == "vip/VI_1"
    assert alarms[0].summary == "VI_1: 192.0.2.100/24 cannot be put on"
    assert alarms[0].evidence == ("the kernel says no (ask it nicely)",)
    node.refuse_add = False
    node.journal.clear()
    lan.run(1)
    assert node.held
    assert "announce 192.0.2.100/24" in node.words()
    assert [fact.key for fact in node.facts if isinstance(fact, AlarmCleared)] == ["vip/VI_1"]
    lan.run(10)
    assert "add 192.0.2.100/24" not in node.words()


def test_leaving_master_ends_the_trouble_with_an_address_that_never_was_on(lan, instance):
    node = lan.node(1, instance())
    node.refuse_add = True
    lan.run(6)
    node.speaker.hand_over((), "test")
    assert [fact.key for fact in node.facts if isinstance(fact, AlarmCleared)] == ["vip/VI_1"]
    node.refuse_add = False
    lan.run(2)
    assert not node.held


def test_an_address_that_does_not_go_is_removed_at_last(lan, instance):
    node = lan.node(1, instance())
    lan.run(10)
    node.refuse_remove = True
    node.speaker.hand_over((), "test")
    lan.inject(node, _from_peer(instance()))
    lan.run(2.5)
    assert node.held
    assert [fact.key for fact in node.facts if isinstance(fact, AlarmRaised)] == ["vip/VI_1"]
    node.refuse_remove = False
    lan.run(1)
    assert not node.held
    assert [fact.key for fact in node.facts if isinstance(fact, AlarmCleared)] == ["vip/VI_1"]


def test_an_address_that_did_not_go_is_kept_when_it_is_wanted_again(lan, instance):
    node = lan.node(1, instance())
    lan.run(10)
    node.refuse_remove = True
    node.speaker.hand_over((), "test")
    lan.run(4)
    assert node.role() is Role.MASTER
    node.refuse_remove = False
    lan.run(5)
    assert node.held


def test_the_sequence_of_becoming_master(lan, instance, make_vip):
    excluded = make_vip(130, "eth1")
    route, rule = Route(destination="203.0.113.0/24"), Rule(family=4, selectors=(("from", "192.0.2.100"),), action=())
    node = lan.node(1, instance(excluded_vips=(excluded,), routes=(route,), rules=(rule,)))
    lan.run(3.9)
    assert node.words() == [
        "remove 192.0.2.100/24 192.0.2.130/24",
        "unroute 203.0.113.0/24 and 1 rules",
        "notify INSTANCE VI_1 BACKUP 100",
        "send 100",
        "add 192.0.2.100/24 192.0.2.130/24",
        "route 203.0.113.0/24 and 1 rules",
        *["announce 192.0.2.100/24 192.0.2.130/24"] * 5,
        "notify INSTANCE VI_1 MASTER 100",
    ]
    node.speaker.stop("stop")
    assert node.words() == [
        "send 0",
        "remove 192.0.2.100/24 192.0.2.130/24",
        "unroute 203.0.113.0/24 and 1 rules",
        "notify INSTANCE VI_1 STOP 100",
    ]


def test_a_new_source_address_is_used_at_once(lan, instance):
    node = lan.node(1, instance())
    lan.run(10)
    node.set_link(address=IPv4Address("192.0.2.44"))
    lan.run(2)
    assert {str(datagram.source) for at, datagram in node.sent if at > 10_000_000} == {"192.0.2.44"}


def test_reannounce_after_a_new_mac(lan, instance, make_vip):
    node = lan.node(1, instance(vips=(make_vip(100), make_vip(120, "eth1"))))
    lan.run(10)
    node.journal.clear()
    node.speaker.reannounce("eth1")
    assert node.words() == ["announce 192.0.2.120/24"]
    node.speaker.hand_over((), "test")
    node.journal.clear()
    node.speaker.reannounce("eth1")
    assert node.words() == []


def test_status_in_seconds_since_the_epoch(lan, instance):
    node = lan.node(1, instance())
    lan.run(10)
    status = node.speaker.status(epoch_us=1_800_000_010_000_000)[0]
    assert status.since_at == pytest.approx(1_800_000_003.609375)


def test_resignation_for_a_dead_speaker(instance):
    link = Link(interface="eth0", up=True, mac="02:00:00:00:00:01", address=IPv4Address("192.0.2.1"))
    (only,) = resignation(instance(version=3), link)
    assert only == Datagram(
        interface="eth0",
        source=IPv4Address("192.0.2.1"),
        destination=MULTICAST_GROUP,
        ttl=255,
        payload=only.payload,
        at_us=0,
    )
    assert decode(only.payload, only.source, only.destination).priority == 0
    peers = (IPv4Address("192.0.2.2"), IPv4Address("192.0.2.3"))
    both = resignation(instance(source=IPv4Address("192.0.2.7"), peers=peers), None)
    assert [(str(each.source), each.destination) for each in both] == [("192.0.2.7", peer) for peer in peers]
    assert resignation(instance(), None) == []


def test_an_address_owner_and_many_instances_on_one_wake(lan, instance, make_vip):
    """Two hundred instances whose timers end together: each acts once, in configuration order."""
    instances = [instance(name=f"VI_{i}", vrid=i, vips=(make_vip(i),)) for i in range(1, 201)]
    node = lan.node(250, *instances)
    lan.run(4)
    assert all(each.role is Role.MASTER for each in node.speaker.status(0))
    first = [datagram.payload[1] for at, datagram in node.sent if at == 3_609_375]
    assert first == list(range(1, 201))
    assert len(node.held) == 200
