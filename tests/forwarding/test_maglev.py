from __future__ import annotations

from array import array
from collections import Counter
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haxlb.forwarding.layout import RING_SLOTS
from haxlb.forwarding.maglev import maglev

TEN_FIRST = [8, 9, 2, 3, 7, 5, 7, 6, 9, 1, 1, 4]
TEN, WEIGHTED = "0c65ec2e716f06ac", "451bcecb7f9550d9"


def digest(slots: array[int]) -> str:
    return blake2b(slots.tobytes(), digest_size=8).hexdigest()


def seed(number: int) -> bytes:
    return bytes([10, 0, number >> 8, number & 0xFF])


def ring(weights: dict[int, int], size: int = RING_SLOTS) -> list[int]:
    numbers = list(weights)
    return [numbers[at] for at in maglev([seed(n) for n in numbers], [weights[n] for n in numbers], size)]


def test_rings_are_those_of_earlier_versions() -> None:
    """Two directors of which one is older must send a client to the same server."""
    ten = maglev([seed(n) for n in range(10)], [1] * 10, RING_SLOTS)
    weighted = maglev([seed(n) for n in range(5)], [1, 5, 3, 100, 2], RING_SLOTS)
    assert list(ten[:12]) == TEN_FIRST
    assert (digest(ten), digest(weighted)) == (TEN, WEIGHTED)


def test_no_server_no_ring() -> None:
    assert len(maglev([], [], RING_SLOTS)) == 0


@pytest.mark.parametrize("count", [1, 2, 3, 10, 163])
def test_equal_weights_share_equally(count: int) -> None:
    shares = Counter(ring(dict.fromkeys(range(count), 1)))
    assert max(shares.values()) - min(shares.values()) <= 1
    assert sum(shares.values()) == RING_SLOTS


@given(st.dictionaries(st.integers(0, 500), st.integers(1, 100), min_size=1, max_size=20))
def test_shares_follow_weights(weights: dict[int, int]) -> None:
    shares = Counter(ring(weights, 4096))
    total = sum(weights.values())
    for number, weight in weights.items():
        # The last cycle of turns may be cut off anywhere.
        assert abs(shares[number] - 4096 * weight / total) <= weight


def test_a_server_that_leaves_moves_hardly_any_slot_of_the_others() -> None:
    before = ring(dict.fromkeys(range(10), 1))
    after = ring(dict.fromkeys([n for n in range(10) if n != 4], 1))
    moved = sum(a != b for a, b in zip(before, after, strict=True) if a != 4)
    assert moved < 0.02 * RING_SLOTS


def test_a_server_that_comes_takes_its_share_and_little_else() -> None:
    before = ring(dict.fromkeys(range(10), 1))
    after = ring(dict.fromkeys(range(11), 1))
    moved = sum(a != b for a, b in zip(before, after, strict=True) if b != 10)
    assert moved < 0.02 * RING_SLOTS


def test_the_order_of_servers_does_not_matter_beyond_ties() -> None:
    """Preferences come from seeds; the order only says who chooses first in a round."""
    forward = ring(dict.fromkeys(range(10), 1))
    backward = ring(dict.fromkeys(reversed(range(10)), 1))
    assert sum(a == b for a, b in zip(forward, backward, strict=True)) > 0.9 * RING_SLOTS
