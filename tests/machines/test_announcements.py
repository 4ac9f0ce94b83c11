"""Announcements on their way out: pauses between frames, by interface, group and family."""

from __future__ import annotations

import dataclasses
from ipaddress import IPv6Address

import pytest

from haxlb.daemon.speaker_announcements import AnnouncementQueue
from haxlb.model.addresses import Vip
from haxlb.model.node import GarpConfig

SLOW = GarpConfig(interval_us=250, master_delay_us=0)


class Wire:
    """Takes the frames down, with their time."""

    def __init__(self) -> None:
        self.now = 0
        self.frames: list[tuple[int, str]] = []
        self.queue = AnnouncementQueue(self)

    def announce(self, vips) -> None:
        self.frames += [(self.now, str(vip.address)) for vip in vips]

    def say(self, vips, rounds, config=SLOW) -> None:
        self.queue.announce(tuple(vips), rounds, config, self.now)

    def until(self, us: int) -> list[tuple[int, str]]:
        while (at := self.queue.next_at) is not None and at <= us:
            self.now = max(self.now, at)
            self.queue.due(self.now)
        self.now = us
        frames, self.frames = self.frames, []
        return frames


@pytest.fixture
def wire():
    return Wire()


def _vip6(host: int) -> Vip:
    return Vip(address=IPv6Address(f"2001:db8::{host}"), prefix_length=64, interface="eth0")


def test_without_a_pause_all_rounds_at_once(wire, make_vip):
    wire.say([make_vip(1), make_vip(2)], 2, GarpConfig())
    assert wire.until(0) == [(0, "192.0.2.1"), (0, "192.0.2.2")] * 2
    assert wire.queue.next_at is None


def test_rounds_over_all_addresses_with_a_pause(wire, make_vip):
    wire.say([make_vip(1), make_vip(2)], 2)
    assert wire.until(5_000) == [(0, "192.0.2.1"), (250, "192.0.2.2"), (500, "192.0.2.1"), (750, "192.0.2.2")]
    assert wire.queue.next_at is None


def test_two_instances_on_one_interface_share_the_pause(wire, make_vip):
    wire.say([make_vip(1)], 2)
    wire.now = 100
    wire.say([make_vip(2)], 1)
    assert wire.until(5_000) == [(0, "192.0.2.1"), (250, "192.0.2.1"), (500, "192.0.2.2")]


def test_two_interfaces_do_not_unless_they_are_of_one_group(wire, make_vip):
    both = [make_vip(1), make_vip(2, "eth1")]
    wire.say(both, 1)
    assert wire.until(5_000) == [(0, "192.0.2.1"), (0, "192.0.2.2")]
    wire.say(both, 1, dataclasses.replace(SLOW, group="uplinks"))
    assert wire.until(10_000) == [(5_000, "192.0.2.1"), (5_250, "192.0.2.2")]


def test_each_family_has_its_own_pause(wire, make_vip):
    mixed = [make_vip(1), make_vip(2), _vip6(1), _vip6(2)]
    wire.say(mixed, 1, GarpConfig(interval_us=100, gna_interval_us=300))
    assert sorted(wire.until(5_000)) == [
        (0, "192.0.2.1"),
        (0, "2001:db8::1"),
        (100, "192.0.2.2"),
        (300, "2001:db8::2"),
    ]
    wire.say(mixed, 2, GarpConfig(gna_interval_us=300))
    frames = wire.until(10_000)
    assert [at for at, address in frames if "." in address] == [5_000] * 4
    assert [at for at, address in frames if ":" in address] == [5_000, 5_300, 5_600, 5_900]


def test_what_is_let_go_is_not_announced_any_more(wire, make_vip):
    wire.say([make_vip(1), make_vip(2)], 5)
    wire.queue.drop((make_vip(1),))
    assert wire.until(5_000) == [(0, "192.0.2.1"), *((250 * step, "192.0.2.2") for step in range(1, 6))]


def test_a_newer_set_replaces_the_rest_of_an_older_one(wire, make_vip):
    for now in range(0, 1_000, 10):
        wire.now = now
        wire.say([make_vip(1)], 5)
    assert len(wire.until(50_000)) <= 4 + 5


def test_a_stall_does_not_become_a_burst(wire, make_vip):
    wire.say([make_vip(1)], 5)
    wire.now = 10_000
    wire.queue.due(wire.now)
    assert wire.frames == [(0, "192.0.2.1"), (10_000, "192.0.2.1")]


def test_a_speaker_spreads_its_frames_and_stops_with_its_role(lan, instance, make_vip):
    garp = GarpConfig(interval_us=100_000, master_repeat=3, master_delay_us=0)
    node = lan.node(1, instance(vips=(make_vip(100), make_vip(101)), garp=garp))
    lan.run(3.609375 + 0.25)
    times = [at - 3_609_375 for at, what in node.journal if what.startswith("announce")]
    assert times == [0, 100_000, 200_000]
    node.speaker.hand_over((), "test")
    node.journal.clear()
    lan.run(1)
    assert not [what for what in node.words() if what.startswith("announce")]
