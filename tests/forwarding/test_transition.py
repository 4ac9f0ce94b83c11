"""Rings of stateless services, from one to the next: no flow may move but those of servers that are dead."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.forwarding.layout import RING_SLOTS
from haxlb.forwarding.records import FrontendFlag, GenerationFlag
from haxlb.forwarding.transition import moved, resized, resized_slots
from haxlb.forwarding.wanted import Load, WantedTable
from haxlb.model.virtual_server import Scheduler
from tests.forwarding.kernel import LIFETIME_S, Kernel
from tests.forwarding.tables import WEB, server, table

MH = {"scheduler": Scheduler.MH}


class Clients:
    """Flows, each with its hash, and where its packets go by the maps: what bpf/forward.c does, for established TCP."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.records: dict[int, tuple[int, int]] = {}

    def send(self, hash_: int, *, first: bool = False) -> int | None:
        """Index of the server that a packet reaches."""
        kernel = self._kernel
        frontend = kernel.frontends()[WEB]
        record, backends = kernel.services()[frontend.service], kernel.backends()
        ring = self._slot(record.generation.length, record.generation.first, hash_)
        stateless = frontend.flags & FrontendFlag.STATELESS
        assert not stateless or not record.generation.flags & (GenerationFlag.SEQUENCE | GenerationFlag.LIST)
        if stateless and ring is not None and not self._is_exception(hash_) and backends[ring].alive:
            return ring
        known = self.records.get(hash_)
        if known is not None and backends[known[0]].alive and backends[known[0]].incarnation == known[1]:
            return known[0]
        former = None if record.former is None else record.generations[record.former]
        if (
            not first
            and known is None
            and former is not None
            and not former.flags & (GenerationFlag.SEQUENCE | GenerationFlag.LIST)
        ):
            before = self._slot(former.length, former.first, hash_)
            if before is not None and backends[before].alive:
                ring = before
        if ring is None or not backends[ring].alive:
            living = [index for index in kernel.slots(record.generation) if backends[index].alive]
            ring = living[hash_ % len(living)] if living else None
        if ring is not None:
            self.records[hash_] = (ring, backends[ring].incarnation)
        return ring

    def _slot(self, length: int, first: int, hash_: int) -> int | None:
        if not length:
            return None
        at = first * 64 + 2 * (hash_ % length)
        return int.from_bytes(self._kernel.memory["rings"][at : at + 2], "little")

    def _is_exception(self, hash_: int) -> bool:
        record, index = self._kernel.record(), self._kernel.service_at()
        slot = hash_ % record.generation.length
        byte = self._kernel.memory["exceptions"][index * 32 * 64 + slot // 8]
        return bool(record.select & 0x40 and byte >> slot % 8 & 1)


def test_a_failure_marks_the_slots_that_move_before_the_flip_and_no_other() -> None:
    kernel = Kernel()
    kernel.apply(table(*map(server, range(1, 6)), **MH))
    before = kernel.ring()
    steps = kernel.apply(table(server(1, alive=False), *map(server, range(2, 6)), **MH))
    assert [step.map for step in steps] == ["backends", "rings", "exceptions", "services", "services"]
    after = kernel.ring()
    differing = [slot for slot in range(RING_SLOTS) if before[slot] != after[slot]]
    assert differing == [slot for slot, owner in enumerate(before) if owner == "10.0.0.1"]
    assert kernel.exceptions() == differing
    former = kernel.record().generations[kernel.record().former or 0]
    backends = kernel.backends()
    assert [str(backends[index].address) for index in kernel.slots(former)] == before
    assert kernel.record().changed_s == kernel.now_s


def test_a_fresh_service_has_no_exceptions() -> None:
    kernel = Kernel()
    kernel.apply(table(server(1, alive=False), **MH))
    kernel.apply(table(server(1), server(2), **MH))
    assert not kernel.record().in_transition


def test_a_second_change_keeps_the_former_ring_and_adds_marks() -> None:
    kernel = Kernel()
    five = list(map(server, range(1, 6)))
    kernel.apply(table(*five, **MH))
    oldest = kernel.slots(kernel.record().generation)
    kernel.apply(table(replace(five[0], alive=False), *five[1:], **MH))
    first = kernel.exceptions()
    kernel.now_s += 10
    kernel.apply(table(replace(five[0], alive=False), replace(five[1], alive=False), *five[2:], **MH))
    record = kernel.record()
    assert record.former is not None
    assert kernel.slots(record.generations[record.former]) == oldest
    assert set(first) < set(kernel.exceptions())
    assert record.changed_s == kernel.now_s
    kernel.apply(table(*five, **MH))
    assert kernel.slots(kernel.record().generation) == oldest


def test_marks_for_a_shorter_ring_leave_those_of_the_longer_one_until_the_flip() -> None:
    kernel = Kernel()
    kernel.apply(table(server(1), server(2), **MH))
    kernel.apply(table(server(1, alive=False), server(2), **MH))
    kernel.apply(table(server(1), server(2), **MH))
    marked = set(kernel.exceptions())
    assert len(marked) > RING_SLOTS // 3
    for phase in kernel.phases(table(server(1), **MH)):
        if phase.wait:
            kernel.wait()
        for step in phase.steps:
            kernel.step(step)
            if kernel.record().generation.length == RING_SLOTS:
                assert marked <= set(kernel.exceptions())
    assert kernel.record().generation.length < RING_SLOTS


def test_the_former_ring_goes_after_a_lifetime_and_the_marks_with_the_last_flow() -> None:
    kernel = Kernel()
    kernel.apply(table(server(1), server(2), **MH))
    kernel.apply(table(server(1, alive=False), server(2), **MH))
    kernel.loads[kernel.index_of(2)] = Load(active=1)
    kernel.now_s += LIFETIME_S - 1
    assert kernel.settle().phases == ()
    kernel.now_s += 1
    free = kernel.ledger.arena.free
    kernel.settle()
    assert kernel.record().former is None
    assert kernel.exceptions()
    kernel.loads[kernel.index_of(2)] = Load(inactive=1)
    assert kernel.settle().phases == ()
    assert kernel.ledger.arena.free == free + RING_SLOTS // 32
    kernel.loads.clear()
    kernel.restart()
    kernel.settle()
    assert not kernel.record().in_transition
    assert kernel.ledger.in_transition == set()
    assert kernel.settle().phases == ()


def test_from_a_hash_scheduler_to_turns_the_ring_stays_for_flows_that_are_on_no_record() -> None:
    kernel = Kernel()
    kernel.apply(table(server(1), server(2), **MH))
    ring = kernel.slots(kernel.record().generation)
    phases = []
    for phase in kernel.phases(table(server(1), server(2))):
        kernel.carry_out(phase)
        phases.append([step.map for step in phase.steps])
    # Not stateless any more before the ring is none, and nobody under way that thinks otherwise.
    assert phases == [["endpoints"], ["rings", "services"], ["services"]]
    record = kernel.record()
    assert record.former is not None
    assert kernel.slots(record.generations[record.former]) == ring
    assert not kernel.exceptions()


def test_from_turns_to_a_hash_scheduler_all_flows_are_on_record() -> None:
    kernel = Kernel()
    kernel.apply(table(server(1), server(2)))
    steps = kernel.apply(table(server(1), server(2), **MH))
    assert [step.map for step in steps] == ["rings", "exceptions", "services", "services", "endpoints"]
    assert len(kernel.exceptions()) == RING_SLOTS
    assert kernel.record().former is None


def test_another_way_to_hash_makes_every_slot_an_exception() -> None:
    kernel = Kernel()
    kernel.apply(table(server(1), server(2), hash_port=False, **MH))
    kernel.apply(table(server(1), server(2), hash_port=True, **MH))
    assert len(kernel.exceptions()) == RING_SLOTS
    record = kernel.record()
    assert record.generations[record.former or 0].flags == GenerationFlag(0)


def test_a_service_that_begins_to_keep_records_keeps_its_ring_for_the_flows_that_are_on_none() -> None:
    kernel = Kernel()
    kernel.apply(table(server(1), server(2), **MH))
    kernel.apply(table(server(1), server(2), persistence_s=60, **MH))
    record = kernel.record()
    assert record.former == record.current
    assert not record.unrecorded
    kernel.now_s += LIFETIME_S
    kernel.settle()
    assert kernel.record().former is None
    assert len(kernel.ring()) == RING_SLOTS


@given(st.lists(st.integers(0, 3), min_size=32, max_size=32), st.lists(st.integers(0, 3), min_size=32, max_size=32))
def test_slots_that_differ(before: list[int], after: list[int]) -> None:
    # One of the numbers lies in the upper byte.
    of = [1, 2, 0x100, 0x201]
    packed = [b"".join(of[each].to_bytes(2, "little") for each in ring) for ring in (before, after)]
    bits = moved(*packed)
    assert [bits >> slot & 1 for slot in range(32)] == [int(a != b) for a, b in zip(before, after, strict=True)]


@given(st.integers(0, 2**16 - 1), st.sampled_from([4, 8, 16, 32, 64]), st.integers(0, 63))
def test_marks_of_a_ring_of_another_length(bits: int, after: int, hash_: int) -> None:
    grown = resized(bits, 16, after)
    if bits >> hash_ % 16 & 1:
        assert grown >> hash_ % after & 1
    if after >= 16:
        assert grown >> hash_ % after & 1 == bits >> hash_ % 16 & 1


def test_a_ring_with_more_slots_sends_every_hash_where_it_did() -> None:
    assert resized_slots(b"\1\0\2\0", 8) == b"\1\0\2\0" * 4


SERVERS = st.lists(
    st.builds(server, st.integers(1, 5), alive=st.sampled_from([True, True, True, False])),
    min_size=1,
    max_size=5,
    unique_by=lambda each: each.address,
)
WISHES = st.tuples(
    SERVERS,
    st.sampled_from([MH, MH, MH, {**MH, "hash_port": False}, {**MH, "persistence_s": 9}, {"scheduler": Scheduler.WRR}]),
    st.sampled_from([0, 1, LIFETIME_S]),
)
HASHES = [number * 0x9E3779B1 & 0xFFFFFFFF for number in range(1, 60)]


@settings(max_examples=60, deadline=None)
@given(st.lists(WISHES, min_size=2, max_size=7), st.randoms(use_true_random=False))
def test_no_flow_moves_while_its_server_lives(wishes: list[tuple[Any, Any, int]], chance: Any) -> None:
    """Whoever is silent through any number of changes, for less than the lifetime of a flow, finds its server again.

    With `hash_port` or without, each flow has one hash here: that it changes with the flag is the kernel's to know.
    """
    kernel = Kernel()
    clients = Clients(kernel)
    flows: dict[int, int] = {}
    hashed_alike: Any = None
    for servers, options, pause in wishes:
        if options.get("hash_port", True) != hashed_alike:
            # Another hash for every flow: in this model, other flows.
            hashed_alike = options.get("hash_port", True)
            kernel, flows = Kernel(), {}
            clients = Clients(kernel)
        wanted: WantedTable = table(*servers, **options)
        for phase in kernel.phases(wanted):
            if phase.wait:
                kernel.wait()
            for step in phase.steps:
                kernel.step(step)
                if WEB in kernel.frontends() and flows:
                    _check(kernel, clients, flows, chance.sample(sorted(flows), min(3, len(flows))))
        for each in chance.sample(HASHES, 12):
            if each not in flows and (chosen := clients.send(each, first=True)) is not None:
                flows[each] = chosen
        if pause:
            # Nobody is silent for longer than a flow may be.
            _check(kernel, clients, flows, sorted(flows))
            kernel.now_s += pause
            kernel.loads = {
                index: Load(active=sum(to == index for to, _ in clients.records.values()))
                for index in kernel.backends()
            }
            kernel.settle()
    _check(kernel, clients, flows, sorted(flows))


def _check(kernel: Kernel, clients: Clients, flows: dict[int, int], which: list[int]) -> None:
    for each in which:
        backends = kernel.backends()
        found = clients.send(each)
        if backends[flows[each]].alive:
            assert found == flows[each]
        elif found is None:
            del flows[each]
        else:
            flows[each] = found


@pytest.mark.parametrize("count", [3, 4, 8])
def test_a_failure_moves_its_own_slots_and_the_return_moves_them_back(count: int) -> None:
    kernel = Kernel(replace(Kernel().sizes, backends=20))
    kernel.apply(table(*map(server, range(1, count + 1)), **MH))
    base = kernel.ring()
    dead: set[int] = set()
    for number in (1, 2):
        dead.add(number)
        kernel.apply(table(*(server(n, alive=n not in dead) for n in range(1, count + 1)), **MH))
        ring = kernel.ring()
        assert all(a == b or int(a.rsplit(".", 1)[1]) in dead for a, b in zip(base, ring, strict=True))
    kernel.apply(table(*(server(n, alive=n != 2) for n in range(1, count + 1)), **MH))
    ring = kernel.ring()
    assert all(a in (b, "10.0.0.2") for a, b in zip(base, ring, strict=True))
    kernel.apply(table(*map(server, range(1, count + 1)), **MH))
    assert kernel.ring() == base
