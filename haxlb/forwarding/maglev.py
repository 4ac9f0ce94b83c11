"""Weighted Maglev: a ring that says for every hash which server, and changes little when the servers change.

Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load Balancer", NSDI 2016, section 3.4. There the size
is a prime so that every step visits all slots; here it is a power of two and the step is odd, which does the same and
spares the packet a division.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import cycle, islice

from haxlb.forwarding.sequence import sequence

Preference = tuple[int, int]
"""The slot that a server wants most, and the (odd) step to the one that it wants next."""
Populate = Callable[[Sequence[Preference], Sequence[int], int], "array[int]"]
"""What `populate` does."""


def populate(preferences: Sequence[Preference], turns: Sequence[int], size: int) -> array[int]:
    """For each of `size` slots (a power of two) who takes it: a position in `preferences`.

    `turns`: a cycle of such positions. Whose turn it is takes, of the slots that are free, the one that it wants most.
    """
    mask = size - 1
    following, steps = [slot for slot, _ in preferences], [step for _, step in preferences]
    ring = array("H", bytes(2 * size))
    taken = bytearray(size)
    for server in islice(cycle(turns), size):
        slot, step = following[server], steps[server]
        while taken[slot]:
            slot = slot + step & mask
        taken[slot] = 1
        ring[slot] = server
        following[server] = slot
    return ring


def maglev(seeds: Sequence[bytes], weights: Sequence[int], size: int, populate: Populate = populate) -> array[int]:
    """`size` slots (a power of two), each the position of a server in `seeds`; empty when there is none.

    A server's preferences depend on its seed alone, so directors that know the same servers have the same ring.
    Weights are at least 1: turns to take a slot are dealt out by weight. `populate`: one that is as good.
    """
    return _maglev(tuple(seeds), tuple(weights), size, populate)


@lru_cache(maxsize=1024)  # of 32 KiB each, if there are so many sets of servers: a failure needs the ring of before
def _maglev(seeds: tuple[bytes, ...], weights: tuple[int, ...], size: int, populate: Populate) -> array[int]:
    if not seeds:
        return array("H")
    mask = size - 1
    digests = [int.from_bytes(blake2b(seed, digest_size=8).digest(), "big") for seed in seeds]
    return populate([(each & mask, each >> 32 & mask | 1) for each in digests], _turns(weights, size), size)


_turns = lru_cache(maxsize=64)(sequence)


def forget() -> None:
    """Compute all anew from now on: for those who measure."""
    _maglev.cache_clear()
