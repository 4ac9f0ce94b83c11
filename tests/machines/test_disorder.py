"""Two and three directors under any sequence of cuts, failures, stalls and orders: what holds once it is quiet."""

from __future__ import annotations

import dataclasses
import itertools
from ipaddress import IPv4Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.model.addresses import Vip
from haxlb.model.instance import GarpConfig, Role, VrrpInstance
from haxlb.model.tracking import Track, TrackKind, TrackResult
from tests.machines.conftest import Client, Lan

VIP = Vip(address=IPv4Address("192.0.2.100"), prefix_length=24, interface="eth0")
CHK = Track(kind=TrackKind.SCRIPT, name="chk", weight=-120)
PAUSES = st.sampled_from((0.0, 0.3, 1.0, 2.5, 6.0, 15.0))
"""Intervals."""


def _events(hosts: int) -> st.SearchStrategy[tuple[str, int, int, bool]]:
    ways = list(itertools.permutations(range(hosts), 2))
    cuts = st.tuples(st.just("cut"), st.sampled_from(ways), st.booleans()).map(lambda e: (e[0], *e[1], e[2]))
    links = st.tuples(st.just("link"), st.integers(0, hosts - 1), st.just(0), st.booleans())
    weights = st.tuples(st.just("weight"), st.integers(0, hosts - 1), st.just(0), st.booleans())
    stalls = st.tuples(st.just("stall"), st.integers(0, hosts - 1), st.just(0), st.booleans())
    orders = st.tuples(st.just("hand over"), st.integers(0, hosts - 1), st.just(0), st.booleans())
    return cuts | cuts | links | weights | stalls | orders


def _play(hosts: int, pace: tuple[int, int], steps, *, equal: bool = False) -> None:
    version, interval = pace
    lan = Lan()
    lan.client = Client(VIP)
    base = VrrpInstance(
        name="VI_1",
        interface="eth0",
        vrid=51,
        version=version,
        advert_interval_us=interval,
        vips=(VIP,),
        tracks=(CHK,),
        garp=GarpConfig(master_delay_us=0),
    )
    priorities = [200 - (0 if equal else 40 * number) for number in range(hosts)]
    nodes = [
        lan.node(number + 1, dataclasses.replace(base, priority=priority)) for number, priority in enumerate(priorities)
    ]
    torn: list[int] = []

    def watch() -> None:
        if any(bool(node.held) != (node.role() is Role.MASTER) for node in nodes):
            torn.append(lan.now)

    lan.watch = watch
    lan.run(10 * interval / 1e6)
    for pause, (what, one, other, on) in steps:
        if what == "cut":
            pair = (nodes[one], nodes[other])
            lan.cut = lan.cut | {pair} if on else lan.cut - {pair}
        elif what == "link":
            nodes[one].set_link(up=on)
        elif what == "stall":
            nodes[one].frozen = on
        elif nodes[one].frozen:
            continue  # it hears of it when it runs again, if at all
        elif what == "hand over":
            if on:
                nodes[one].speaker.hand_over((), "test")
            else:
                nodes[one].speaker.resume()
        else:
            nodes[one].speaker.on_tracked((TrackResult(kind=TrackKind.SCRIPT, name="chk", value=int(on)),))
        lan.run(pause * interval / 1e6)
    lan.cut = set()
    for node in nodes:
        node.frozen = False
    lan.run(0)
    for node in nodes:
        node.speaker.resume()
        node.set_link(up=True)
        node.speaker.on_tracked((TrackResult(kind=TrackKind.SCRIPT, name="chk", value=1),))
    # At least a second, after which what was withheld from a flood of announcements is said.
    lan.run(max(12 * interval / 1e6, 1.2))
    masters = [node for node in nodes if node.role() is Role.MASTER]
    assert len(masters) == 1, "one MASTER"
    if not equal:
        assert masters == nodes[:1], "the best one"
    assert lan.client.believes is masters[0], "nobody is left with one that has let the address go"
    assert not torn, "the address is on if and only if MASTER"


@pytest.mark.parametrize("pace", [(2, 1_000_000), (3, 100_000), (3, 10_000)], ids=str)
@pytest.mark.parametrize("equal", [False, True], ids=["ranked", "equal"])
@settings(derandomize=True, deadline=None, max_examples=30)
@given(steps=st.lists(st.tuples(PAUSES, _events(2)), max_size=12))
def test_a_pair(pace, equal, steps):
    _play(2, pace, steps, equal=equal)


@pytest.mark.parametrize("pace", [(2, 1_000_000), (3, 100_000)], ids=str)
@settings(derandomize=True, deadline=None, max_examples=30)
@given(steps=st.lists(st.tuples(PAUSES, _events(3)), max_size=12))
def test_three(pace, steps):
    _play(3, pace, steps)
