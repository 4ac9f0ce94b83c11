"""Weighted Maglev: a ring that says for every hash which server, and changes little when the servers change.

Eisenbud et al., "Maglev: A Fast and Reliable Software Network Load Balancer", NSDI 2016, section 3.4. There the size
is a prime so that every step visits all slots; here it is a power of two and the step is odd, which does the same and
spares the packet a division.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import cycle, islice

from haxlb.forwarding.sequence import sequence


def maglev(seeds: Sequence[bytes], weights: Sequence[int], size: int) -> array[int]:
    """`size` slots (a power of two), each the position of a server in `seeds`; empty when there is none.

    A server's preferences depend on its seed alone, so directors that know the same servers have the same ring.
    Weights are at least 1: turns to take a slot are dealt out by weight.
    """
    return _maglev(tuple(seeds), tuple(weights), size)


@lru_cache(maxsize=1024)  # of 32 KiB each, if there are so many sets of servers: a failure needs the ring of before
def _maglev(seeds: tuple[bytes, ...], weights: tuple[int, ...], size: int) -> array[int]:
    if not seeds:
        return array("H")
    mask = size - 1
    following, steps = [], []
    for seed in seeds:
        digest = int.from_bytes(blake2b(seed, digest_size=8).digest(), "big")
        following.append(digest & mask)
        steps.append(digest >> 32 & mask | 1)
    ring = array("H", bytes(2 * size))
    taken = bytearray(size)
    for server in islice(cycle(sequence(weights, size)), size):
        slot, step = following[server], steps[server]
        while taken[slot]:
            slot = slot + step & mask
        taken[slot] = 1
        ring[slot] = server
        following[server] = slot
    return ring


def forget() -> None:
    """Compute all anew from now on: for those who measure."""
    _maglev.cache_clear()
