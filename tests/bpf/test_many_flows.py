"""Promises about 100,000 live flows (DESIGN section 6): S1, S2, S3, S5, S6, and the exchange of rings under packets."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from haxlb.forwarding.features import Features
from haxlb.forwarding.records import SELECT_EXCEPTIONS, ServiceRecord
from haxlb.forwarding.wanted import WantedServer, WantedTable
from haxlb.linux import bpf
from haxlb.linux.bpf_call import closing
from haxlb.linux.forwarder_build import compile_forwarder
from haxlb.linux.specimen import Specimen, specimen
from haxlb.linux.sweeper import Sweeper
from haxlb.model.virtual_server import Scheduler
from tests.bpf import slow_clock
from tests.bpf.frames import client
from tests.bpf.multitude import flood, open_flows, reached
from tests.bpf.plane import Plane
from tests.forwarding.tables import PEER, server, table

pytestmark = [pytest.mark.bpf, pytest.mark.timeout(900)]

FLOWS = 100_000
SPOOFED = 1_000_000
ROUND = 100
NEW_SURE_S = 4
SCHEDULERS = (Scheduler.RR, Scheduler.WLC, Scheduler.MH)
NEEDED = replace(Features.parse("none"), stateless=True, stateful=True, list=True, shared=True)
BUCKETS_LOG2 = 17
"""Twice the default: of 100,000 flows in 65,536 buckets two or three find all eight places of theirs taken."""


@pytest.fixture(scope="module")
def loaded() -> Iterator[Specimen]:
    with specimen(WantedTable(), flow_buckets_log2=BUCKETS_LOG2, features=NEEDED, python=slow_clock.PYTHON) as made:
        yield made


@pytest.fixture(scope="module")
def partner() -> Iterator[Specimen]:
    """The other director."""
    with specimen(WantedTable(), flow_buckets_log2=BUCKETS_LOG2, features=NEEDED, python=slow_clock.PYTHON) as made:
        yield made


@pytest.fixture(scope="module")
def successor(loaded: Specimen) -> Iterator[int]:
    """Another program on the same tables, as `haxlb swap` and a reload that needs more of it build one."""
    more = replace(NEEDED, thresholds=True)
    directory = loaded.forwarder._directory
    (parts,) = directory.glob("parts-*")
    # No link protects the first one here, as one does where it is attached.
    with closing(bpf.obj_get(parts)):
        path = asyncio.run(
            compile_forwarder(directory, flow_buckets_log2=BUCKETS_LOG2, features=more, python=slow_clock.PYTHON)
        )
        with closing(bpf.obj_get(Path(path))) as program:
            assert bpf.program_info(program).id != bpf.program_info(loaded.program).id
            yield program


def number_of(each: WantedServer) -> int:
    """Of a server: the last two bytes of its MAC."""
    assert each.next_hop is not None
    return int(each.next_hop.destination_mac.replace(":", "")[-4:], 16)


@dataclass(kw_only=True)
class Group:
    """Flows that send at the same times."""

    every: int
    """Steps from one packet to the next; 0 = only at the very end."""
    flows: dict[int, int]
    """The server of each."""
    gone: set[int] = field(default_factory=set)
    """Servers that have been dead, or no servers, since these flows sent a packet."""


class Story:
    """A pool that changes, and flows of which some send at once, some later, some when all is over."""

    def __init__(self, plane: Plane, scheduler: Scheduler) -> None:
        self.plane = plane
        self.scheduler = scheduler
        self.program = plane.program
        self.pool = {number: server(number, weight=1 + number % 3) for number in range(1, 8)}
        self.groups: list[Group] = []
        self.steps = self.moved = 0
        self._next = 0
        self._apply()

    def open(self, count: int, every: int) -> None:
        """A flow that finds all its places taken has no record and no promise: it and those about it are left out."""
        flows: dict[int, int] = {}
        for first in range(self._next, self._next + count, ROUND):
            full = self.plane.verdicts()["table_full"]
            opened = open_flows(self.program, range(first, min(first + ROUND, self._next + count)))
            if self.plane.verdicts()["table_full"] == full:
                flows |= opened
            else:
                self.plane.age(NEW_SURE_S)
        self._next += count
        assert count - len(flows) <= max(2 * ROUND, count // 100), f"{count - len(flows)} of {count} flows left out"
        self.groups.append(Group(every=every, flows=flows))

    def change(self, *, look: bool = True) -> None:
        """What `pool` says is so from now on."""
        self._apply()
        if look:
            self.look()

    def look(self) -> None:
        """The flows whose time it is send a packet; a few new ones begin."""
        self.steps += 1
        for group in self.groups:
            if group.every and self.steps % group.every == 0:
                self.check(group)
        self.open(500, self.steps % 4)

    def finish(self) -> None:
        for group in self.groups:
            self.check(group)

    def check(self, group: Group) -> None:
        now = reached(self.program, group.flows)
        live = self._live()
        moved = {flow: at for flow, at in now.items() if at != group.flows[flow]}
        broken = {flow: (group.flows[flow], at) for flow, at in moved.items() if group.flows[flow] not in group.gone}
        assert not broken, f"step {self.steps}: {len(broken)} of {len(now)} flows broken: {list(broken.items())[:5]}"
        lost = {flow: at for flow, at in now.items() if at not in live}
        assert not lost, f"step {self.steps}: {len(lost)} flows at no live server: {list(lost.items())[:5]}"
        self.moved += len(moved)
        # Of a server that has died the connections are over, wherever their packets go.
        group.flows = {flow: at for flow, at in group.flows.items() if at not in group.gone}
        group.gone = set()

    def flood(self, syns: int) -> None:
        flood(self.program, syns)
        self.plane.age(NEW_SURE_S)

    def _live(self) -> set[int]:
        return {number_of(each) for each in self.pool.values() if each.alive}

    def _apply(self) -> None:
        self.plane.forwarder.apply(table(*self.pool.values(), scheduler=self.scheduler))
        live = self._live()
        for group in self.groups:
            group.gone |= set(group.flows.values()) - live

    def dies(self, number: int) -> None:
        self.pool[number] = replace(self.pool[number], alive=False)

    def returns(self, number: int) -> None:
        self.pool[number] = replace(self.pool[number], alive=True)

    def weigh(self, number: int, weight: int) -> None:
        self.pool[number] = replace(self.pool[number], weight=weight)


def test_the_clients_are_different() -> None:
    assert len({client(number) for number in range(2 * FLOWS)}) == 2 * FLOWS


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_no_change_breaks_a_flow_of_a_server_that_lives(plane: Plane, successor: int, scheduler: Scheduler) -> None:
    """Among them those that come while the one before is not over, and a writer that starts anew amid all."""
    story = Story(plane, scheduler)
    pool = story.pool
    # Half of them are silent until the end of the story.
    story.open(FLOWS // 5, 1)
    story.open(FLOWS * 3 // 10, 3)
    story.open(FLOWS // 2, 0)

    pool[8] = server(8)  # S1: added
    story.change()
    pool |= {9: server(9, weight=2), 10: server(10)}
    story.weigh(1, 5)
    story.change()
    story.weigh(2, 0)  # S2: drained
    story.change()
    story.dies(3)
    story.change()
    story.returns(3)
    story.dies(4)
    story.change()
    story.flood(SPOOFED // 4)
    story.look()
    story.returns(4)
    story.weigh(2, 3)
    story.change()
    del pool[5]  # S2: removed
    story.change()
    story.program = successor  # S5: swapped
    story.look()
    pool[5] = server(5, weight=4)
    story.change()
    plane.restart()  # S7: the daemon has died, and another one goes on
    story.look()
    for number, each in pool.items():
        pool[number] = replace(each, weight=1 + (each.weight + number) % 4)
    story.change()
    story.flood(SPOOFED // 4)
    # Without a packet of these flows in between.
    chance = random.Random(7)
    for turn in range(12):
        what = chance.choice(("weigh", "exchange", "die", "return"))
        number = chance.choice(sorted(pool))
        if what == "weigh":
            story.weigh(number, chance.randrange(1, 6))
        elif what == "exchange" and number != 1:
            del pool[number]
            pool[20 + turn] = server(20 + turn, weight=2)
        elif what == "die" and number != 1:
            story.dies(number)
        else:
            story.returns(number)
        story.change(look=False)
        if turn % 3 == 0:
            story.open(500, turn % 4)
    for number in list(pool):
        story.returns(number)
    story.change()
    story.program = plane.program
    story.flood(SPOOFED // 2)
    story.finish()
    assert story.moved > 0
    moved = story.moved
    story.finish()
    assert story.moved == moved
    assert sum(len(group.flows) for group in story.groups) > FLOWS // 4


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_a_flood_of_spoofed_syns_evicts_no_established_flow(plane: Plane, scheduler: Scheduler) -> None:
    plane.apply(table(*map(server, range(1, 6)), scheduler=scheduler))
    # So that there is something on record of a ring, too.
    plane.apply(table(*map(server, range(1, 8)), scheduler=scheduler))
    before = open_flows(plane.program, range(FLOWS))
    assert plane.flows()
    for first in range(0, SPOOFED, SPOOFED // 4):
        flood(plane.program, SPOOFED // 4, first=first)
        # Those that come now evict those before.
        plane.age(NEW_SURE_S)
    assert reached(plane.program, before) == before


def test_the_end_of_a_transition_breaks_no_flow_and_leaves_no_exception(plane: Plane) -> None:
    """What `settle` does: the former ring is given up when its flows are known, marks when none is on record."""
    story = Story(plane, Scheduler.MH)
    forwarder, lifetime = plane.forwarder, 900
    story.open(FLOWS, 1)
    assert plane.flows() == []
    before = int(time.monotonic())
    story.pool |= {8: server(8), 9: server(9)}
    story.change()
    for early in (before, before + lifetime - 1):
        forwarder.settle(early, lifetime)
        assert service_record(plane).former is not None
    story.look()
    # Every flow that is not over has sent a packet since.
    later = int(time.monotonic()) + lifetime
    forwarder.settle(later + 1, lifetime)
    assert service_record(plane).former is None
    assert service_record(plane).select & SELECT_EXCEPTIONS
    story.look()
    recorded = len(plane.flows())
    assert 0 < recorded < FLOWS // 2
    forwarder.settle(later + 2, lifetime)
    assert service_record(plane).select & SELECT_EXCEPTIONS
    # What begins now needs no record, and is not moved by the next change either.
    story.open(FLOWS // 10, 1)
    assert len(plane.flows()) == recorded
    story.dies(4)
    story.change()
    story.returns(4)
    story.change()
    # All end; the sweep counts them out.
    plane.age(lifetime + 1)
    with contextlib.closing(Sweeper()) as sweeper:
        sweeper.use(forwarder._directory)
        for _ in range(sweeper.begin(counting=False)):
            sweeper.sweep()
    assert plane.flows() == []
    forwarder.settle(later + lifetime + 10, lifetime)
    assert not service_record(plane).in_transition
    story.groups.clear()
    story.open(FLOWS, 1)
    assert plane.flows() == []
    del story.pool[8]
    story.change()
    assert service_record(plane).in_transition


@pytest.mark.parametrize("gap_s", [30, 90, 800])
def test_a_flow_that_says_little_is_not_moved_by_the_end_of_a_transition(plane: Plane, gap_s: int) -> None:
    """One packet now and then, as of a client that does nothing but confirm what its server sends."""
    lifetime = 900
    story = Story(plane, Scheduler.MH)
    story.open(FLOWS // 10, 1)
    story.pool[8] = server(8)
    story.change()
    now = int(time.monotonic())
    with contextlib.closing(Sweeper()) as sweeper:
        sweeper.use(plane.forwarder._directory)
        for later in range(gap_s, lifetime + 3 * gap_s, gap_s):
            plane.age(gap_s)
            for _ in range(sweeper.begin(counting=False)):
                sweeper.sweep()
            plane.forwarder.settle(now + later, lifetime)
            story.groups = story.groups[:1]
            story.look()
    assert service_record(plane).former is None


def service_record(plane: Plane) -> ServiceRecord:
    ledger = plane.forwarder._read()
    (index,) = ledger.living
    return ledger.services[index]


def test_the_other_director_sends_every_flow_of_a_ring_to_the_same_server(plane: Plane, partner: Specimen) -> None:
    """S3: neither has asked or told the other anything, and each has come to the pool on a way of its own."""
    other = Plane(partner)
    pool = [server(number, weight=1 + number % 4) for number in range(1, 10)]
    ways: tuple[tuple[Plane, tuple[list[WantedServer], ...]], ...] = (
        (plane, (pool[:4], pool[:8], pool)),
        (other, ([replace(each, weight=1) for each in pool[2:]], pool[::-1], pool)),
    )
    for director, steps in ways:
        for step in steps:
            director.forwarder.apply(table(*step, scheduler=Scheduler.MH, peer=PEER))
        director.forwarder.settle(int(time.monotonic()) + 901, 900)
        director.forwarder.settle(int(time.monotonic()) + 902, 900)
        director.restart()
    flows = open_flows(plane.program, range(FLOWS))
    assert reached(other.program, flows) == flows
    # And back, when some have begun there.
    flows |= open_flows(other.program, range(FLOWS, FLOWS + FLOWS // 10))
    assert reached(plane.program, flows) == flows
