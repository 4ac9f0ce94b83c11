"""Wanted minus actual: the ordered writes that turn what the maps say into what they shall say.

The order is what makes a change invisible to packets: endpoints that go are withdrawn first, and frontends that cease
to be stateless say so; then come servers that are new or reached differently, rings that are not in force and the marks
of what they move, then the flip to them, then endpoints that are new and thresholds, and last the death of servers that
no ring names any more. Between any two writes every packet finds a live server if there is one.

Nothing that a packet may be reading is written: not what is in force, and of what was until lately only after every
packet that was being handled then has been (`Phase.wait`). What this very plan gives up it does not use again.
"""

from __future__ import annotations

from dataclasses import replace

from haxlb.forwarding.backends import Backends
from haxlb.forwarding.frontends import Frontends
from haxlb.forwarding.ledger import Ledger
from haxlb.forwarding.records import BACKEND_ALIVE, identity_of
from haxlb.forwarding.services import Services
from haxlb.forwarding.steps import Phase, Plan, Step, write_at
from haxlb.forwarding.wanted import WantedService, WantedTable
from haxlb.forwarding.writing import Writing
from haxlb.model.errors import HostError


def plan(wanted: WantedTable, ledger: Ledger, now_s: int) -> Plan:
    """What to write so that the maps say what `wanted` says; nothing where they do.

    Where what leaves and what comes do not fit together, what comes waits for a second plan. `now_s`: CLOCK_MONOTONIC.
    Raises HostError where the tables are too small; the ledger is of no use then, and the maps are what they were.
    """
    servers = sum(len(service.servers) for service in wanted.services)
    if servers >= ledger.sizes.backends:
        raise HostError(
            f"{servers} real servers are wanted, the forwarder has room for {ledger.sizes.backends - 1}",
            remedy="remove real servers, or stop haxlb, run `haxlb detach` and start it: it makes room for all",
        )
    changed = changed_services(wanted, ledger)
    gone = _gone(wanted, ledger)
    if not changed and not gone:
        return Plan()
    before = dict(ledger.applied)
    writing = Writing(ledger)
    frontends, backends = Frontends(writing, now_s), Backends(writing)
    services = Services(writing, frontends, backends, now_s)
    for name in ledger.applied.keys() - {service.name for service in wanted.services}:
        writing.leaves(name)
    frontends.withdraw(changed, gone)
    for index in gone:
        services.retire(index)
    for service in changed:
        services.serve(service)
    if gone or any(_offers_otherwise(service, before.get(service.name)) for service in changed):
        frontends.stand_for_ports(wanted)
    return writing.result()


def deaths(wanted: WantedTable, ledger: Ledger) -> Plan:
    """The first writes of a change: one byte each takes the life of servers that shall get no packets.

    `plan` needs some milliseconds for a ring without them, during which their flows can move already and new ones pass
    over their slots. Servers of services that keep no other stay: until the ring says what comes instead, nothing is
    better than they are.
    """
    steps: list[Step] = []
    for service in changed_services(wanted, ledger):
        at = ledger.service_of.get(identity_of(service.name))
        if at is None or ledger.services[at].retired:
            continue
        known = [(server, ledger.backend_of.get((at, server.address, server.port))) for server in service.servers]
        living = [(server, index) for server, index in known if index is not None and ledger.backends[index].alive]
        if not any(server.gets_packets and server.weight and ledger.backends[index].weight for server, index in living):
            continue
        for server, index in living:
            if not server.gets_packets:
                record = ledger.backends[index]
                record = replace(record, state=record.state & ~BACKEND_ALIVE)
                ledger.backends[index] = record
                steps.append(write_at("backends", index, record.pack()))
    return Plan(phases=(Phase(steps=tuple(steps)),) if steps else ())


def changed_services(wanted: WantedTable, ledger: Ledger) -> list[WantedService]:
    """Those of which it is not known that the maps say them."""
    applied = ledger.applied
    return [
        service
        for service in wanted.services
        # Nearly all are the very same objects.
        if (known := applied.get(service.name)) is not service and known != service
    ]


def _offers_otherwise(service: WantedService, before: WantedService | None) -> bool:
    return before is None or any(
        getattr(service, what) != getattr(before, what) for what in ("endpoints", "stateless", "hash_port", "shared")
    )


def _gone(wanted: WantedTable, ledger: Ledger) -> list[int]:
    names = {service.name for service in wanted.services}
    if len(ledger.applied) == len(ledger.living) and ledger.applied.keys() <= names:
        return []
    staying = {ledger.service_of.get(identity_of(name)) for name in names}
    return sorted(ledger.living - staying)
