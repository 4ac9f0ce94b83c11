"""A built forwarder of which tests write the flow tables themselves, without haxlb.linux.forwarder."""

from __future__ import annotations

import array
import json
import mmap
import os
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path

import haxlb
from haxlb.forwarding import layout
from haxlb.forwarding.flows import FlowEntry, FlowState, unpack_flows, unpack_wide_flows
from haxlb.forwarding.records import (
    BackendRecord,
    FrontendFlag,
    FrontendRecord,
    Generation,
    GenerationFlag,
    LoadRecord,
    ServiceRecord,
    pack_endpoint,
)
from haxlb.forwarding.wanted import Load, NextHop
from haxlb.linux.bpffs import unmount
from haxlb.linux.forwarder_build import PYTHON
from haxlb.linux.maps import Maps
from haxlb.model.addresses import Endpoint, Protocol

ROOT = Path(haxlb.__file__).parent.parent
VIP = IPv4Address("10.200.1.1")
OWN_MAC = "02:00:00:00:00:aa"
SERVICE = FRONTEND = 1
BACKENDS = range(1, 5)
INCARNATION = 7
FEATURES = "stateful,stateless,list,persistence,ipv6,any_port"
TABLES = {"flows": 16, "overflow": 16, "wide_flows": 32, "wide_overflow": 32}
"""Bytes of one way."""


class FlowTables:
    """Maps, and where the programs are pinned."""

    def __init__(self, maps: Maps, program: Path) -> None:
        self.maps = maps
        self.program = program

    def put(self, table: str, way: int, entry: FlowEntry) -> None:
        """Write a flow into a way, counted from the beginning of the table."""
        port = int.from_bytes(entry.source_port.to_bytes(2, "big"), "little")
        value = entry.stamp << 32 | entry.state << 24 | entry.incarnation << 16 | entry.backend
        address = int.from_bytes(entry.source.packed[:4], "little")
        raw = struct.pack("=QQ", entry.frontend << 48 | port << 32 | address, value)
        if TABLES[table] == 32:
            raw = struct.pack("=QQ16s", entry.frontend << 48 | port << 32 | 1, value, entry.source.packed)
        self.poke(table, way * len(raw), raw)

    def poke(self, table: str, offset: int, raw: bytes) -> None:
        """Write bytes into a map that can be mapped."""
        shape = self.maps.shape(table)
        with mmap.mmap(self.maps.fds[table], shape.entries * shape.value_size) as memory:
            memory[offset : offset + len(raw)] = raw

    def flows(self) -> list[FlowEntry]:
        """All that are on record."""
        return [entry for table in TABLES for entry in self.table(table)]

    def table(self, table: str) -> list[FlowEntry]:
        """Those of one table."""
        shape = self.maps.shape(table)
        with mmap.mmap(self.maps.fds[table], shape.entries * shape.value_size) as memory:
            raw = bytes(memory)
        return list(unpack_flows(raw) if TABLES[table] == 16 else unpack_wide_flows(raw))

    def load(self, backend: int) -> Load:
        """What is counted for a server."""
        return LoadRecord.unpack(self.maps.read("loads", layout.INDEX.pack(backend)) or b"")

    def recount(self) -> dict[int, tuple[int, int]]:
        """What should be counted: active and inactive of every server that has flows."""
        active: Counter[int] = Counter()
        inactive: Counter[int] = Counter()
        for entry in self.flows():
            if not entry.state.of_client and entry.incarnation == INCARNATION:
                (inactive if entry.state is FlowState.TCP_CLOSING else active)[entry.backend] += 1
        return {each: (active[each], inactive[each]) for each in sorted({*active, *inactive})}

    def counted(self) -> dict[int, tuple[int, int]]:
        """What is counted, of every server that is said to have some."""
        loads = {each: self.load(each) for each in BACKENDS}
        return {each: (load.active, load.inactive) for each, load in loads.items() if load.active or load.inactive}

    def clear(self) -> None:
        """No flows, no counts."""
        for table in (*TABLES, "loads"):
            shape = self.maps.shape(table)
            self.poke(table, 0, bytes(shape.entries * shape.value_size))


def now() -> int:
    """The kernel's jiffies, 32 bits: what flows are stamped with."""
    for line in Path("/proc/timer_list").read_text(encoding="ascii").splitlines():
        if line.strip().startswith("jiffies:"):
            return int(line.split()[1]) & 0xFFFFFFFF
    raise AssertionError("/proc/timer_list has no jiffies")


@contextmanager
def flow_tables(runtime: Path, *options: str) -> Iterator[FlowTables]:
    """Build in a runtime directory, and write one service of four servers; all is removed in the end."""
    directory = runtime / "bpf" / layout.ABI
    try:
        done = subprocess.run(
            [PYTHON, "-m", "haxlb.linux.compiler", "--directory", directory, "--features", FEATURES, *options],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        answer = json.loads(done.stdout)
        assert "program" in answer, answer
        with Maps.open(directory) as maps:
            _write_service(maps)
            yield FlowTables(maps, Path(answer["program"]))
    finally:
        unmount(runtime / "bpf")


def _write_service(maps: Maps) -> None:
    hop = NextHop(interface_index=1, source_mac=OWN_MAC, destination_mac="02:00:00:00:01:01")
    for each in BACKENDS:
        record = BackendRecord(
            service=SERVICE, address=VIP + each, port=80, state=1, incarnation=INCARNATION, weight=1
        ).with_hop(hop, second=False)
        maps.write("backends", layout.INDEX.pack(each), record.pack())
    slots = array.array("H", BACKENDS)
    slots.extend([0] * (layout.RING_SLOTS_PER_ELEMENT - len(slots)))
    maps.write("rings", layout.INDEX.pack(0), slots.tobytes())
    ring = Generation(first=0, length=len(BACKENDS), flags=GenerationFlag.SEQUENCE)
    service = ServiceRecord(identity=bytes(16), persistence_s=50, generations=(ring, Generation(), Generation()))
    maps.write("services", layout.INDEX.pack(SERVICE), service.pack())
    for protocol in (Protocol.TCP, Protocol.UDP):
        endpoint = Endpoint(address=VIP, port=80, protocol=protocol)
        frontend = FrontendRecord(index=FRONTEND, service=SERVICE, flags=FrontendFlag(0))
        maps.write("endpoints", pack_endpoint(endpoint), frontend.pack())
    maps.write("interfaces", layout.INDEX.pack(1), layout.pack_own_mac(OWN_MAC))
