"""A forwarder of TUN services that is attached to nothing, each with one server; and the oracle beside it."""

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
from dataclasses import dataclass, replace
from ipaddress import ip_address
from pathlib import Path

from haxlb.forwarding import layout
from haxlb.forwarding.features import Features
from haxlb.forwarding.layout import INDEX
from haxlb.forwarding.records import (
    TUNNEL_CHECKSUM,
    BackendRecord,
    FrontendRecord,
    Generation,
    GenerationFlag,
    ServiceRecord,
    endpoints_map,
    pack_endpoint,
)
from haxlb.forwarding.reference import Action, Reference, Verdict
from haxlb.forwarding.reference_tunnel import deliver, internet_checksum
from haxlb.forwarding.wanted import NextHop, Tally, WantedServer, WantedService, WantedTable
from haxlb.linux import bpf
from haxlb.linux.bpf_call import closing
from haxlb.linux.bpffs import unmount
from haxlb.linux.maps import Maps
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.virtual_server import ForwardingMethod, Scheduler, TunnelKind
from tests.bpf import slow_clock
from tests.bpf.slow_clock import TICKS_PER_SECOND

LOOPBACK = 1
OTHER_INTERFACE = 77
OWN_MAC = "02:00:00:00:00:aa"
CLIENT_MAC = "02:00:00:00:00:cc"
SERVER_MAC = "02:00:00:00:01:01"
PORT = 80
GUE_PORT = 6080
MTU = 1500
ERRORS_SINCE = 128
"""Offset in struct scratch of bpf/abi.h."""
ACTIONS = {
    bpf.XDP_PASS: Action.PASS,
    bpf.XDP_DROP: Action.DROP,
    bpf.XDP_TX: Action.SEND,
    bpf.XDP_REDIRECT: Action.SEND,
}
FEATURES = replace(Features.parse("none"), stateful=True, ipv6=True, tunnel=True, jumbo=True)


@dataclass(frozen=True)
class Site:
    """One virtual server and its only real server."""

    number: int
    inner: int
    """Family of the service."""
    outer: int
    """Family of the server."""
    kind: TunnelKind
    checksum: bool = False

    @property
    def vip(self) -> str:
        return f"10.200.1.{self.number}" if self.inner == 4 else f"2001:db8:1::{self.number:x}"

    @property
    def server(self) -> str:
        return f"10.9.0.{self.number}" if self.outer == 4 else f"2001:db8:9::{self.number:x}"

    @property
    def director(self) -> str:
        return "10.9.0.254" if self.outer == 4 else "2001:db8:9::fe"

    @property
    def client(self) -> str:
        return "192.0.2.1" if self.inner == 4 else "2001:db8:c::1"

    @property
    def overhead(self) -> int:
        shim = {TunnelKind.IPIP: 0, TunnelKind.GUE: 12, TunnelKind.GRE: 8 if self.checksum else 4}[self.kind]
        return shim + (20 if self.outer == 4 else 40)

    def __str__(self) -> str:
        return f"{self.kind.value}{'-csum' if self.checksum else ''}-{self.inner}in{self.outer}"


SITES = tuple(
    Site(number, *which)
    for number, which in enumerate(
        (
            (inner, outer, kind, checksum)
            for inner in (4, 6)
            for outer in (4, 6)
            for kind in TunnelKind
            for checksum in (False, True)
            if not (checksum and kind is TunnelKind.IPIP)
        ),
        start=1,
    )
)


def site(kind: TunnelKind, inner: int = 4, outer: int = 4, *, checksum: bool = False) -> Site:
    return next(
        each for each in SITES if (each.kind, each.inner, each.outer, each.checksum) == (kind, inner, outer, checksum)
    )


@dataclass(frozen=True)
class Answer:
    action: Action
    reason: str
    frame: bytes
    redirected: bool


class Tunnelled:
    """Sites written into the maps as they are."""

    def __init__(self, maps: Maps, program: int) -> None:
        self.maps = maps
        self.program = program
        self.oracle = Reference({LOOPBACK: OWN_MAC})
        self._wanted: dict[int, WantedService] = {}
        self._verdicts: dict[str, int] = {}
        self.reset()

    def reset(self) -> None:
        """The sites as they are said above, no flow, no error sent."""
        for name in ("flows", "overflow", "wide_flows", "wide_overflow"):
            shape = self.maps.shape(name)
            with mmap.mmap(self.maps.fds[name], shape.entries * shape.value_size) as table:
                table[:] = bytes(len(table))
        for name in ("service_tallies", "backend_tallies"):
            for each in SITES:
                self.maps.write(name, INDEX.pack(each.number), bytes(layout.TALLY_BYTES))
        self.maps.write("scratchpad", INDEX.pack(0), bytes(self.maps.shape("scratchpad").value_size))
        self.maps.write("interfaces", INDEX.pack(LOOPBACK), layout.pack_own_mac(OWN_MAC))
        self.oracle = Reference({LOOPBACK: OWN_MAC})
        self.oracle.deliveries[ForwardingMethod.TUN] = deliver
        for each in SITES:
            self.serve(each)
        self._verdicts = self.verdicts()

    def serve(
        self, site: Site, *, mtu: int = MTU, vlan: int = 0, interface: int = LOOPBACK, source: bool = True
    ) -> None:
        """Write a site's records, and tell the oracle."""
        number = site.number
        hop = NextHop(
            interface_index=interface,
            source_mac=OWN_MAC,
            destination_mac=SERVER_MAC,
            vlan=vlan,
            source=ip_address(site.director) if source else None,
            mtu=mtu,
        )
        record = BackendRecord(
            service=number,
            address=ip_address(site.server),
            port=PORT,
            state=1 | (8 if vlan else 0),
            weight=1,
            method=ForwardingMethod.TUN,
            tunnel=site.kind,
            tunnel_port=GUE_PORT if site.kind is TunnelKind.GUE else 0,
            tunnel_flags=TUNNEL_CHECKSUM if site.checksum else 0,
        )
        self.maps.write("backends", INDEX.pack(number), record.with_hop(hop, second=False).pack())
        self.maps.write("rings", INDEX.pack(number), array("H", [number] + [0] * 31).tobytes())
        turns = Generation(first=number, length=1, flags=GenerationFlag.SEQUENCE)
        service = ServiceRecord(identity=bytes(16), generations=(turns, Generation(), Generation()))
        self.maps.write("services", INDEX.pack(number), service.pack())
        endpoints = tuple(Endpoint(address=ip_address(site.vip), port=PORT, protocol=each) for each in Protocol)
        for place, endpoint in enumerate(endpoints):
            frontend = FrontendRecord(index=number + place * len(SITES), service=number)
            self.maps.write(endpoints_map(endpoint), pack_endpoint(endpoint), frontend.pack())
        server = WantedServer(
            address=record.address,
            port=PORT,
            weight=1,
            alive=True,
            next_hop=hop,
            method=ForwardingMethod.TUN,
            tunnel=site.kind,
            tunnel_port=record.tunnel_port,
            tunnel_checksum=site.checksum,
        )
        self._wanted[number] = WantedService(
            name=str(site), endpoints=endpoints, scheduler=Scheduler.RR, servers=(server,)
        )
        self.oracle.configure(WantedTable(services=tuple(self._wanted.values())))

    def pass_second(self) -> None:
        """Let errors have been sent a second ago and longer."""
        size = self.maps.shape("scratchpad").value_size
        raw = bytearray(self.maps.read("scratchpad", INDEX.pack(0)) or b"")
        for at in range(ERRORS_SINCE, len(raw), size):
            (since,) = struct.unpack_from("=I", raw, at)
            struct.pack_into("=I", raw, at, (since - TICKS_PER_SECOND) & 0xFFFFFFFF)
        bpf.map_update(self.maps.fds["scratchpad"], INDEX.pack(0), bytes(raw))

    def verdicts(self) -> dict[str, int]:
        return layout.sum_verdicts(self.maps.read("verdicts", INDEX.pack(0)) or b"")

    def tallies(self, site: Site) -> tuple[Tally, Tally]:
        """Of the service and of its server."""
        service, server = (
            layout.sum_tallies(self.maps.read(name, INDEX.pack(site.number)) or b"")
            for name in ("service_tallies", "backend_tallies")
        )
        return service, server

    def send(self, frame: bytes, program: int | None = None) -> Answer:
        """What the program does, and which reason it counted."""
        run = bpf.prog_test_run(self.program if program is None else program, frame)
        now = self.verdicts()
        counted = {name: now[name] - before for name, before in self._verdicts.items() if now[name] != before}
        self._verdicts = now
        assert list(counted.values()) == [1], f"one frame, counted as {counted}"
        return Answer(ACTIONS[run.verdict], next(iter(counted)), run.frame, run.verdict == bpf.XDP_REDIRECT)

    def expect(self, frame: bytes) -> Answer:
        """The program's answer, after comparing it with the oracle's."""
        told: Verdict = self.oracle.handle(frame, LOOPBACK, slow_clock.now_s())
        answer = self.send(frame)
        assert (answer.reason, answer.action) == (told.reason, told.action)
        if told.action is Action.SEND:
            assert without_identification(answer.frame) == told.frame
        assert answer.redirected == (told.interface not in (None, LOOPBACK))
        return answer


def without_identification(frame: bytes) -> bytes:
    """A frame of IPv4 that may be fragmented has one by chance: here it has 0, if its checksum is right."""
    at = 18 if frame[12:14] == b"\x81\x00" else 14
    if frame[at - 2 : at] != b"\x08\x00" or frame[at + 6] & 0x40:
        return frame
    header = frame[at : at + 20]
    assert internet_checksum(header) == 0
    header = header[:4] + bytes(2) + header[6:10] + bytes(2) + header[12:]
    return frame[:at] + header[:10] + internet_checksum(header).to_bytes(2, "big") + header[12:] + frame[at + 20 :]


@contextlib.contextmanager
def tunnelled(*, frags: bool = False, features: Features = FEATURES) -> Iterator[Tunnelled]:
    """Built into a bpffs of its own, which goes with it. `frags`: it takes frames of several buffers."""
    with tempfile.TemporaryDirectory(prefix="haxlb-") as runtime:
        directory = Path(runtime) / "bpf" / layout.ABI
        words = [f"--directory={directory}", "--flow-buckets-log2=12", f"--features={features.text}"]
        try:
            done = subprocess.run(
                [slow_clock.PYTHON, "-P", "-m", "haxlb.linux.compiler", *words, *(["--frags"] if frags else [])],
                env={**os.environ, "PYTHONPATH": str(Path(layout.__file__).parents[2])},
                capture_output=True,
                text=True,
                check=False,
            )
            said = json.loads(done.stdout or "{}")
            assert "program" in said, done.stdout + done.stderr
            with Maps.open(directory) as maps, closing(bpf.obj_get(Path(said["program"]))) as program:
                yield Tunnelled(maps, program)
        finally:
            unmount(directory.parent)
