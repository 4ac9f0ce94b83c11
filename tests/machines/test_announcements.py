"""Announcements on their way out: pauses between frames, by interface, group and family."""

from __future__ import annotations

import dataclasses
from collections import Counter
from ipaddress import IPv4Address, IPv6Address
from itertools import pairwise

import pytest

from haxlb.daemon.speaker_announcements import PORTION, AnnouncementQueue
from haxlb.model.addresses import Vip
from haxlb.model.instance import GarpConfig
from tests.machines.conftest import Node

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


def test_many_addresses_leave_in_portions_round_by_round(wire, make_vip):
    many = _many(PORTION + 10)
    wire.say(many, 2, GarpConfig())
    assert len(wire.frames) == PORTION
    assert wire.queue.next_at == 0
    wire.queue.due(0)
    assert len(wire.frames) == 2 * PORTION
    wire.queue.due(0)
    assert wire.frames == [(0, str(vip.address)) for _ in range(2) for vip in many]
    assert wire.queue.next_at is None


def test_what_comes_at_the_same_moment_shares_the_portion_and_takes_turns(wire, make_vip):
    first, second = _many(PORTION), _many(2, net=7)
    wire.say(first, 3, GarpConfig())
    wire.say(second, 2, GarpConfig())
    assert len(wire.frames) == PORTION
    sent = [address for _, address in wire.until(0)]
    names = [str(vip.address) for vip in first], [str(vip.address) for vip in second]
    assert sent == [*names[0], *names[0], *names[1], *names[0], *names[1]]


def test_a_portion_that_waits_forgets_what_is_let_go_or_replaced(wire):
    many = _many(3 * PORTION)
    wire.say(many, 2, GarpConfig())
    wire.queue.drop((many[0], many[PORTION], *many[2 * PORTION :]))
    wire.say(many[1:5], 1, GarpConfig(interval_us=0))
    counts = Counter(address for _, address in wire.until(0))
    assert [counts[str(vip.address)] for vip in (many[0], many[1], many[5], many[PORTION])] == [1, 2, 2, 0]
    assert counts[str(many[-1].address)] == 0
    assert counts[str(many[PORTION + 1].address)] == 2
    wire.now = 1
    wire.say(many, 5, GarpConfig())
    wire.say(many, 1, GarpConfig())
    assert len(wire.until(1)) == PORTION + len(many)
    wire.now = 2
    wire.say(many, 5, GarpConfig())
    wire.queue.stop()
    assert len(wire.until(2)) == PORTION


class Slow(Node):
    """A director that needs some time for each frame."""

    frame_us = 12

    def announce(self, vips) -> None:
        super().announce(vips)
        self.lan.now += self.frame_us * len(vips)


def test_adverts_are_on_time_while_a_thousand_addresses_are_announced(lan, instance):
    interval = 10_000
    node = Slow(lan, 1)
    lan.nodes.append(node)
    rounds = GarpConfig(master_repeat=5, master_delay_us=1_000_000)
    quick = instance(version=3, advert_interval_us=interval, garp=rounds)
    crowd = instance(name="VI_2", vrid=52, version=3, vips=_many(1000), garp=rounds)
    node.speaker.configure([quick, crowd])
    lan.run(10)
    frames = [len(what.split()) - 1 for _, what in node.journal if what.startswith("announce")]
    assert sum(frames) == 2 * 5 * 1001
    adverts = [at for at, each in node.sent if each.payload[1] == 51]
    gaps = [later - earlier for earlier, later in pairwise(adverts)]
    assert max(gaps) <= interval + PORTION * Slow.frame_us
    assert sum(gaps) / len(gaps) == pytest.approx(interval, rel=1e-3)


def _many(count: int, net: int = 0) -> tuple[Vip, ...]:
    return tuple(
        Vip(address=IPv4Address(f"10.{net}.{number >> 8}.{number & 255}"), prefix_length=32, interface="eth0")
        for number in range(count)
    )
