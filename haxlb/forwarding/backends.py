"""Real servers of services: their indices, which flows remember, and how packets reach them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from haxlb.forwarding.layout import LOAD_BYTES, TALLY_BYTES
from haxlb.forwarding.ledger import Ledger
from haxlb.forwarding.records import BACKEND_ALIVE, BACKEND_HOP, BACKEND_LOCAL, TUNNEL_CHECKSUM, BackendRecord
from haxlb.forwarding.steps import Step, write_at
from haxlb.forwarding.wanted import NextHop, WantedServer
from haxlb.forwarding.writing import Writing

_INCARNATIONS: Final = 256
_MOST: Final = 0xFFFF
_USUAL_MTU: Final = 1500


def bare(hop: NextHop) -> NextHop:
    """Without what a record keeps elsewhere."""
    if hop.source is None and hop.mtu == _USUAL_MTU and not hop.vlan:
        return hop
    return NextHop(interface_index=hop.interface_index, source_mac=hop.source_mac, destination_mac=hop.destination_mac)


class Backends:
    """The part of a plan that is about real servers."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._ledger: Ledger = writing.ledger

    def serve(self, service: int, server: WantedServer) -> int | None:
        """Make one server what it shall be; its index, None where there is no room for it yet."""
        ledger = self._ledger
        index = ledger.backend_of.get((service, server.address, server.port))
        if index is None:
            index = self._new(service, server)
            if index is None:
                return None
        ledger.members.setdefault(service, set()).add(index)
        record = ledger.backends[index]
        if not server.gets_packets:
            settled = self._record(record, server, record.state & ~BACKEND_ALIVE, record.hops, record.vlans)
            if settled != record:
                # Dead already by `deaths`, or the last one: then it lives until a ring says what comes instead.
                self._write(self._writing.last if record.alive else self._writing.prepared, index, settled)
            return index
        hop = server.next_hop
        assert hop is not None, "gets_packets"
        second = bool(record.state & BACKEND_HOP)
        hops, vlans, way = record.hops, record.vlans, bare(hop)
        if hops[second] != way or vlans[second] != hop.vlan:
            if hops[second] is not None:
                # Packets may be reading the place that is in force.
                self._writing.free(("hop", index, second))
                second = not second
                self._writing.reuse(("hop", index, second))
            hops = (hops[0], way) if second else (way, hops[1])
            vlans = (vlans[0], hop.vlan) if second else (hop.vlan, vlans[1])
            if record.alive:
                self._write(self._writing.prepared, index, self._record(record, server, record.state, hops, vlans))
        state = BACKEND_ALIVE | BACKEND_HOP * second | BACKEND_LOCAL * hop.local
        self._settle(index, record, self._record(record, server, state, hops, vlans))
        return index

    def _settle(self, index: int, record: BackendRecord, settled: BackendRecord) -> None:
        """Write what a server that gets packets shall be; `record` is what it was before this plan."""
        prepared = settled
        if record.alive:
            # A service that ceases to be stateless has flows on no record. Until the flip names their former server
            # they are new to it, and it takes no new ones when it is full.
            prepared = replace(settled, upper=record.upper, lower=record.lower)
        if prepared != self._ledger.backends[index]:
            self._write(self._writing.prepared, index, prepared)
        if settled != prepared:
            self._write(self._writing.published, index, settled)

    @staticmethod
    def _record(
        record: BackendRecord,
        server: WantedServer,
        state: int,
        hops: tuple[NextHop | None, NextHop | None],
        vlans: tuple[int, int],
    ) -> BackendRecord:
        hop = server.next_hop
        return BackendRecord(
            service=record.service,
            address=record.address,
            port=record.port,
            state=state,
            incarnation=record.incarnation,
            weight=min(server.weight, _MOST),
            method=server.method,
            tunnel=server.tunnel,
            tunnel_port=server.tunnel_port,
            tunnel_flags=TUNNEL_CHECKSUM * server.tunnel_checksum,
            upper=server.upper_threshold,
            lower=server.lower_threshold,
            hops=hops,
            vlans=vlans,
            source=record.source if hop is None else hop.source,
            mtu=record.mtu if hop is None else min(hop.mtu, _MOST),
        )

    def _new(self, service: int, server: WantedServer) -> int | None:
        ledger = self._ledger
        record = BackendRecord(service=service, address=server.address, port=server.port)
        index = ledger.unused_backend()
        if index is None:
            index = ledger.longest_retired_backend()
            if index is None:
                return None
            former = ledger.backends[index]
            del ledger.backend_of[former.identity]
            record = replace(record, incarnation=(former.incarnation + 1) % _INCARNATIONS)
            self._rename(index, record)
        ledger.backends[index] = record
        ledger.backend_of[service, server.address, server.port] = index
        return index

    def _rename(self, index: int, record: BackendRecord) -> None:
        self._write(self._writing.renamed, index, record)
        self._writing.cleared += (
            write_at("backend_tallies", index, bytes(TALLY_BYTES)),
            write_at("loads", index, bytes(LOAD_BYTES)),
        )

    def forget(self, service: int) -> None:
        """The servers of a service that had this index are none of the next one's, at whatever address they are."""
        for index, record in list(self._ledger.backends.items()):
            if record.service == service:
                self._rename(index, replace(record, incarnation=(record.incarnation + 1) % _INCARNATIONS))

    def leave(self, service: int, staying: set[int]) -> None:
        """Take the life of all servers of a service but these."""
        ledger = self._ledger
        members = ledger.members.get(service, set())
        for index in sorted(members - staying):
            record = ledger.backends[index]
            record = replace(record, state=record.state & ~BACKEND_ALIVE, retired=ledger.retirement)
            ledger.retire_backend(index, record)
            members.discard(index)
            self._writing.retired = True
            self._writing.last.append(write_at("backends", index, record.pack()))

    def _write(self, steps: list[Step], index: int, record: BackendRecord) -> None:
        self._ledger.backends[index] = record
        steps.append(write_at("backends", index, record.pack()))
