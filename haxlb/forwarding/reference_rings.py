"""The oracle's rings: which servers the slots of a service name, and what a change of them leaves unsure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from haxlb.forwarding.hashing import ring_hash
from haxlb.forwarding.records import GenerationFlag
from haxlb.forwarding.reference_packet import Packet
from haxlb.forwarding.ring import kind_of, recipe_of, slots_of
from haxlb.forwarding.wanted import WantedService

PICK_ATTEMPTS: Final = 128
"""Slots that a packet looks at, where servers may be full."""


_HASH_SOURCE: Final = GenerationFlag(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """One generation of a service's."""

    keys: tuple[str, ...] = ()
    """Of servers."""
    kind: GenerationFlag = _HASH_SOURCE

    def of(self, packet: Packet) -> int:
        """The slot of a packet's hash."""
        if self.kind & GenerationFlag.HASH_DESTINATION:
            return ring_hash(packet.destination, None) % len(self.keys)
        # Of turns and lists the whole flow: with its address alone one busy NAT would weigh on one server.
        whole = self.kind & (GenerationFlag.HASH_PORT | GenerationFlag.SEQUENCE | GenerationFlag.LIST)
        return ring_hash(packet.source, packet.source_port if whole else None) % len(self.keys)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    """What packets of one service find."""

    current: Slots
    stateless: bool
    former: Slots | None = None
    """Those before the change, or the oldest of several in a row, while flows of that time may be unknown."""
    exceptions: frozenset[int] = frozenset()
    """Slots whose flows may be with another server than theirs."""
    unsure: bool = False
    """There are exceptions, be it that without any server nobody knows which slots."""
    changed_s: float = 0.0


class Rings:
    """Of all services that there are, and were."""

    def __init__(self) -> None:
        self._rings: dict[str, Ring] = {}
        self._retired: set[str] = set()

    def configure(self, services: Iterable[WantedService], now_s: float) -> None:
        """These are all there are."""
        wanted = {service.name: service for service in services}
        for name, service in wanted.items():
            if name in self._retired:
                # What its flows are by now nobody knows.
                self._rings[name] = Ring(current=Slots(), stateless=False)
            self._rings[name] = _after(self._rings.get(name), _slots(service), stateless=service.stateless, now_s=now_s)
        self._retired = self._rings.keys() - wanted.keys()

    def settle(self, now_s: float, lifetime_s: int, loads_of: Callable[[str], Iterable[int]]) -> None:
        """Former flows are unknown until each has sent a packet or ended, and others on record until they are gone."""
        for name in self._rings.keys() - self._retired:
            ring = self._rings[name]
            if ring.former is not None and now_s - ring.changed_s >= lifetime_s:
                ring = replace(ring, former=None)
            if ring.former is None and ring.unsure and not any(loads_of(name)):
                ring = replace(ring, exceptions=frozenset(), unsure=False)
            self._rings[name] = ring

    def changing(self, service: WantedService) -> bool:
        """Flows of the time before the last change may be unknown."""
        return self._rings[service.name].former is not None

    def slots(self, service: WantedService) -> tuple[str, ...]:
        """What is in force."""
        return self._rings[service.name].current.keys

    def place(self, service: WantedService, packet: Packet) -> int:
        """The slot of a packet's hash."""
        return self._rings[service.name].current.of(packet)

    def certain(self, service: WantedService, packet: Packet) -> str | None:
        """The server of a slot of which no flow is with another one."""
        ring = self._rings[service.name]
        if not ring.current.keys or (ring.unsure and ring.current.of(packet) in ring.exceptions):
            return None
        return self.current(service, packet)

    def current(self, service: WantedService, packet: Packet) -> str | None:
        """The server of its slot, be it an exception."""
        current = self._rings[service.name].current
        return current.keys[current.of(packet)] if current.keys else None

    def former(self, service: WantedService, packet: Packet) -> str | None:
        """The one that it had before the change."""
        former = self._rings[service.name].former
        return None if former is None else former.keys[former.of(packet)]


def _slots(service: WantedService) -> Slots:
    places = range(1, len(service.servers) + 1)
    keys = [each.key for each in service.servers]
    slots = slots_of(recipe_of(service, places))
    return Slots(keys=tuple(keys[place - 1] for place in slots), kind=kind_of(service))


def _after(ring: Ring | None, slots: Slots, *, stateless: bool, now_s: float) -> Ring:
    if ring is None:
        return Ring(current=slots, stateless=stateless)
    if ring.current == slots and ring.stateless == stateless:
        return ring
    former = ring.former
    if former is None and ring.stateless and ring.current.keys:
        former = ring.current
    exceptions = _exceptions(ring, slots, former) if stateless and slots.keys else frozenset()
    lost = stateless and not slots.keys and (former is not None or ring.unsure)
    return Ring(
        current=slots,
        stateless=stateless,
        former=former,
        exceptions=exceptions,
        unsure=bool(exceptions) or lost,
        changed_s=ring.changed_s if former is None else now_s,
    )


def _exceptions(ring: Ring, slots: Slots, former: Slots | None) -> frozenset[int]:
    before, after = ring.current.keys, slots.keys
    if ring.stateless and not before and former is None and not ring.unsure:
        return frozenset()  # it has had no server for so long that it has no flows either
    if not ring.stateless or not before or ring.current.kind != slots.kind:
        return frozenset(range(len(after)))
    marked = ring.exceptions if ring.unsure else frozenset()
    # Both lengths are powers of two: all hashes that differ in either ring.
    hashes = range(max(len(before), len(after)))
    return frozenset(
        each % len(after)
        for each in hashes
        if before[each % len(before)] != after[each % len(after)] or each % len(before) in marked
    )
