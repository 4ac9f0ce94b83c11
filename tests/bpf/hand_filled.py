"""A forwarder that is attached to nothing, its maps filled by hand from a wanted table, and the oracle beside it.

The rings, their former generation and the exceptions are the oracle's, so that what is compared is what packets find.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import struct
import subprocess
import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import haxlb
from haxlb.forwarding import layout
from haxlb.forwarding.features import ALL, Features
from haxlb.forwarding.frontends import flags_of
from haxlb.forwarding.layout import INDEX, RING_SLOTS, RING_SLOTS_PER_ELEMENT, MapKind
from haxlb.forwarding.portless import portless_endpoints
from haxlb.forwarding.records import (
    COMPARES,
    BackendRecord,
    FrontendRecord,
    Generation,
    GenerationFlag,
    ServiceRecord,
    endpoints_map,
    pack_endpoint,
    pack_portless,
)
from haxlb.forwarding.reference import Action, Verdict
from haxlb.forwarding.reference_related import RelatedReference
from haxlb.forwarding.wanted import NextHop, WantedServer, WantedService, WantedTable
from haxlb.linux import bpf
from haxlb.linux.bpf_call import closing
from haxlb.linux.bpffs import unmount
from haxlb.linux.maps import Maps
from haxlb.model.virtual_server import Scheduler
from tests.bpf import slow_clock
from tests.bpf.aging import age_flows
from tests.bpf.any_port import admit
from tests.bpf.slow_clock import TICKS_PER_SECOND

LOOPBACK = 1
"""Interface index that BPF_PROG_TEST_RUN gives a frame that no context comes with."""
OWN_MAC = "02:00:00:00:00:aa"
CLIENT_MAC = "02:00:00:00:00:cc"
PEER_MAC = "02:00:00:00:00:bb"
ACTIONS = {bpf.XDP_PASS: Action.PASS, bpf.XDP_DROP: Action.DROP, bpf.XDP_TX: Action.SEND, bpf.XDP_REDIRECT: Action.SEND}
_TABLES = ("flows", "overflow", "wide_flows", "wide_overflow")
_ELEMENTS = RING_SLOTS // RING_SLOTS_PER_ELEMENT


@dataclass(frozen=True)
class Answer:
    action: Action
    reason: str
    frame: bytes
    redirected: bool

    @property
    def to(self) -> str:
        """Where it is addressed."""
        return self.frame[:6].hex(":")


class HandFilled:
    def __init__(self, maps: Maps, program: int) -> None:
        self.maps = maps
        self.program = program
        self._verdicts: dict[str, int] = {}
        self._aged_s = 0.0
        self._backends: dict[tuple[str, str], int] = {}
        self._services: dict[str, int] = {}
        self.wanted = WantedTable()
        self.oracle = RelatedReference({LOOPBACK: OWN_MAC})
        self.reset()

    def reset(self) -> None:
        """Empty tables."""
        for name, fd in self.maps.fds.items():
            shape = self.maps.shape(name)
            if shape.kind in (MapKind.HASH, MapKind.LRU_HASH):
                for key in list(bpf.map_keys(fd, shape.key_size)):
                    bpf.map_delete(fd, key)
        for name in (*_TABLES, "loads", "exceptions"):
            with self._table(name) as table:
                table[:] = bytes(len(table))
        cursors = self.maps.shape("cursors")
        keys = b"".join(INDEX.pack(index) for index in range(cursors.entries))
        bpf.map_update_batch(
            self.maps.fds["cursors"], keys, bytes(cursors.value_size * cursors.entries), cursors.entries
        )
        self.maps.write("interfaces", INDEX.pack(LOOPBACK), layout.pack_own_mac(OWN_MAC))
        self._backends, self._services, self._aged_s = {}, {}, 0.0
        self.oracle = RelatedReference({LOOPBACK: OWN_MAC})
        self._verdicts = self.verdicts()

    def apply(self, *services: WantedService) -> None:
        """From now on these."""
        self.wanted = WantedTable(services=services)
        self.oracle.configure(self.wanted)
        for name in ("endpoints", "endpoints6"):
            for key in list(bpf.map_keys(self.maps.fds[name], self.maps.shape(name).key_size)):
                bpf.map_delete(self.maps.fds[name], key)
        frontends: dict[str, FrontendRecord] = {}
        for service in services:
            number = self._services.setdefault(service.name, len(self._services) + 1)
            for server in service.servers:
                self._write_backend(number, service, server)
            self._write_service(number, service)
            for place, endpoint in enumerate(service.endpoints):
                record = FrontendRecord(index=number * 8 + place, service=number, flags=flags_of(service, endpoint))
                frontends[service.name] = record
                admit(self.maps, endpoint)
                self.maps.write(endpoints_map(endpoint), pack_endpoint(endpoint), record.pack())
        for endpoint, service in portless_endpoints(services).items():
            self.maps.write(endpoints_map(endpoint), pack_portless(endpoint), frontends[service.name].pack())

    def _write_backend(self, number: int, service: WantedService, server: WantedServer) -> None:
        index = self._backends.setdefault((service.name, server.key), len(self._backends) + 1)
        hop = server.next_hop
        state = int(server.gets_packets) | (4 if hop is not None and hop.local else 0)
        record = BackendRecord(
            service=number,
            address=server.address,
            port=server.port,
            state=state,
            weight=server.weight,
            method=server.method,
        )
        record = record if hop is None else record.with_hop(hop, second=False)
        self.maps.write("backends", INDEX.pack(index), record.pack())

    def _write_service(self, number: int, service: WantedService) -> None:
        ring = self.oracle._rings._rings[service.name]
        flags = GenerationFlag(0)
        if service.scheduler.takes_turns:
            flags |= GenerationFlag.SEQUENCE
        elif service.scheduler is Scheduler.DH:
            flags |= GenerationFlag.HASH_DESTINATION
        elif not service.scheduler.hashes:
            flags |= GenerationFlag.LIST
        if service.hash_port:
            flags |= GenerationFlag.HASH_PORT
        generations = []
        for place, slots in enumerate((ring.current.keys, ring.former.keys if ring.former else ())):
            first = (number * 2 + place) * _ELEMENTS
            packed = array("H", (self._backends[service.name, key] for key in slots)).tobytes()
            packed += bytes(-len(packed) % layout.ELEMENT_BYTES)
            keys = b"".join(INDEX.pack(first + at) for at in range(len(packed) // layout.ELEMENT_BYTES))
            bpf.map_update_batch(self.maps.fds["rings"], keys, packed, len(keys) // INDEX.size)
            generations.append(Generation(first=first, length=len(slots), flags=flags))
        bits = bytearray(RING_SLOTS // 8)
        for slot in ring.exceptions:
            bits[slot // 8] |= 1 << slot % 8
        with self._table("exceptions") as table:
            table[number * len(bits) : (number + 1) * len(bits)] = bytes(bits)
        select = (0 << 0) | ((1 if ring.former else 3) << 2) | (0x20 if service.peer else 0)
        record = ServiceRecord(
            identity=bytes(16),
            select=select | (0x40 if ring.exceptions else 0),
            scheduler=COMPARES.get(service.scheduler, 0),
            persistence_s=service.persistence_s,
            generations=(*generations, Generation()),
            peers=(service.peer, None),
        )
        self.maps.write("services", INDEX.pack(number), record.pack())

    @contextlib.contextmanager
    def _table(self, name: str) -> Iterator[mmap.mmap]:
        shape = self.maps.shape(name)
        with mmap.mmap(self.maps.fds[name], shape.entries * shape.value_size) as table:
            yield table

    def flows(self) -> bytes:
        """All tables of flows, as they are."""
        found = b""
        for name in _TABLES:
            with self._table(name) as table:
                found += table[:]
        return found

    def age(self, seconds: float) -> None:
        """Let time pass for flows and fragments."""
        self._aged_s += seconds
        ticks = round(seconds * TICKS_PER_SECOND)
        for name, size in (("flows", 16), ("overflow", 16), ("wide_flows", 32), ("wide_overflow", 32)):
            with self._table(name) as table:
                age_flows(table, size, ticks)
        fragments, shape = self.maps.fds["fragments"], self.maps.shape("fragments")
        for key in list(bpf.map_keys(fragments, shape.key_size)):
            value = bytearray(bpf.map_lookup(fragments, key, shape.value_size) or b"")
            struct.pack_into("=I", value, 8, struct.unpack_from("=I", value, 8)[0] - ticks & 0xFFFFFFFF)
            bpf.map_update(fragments, key, bytes(value))

    def verdicts(self) -> dict[str, int]:
        return layout.sum_verdicts(self.maps.read("verdicts", INDEX.pack(0)) or b"")

    def tallies(self) -> tuple[dict[str, tuple[int, int]], dict[tuple[str, str], tuple[int, int]]]:
        """Packets and bytes of services, and of servers."""

        def read(name: str, index: int) -> tuple[int, int]:
            tally = layout.sum_tallies(self.maps.read(name, INDEX.pack(index)) or b"")
            return tally.packets, tally.bytes

        return (
            {name: read("service_tallies", index) for name, index in self._services.items()},
            {key: read("backend_tallies", index) for key, index in self._backends.items()},
        )

    def send(self, frame: bytes) -> Answer:
        """What the program does, and which reason it counted."""
        run = bpf.prog_test_run(self.program, frame)
        now = self.verdicts()
        counted = {name: now[name] - before for name, before in self._verdicts.items() if now[name] != before}
        self._verdicts = now
        assert list(counted.values()) == [1], f"one frame, counted as {counted}"
        return Answer(ACTIONS[run.verdict], next(iter(counted)), run.frame, run.verdict == bpf.XDP_REDIRECT)

    def told(self, frame: bytes) -> Verdict:
        """What the oracle says."""
        return self.oracle.handle(frame, LOOPBACK, slow_clock.now_s() + self._aged_s)

    def expect(self, frame: bytes, reason: str | None = None) -> Answer:
        """The program's answer, after comparing it with the oracle's, counters included."""
        told = self.told(frame)
        before = self.tallies()
        answer = self.send(frame)
        assert (answer.reason, answer.action) == (told.reason, told.action)
        assert answer.frame == told.frame
        assert answer.redirected == (told.interface not in (None, LOOPBACK))
        counted = sum(now[0] - was[0] for now, was in zip(self.tallies()[0].values(), before[0].values(), strict=True))
        assert counted == (told.action is Action.SEND and told.reason != "asked_peer")
        if reason is not None:
            assert answer.reason == reason
        return answer


@contextlib.contextmanager
def hand_filled(features: Features = ALL, *, frags: bool = False, flow_buckets_log2: int = 12) -> Iterator[HandFilled]:
    """Built into a bpffs of its own, which goes with it."""
    with tempfile.TemporaryDirectory(prefix="haxlb-") as runtime:
        directory = Path(runtime) / "bpf" / layout.ABI
        try:
            command = [slow_clock.PYTHON, "-P", "-m", "haxlb.linux.compiler", f"--directory={directory}"]
            command += [f"--flow-buckets-log2={flow_buckets_log2}", f"--features={features.text}", "--rings=16384"]
            command += ["--frags"] if frags else []
            tree = str(Path(haxlb.__file__).parent.parent)
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": tree}
            )
            said = json.loads(done.stdout)
            assert "program" in said, said
            with Maps.open(directory) as maps, closing(bpf.obj_get(Path(said["program"]))) as program:
                yield HandFilled(maps, program)
        finally:
            unmount(directory.parent)


def hop(mac: str, *, vlan: int = 0, interface: int = LOOPBACK) -> NextHop:
    return NextHop(interface_index=interface, source_mac=OWN_MAC, destination_mac=mac, vlan=vlan)
