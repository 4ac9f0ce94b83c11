"""What a ring is computed from, and what it holds."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address

from haxlb.forwarding.layout import HALF_SEQUENCE, RING_SLOTS, RING_SLOTS_PER_ELEMENT
from haxlb.forwarding.maglev import maglev
from haxlb.forwarding.sequence import sequence
from haxlb.forwarding.wanted import WantedServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What a ring is computed from: equal recipes give equal rings."""

    flags: int = 0
    """HALF_… of abi.h."""
    servers: tuple[tuple[bytes, int, int], ...] = ()
    """Maglev seed, weight, backend index; those that get new flows, in order of address and port."""


def ring_content(recipe: Recipe) -> bytes:
    """Whole elements of backend indices; empty when there is no server."""
    weights = [weight for _, weight, _ in recipe.servers]
    if recipe.flags & HALF_SEQUENCE:
        positions = sequence(weights, RING_SLOTS)
    else:
        positions = maglev([seed for seed, _, _ in recipe.servers], weights, RING_SLOTS)
    slots = array("H", [recipe.servers[position][2] for position in positions])
    slots.extend([0] * (-len(slots) % RING_SLOTS_PER_ELEMENT))
    return slots.tobytes()


def seeds(servers: Iterable[WantedServer]) -> dict[str, bytes]:
    """Maglev seed by server key: the address alone, so that services on the same machines send a client to the same
    one whatever their ports; servers that share an address are told apart by the rank of their port.
    """
    ranks: Counter[IPv4Address] = Counter()
    found = {}
    for server in sorted(servers, key=order):
        found[server.key] = server.address.packed + ranks[server.address].to_bytes(2, "big")
        ranks[server.address] += 1
    return found


def order(server: WantedServer) -> tuple[int, int]:
    """Servers of a ring are sorted by this: directors must agree."""
    return (int(server.address), server.port)
