"""Wanted minus actual: the ordered writes that turn what the maps say into what they shall say.

The order is what makes a change invisible to packets: endpoints that go are withdrawn first, then come servers that
are new or reached differently, then the half of each ring that is not in force, then the flip to it, then endpoints
that are new, and last the death of servers that no ring names any more. Between any two writes every packet finds a
live server if there is one.

Indices are what flows remember, so they are stable. A server or service that leaves keeps its index (retired, not
alive) and finds it again when it returns; only when no index is unused is the longest retired one given to another,
never one that was retired by the same plan. A backend's incarnation then changes, and flows of the earlier server
are unknown. All of this is read back from the maps: nothing is remembered elsewhere.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from haxlb.forwarding.layout import (
    BACKEND_ALIVE,
    BACKEND_HOP,
    BACKEND_LOCAL,
    HALF_HASH_PORT,
    HALF_SEQUENCE,
    INDEX,
    SELECT_HALF,
    SELECT_PEER,
    SELECT_PEER_KNOWN,
    TALLY_BYTES,
    BackendRecord,
    Half,
    ServiceRecord,
    Sizes,
    pack_endpoint,
)
from haxlb.forwarding.ring import Recipe, order, ring_content, seeds
from haxlb.forwarding.wanted import WantedServer, WantedService, WantedTable
from haxlb.model.addresses import Endpoint
from haxlb.model.errors import HostError
from haxlb.model.node import Scheduler

_INCARNATIONS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """One element of a map; of a per-CPU map the same value for each CPU."""

    map: str
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Remove one element of a map."""

    map: str
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteRing:
    """Fill a half of a ring that is not in force. No packet may still be reading it from the time when it was."""

    service: int
    half: int
    content: bytes
    """Whole elements."""


Step = Write | Delete | WriteRing


@dataclass(frozen=True, slots=True, kw_only=True)
class Actual:
    """What the maps say."""

    sizes: Sizes
    endpoints: Mapping[Endpoint, int] = field(default_factory=dict)
    services: Mapping[int, ServiceRecord] = field(default_factory=dict)
    """All that were ever written, retired ones included."""
    backends: Mapping[int, BackendRecord] = field(default_factory=dict)
    rings: Mapping[int, bytes] = field(default_factory=dict)
    """By service, the half in force: whole elements, as many as its length needs."""
    recipes: Mapping[int, Recipe] = field(default_factory=dict)
    """What the rings were computed from, as far as it is known: only of those that this process wrote or compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The steps, and what the maps say after them."""

    steps: tuple[Step, ...]
    after: Actual
    complete: bool = True
    """False = servers were left out for whom there is room only after these steps: plan once more."""


def plan(wanted: WantedTable, actual: Actual) -> Plan:
    """What to write so that the maps say what `wanted` says; nothing where they do.

    Where the servers that leave and those that come do not fit together, those that come wait for a second plan.
    Raises HostError where the tables are too small.
    """
    servers = sum(len(service.servers) for service in wanted.services)
    if servers >= actual.sizes.backends:
        raise HostError(
            f"{servers} real servers are wanted, the forwarder has room for {actual.sizes.backends - 1}",
            remedy="remove real servers, or stop haxlb, run `haxlb detach` and start it: it makes room for all",
        )
    planner = _Planner(actual)
    planner.withdraw({service.endpoint for service in wanted.services})
    for service in wanted.services:
        planner.serve(service)
    planner.retire_backends()
    return planner.result()


def deaths(wanted: WantedTable, actual: Actual) -> Plan:
    """The first writes of a change: one byte each takes the life of servers that shall get no packets.

    `plan` needs some milliseconds for a ring without them, during which their flows can move already and new ones pass
    over their slots. Servers of services that keep no other stay: until the ring says what comes instead, nothing is
    better than they are.
    """
    backends = dict(actual.backends)
    index_of = {record.identity: index for index, record in backends.items()}
    steps: list[Step] = []
    for service in wanted.services:
        at = actual.endpoints.get(service.endpoint)
        if at is None:
            continue
        known = [(server, index_of.get((at, server.address, server.port))) for server in service.servers]
        living = [(server, index) for server, index in known if index is not None and backends[index].alive]
        if not any(_gets_packets(server) and server.weight and backends[index].weight for server, index in living):
            continue
        for server, index in living:
            if not _gets_packets(server):
                record = replace(backends[index], state=backends[index].state & ~BACKEND_ALIVE)
                backends[index] = record
                steps.append(Write(map="backends", key=INDEX.pack(index), value=record.pack()))
    return Plan(steps=tuple(steps), after=replace(actual, backends=backends))


def _gets_packets(server: WantedServer) -> bool:
    return server.alive and server.next_hop is not None


class _Planner:
    def __init__(self, actual: Actual) -> None:
        self._sizes = actual.sizes
        self._endpoints = dict(actual.endpoints)
        self._services = dict(actual.services)
        self._backends = dict(actual.backends)
        self._rings = dict(actual.rings)
        self._recipes = dict(actual.recipes)
        self._service_of = {record.endpoint: index for index, record in self._services.items()}
        self._service_of.update(self._endpoints)
        self._backend_of = {record.identity: index for index, record in self._backends.items()}
        self._wanted_backends: set[int] = set()
        self._complete = True
        ages = [record.retired for record in self._services.values()]
        ages += [record.retired for record in self._backends.values()]
        self._retirement = 1 + max(ages, default=0)
        self._withdrawn: list[Step] = []
        self._first: list[Step] = []
        self._ring_steps: list[Step] = []
        self._flips: list[Step] = []
        self._published: list[Step] = []
        self._last: list[Step] = []

    def result(self) -> Plan:
        """All steps in the order that the module's docstring gives."""
        return Plan(
            steps=(
                *self._withdrawn,
                *self._first,
                *self._ring_steps,
                *self._flips,
                *self._published,
                *self._last,
            ),
            after=Actual(
                sizes=self._sizes,
                endpoints=self._endpoints,
                services=self._services,
                backends=self._backends,
                rings=self._rings,
                recipes=self._recipes,
            ),
            complete=self._complete,
        )

    def withdraw(self, wanted: set[Endpoint]) -> None:
        """Take away the endpoints that are not wanted and retire their services."""
        for endpoint in [endpoint for endpoint in self._endpoints if endpoint not in wanted]:
            del self._endpoints[endpoint]
            self._withdrawn.append(Delete(map="endpoints", key=pack_endpoint(endpoint)))
        for index, record in self._services.items():
            if not record.retired and record.endpoint not in wanted:
                self._write_service(self._withdrawn, index, replace(record, retired=self._retirement))

    def serve(self, wanted: WantedService) -> None:
        """Make one service what it shall be."""
        index = self._service_of.get(wanted.endpoint)
        if index is None:
            index = self._new_service(wanted.endpoint)
        served = tuple(server for server in wanted.servers if self._serve_by(index, server))
        if len(served) < len(wanted.servers):
            self._complete = False
        self._point(index, replace(wanted, servers=served))
        if self._endpoints.get(wanted.endpoint) != index:
            self._endpoints[wanted.endpoint] = index
            self._published.append(Write(map="endpoints", key=pack_endpoint(wanted.endpoint), value=INDEX.pack(index)))

    def _new_service(self, endpoint: Endpoint) -> int:
        index = next((each for each in range(1, self._sizes.services + 1) if each not in self._services), None)
        if index is None:
            # One that this plan has withdrawn will do: nobody finds it any more when its record is written.
            retired = [(record.retired, each) for each, record in self._services.items() if record.retired]
            if not retired:
                raise HostError(
                    f"the forwarder has room for {self._sizes.services} virtual servers, all are taken",
                    remedy="raise forwarding.max_services in haxlb.yml, run `haxlb detach` and restart haxlb",
                )
            _, index = min(retired)
            del self._service_of[self._services[index].endpoint]
            self._rings.pop(index, None)
            self._recipes.pop(index, None)
            self._forget_servers(index)
        self._service_of[endpoint] = index
        self._write_service(self._first, index, ServiceRecord(endpoint=endpoint))
        self._first.append(Write(map="service_tallies", key=INDEX.pack(index), value=bytes(TALLY_BYTES)))
        return index

    def _forget_servers(self, service: int) -> None:
        """The servers of a service that had this index are none of the next one's, at whatever address they are."""
        for index, record in list(self._backends.items()):
            if record.service == service:
                incarnation = (record.incarnation + 1) % _INCARNATIONS
                self._write_backend(self._first, index, replace(record, incarnation=incarnation))
                self._first.append(Write(map="backend_tallies", key=INDEX.pack(index), value=bytes(TALLY_BYTES)))

    def _write_service(self, steps: list[Step], index: int, record: ServiceRecord) -> None:
        self._services[index] = record
        steps.append(Write(map="services", key=INDEX.pack(index), value=record.pack()))

    def _point(self, index: int, wanted: WantedService) -> None:
        """Ring and peer: prepare what is not in force, then put it in force by one byte."""
        record = self._services[index]
        prepared, select = replace(record, retired=0), record.select
        recipe = self._recipe(index, wanted)
        if self._recipes.get(index) != recipe:
            content = ring_content(recipe)
            half = Half(length=self._length(recipe, content), flags=recipe.flags)
            if (half, content) != (record.halves[record.half], self._rings.get(index, b"")):
                other = record.half ^ SELECT_HALF
                halves = (half, record.halves[1]) if other == 0 else (record.halves[0], half)
                prepared, select = replace(prepared, halves=halves), select ^ SELECT_HALF
                if content:
                    self._ring_steps.append(WriteRing(service=index, half=other, content=content))
            self._rings[index], self._recipes[index] = content, recipe
        if wanted.peer is None:
            select &= ~SELECT_PEER_KNOWN
        elif wanted.peer != record.peer:
            second = not select & SELECT_PEER
            peers = (record.peers[0], wanted.peer) if second else (wanted.peer, record.peers[1])
            prepared, select = replace(prepared, peers=peers), (select ^ SELECT_PEER) | SELECT_PEER_KNOWN
        if prepared != record:
            self._write_service(self._first, index, prepared)
        if select != prepared.select:
            self._write_service(self._flips, index, replace(prepared, select=select))

    def _recipe(self, index: int, wanted: WantedService) -> Recipe:
        seed = seeds(wanted.servers)
        flags = HALF_SEQUENCE if wanted.scheduler in (Scheduler.RR, Scheduler.WRR) else 0
        if wanted.hash_port:
            flags |= HALF_HASH_PORT
        # Equal turns whatever the weights: that is what rr means.
        equal = wanted.scheduler is Scheduler.RR
        return Recipe(
            flags=flags,
            servers=tuple(
                (
                    seed[server.key],
                    1 if equal else server.weight,
                    self._backend_of[index, server.address, server.port],
                )
                for server in sorted(wanted.servers, key=order)
                if _gets_packets(server) and server.weight > 0
            ),
        )

    @staticmethod
    def _length(recipe: Recipe, content: bytes) -> int:
        if not recipe.flags & HALF_SEQUENCE:
            return len(content) // 2
        # The padding of the last element is zeros, and no index is.
        slots = array("H", content)
        while slots and not slots[-1]:
            slots.pop()
        return len(slots)

    def _serve_by(self, service: int, server: WantedServer) -> bool:
        """Make one server what it shall be; False where there is no room for it yet."""
        identity = (service, server.address, server.port)
        index = self._backend_of.get(identity)
        if index is None:
            index = self._new_backend(service, server)
        if index is None:
            return False
        self._wanted_backends.add(index)
        record = self._backends[index]
        settled = replace(record, retired=0, weight=min(server.weight, 0xFFFF))
        if not server.alive or server.next_hop is None:
            settled = replace(settled, state=record.state & ~BACKEND_ALIVE)
            if settled != record:
                self._write_backend(self._last, index, settled)
            return True
        place = record.state & BACKEND_HOP
        if server.next_hop != record.hop:
            # Packets may be reading the place that is in force.
            place ^= BACKEND_HOP if record.alive else 0
            settled = settled.with_hop(server.next_hop, second=bool(place))
            if record.alive:
                self._write_backend(self._first, index, settled)
        local = server.next_hop.source_mac == server.next_hop.destination_mac
        settled = replace(settled, state=BACKEND_ALIVE | place | (BACKEND_LOCAL if local else 0))
        if settled != self._backends[index]:
            self._write_backend(self._first, index, settled)
        return True

    def _new_backend(self, service: int, server: WantedServer) -> int | None:
        index = next((each for each in range(1, self._sizes.backends) if each not in self._backends), None)
        incarnation = 0
        if index is None:
            retired = [
                (record.retired, each)
                for each, record in self._backends.items()
                if 0 < record.retired < self._retirement
            ]
            if not retired:
                return None
            _, index = min(retired)
            former = self._backends[index]
            del self._backend_of[former.identity]
            incarnation = (former.incarnation + 1) % _INCARNATIONS
        record = BackendRecord(service=service, address=server.address, port=server.port, incarnation=incarnation)
        self._backend_of[record.identity] = index
        self._write_backend(self._first, index, record)
        self._first.append(Write(map="backend_tallies", key=INDEX.pack(index), value=bytes(TALLY_BYTES)))
        return index

    def retire_backends(self) -> None:
        """Take the life of all servers that no service wants."""
        for index, record in self._backends.items():
            if index not in self._wanted_backends and not record.retired:
                state = record.state & ~BACKEND_ALIVE
                self._write_backend(self._last, index, replace(record, state=state, retired=self._retirement))

    def _write_backend(self, steps: list[Step], index: int, record: BackendRecord) -> None:
        self._backends[index] = record
        steps.append(Write(map="backends", key=INDEX.pack(index), value=record.pack()))
