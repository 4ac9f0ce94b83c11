"""Rings that the kernel fills are those that Python fills."""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.forwarding import maglev
from haxlb.forwarding.layout import RING_SLOTS
from haxlb.forwarding.maglev import populate
from haxlb.forwarding.sequence import sequence
from haxlb.linux.maglev_program import Populator

pytestmark = pytest.mark.bpf

PREFERENCES = st.tuples(st.integers(0, RING_SLOTS - 1), st.integers(0, RING_SLOTS // 2 - 1).map(lambda n: 2 * n + 1))


@pytest.fixture(scope="module")
def populator() -> Iterator[Populator]:
    made = Populator()
    yield made
    made.close()


def descriptors() -> int:
    # What tests before have left behind in cycles would be closed at any time.
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(PREFERENCES, st.integers(1, 50)), min_size=1, max_size=40))
def test_the_kernel_fills_a_ring_as_python_does(
    populator: Populator, servers: list[tuple[tuple[int, int], int]]
) -> None:
    preferences = [preference for preference, _ in servers]
    turns = sequence([weight for _, weight in servers], RING_SLOTS)
    assert populator(preferences, turns, RING_SLOTS) == populate(preferences, turns, RING_SLOTS)
    assert populator.in_kernel


def test_servers_that_want_the_very_same_slots(populator: Populator) -> None:
    """Each of them looks at all that the others have taken: more than one portion of looks."""
    preferences = [(5, 3)] * 60
    turns = sequence([1] * 60, RING_SLOTS)
    assert populator(preferences, turns, RING_SLOTS) == populate(preferences, turns, RING_SLOTS)


@pytest.mark.parametrize("count", [300, 2000])
def test_more_servers_than_a_byte_can_number(populator: Populator, count: int) -> None:
    preferences = [(7919 * n % RING_SLOTS, 2 * n + 1) for n in range(count)]
    turns = sequence([1] * count, RING_SLOTS)
    assert populator(preferences, turns, RING_SLOTS) == populate(preferences, turns, RING_SLOTS)


def test_more_servers_than_the_kernels_program_has_room_for(populator: Populator) -> None:
    preferences = [(7919 * n % RING_SLOTS, (2 * n + 1) % RING_SLOTS) for n in range(17000)]
    assert populator(preferences, [16999, 0], RING_SLOTS) == populate(preferences, [16999, 0], RING_SLOTS)


def test_a_ring_of_another_length_is_filled_too(populator: Populator) -> None:
    assert populator([(3, 5)], [0], 32) == populate([(3, 5)], [0], 32)


def test_a_whole_maglev_ring_is_the_same(populator: Populator) -> None:
    seeds, weights = [bytes([10, 0, 0, n]) for n in range(10)], [1, 5, 3, 2, 7, 7, 1, 100, 4, 9]
    assert maglev.maglev(seeds, weights, RING_SLOTS, populator) == maglev.maglev(seeds, weights, RING_SLOTS)


def test_where_the_kernel_takes_no_program_python_does_it() -> None:
    before = descriptors()
    refused = Populator()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    # No room for a descriptor: the map cannot be made.
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        filled = refused([(3, 5), (3, 7)], [0, 1], RING_SLOTS)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert not refused.in_kernel
    assert filled == populate([(3, 5), (3, 7)], [0, 1], RING_SLOTS)
    assert refused([(3, 5), (3, 7)], [0, 1], RING_SLOTS) == filled
    assert descriptors() == before


def test_what_is_closed_leaves_nothing_and_can_be_used_again() -> None:
    before = descriptors()
    populator = Populator()
    first = populator([(3, 5), (3, 7)], [0, 1], RING_SLOTS)
    assert descriptors() > before
    populator.close()
    assert descriptors() == before
    assert populator([(3, 5), (3, 7)], [0, 1], RING_SLOTS) == first
    populator.close()
    assert descriptors() == before
