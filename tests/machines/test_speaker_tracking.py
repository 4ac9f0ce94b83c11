"""What reaches a speaker about tracked things, and what it finds out about interfaces itself."""

from __future__ import annotations

import dataclasses
from ipaddress import IPv4Address

from haxlb.daemon.ports import Link
from haxlb.model.errors import HostError
from haxlb.model.instance import Role
from haxlb.model.settings import LinkDelay, SpeakerSettings
from haxlb.model.tracking import Track, TrackKind, TrackResult

SCRIPT, LINK = TrackKind.SCRIPT, TrackKind.INTERFACE
UPLINK = Track(kind=LINK, name="eth2")
CHK = Track(kind=SCRIPT, name="chk", weight=-60)


def _result(name: str, value: int | None) -> TrackResult:
    return TrackResult(kind=SCRIPT, name=name, value=value)


def _plug(node, interface: str, *, up: bool) -> None:
    node.interfaces[interface] = Link(interface=interface, up=up, mac="02:00:00:00:00:77", address=None)
    node.speaker.on_link(node.interfaces[interface])


def test_a_tracked_interface_is_asked_for_and_followed(lan, instance):
    node = lan.node(1)
    node.interfaces["eth2"] = Link(interface="eth2", up=True, mac="02:00:00:00:00:77", address=None)
    node.speaker.configure([instance(tracks=(UPLINK,))])
    lan.run(4)
    assert node.role() is Role.MASTER
    _plug(node, "eth2", up=False)
    assert (node.role(), node.status().reason) == (Role.FAULT, "eth2 is down")
    _plug(node, "eth2", up=True)
    assert node.role() is Role.BACKUP


def test_an_interface_that_is_not_there_is_down(lan, instance):
    node = lan.node(1, instance(tracks=(UPLINK,)))
    assert (node.role(), node.status().reason) == (Role.FAULT, "eth2 is down")
    _plug(node, "eth2", up=True)
    assert node.role() is Role.BACKUP


def test_an_interface_of_which_nothing_can_be_learnt_is_down(lan, instance):
    node = lan.node(1)

    def link(interface: str) -> Link | None:
        if interface == "eth2":
            raise HostError("netlink is broken", remedy="repair it")
        return node.interfaces.get(interface)

    node.link = link
    node.speaker = type(node.speaker)(
        clock=node, wake=node, adverts=node, addresses=node, announcer=node, links=node, notify=node, reports=node
    )
    node.speaker.configure([instance(tracks=(UPLINK,))])
    assert node.role() is Role.FAULT


def test_an_interface_that_is_tracked_since_a_reload(lan, instance):
    node = lan.node(1, instance())
    lan.run(4)
    node.speaker.configure([instance(tracks=(UPLINK,))])
    assert (node.role(), node.status().reason) == (Role.FAULT, "eth2 is down")


def test_its_own_interface_with_a_weight(lan, instance):
    """It is a fault and a weight at once: the weight matters to those that track it elsewhere."""
    inside = instance(tracks=(Track(kind=LINK, name="eth1", weight=-30),))
    node = lan.node(1, inside)
    assert node.status().priority == 100
    node.interfaces["eth1"] = dataclasses.replace(node.interfaces["eth1"], up=False)
    node.speaker.on_link(node.interfaces["eth1"])
    assert (node.role(), node.status().priority) == (Role.BACKUP, 70)


def test_which_interfaces_it_wants_to_hear_of(lan, instance, make_vip):
    node = lan.node(1)
    node.speaker.configure(
        [
            instance(vips=(make_vip(100, "eth3"),), tracks=(UPLINK, CHK)),
            instance(name="VI_2", vrid=52, vips=(), excluded_vips=(make_vip(110, "eth4"),)),
        ]
    )
    assert node.speaker.watched_interfaces == ("eth0", "eth3", "eth2", "eth4")


def test_results_move_a_pair(lan, instance):
    high = lan.node(1, instance(priority=150, tracks=(CHK,)))
    low = lan.node(2, instance(priority=100))
    lan.run(10)
    assert high.role() is Role.MASTER
    high.speaker.on_tracked((_result("chk", 0),))
    lan.run(5)
    assert (high.role(), low.role()) == (Role.BACKUP, Role.MASTER)
    high.speaker.on_tracked((_result("chk", 1),))
    lan.run(5)
    assert (high.role(), low.role()) == (Role.MASTER, Role.BACKUP)


def test_results_set_the_alarm(lan, instance):
    node = lan.node(1, instance(tracks=(Track(kind=SCRIPT, name="chk"),)))
    assert node.alarm is None
    node.speaker.on_tracked((_result("chk", 1),))
    assert node.alarm == 3_609_375


def test_a_new_instance_learns_what_is_known_already(lan, instance, make_vip):
    node = lan.node(1, instance(tracks=(CHK,)))
    node.speaker.on_tracked((_result("chk", 0), _result("stranger", 0)))
    other = instance(name="VI_2", vrid=52, vips=(make_vip(110),), tracks=(dataclasses.replace(CHK, weight=0),))
    node.speaker.configure([instance(tracks=(CHK,)), other])
    assert (node.role("VI_2"), node.status("VI_2").reason) == (Role.FAULT, "script chk fails")


def test_a_reload_keeps_what_is_known(lan, instance):
    node = lan.node(1, instance(tracks=(CHK,)))
    node.speaker.on_tracked((_result("chk", 0),))
    node.speaker.configure([instance(tracks=(dataclasses.replace(CHK, weight=-50),))])
    assert node.status().priority == 50


def test_what_is_no_longer_tracked_is_forgotten(lan, instance):
    node = lan.node(1, instance(tracks=(CHK,)))
    node.speaker.on_tracked((_result("chk", 0),))
    node.speaker.configure([instance()])
    assert node.status().priority == 100
    node.speaker.configure([instance(tracks=(CHK,))])
    assert node.status().priority == 100


def test_the_startup_delay_counts_from_the_first_configuration(lan, instance, make_vip):
    node = lan.node(1)
    settings = SpeakerSettings(startup_delay_us=10_000_000)
    node.speaker.configure([instance()], settings=settings)
    lan.run(6)
    node.speaker.configure([instance(), instance(name="VI_2", vrid=52, vips=(make_vip(110),))], settings=settings)
    lan.run(7.5)
    assert not node.held
    lan.run(0.2)
    assert len(node.held) == 2
    node.speaker.configure([instance(name="VI_3", vrid=53, vips=(make_vip(120),))], settings=settings)
    lan.run(3.7)
    assert node.role("VI_3") is Role.MASTER


def test_the_delay_after_boot_counts_from_the_start_of_the_clock(lan, instance):
    node = lan.node(1)
    settings = SpeakerSettings(startup_delay_us=1_000_000, delay_after_boot_us=lan.now + 10_000_000)
    node.speaker.configure([instance()], settings=settings)
    lan.run(13)
    assert not node.held
    lan.run(1)
    assert node.held


def test_lag_is_what_a_late_wake_shows(lan, instance):
    node = lan.node(1, instance())
    lan.run(10)
    punctual = node.speaker.lag
    assert (punctual.last_us, punctual.max_us, punctual.over_ms, punctual.max_at) == (0, 0, 0, 0.0)
    assert punctual.wakes > 5
    asked, node.alarm = node.alarm, None
    lan.now = asked + 2_500
    node.speaker.on_wake()
    late = node.speaker.lag
    assert (late.wakes, late.last_us, late.max_us, late.over_ms) == (punctual.wakes + 1, 2_500, 2_500, 1)
    assert late.max_at == lan.now / 1e6
    node.speaker.on_wake()
    assert node.speaker.lag.wakes == late.wakes, "one that nobody asked for does not count"


def test_a_tracked_source_is_a_fault_while_the_host_does_not_have_it(lan, instance):
    sources = [IPv4Address("192.0.2.7"), IPv4Address("192.0.2.8")]
    node = lan.node(1)
    node.interfaces["eth0"] = dataclasses.replace(node.interfaces["eth0"], absent_sources=frozenset(sources[:1]))
    node.speaker.configure([instance(source=sources[0], track_source=True)])
    lan.run(10)
    assert node.role() is Role.FAULT
    assert "192.0.2.7 is not an address of this host" in node.status().reason
    # A reload to a source that is there; what another instance tracks on the interface is still absent.
    node.speaker.configure([instance(source=sources[1], track_source=True)])
    assert node.role() is Role.BACKUP
    lan.run(10)
    assert node.role() is Role.MASTER
    node.set_link(absent_sources=frozenset(sources))
    assert node.role() is Role.FAULT
    assert not node.held
    node.set_link(absent_sources=frozenset())
    lan.run(10)
    assert node.role() is Role.MASTER


def test_a_source_that_is_not_tracked_may_be_absent(lan, instance):
    node = lan.node(1)
    source = IPv4Address("192.0.2.7")
    node.interfaces["eth0"] = dataclasses.replace(node.interfaces["eth0"], absent_sources=frozenset({source}))
    node.speaker.configure([instance(source=source)])
    lan.run(10)
    assert node.role() is Role.MASTER


DELAYS = SpeakerSettings(link_delays=(LinkDelay(interface="eth0", down_us=500_000, up_us=2_000_000),))


def test_a_link_that_flaps_for_less_than_its_delay_is_not_heard_of(lan, instance):
    node = lan.node(1)
    node.speaker.configure([instance()], settings=DELAYS)
    lan.run(10)
    node.journal.clear()
    node.set_link(up=False)
    lan.run(0.4)
    node.set_link(up=True)
    lan.run(5)
    assert node.role() is Role.MASTER
    assert {what for what in node.words() if not what.startswith("announce")} == {"send 100"}
    node.set_link(up=False)
    lan.run(0.49)
    assert node.role() is Role.MASTER
    lan.run(0.02)
    assert node.role() is Role.FAULT
    node.set_link(up=True)
    lan.run(1.9)
    assert node.role() is Role.FAULT
    node.set_link(up=False)
    node.set_link(up=True)
    lan.run(1.9)
    assert node.role() is Role.FAULT, "it is up since 1.9 s only"
    lan.run(0.2)
    assert node.role() is Role.BACKUP


def test_what_changes_while_a_link_is_held_back_is_told_with_it(lan, instance):
    node = lan.node(1)
    node.speaker.configure([instance()], settings=DELAYS)
    lan.run(10)
    node.set_link(up=False)
    node.set_link(address=IPv4Address("192.0.2.44"))
    lan.run(0.6)
    assert node.role() is Role.FAULT
    assert node.status().source == "192.0.2.44"


def test_an_interface_that_is_gone_or_has_no_delay_any_more_is_down_at_once(lan, instance):
    node = lan.node(1)
    node.speaker.configure([instance()], settings=DELAYS)
    lan.run(10)
    node.set_link(up=False)
    node.speaker.configure([instance()], settings=SpeakerSettings())
    lan.run(0.001)
    assert node.role() is Role.FAULT
    node.speaker.configure([instance()], settings=DELAYS)
    node.set_link(up=True)
    lan.run(10)
    assert node.role() is Role.MASTER
    node.set_link(up=False, mac="", address=None)
    assert node.role() is Role.FAULT


def test_a_tracked_interface_is_delayed_too(lan, instance):
    node = lan.node(1)
    node.interfaces["eth2"] = dataclasses.replace(node.interfaces["eth0"], interface="eth2")
    delays = SpeakerSettings(link_delays=(LinkDelay(interface="eth2", down_us=500_000),))
    node.speaker.configure([instance(tracks=(UPLINK,))], settings=delays)
    lan.run(10)
    node.speaker.on_link(dataclasses.replace(node.interfaces["eth2"], up=False))
    assert node.role() is Role.MASTER
    lan.run(0.6)
    assert node.role() is Role.FAULT
    node.speaker.on_link(node.interfaces["eth2"])
    assert node.role() is Role.BACKUP
