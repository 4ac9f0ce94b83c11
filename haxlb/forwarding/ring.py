"""What a generation of a service's slots is computed from, and what it holds.

A ring of a hash scheduler has a place for every server of the configuration that has a weight, whether it lives or not
(the base). Each slot of a server that does not live has a stand-in, found by walking from slot to slot of the base in
an order that hangs on the slot alone, until one is of a living server: weights count, and the death or return of a
server changes its own slots and no other.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import compress
from typing import Final

from haxlb.forwarding.hashing import mix, mixed
from haxlb.forwarding.layout import LIST_SERVERS, RING_SLOTS, RING_SLOTS_PER_ELEMENT
from haxlb.forwarding.maglev import Populate, maglev, populate
from haxlb.forwarding.records import GenerationFlag
from haxlb.forwarding.sequence import sequence
from haxlb.forwarding.wanted import WantedServer, WantedService
from haxlb.model.addresses import IPAddress
from haxlb.model.errors import HostError
from haxlb.model.virtual_server import Scheduler

_WALK: Final = 6
"""Steps; with half of the servers dead one of 64 slots is not served by then."""
_ONE_SERVER_SLOTS: Final = RING_SLOTS_PER_ELEMENT
_BYTE_INDICES: Final = 256
_NOT: Final = b"\1" + bytes(255)
_FIRST: Final = bytes(2)


@dataclass(frozen=True, slots=True)
class Recipe:
    """What slots are computed from: equal recipes give equal slots."""

    flags: GenerationFlag
    servers: tuple[tuple[bytes, int, int, bool], ...] = ()
    """Maglev seed, weight, backend index, whether it lives: those that have a weight, in order of address and port."""


def kind_of(wanted: WantedService) -> GenerationFlag:
    """How the slots of this service are to be read."""
    match wanted.scheduler:
        case Scheduler.DH:
            return GenerationFlag.HASH_DESTINATION
        case Scheduler.SH | Scheduler.MH:
            return GenerationFlag.HASH_PORT if wanted.hash_port else GenerationFlag(0)
        case Scheduler.RR | Scheduler.WRR | Scheduler.TWOS:
            return GenerationFlag.SEQUENCE
        case _:
            return GenerationFlag.LIST


def recipe_of(wanted: WantedService, indices: Sequence[int | None]) -> Recipe:
    """`indices`: the backends of its servers, in their order; one that has none yet is left out. Raises HostError."""
    flags = kind_of(wanted)
    if flags & GenerationFlag.LIST and len(wanted.servers) > LIST_SERVERS:
        raise HostError(
            f"{wanted.name}: {wanted.scheduler.value} compares {LIST_SERVERS} real servers at most, "
            f"{len(wanted.servers)} are configured",
            remedy="use wrr or mh, or fewer real servers",
        )
    if len(wanted.servers) > RING_SLOTS:
        raise HostError(
            f"{wanted.name}: {RING_SLOTS} real servers at most have a turn, {len(wanted.servers)} are configured",
            remedy="divide them among several virtual servers",
        )
    servers = sorted(zip(wanted.servers, indices, strict=True), key=_place)
    seed = _seeds(each.address for each, _ in servers) if wanted.scheduler.hashes else None
    # Equal turns whatever the weights: that is what rr means.
    equal = wanted.scheduler is Scheduler.RR
    return Recipe(
        flags,
        tuple(
            (seed[at] if seed else b"", 1 if equal else server.weight, index, server.gets_packets)
            for at, (server, index) in enumerate(servers)
            if server.weight > 0 and index is not None
        ),
    )


def slots_of(recipe: Recipe, populate: Populate = populate) -> array[int]:
    """Backend indices; empty when no server lives. `populate`: how the ring of a hash scheduler is filled."""
    living = [each for each in recipe.servers if each[3]]
    if not living:
        return array("H")
    if recipe.flags & GenerationFlag.LIST:
        return array("H", [index for _, _, index, _ in living])
    if recipe.flags & GenerationFlag.SEQUENCE:
        turns = sequence([weight for _, weight, _, _ in living], RING_SLOTS)
        return array("H", [living[position][2] for position in turns])
    base = maglev(
        [seed for seed, _, _, _ in recipe.servers],
        [weight for _, weight, _, _ in recipe.servers],
        ring_length(len(recipe.servers)),
        populate,
    )
    # Already now, when nobody waits: 5 ms, which the first failure would take longer.
    _first_steps(len(base))
    if len(living) < len(recipe.servers):
        base = _with_stand_ins(base, recipe)
    return _translated(base, [index for _, _, index, _ in recipe.servers])


def ring_length(servers: int) -> int:
    """Slots of a hash scheduler's ring for so many servers.

    Rings of different lengths have little in common, so that a length that depends on the number of servers would move
    nearly all flows where it changes. Only one server has a length of its own: when a second one comes, half of all
    moves whatever is done. With fewer slots than these a server that is taken out moves too many of the others': 1.1
    times its own share is the limit that tests hold for up to twelve, with half as many slots it is more.
    """
    return RING_SLOTS if servers > 1 else _ONE_SERVER_SLOTS


def _with_stand_ins(base: array[int], recipe: Recipe) -> array[int]:
    alive = bytearray(living for _, _, _, living in recipe.servers)
    ring = array("H", base)
    mask = len(base) - 1
    if sum(alive) == 1:
        return array("H", [alive.index(1)]) * len(base)
    if len(alive) > _BYTE_INDICES:
        dead = bytes(map(alive.__getitem__, base)).translate(_NOT)
    else:
        dead = _bytes_of(base.tobytes()).translate(alive.translate(_NOT).ljust(_BYTE_INDICES, b"\0"))
    left = list(compress(range(len(base)), dead))
    for step in range(_WALK):
        to = mixed(left, step, mask) if step else map(_first_steps(len(base)).__getitem__, left)
        still = []
        for slot, stand_in in zip(left, map(base.__getitem__, to), strict=True):
            if alive[stand_in]:
                ring[slot] = stand_in
            else:
                still.append(slot)
        left = still
    if left:
        few = [
            (position, int.from_bytes(blake2b(seed, digest_size=4).digest(), "big"), weight)
            for position, (seed, weight, _, living) in enumerate(recipe.servers)
            if living
        ]
        for slot in left:
            ring[slot] = _highest(slot, few)
    return ring


@lru_cache(maxsize=2)  # there are two lengths
def _first_steps(length: int) -> array[int]:
    """Where the walk of each slot leads first."""
    return array("H", mixed(range(length), 0, length - 1))


def _highest(slot: int, living: Iterable[tuple[int, int, int]]) -> int:
    """Weighted rendezvous, where nearly all are dead and the walk met nobody alive."""
    return max(living, key=lambda each: (((mix(slot, each[1]) + 1) / (1 << 32)) ** (1 / each[2]), each[1]))[0]


def _translated(positions: array[int], indices: Sequence[int]) -> array[int]:
    if len(indices) > _BYTE_INDICES:
        return array("H", map(indices.__getitem__, positions))
    # Both bytes of all slots by one table each: a thousand rings of 16,384 slots must not take seconds.
    narrow = _bytes_of(positions.tobytes())
    low, high = bytearray(_BYTE_INDICES), bytearray(_BYTE_INDICES)
    for position, index in enumerate(indices):
        low[position], high[position] = index & 0xFF, index >> 8
    both = bytearray(2 * len(narrow))
    both[0::2] = narrow.translate(low)
    # Nearly always the servers of a service have indices in a row.
    alike = len(set(high[: len(indices)])) == 1
    both[1::2] = high[:1] * len(narrow) if alike else narrow.translate(high)
    return array("H", bytes(both))


@lru_cache(maxsize=64)
def _bytes_of(positions: bytes) -> bytes:
    return positions[0::2]


def elements_of(length: int) -> int:
    """Elements of `rings` that so many slots take."""
    return -(-length // RING_SLOTS_PER_ELEMENT)


def packed(slots: array[int]) -> bytes:
    """Whole elements."""
    return slots.tobytes() + bytes(2 * (-len(slots) % RING_SLOTS_PER_ELEMENT))


def seeds(servers: Iterable[WantedServer]) -> dict[str, bytes]:
    """Maglev seed by server key: the address alone, so that services on the same machines send a client to the same
    one whatever their ports; servers that share an address are told apart by the rank of their port.
    """
    inorder = sorted(servers, key=order)
    found = _seeds(each.address for each in inorder)
    return {each.key: seed for each, seed in zip(inorder, found, strict=True)}


def _seeds(inorder: Iterable[IPAddress]) -> list[bytes]:
    packed = [address.packed for address in inorder]
    if len(set(packed)) == len(packed):
        return [each + _FIRST for each in packed]
    ranks: Counter[bytes] = Counter()
    found = []
    for each in packed:
        found.append(each + ranks[each].to_bytes(2, "big"))
        ranks[each] += 1
    return found


def order(server: WantedServer) -> tuple[int, int, int]:
    """Servers of a ring are sorted by this: directors must agree."""
    return (server.address.version, int(server.address), server.port)


def _place(each: tuple[WantedServer, int | None]) -> tuple[int, int, int]:
    return order(each[0])
