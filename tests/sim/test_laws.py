"""The laws must be able to fail: a speaker, a configuration or a detector that breaks one is caught."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from ipaddress import IPv4Address
from typing import Any

import pytest

from haxlb.daemon.ports import AddressPort, Datagram
from haxlb.daemon.speaker import Speaker
from haxlb.model.addresses import Vip
from haxlb.model.facts import AlarmRaised
from haxlb.model.instance import Role
from haxlb.sim import Nature, World, play
from haxlb.sim import drill as drill_module
from haxlb.sim.drill import rehearse
from haxlb.sim.stage import settle_us
from haxlb.sim.topology import plan
from tests.sim.clusters import PAIR, drill, node, pair, scenario


class Sticky:
    """An AddressPort on which nothing comes off."""

    def __init__(self, table: AddressPort) -> None:
        self.add = table.add

    def remove(self, vips: Iterable[Vip]) -> None:
        """Does not."""


class Slippery:
    """An AddressPort on which nothing stays."""

    def __init__(self, table: AddressPort) -> None:
        self.remove = table.remove

    def add(self, vips: Iterable[Vip]) -> None:
        """Does not."""


class LeavesItsVip(Speaker):
    def __init__(self, *, addresses: AddressPort, **ports: Any) -> None:
        super().__init__(addresses=Sticky(addresses), **ports)


class ForgetsItsVip(Speaker):
    def __init__(self, *, addresses: AddressPort, **ports: Any) -> None:
        super().__init__(addresses=Slippery(addresses), **ports)


class Deaf(Speaker):
    def on_datagram(self, datagram: Datagram) -> None:
        """Hears nobody."""


class Sleepy(Speaker):
    def on_wake(self) -> None:
        """Never wakes up once it is MASTER or BACKUP."""


def broken(name: str, speaker: type[Speaker]) -> set[str]:
    run = drill(name, nature=Nature(speaker_class=speaker))
    return {law.split(":", 1)[0] for law in run.laws_broken}


def test_a_speaker_that_leaves_its_vip_is_caught() -> None:
    assert "L2" in broken("planned-failover", LeavesItsVip)


def test_a_master_without_its_vip_is_caught() -> None:
    assert "L2" in broken("crash", ForgetsItsVip)


def test_two_voices_that_hear_each_other_are_caught() -> None:
    assert "L1" in broken("crash", Deaf)


def test_a_world_without_a_master_is_caught() -> None:
    assert broken("crash", Sleepy) == {"L4"}


def test_directors_that_do_not_believe_each_other_are_caught_and_told() -> None:
    other = replace(PAIR, auth_pass="another", initial_role=Role.BACKUP, priority=100)
    run = play(plan(node(PAIR), (node(other, name="lb2"),)), 1, scenario("crash"), Nature())
    assert {law.split(":", 1)[0] for law in run.laws_broken} == {"L1"}
    assert run.alarm_us is not None, "by ARP and by the adverts that were rejected"


def test_a_broken_law_says_who_and_stands_in_the_timeline() -> None:
    run = drill("planned-failover", nature=Nature(speaker_class=LeavesItsVip))
    assert "lb1" in run.laws_broken[0]
    assert "192.168.10.100" in run.laws_broken[0]
    assert [each.what for each in run.timeline if each.who == "LAW BROKEN"] == list(run.laws_broken)


def test_a_vip_that_a_director_left_behind_is_seen_by_the_master() -> None:
    """As keepalived leaves it when it is killed: clients reach either of the two."""
    run = drill("planned-failover", nature=Nature(speaker_class=LeavesItsVip))
    assert any(each.who == "lb1-peer" and "ALARM split-brain/VI_1" in each.what for each in run.timeline)


def settled(nature: Nature) -> World:
    world = World(pair(), 1, nature)
    for director in world.directors:
        world.loop.at(0, director.power_on)
    world.loop.run_until(settle_us(world))
    assert world.laws.breaches == []
    return world


def test_an_alarm_without_a_second_master_is_caught() -> None:
    world = settled(Nature(broker=True))
    alarm = AlarmRaised(key="split-brain/VI_1", severity="critical", summary="wrong", evidence=(), at_us=0)
    world.directors[0].report(alarm)
    assert [each.law for each in world.laws.breaches] == ["L6"]


def test_an_alarm_that_never_comes_is_caught() -> None:
    world = settled(Nature(broker=True))
    one, other = world.directors
    for director in world.directors:
        director._tell_alarm = lambda _: None  # type: ignore[method-assign, assignment]
        assert director._supervisor is not None
        director._supervisor._on_alarm = lambda _: None
    world.cut(one, other)
    world.cut(other, one)
    world.loop.run_until(world.loop.now_us + 30_000_000)
    assert {each.law for each in world.laws.breaches} == {"L6"}


def test_an_alarm_that_stays_is_caught() -> None:
    world = settled(Nature())
    one, other = world.directors
    world.cut(one, other)
    world.loop.run_until(world.loop.now_us + 20_000_000)
    assert "split-brain/VI_1" in one.alarms
    assert one._supervisor is not None
    one._supervisor._on_alarm = lambda _: None
    world.heal(one, other)
    world.loop.run_until(world.loop.now_us + 60_000_000)
    assert {each.law for each in world.laws.breaches} == {"L6"}


@pytest.mark.parametrize("same", [True, False])
def test_two_traces_of_one_seed_that_differ_are_caught(*, same: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A world that draws from a stream of its own, as one that asks the wall clock would."""
    streams = iter(range(100))
    honest: Callable[[int, str], object] = World.dice

    def dice(seed: int, purpose: str) -> object:
        return honest(seed if same else next(streams), purpose)

    monkeypatch.setattr(World, "dice", staticmethod(dice))
    run = rehearse(pair(), 1, scenario("crash"), Nature())
    assert [law.split(":", 1)[0] for law in run.laws_broken] == ([] if same else ["L10"])
    assert drill_module.play is play


def test_frozen_processes_are_not_blamed_for_addresses_that_the_kernel_took() -> None:
    world = settled(Nature())
    world.directors[0].freeze()
    world.loop.run_until(world.loop.now_us + 3_000_000)
    assert world.directors[0].addresses.present == {}
    assert world.directors[0].roles["VI_1"] is Role.MASTER
    assert world.laws.breaches == []


def test_a_link_lost_while_frozen_is_found_on_waking_up() -> None:
    world = settled(Nature())
    one = world.directors[0]
    one.freeze()
    one.unplug()
    world.loop.run_until(world.loop.now_us + 1_000_000)
    assert one.roles["VI_1"] is Role.MASTER
    one.thaw()
    assert one.roles["VI_1"] is Role.FAULT
    world.loop.run_until(world.loop.now_us + 10_000_000)
    assert world.laws.breaches == []


def test_the_client_asks_again_when_no_announcement_told_it_of_the_new_master() -> None:
    world = settled(Nature())
    client, vip = world.clients[0], IPv4Address("192.168.10.100")
    assert client.believes(vip) == "lb1"
    world.lan.cut("lb1-peer", "clients")
    world.directors[0].power_off()
    world.loop.run_until(world.loop.now_us + 9_000_000)
    assert client.believes(vip) == "lb1"
    world.lan.heal("lb1-peer", "clients")
    world.loop.run_until(world.loop.now_us + 2_000_000)
    assert client.believes(vip) == "lb1-peer"
