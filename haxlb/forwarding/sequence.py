"""The turn order of rr and wrr: one cycle in which each server has as many turns as its weight says, evenly spread."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import gcd


def sequence(weights: Sequence[int], longest: int) -> array[int]:
    """Positions in `weights`, in the order of their turns.

    The shares are exact where the weights, divided by their greatest common divisor, add up to at most `longest`;
    else they are scaled down to that, and a server whose share is below one turn still has one. Weights are at
    least 1, and not more than `longest` of them are given.
    """
    if not weights:
        return array("H")
    divisor = gcd(*weights)
    turns = [weight // divisor for weight in weights]
    total = sum(turns)
    if total > longest:
        # One turn for everybody, the rest by weight, rounded down: never longer than what is left.
        rest = longest - len(turns)
        turns = [1 + weight * rest // total for weight in turns]
    # Turn k of n lies in the middle of the k-th of n equal parts of the cycle: the distances of one server's turns
    # differ by one at most, and servers of equal weight take strict turns.
    places = [((2 * k + 1) / (2 * n), server) for server, n in enumerate(turns) for k in range(n)]
    places.sort()
    return array("H", [server for _, server in places])
