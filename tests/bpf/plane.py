"""A loaded forwarder that is attached to nothing, and the oracle beside it."""

from __future__ import annotations

import contextlib
import mmap
import time
from collections.abc import Iterator
from dataclasses import dataclass

from haxlb.forwarding import layout
from haxlb.forwarding.flows import FlowEntry, unpack_flows, unpack_wide_flows
from haxlb.forwarding.layout import MapKind, pack_mac
from haxlb.forwarding.reference import Action, Reference
from haxlb.forwarding.wanted import WantedTable, server_key
from haxlb.linux import bpf
from haxlb.linux.maps import possible_cpus
from haxlb.linux.specimen import LOOPBACK, OWN_MAC, Specimen
from tests.bpf import slow_clock
from tests.bpf.aging import age_flows
from tests.bpf.slow_clock import TICKS_PER_SECOND
from tests.forwarding.tables import PEER_MAC

ACTIONS = {
    bpf.XDP_PASS: Action.PASS,
    bpf.XDP_DROP: Action.DROP,
    bpf.XDP_TX: Action.SEND,
    bpf.XDP_REDIRECT: Action.SEND,
}
FLOW_TABLES = {"flows": 16, "overflow": 16, "wide_flows": 32, "wide_overflow": 32}
"""With the bytes of a way."""


@dataclass(frozen=True)
class Answer:
    action: Action
    reason: str
    frame: bytes
    redirected: bool


class Plane:
    """Of a specimen whose clock goes slowly."""

    def __init__(self, specimen: Specimen) -> None:
        self.maps = specimen.maps
        self.program = specimen.program
        self.forwarder = specimen.forwarder
        self.oracle = Reference({LOOPBACK: OWN_MAC})
        self._aged_s = 0.0
        self._verdicts: dict[str, int] = {}
        self.reset()

    def reset(self) -> None:
        """Empty tables, as after a start."""
        for name, fd in self.maps.fds.items():
            shape = self.maps.shape(name)
            if shape.kind in (MapKind.HASH, MapKind.LRU_HASH, MapKind.DEVMAP_HASH):
                for key in list(bpf.map_keys(fd, shape.key_size)):
                    bpf.map_delete(fd, key)
            elif shape.kind == MapKind.ARRAY and shape.mmapable:
                with self.table(name) as content:
                    content[:] = bytes(len(content))
            elif shape.kind == MapKind.ARRAY:
                keys = b"".join(layout.INDEX.pack(index) for index in range(shape.entries))
                bpf.map_update_batch(fd, keys, bytes(shape.value_size * shape.entries), shape.entries)
        for name in ("service_tallies", "backend_tallies"):
            entries = self.maps.shape(name).entries
            keys = b"".join(layout.INDEX.pack(index) for index in range(entries))
            zeros = bytes(layout.TALLY_BYTES * possible_cpus() * entries)
            bpf.map_update_batch(self.maps.fds[name], keys, zeros, entries)
        self.maps.write("interfaces", layout.INDEX.pack(LOOPBACK), layout.pack_own_mac(OWN_MAC))
        self.restart()
        self.oracle = Reference({LOOPBACK: OWN_MAC})
        self._aged_s = 0.0
        self._verdicts = self.verdicts()

    def restart(self) -> None:
        """Forget all that is not in the maps."""
        self.forwarder._ledger = None

    @contextlib.contextmanager
    def table(self, name: str) -> Iterator[mmap.mmap]:
        """The memory of a map that can be mapped."""
        shape = self.maps.shape(name)
        with mmap.mmap(self.maps.fds[name], shape.entries * shape.value_size) as content:
            yield content

    def apply(self, wanted: WantedTable) -> None:
        self.forwarder.apply(wanted)
        self.oracle.configure(wanted, int(time.monotonic()))

    def verdicts(self) -> dict[str, int]:
        return layout.sum_verdicts(self.maps.read("verdicts", layout.INDEX.pack(0)) or b"")

    def send(self, frame: bytes) -> Answer:
        """What the program does, and which reason it counted."""
        run = bpf.prog_test_run(self.program, frame)
        now = self.verdicts()
        counted = {name: now[name] - before for name, before in self._verdicts.items() if now[name] != before}
        self._verdicts = now
        assert list(counted.values()) == [1], f"one frame, counted as {counted}"
        return Answer(ACTIONS[run.verdict], next(iter(counted)), run.frame, run.verdict == bpf.XDP_REDIRECT)

    def expect(self, frame: bytes) -> Answer:
        """The program's answer, after comparing it with the oracle's."""
        told = self.oracle.handle(frame, LOOPBACK, slow_clock.now_s() + self._aged_s)
        answer = self.send(frame)
        assert (answer.reason, answer.action) == (told.reason, told.action)
        assert answer.frame == told.frame
        assert answer.redirected == (told.interface not in (None, LOOPBACK))
        return answer

    def server(self, frame: bytes) -> str:
        """MAC of the server that the program sends the frame to; the reason where it does not."""
        run = bpf.prog_test_run(self.program, frame)
        return run.frame[:6].hex(":") if run.verdict in (bpf.XDP_TX, bpf.XDP_REDIRECT) else ACTIONS[run.verdict].value

    @staticmethod
    def peers(frame: bytes) -> bytes:
        """The frame addressed to the other director."""
        return pack_mac(PEER_MAC) + pack_mac(OWN_MAC) + frame[12:]

    def age(self, seconds: float) -> None:
        """Let time pass for all flows."""
        self._aged_s += seconds
        ticks = round(seconds * TICKS_PER_SECOND)
        for name, size in FLOW_TABLES.items():
            with self.table(name) as flows:
                age_flows(flows, size, ticks)

    def flows(self) -> list[FlowEntry]:
        """All flows on record, templates included."""
        found: list[FlowEntry] = []
        for name, size in FLOW_TABLES.items():
            with self.table(name) as flows:
                found += (unpack_flows if size == FLOW_TABLES["flows"] else unpack_wide_flows)(flows[:])
        return found

    def expect_flows(self) -> None:
        """The flow tables say what the oracle's say, stamps aside."""
        ledger = self.forwarder._read()
        endpoints = {record.index: endpoint for endpoint, record in ledger.frontends.items()}
        table = {
            (endpoints[flow.frontend], flow.source, flow.source_port, flow.destination_port): (
                server_key(ledger.backends[flow.backend].address, ledger.backends[flow.backend].port),
                flow.state,
            )
            for flow in self.flows()
            if not flow.state.of_client
        }
        assert table == {
            (key.endpoint, key.source, key.source_port, key.destination_port): (flow.server, flow.state)
            for key, flow in self.oracle.flows
        }
