"""The slots of a service: shares, stand-ins, and what a change moves."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from ipaddress import IPv4Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.forwarding.arena import Arena, blocks
from haxlb.forwarding.hashing import mix, mixed
from haxlb.forwarding.layout import RING_SLOTS
from haxlb.forwarding.maglev import Preference, populate
from haxlb.forwarding.ring import recipe_of, slots_of
from haxlb.forwarding.sequence import sequence
from haxlb.forwarding.wanted import WantedServer
from haxlb.model.virtual_server import Scheduler
from tests.forwarding.tables import server, service

TWO_DEAD, TWO_ALIVE = "6f6ba568748f4543", "28cb668b30c03fa5"


def digest(slots: list[int]) -> str:
    return blake2b(array("H", slots).tobytes(), digest_size=8).hexdigest()


def ring(servers: list[WantedServer], scheduler: Scheduler = Scheduler.MH) -> list[int]:
    """Last byte of the address of each slot's server."""
    indices = [int(each.address) & 0xFFFF for each in servers]
    return list(slots_of(recipe_of(service(*servers, scheduler=scheduler), indices)))


@pytest.mark.parametrize("network", ["10.0.0.0", "172.16.4.0", "192.168.77.100"])
@pytest.mark.parametrize("count", range(3, 13))
def test_a_server_taken_out_of_the_configuration_moves_little_but_its_own(network: str, count: int) -> None:
    servers = [replace(server(n), address=IPv4Address(network) + n) for n in range(1, count + 1)]
    before = ring(servers)
    for gone in (0, count - 1):
        after = ring([each for at, each in enumerate(servers) if at != gone])
        share = before.count(int(servers[gone].address) & 0xFFFF)
        assert sum(a != b for a, b in zip(before, after, strict=True)) <= 1.1 * share


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 20), min_size=2, max_size=10))
def test_shares_are_within_two_percent_of_the_weights(weights: list[int]) -> None:
    shares = Counter(ring([server(n, weight=weight) for n, weight in enumerate(weights, 1)]))
    for number, weight in enumerate(weights, 1):
        expected = RING_SLOTS * weight / sum(weights)
        # A server of weight 1 among 200 has 82 slots, of which one more or less is more than a percent.
        assert abs(shares[number] - expected) <= max(0.02 * expected, weight)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=10), st.sets(st.integers(1, 10), max_size=8))
def test_the_dead_move_their_own_slots_only_and_their_stand_ins_live(weights: list[int], dead: set[int]) -> None:
    servers = [server(n, weight=weight, alive=n not in dead) for n, weight in enumerate(weights, 1)]
    base = ring([replace(each, alive=True) for each in servers])
    now = ring(servers)
    living = {n for n in range(1, len(weights) + 1) if n not in dead}
    assert bool(now) == bool(living)
    if living:
        assert set(now) <= living
        assert all(a == b or a in dead for a, b in zip(base, now, strict=True))


def test_rings_with_stand_ins_are_those_of_earlier_versions() -> None:
    servers = [server(n, weight=n, alive=n not in (2, 5)) for n in range(1, 8)]
    nearly_all_dead = [server(n, alive=n in (7, 31)) for n in range(1, 101)]
    assert [digest(ring(each)) for each in (servers, nearly_all_dead)] == [TWO_DEAD, TWO_ALIVE]


@pytest.mark.parametrize("base", [0, 250, 65_000])
def test_backends_are_named_by_both_bytes_of_their_indices(base: int) -> None:
    """Whether or not the higher byte is the same for all."""
    wanted = service(*(server(n) for n in range(1, 11)), scheduler=Scheduler.MH)
    zero = slots_of(recipe_of(wanted, range(10)))
    assert list(slots_of(recipe_of(wanted, range(base, base + 10)))) == [base + each for each in zero]


@given(st.lists(st.integers(0, RING_SLOTS - 1)), st.integers(0, 5))
def test_slots_are_mixed_at_once_as_they_are_one_by_one(slots: list[int], step: int) -> None:
    assert mixed(slots, step, RING_SLOTS - 1) == [mix(slot, step) & RING_SLOTS - 1 for slot in slots]


def test_a_ring_is_filled_by_whom_the_caller_names() -> None:
    asked = []

    def fill(preferences: Sequence[Preference], turns: Sequence[int], size: int) -> array[int]:
        asked.append((len(preferences), list(turns), size))
        return populate(preferences, turns, size)

    wanted = service(server(1), server(2, weight=2), scheduler=Scheduler.MH)
    assert slots_of(recipe_of(wanted, [1, 2]), fill) == slots_of(recipe_of(wanted, [1, 2]))
    assert asked == [(2, list(sequence([1, 2], RING_SLOTS)), RING_SLOTS)]


def test_stand_ins_are_shared_by_weight() -> None:
    servers = [server(1, weight=4, alive=False), server(2, weight=1), server(3, weight=3)]
    base = ring([replace(each, alive=True) for each in servers])
    taken = Counter(b for a, b in zip(base, ring(servers), strict=True) if a == 1)
    assert taken[3] / taken[2] == pytest.approx(3, rel=0.1)


def test_one_that_lives_of_many() -> None:
    servers = [server(n, alive=n == 77) for n in range(1, 301)]
    assert set(ring(servers)) == {77}
    two = Counter(ring([replace(each, alive=int(each.address) & 0xFFFF in (77, 78)) for each in servers]))
    assert two[77] / two[78] == pytest.approx(1, rel=0.1)


def test_more_servers_than_a_byte_can_number() -> None:
    assert len(set(ring([server(n) for n in range(1, 400)]))) == 399


def test_the_only_server_has_a_short_ring() -> None:
    assert ring([server(1)]) == [1] * 32


@pytest.mark.parametrize("scheduler", [Scheduler.WLC, Scheduler.LBLCR, Scheduler.FO])
def test_lists_name_each_living_server_that_has_a_weight_once(scheduler: Scheduler) -> None:
    servers = [server(3, weight=5), server(1), server(2, alive=False), server(4, weight=0)]
    assert ring(servers, scheduler) == [1, 3]


def test_twos_draws_by_weight() -> None:
    assert Counter(ring([server(1, weight=3), server(2)], Scheduler.TWOS)) == {1: 3, 2: 1}


ORDERS = st.lists(st.tuples(st.booleans(), st.integers(1, 512)), max_size=60)


@settings(deadline=None)
@given(ORDERS)
def test_an_arena_gives_nothing_twice_and_gets_all_of_it_back(orders: list[tuple[bool, int]]) -> None:
    arena = Arena(1 << 13, [])
    held: dict[int, int] = {}
    for take, size in orders:
        if take or not held:
            at = arena.take(size)
            if at is None:
                continue
            mine = set(range(at, at + blocks(size)))
            assert max(mine) < 1 << 13
            for other, length in held.items():
                assert not mine & set(range(other, other + blocks(length)))
            held[at] = size
        else:
            at = next(iter(held))
            arena.give_back(at, held.pop(at))
            arena.release()
        again = Arena(1 << 13, held.items())
        assert again.free == arena.free
    for at, size in held.items():
        arena.give_back(at, size)
    assert arena.rests or not held
    arena.release()
    assert arena.free == 1 << 13
    assert arena.take(1 << 13) == 0


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 15), st.sampled_from([1, 2, 8, 32, 128, 512])), max_size=200))
def test_there_is_room_while_half_of_an_arena_is_free(changes: list[tuple[int, int]]) -> None:
    """Sixteen services that change their rings all the time, of which never more than half of the arena is."""
    arena, held = Arena(1 << 14, []), dict[int, tuple[int, int]]()
    for who, size in changes:
        first = arena.take(size)
        assert first is not None
        if who in held:
            arena.give_back(*held[who])
            arena.release()
        held[who] = (first, size)
        assert sum(blocks(length) for _, length in held.values()) <= 1 << 13


def test_what_rests_is_not_free() -> None:
    arena = Arena(4, [])
    first = arena.take(4)
    assert first == 0
    arena.give_back(first, 4)
    assert arena.take(1) is None
    arena.release()
    assert arena.take(1) == 0
