"""The phases of a plan while it is made."""

from __future__ import annotations

from haxlb.forwarding.ledger import Ledger, Thing
from haxlb.forwarding.records import Generation, ServiceRecord
from haxlb.forwarding.ring import elements_of
from haxlb.forwarding.steps import Phase, Plan, Step, Write, write_at
from haxlb.forwarding.wanted import WantedService


class Writing:
    """Collects what is to be written, each in its phase, and what packets may go on reading after that."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.withdrawn: list[Step] = []
        """Endpoints that go, and services with them."""
        self.stateful: list[Step] = []
        """Frontends that cease to be stateless, before their ring ceases to be one."""
        self.renamed: list[Step] = []
        """Indices that are given to others: flows of the former owners are unknown from then on."""
        self.cleared: list[Step] = []
        """What was counted for the former owners."""
        self.prepared: list[Step] = []
        """What is not in force yet."""
        self.flips: list[Step] = []
        self.published: list[Step] = []
        self.last: list[Step] = []
        """Deaths of servers that no ring names any more."""
        self.complete = True
        self.retired = False
        self._resting = ledger.arena.resting
        self._waits = False
        self._freed: list[Thing] = []
        self._satisfied: list[WantedService] = []
        self._leaving: list[str] = []

    def result(self) -> Plan:
        """All that has been collected, in order."""
        ledger = self.ledger
        collected = (
            Phase(steps=tuple(self.withdrawn)),
            Phase(steps=tuple(self.stateful)),
            Phase(steps=tuple(self.renamed), wait=True),
            Phase(steps=tuple(self.cleared), wait=True),
            Phase(steps=tuple(self.prepared), wait=self._waits),
            # A packet that has read of a frontend that it is stateless must not meet slots that are no ring.
            Phase(steps=tuple(self.flips), wait=bool(self.stateful)),
            Phase(steps=tuple(self.published)),
            Phase(steps=tuple(self.last)),
        )
        phases = tuple(phase for phase in collected if phase.steps)
        if any(phase.wait for phase in phases):
            # What rested before this plan has rested enough; what it has freed itself has not.
            ledger.recent = set()
            ledger.arena.release(self._resting)
        if ledger.recent is not None:
            ledger.recent.update(self._freed)
        if self.retired:
            ledger.retirement += 1
        if not self.complete:
            ledger.applied.clear()
        else:
            for service in self._satisfied:
                ledger.applied[service.name] = service
        for name in self._leaving:
            ledger.applied.pop(name, None)
        renamed = (each for each in self.renamed if isinstance(each, Write) and each.map == "backends")
        return Plan(
            phases=phases,
            complete=self.complete,
            renamed=frozenset(int.from_bytes(each.key, "little") for each in renamed),
        )

    def satisfied(self, service: WantedService) -> None:
        """After this plan the maps say it."""
        self._satisfied.append(service)

    def leaves(self, name: str) -> None:
        """This one is no more."""
        self._leaving.append(name)

    def reuse(self, thing: Thing) -> None:
        """It is written over in the phase of preparation."""
        self._waits = self._waits or self.ledger.is_recent(thing)

    def free(self, thing: Thing) -> None:
        """It is in force no more after this plan."""
        self._freed.append(thing)

    def free_generation(self, index: int, place: int, generation: Generation) -> None:
        """Likewise, with its elements."""
        if generation.length:
            self.ledger.arena.give_back(generation.first, elements_of(generation.length))
        self.free(("generation", index, place))

    def room(self, elements: int) -> int | None:
        """First of so many elements of `rings`; None where there is no room before this plan is carried out."""
        arena = self.ledger.arena
        if self.ledger.recent is None:
            self._waits = True
        at = arena.take(elements)
        if at is None and self._resting:
            self._waits = True
            arena.release(self._resting)
            self._resting = 0
            at = arena.take(elements)
        return at

    def write_service(self, steps: list[Step], index: int, record: ServiceRecord) -> None:
        """In one of the phases."""
        self.ledger.services[index] = record
        steps.append(write_at("services", index, record.pack()))
