"""What the maps say beside the verdicts: records, templates, loads and tallies, against the oracle's."""

from __future__ import annotations

from haxlb.forwarding import layout
from haxlb.forwarding.flows import FlowEntry, FlowState, unpack_flows, unpack_wide_flows
from haxlb.forwarding.records import LoadRecord, identity_of
from haxlb.forwarding.wanted import Load, Tally, server_key
from tests.bpf.plane import FLOW_TABLES, Plane


def entries(plane: Plane, *names: str) -> list[FlowEntry]:
    """The records of these tables."""
    found: list[FlowEntry] = []
    for name in names:
        with plane.table(name) as content:
            found += (unpack_wide_flows if name.startswith("wide") else unpack_flows)(content[:])
    return found


def loads(plane: Plane) -> dict[int, Load]:
    """By backend index, those that are not zero."""
    with plane.table("loads") as content:
        raw = content[:]
    found = {index: LoadRecord.unpack(raw, index) for index in range(len(raw) // layout.LOAD_BYTES)}
    return {index: load for index, load in found.items() if load.active or load.inactive}


def counted(plane: Plane) -> dict[int, Load]:
    """The same, counted from the records."""
    found: dict[int, Load] = {}
    for entry in entries(plane, *FLOW_TABLES):
        if entry.state.of_client:
            continue
        before = found.get(entry.backend, Load())
        closing = entry.state is FlowState.TCP_CLOSING
        found[entry.backend] = Load(active=before.active + (not closing), inactive=before.inactive + closing)
    return found


def expect_books(plane: Plane) -> None:
    """Records, loads and tallies are the oracle's, stamps aside."""
    ledger = plane.forwarder._read()
    endpoints = {
        record.index: endpoint for known in (ledger.frontends, ledger.withdrawn) for endpoint, record in known.items()
    }
    keys = {index: server_key(record.address, record.port) for index, record in ledger.backends.items()}
    records, templates = {}, {}
    for name in FLOW_TABLES:
        for entry in entries(plane, name):
            if entry.state.of_client:
                # Of a service: its number is where a flow has that of its endpoint.
                wide = name.startswith("wide") and entry.source.version == 4
                templates[ledger.services[entry.frontend].identity, wide, entry.source] = keys[entry.backend]
                continue
            key = (endpoints.get(entry.frontend), entry.source, entry.source_port, entry.destination_port)
            assert key not in records, f"twice on record: {key}"
            records[key] = (keys[entry.backend], entry.state)
    oracle = plane.oracle
    assert records == {
        (key.endpoint, key.source, key.source_port, key.destination_port): (flow.server, flow.state)
        for key, flow in oracle.flows
    }
    assert templates == {
        (identity_of(key.service), key.all_ports, key.network): flow.server
        for key, flow in oracle.flows.templates.items()
    }
    # The planner may have given the load of a server that left to nobody: each index is one server of one service.
    names = {identity_of(name): name for name in oracle.flows.services()}
    told = {}
    for index, record in ledger.backends.items():
        name = names.get(ledger.services[record.service].identity)
        active, inactive = (0, 0) if name is None else oracle.flows.load(name, keys[index])
        if active or inactive:
            told[index] = (active, inactive)
    assert {index: (load.active, load.inactive) for index, load in loads(plane).items()} == told
    counters = plane.forwarder.counters()
    assert {name: tally for name, tally in counters.services.items() if tally != Tally()} == {
        name: tally for name, tally in oracle.service_tallies.items() if name in counters.services
    }
