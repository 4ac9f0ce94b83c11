"""Endpoints of services: their indices, which are part of the keys of flows, and what packets are told of them.

An endpoint that goes leaves its index behind under a key that no packet looks for, and finds it again. When no index
is unused, the one that was given up longest ago goes to another endpoint. Of another service it may be at once: an old
flow is not taken for the new endpoint's, because its server is another service's. Within one service it would be, and
so an index is only given away there when no flow of its former time can be on record any more.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from haxlb.forwarding.hashing import any_port_bit
from haxlb.forwarding.ledger import Ledger
from haxlb.forwarding.portless import portless_endpoints
from haxlb.forwarding.records import (
    RETIREMENT_S,
    FrontendFlag,
    FrontendRecord,
    endpoints_map,
    identity_of,
    pack_endpoint,
    pack_portless,
    pack_withdrawn,
)
from haxlb.forwarding.steps import Delete, Step, Write, write_at
from haxlb.forwarding.wanted import WantedService, WantedTable
from haxlb.forwarding.writing import Writing
from haxlb.model.addresses import Endpoint, IPAddress
from haxlb.model.errors import HostError
from haxlb.model.virtual_server import ForwardingMethod

_TICKS: Final = 0xFFFF
_LONGEST_LIFETIME_S: Final = 0xFFFF
"""Of a flow: the program counts its seconds in 16 bits."""


def flags_of(wanted: WantedService, endpoint: Endpoint) -> FrontendFlag:
    """What packets to this endpoint are told."""
    flags = FrontendFlag(0)
    if wanted.stateless:
        flags |= FrontendFlag.STATELESS
    # NAT's answers are found by the port of the server, which is the packet's where it has none of its own.
    kept = any(each.method is ForwardingMethod.NAT and not each.port for each in wanted.servers)
    if not endpoint.port or kept or wanted.ports_kept:
        flags |= FrontendFlag.ANY_PORT
    if wanted.one_packet:
        flags |= FrontendFlag.ONE_PACKET
    if wanted.persistence_s:
        flags |= FrontendFlag.PERSISTENT
    if wanted.shared:
        flags |= FrontendFlag.SHARED
    if any(server.upper_threshold for server in wanted.servers):
        flags |= FrontendFlag.LIMITED
    return flags


class Frontends:
    """The part of a plan that is about endpoints."""

    def __init__(self, writing: Writing, now_s: int) -> None:
        self._writing = writing
        self._ledger: Ledger = writing.ledger
        self._tick = now_s // RETIREMENT_S % _TICKS + 1
        self._just_withdrawn: set[Endpoint] = set()

    def withdraw(self, changed: Iterable[WantedService], gone: Iterable[int]) -> None:
        """Take away the endpoints that no service wants any more; `gone`: indices of services."""
        changed = list(changed)
        claimed = {endpoint for service in changed for endpoint in service.endpoints}
        for index in gone:
            self._withdraw(self._ledger.offered.get(index, set()) - claimed)
        for service in changed:
            known = self._ledger.service_of.get(identity_of(service.name))
            if known is not None:
                self._withdraw(self._ledger.offered.get(known, set()) - claimed)

    def _withdraw(self, endpoints: Iterable[Endpoint]) -> None:
        ledger = self._ledger
        for endpoint in sorted(endpoints, key=str):
            frontend = ledger.frontends.pop(endpoint)
            ledger.offered[frontend.service].discard(endpoint)
            left = FrontendRecord(index=frontend.index, service=frontend.service, retired=self._tick)
            ledger.withdrawn[endpoint] = left
            self._just_withdrawn.add(endpoint)
            name = endpoints_map(endpoint)
            # One by one, and noted before it goes: an index of which nothing is noted would be taken for unused.
            self._writing.withdrawn += (
                Write(name, pack_withdrawn(endpoint), left.pack()),
                Delete(name, pack_endpoint(endpoint)),
            )

    def offer(self, index: int, wanted: WantedService) -> bool:
        """Make the endpoints of a service what they shall be; False where there is no room yet. Raises HostError."""
        complete = True
        for endpoint in wanted.endpoints:
            flags = flags_of(wanted, endpoint)
            known = self._ledger.frontends.get(endpoint)
            if known is not None and known.service == index and known.flags == flags:
                continue
            if known is None:
                complete = self._publish(index, endpoint, flags) and complete
                continue
            record = FrontendRecord(index=known.index, service=index, flags=flags)
            ceases = known.service == index and known.flags & ~flags & FrontendFlag.STATELESS
            self._put(self._writing.stateful if ceases else self._writing.published, endpoint, record)
        return complete

    def stand_for_ports(self, wanted: WantedTable) -> None:
        """Make the endpoints of packets that do not tell their ports what they shall be."""
        ledger = self._ledger
        standing = {}
        for endpoint, service in portless_endpoints(wanted.services).items():
            index = ledger.service_of.get(identity_of(service.name))
            # No flow is found by it: it needs no index.
            if index is not None and index in ledger.living:
                flags = flags_of(service, endpoint) & ~FrontendFlag.ANY_PORT
                standing[endpoint] = FrontendRecord(index=0, service=index, flags=flags)
        for endpoint, record in list(ledger.portless.items()):
            if standing.get(endpoint) != record:
                del ledger.portless[endpoint]
                self._writing.withdrawn.append(Delete(endpoints_map(endpoint), pack_portless(endpoint)))
        for endpoint, record in standing.items():
            if endpoint not in ledger.portless:
                ledger.portless[endpoint] = record
                step = Write(endpoints_map(endpoint), pack_portless(endpoint), record.pack())
                self._writing.published.append(step)

    def _put(self, steps: list[Step], endpoint: Endpoint, record: FrontendRecord) -> None:
        if not endpoint.port:
            self._admit(endpoint.address)
        former = self._ledger.frontends.get(endpoint)
        if former is not None:
            self._ledger.offered[former.service].discard(endpoint)
        self._ledger.frontends[endpoint] = record
        self._ledger.offered.setdefault(record.service, set()).add(endpoint)
        steps.append(Write(endpoints_map(endpoint), pack_endpoint(endpoint), record.pack()))

    def _admit(self, address: IPAddress) -> None:
        """Have packets look for the endpoint of all ports of this address: none does otherwise.

        The bit stays when the endpoint goes. What it costs then is a look in vain for the few that share it.
        """
        at, bit = divmod(any_port_bit(address), 8)
        bits = self._ledger.any_port_bits
        if not bits[at] >> bit & 1:
            bits[at] |= 1 << bit
            self._writing.prepared.append(write_at("any_port_bits", 0, bytes(bits)))

    def _publish(self, service: int, endpoint: Endpoint, flags: FrontendFlag) -> bool:
        ledger = self._ledger
        leaves_a_note = endpoint if endpoint in ledger.withdrawn else None
        if leaves_a_note is not None:
            index: int | None = ledger.withdrawn[endpoint].index
        else:
            index = ledger.unused_frontend()
            if index is None:
                leaves_a_note = self._given_up(service)
                index = None if leaves_a_note is None else ledger.withdrawn[leaves_a_note].index
        if index is None:
            if not self._just_withdrawn:
                raise HostError(
                    f"the forwarder has room for {ledger.sizes.frontends} addresses and ports of virtual servers, "
                    "all are taken",
                    remedy="stop haxlb, run `haxlb detach` and start it: it makes room for all",
                )
            return False
        record = FrontendRecord(index=index, service=service, flags=flags)
        self._put(self._writing.published, endpoint, record)
        if leaves_a_note is not None:
            del ledger.withdrawn[leaves_a_note]
            note = Delete(endpoints_map(leaves_a_note), pack_withdrawn(leaves_a_note))
            self._writing.published.append(note)
        return True

    def _given_up(self, service: int) -> Endpoint | None:
        """Whose index may go to another endpoint."""
        best: tuple[int, int] | None = None
        found = None
        for endpoint, record in self._ledger.withdrawn.items():
            age = (self._tick - record.retired) % _TICKS
            if endpoint in self._just_withdrawn:
                continue
            if record.service == service and age * RETIREMENT_S <= _LONGEST_LIFETIME_S:
                continue
            rank = (age, -record.index)
            if best is None or rank > best:
                best, found = rank, endpoint
        return found
