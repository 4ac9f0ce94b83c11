"""Whose virtual MACs the forwarder of a node takes frames to: the real Speaker and its peer on a fake LAN."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from haxlb.model.instance import Role, VirtualMac, VrrpInstance
from haxlb.model.succession import Succession
from tests.machines.conftest import Lan, Node

SECOND = 1_000_000
MAC, OTHER = "00:00:5e:00:01:33", "00:00:5e:00:01:34"
OURS = VirtualMac(interface="vrrp.51", mac=MAC, xmit_base=True)


@pytest.fixture
def with_mac(instance: Any) -> Any:
    def build(**settings: Any) -> VrrpInstance:
        return instance(**({"virtual_mac": OURS} | settings))  # type: ignore[no-any-return]

    return build


def said(node: Node) -> list[str]:
    """What bears on who gets frames; read once."""
    return [each for each in node.words() if each.split()[0] in ("accept", "send", "add", "remove", "announce")]


def test_taken_before_the_first_advert_and_left_after_the_addresses(lan: Lan, with_mac: Any) -> None:
    node = lan.node(1, with_mac())
    said(node)
    lan.run(3.7)
    words = said(node)
    assert words[0] == f"accept eth0/{MAC}"
    assert words[1].startswith("send")
    assert sum(each.startswith("accept") for each in words) == 1
    lan.run(10)
    assert not any(each.startswith("accept") for each in said(node)), "adverts are sent without another word"
    node.speaker.stop("stop")
    words = said(node)
    assert words[-1] == "accept none"
    assert {each.split()[0] for each in words[:-1]} == {"send", "remove"}


@pytest.mark.parametrize("way", ["hand-over", "link", "higher priority", "removal"])
def test_left_whichever_way_master_ends(lan: Lan, with_mac: Any, way: str) -> None:
    node = lan.node(1, with_mac())
    lan.run(4)
    assert node.accepted == {("eth0", MAC)}
    if way == "hand-over":
        node.speaker.hand_over((), "test")
    elif way == "link":
        node.set_link(up=False)
    elif way == "higher priority":
        lan.node(2, with_mac(priority=200))
        lan.run(5)
    else:
        node.speaker.configure(())
    assert way == "removal" or node.role() is not Role.MASTER
    assert node.accepted == frozenset()


def test_one_of_a_pair_has_it_and_the_other_gets_it(lan: Lan, with_mac: Any) -> None:
    one, two = lan.node(1, with_mac(priority=150)), lan.node(2, with_mac())
    both: list[int] = []
    lan.watch = lambda: both.append(lan.now) if one.accepted and two.accepted else None
    lan.run(5)
    assert (one.accepted, two.accepted) == ({("eth0", MAC)}, frozenset())
    one.speaker.hand_over((), "test")
    lan.run(2)
    assert (one.accepted, two.accepted) == (frozenset(), {("eth0", MAC)})
    one.speaker.resume()
    lan.run(5)
    assert (one.accepted, two.accepted) == ({("eth0", MAC)}, frozenset())
    # In a preemption the former MASTER must hear of it: an advert takes its time.
    assert len({at // SECOND for at in both}) <= 1


def test_those_of_addresses_and_of_several_instances_are_all_told(lan: Lan, with_mac: Any) -> None:
    elsewhere = VirtualMac(interface="vrrp1.51", mac=MAC.upper(), base="eth1")
    ipvlan = VirtualMac(interface="ipvl", mac="", ipvlan="private", base="eth1")
    first = with_mac(address_macs=(elsewhere, ipvlan))
    second = replace(
        with_mac(virtual_mac=VirtualMac(interface="vrrp.52", mac=OTHER, xmit_base=True)), name="VI_2", vrid=52, vips=()
    )
    node = lan.node(1, first, second)
    lan.run(5)
    assert node.accepted == {("eth0", MAC), ("eth1", MAC), ("eth0", OTHER)}
    node.speaker.hand_over(("VI_1",), "test")
    assert node.accepted == {("eth0", OTHER)}


def test_a_reload_changes_them_while_master(lan: Lan, with_mac: Any, instance: Any) -> None:
    node = lan.node(1, with_mac())
    lan.run(5)
    said(node)
    node.speaker.configure((with_mac(virtual_mac=VirtualMac(interface="vrrp.51", mac=OTHER, xmit_base=True)),))
    assert node.accepted == {("eth0", OTHER)}
    node.speaker.configure((instance(),))
    assert node.accepted == frozenset()
    assert node.role() is Role.MASTER
    node.speaker.configure((with_mac(),))
    assert node.accepted == {("eth0", MAC)}


def test_a_successor_goes_on_with_it(lan: Lan, with_mac: Any) -> None:
    dead = lan.node(1, with_mac())
    lan.run(5)
    dead.alive = False
    lan.nodes.remove(dead)
    node = lan.node(1)
    until = lan.now + 2 * SECOND
    goes_on = Succession(instance="VI_1", until_us=until, since_us=0, reason="no advert")
    node.speaker.configure((with_mac(),), successions=(goes_on,))
    assert node.role() is Role.MASTER
    assert said(node)[0] == f"accept eth0/{MAC}"


def test_without_virtual_macs_nothing_is_said(lan: Lan, instance: Any) -> None:
    node = lan.node(1, instance())
    lan.run(5)
    node.speaker.stop("stop")
    assert not any(each.startswith("accept") for each in said(node))
