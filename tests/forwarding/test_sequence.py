from __future__ import annotations

from collections import Counter
from math import gcd

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haxlb.forwarding.sequence import sequence


@pytest.mark.parametrize(
    ("weights", "turns"),
    [
        ([], []),
        ([7], [0]),
        ([1, 1, 1], [0, 1, 2]),
        ([2, 2], [0, 1]),
        ([2, 1], [0, 1, 0]),
        ([1, 2, 3], [2, 1, 0, 2, 1, 2]),
        ([4, 1], [0, 0, 1, 0, 0]),
    ],
)
def test_turns(weights: list[int], turns: list[int]) -> None:
    assert list(sequence(weights, 1000)) == turns


@given(st.lists(st.integers(1, 60), min_size=1, max_size=16))
def test_shares_are_exact_and_turns_evenly_spread(weights: list[int]) -> None:
    turns = list(sequence(weights, 1000))
    divisor = gcd(*weights)
    shares = Counter(turns)
    assert [shares[server] for server in range(len(weights))] == [weight // divisor for weight in weights]
    for server, share in shares.items():
        places = [at for at, who in enumerate(turns) if who == server]
        gaps = [b - a for a, b in zip(places, [*places[1:], places[0] + len(turns)], strict=True)]
        assert max(gaps) <= 2 * len(turns) / share + len(weights)


@given(st.lists(st.integers(1, 65535), min_size=1, max_size=64))
def test_a_cycle_fits_and_leaves_nobody_out(weights: list[int]) -> None:
    turns = sequence(weights, 256)
    assert len(turns) <= 256
    assert set(turns) == set(range(len(weights)))
