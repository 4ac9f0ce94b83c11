"""The oracle's rings: which servers the slots of a service name, and what a change of them leaves unsure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from haxlb.forwarding.hashing import ring_hash
from haxlb.forwarding.reference_packet import Packet
from haxlb.forwarding.ring import recipe_of, slots_of
from haxlb.forwarding.wanted import WantedService
from haxlb.model.node import Scheduler

PICK_ATTEMPTS: Final = 16
"""Slots that a packet looks at, where servers may be full."""


@dataclass(slots=True, kw_only=True)
class Ring:
    """Of one service."""

    slots: tuple[str, ...]
    """Keys of servers."""
    former: tuple[str, ...] | None = None
    """Those before the change, or the oldest of several in a row, while flows of that time may be unknown."""
    exceptions: frozenset[int] = frozenset()
    """Slots whose flows may be with another server than theirs."""


class Rings:
    """Of all services that there are, and were."""

    def __init__(self) -> None:
        self._rings: dict[str, Ring] = {}

    def configure(self, service: WantedService) -> None:
        """Its servers are these."""
        slots = _slots(service)
        ring = self._rings.get(service.name)
        if ring is None or not service.stateless or not ring.slots or len(ring.slots) != len(slots):
            self._rings[service.name] = Ring(slots=slots)
            return
        moved = {place for place, (was, becomes) in enumerate(zip(ring.slots, slots, strict=True)) if was != becomes}
        if not moved:
            return
        # Where a change follows another, unknown packets are of the time before both: later flows are all on record.
        former = list(ring.slots)
        if ring.former is not None:
            for place in ring.exceptions:
                former[place] = ring.former[place]
        self._rings[service.name] = Ring(slots=slots, former=tuple(former), exceptions=ring.exceptions | moved)

    def end_transition(self, name: str, *, idle: bool) -> None:
        """No flow of the former time is unknown any more; `idle`: none of the service is on record either."""
        ring = self._rings[name]
        ring.former = None
        if idle:
            ring.exceptions = frozenset()

    def changing(self, service: WantedService) -> bool:
        """Flows of the time before the last change may be unknown."""
        return self._rings[service.name].former is not None

    def slots(self, service: WantedService) -> tuple[str, ...]:
        """What is in force."""
        return self._rings[service.name].slots

    def place(self, service: WantedService, packet: Packet) -> int:
        """The slot of a packet's hash."""
        return self._place(service, packet, len(self.slots(service)))

    def certain(self, service: WantedService, packet: Packet) -> str | None:
        """The server of a slot of which no flow is with another one."""
        ring = self._rings[service.name]
        if not ring.slots:
            return None
        place = self.place(service, packet)
        return None if place in ring.exceptions else ring.slots[place]

    def current(self, service: WantedService, packet: Packet) -> str | None:
        """The server of its slot, be it an exception."""
        slots = self.slots(service)
        return slots[self.place(service, packet)] if slots else None

    def former(self, service: WantedService, packet: Packet) -> str | None:
        """The one that it had before the change."""
        former = self._rings[service.name].former
        return None if not former else former[self._place(service, packet, len(former))]

    @staticmethod
    def _place(service: WantedService, packet: Packet, length: int) -> int:
        if service.scheduler is Scheduler.DH:
            return ring_hash(packet.destination, None) % length
        # Of turns and lists the whole flow: with its address alone one busy NAT would weigh on one server.
        port = packet.source_port if service.hash_port or not service.scheduler.hashes else None
        return ring_hash(packet.source, port) % length


def _slots(service: WantedService) -> tuple[str, ...]:
    places = range(1, len(service.servers) + 1)
    return tuple(service.servers[place - 1].key for place in slots_of(recipe_of(service, places)))
