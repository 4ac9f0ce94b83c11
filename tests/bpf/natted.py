"""A forwarder of NAT services that is attached to nothing: every service has one server, so that all is known."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import subprocess
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from ipaddress import IPv4Address, ip_address
from pathlib import Path

from scapy.layers.inet import ICMP, IP, TCP, UDP, IPerror
from scapy.layers.inet6 import ICMPv6PacketTooBig, IPerror6, IPv6
from scapy.layers.l2 import Ether

import haxlb
from haxlb.forwarding import layout
from haxlb.forwarding.features import Features
from haxlb.forwarding.flows import FlowEntry, unpack_flows, unpack_wide_flows
from haxlb.forwarding.hashing import flow_hash, wide_flow_hash
from haxlb.forwarding.layout import INDEX
from haxlb.forwarding.records import (
    BackendRecord,
    FrontendFlag,
    FrontendRecord,
    Generation,
    GenerationFlag,
    ServiceRecord,
    endpoints_map,
    pack_endpoint,
)
from haxlb.forwarding.reference_nat import Place
from haxlb.forwarding.replies import Answer, Reply, unpack_replies
from haxlb.forwarding.wanted import NextHop
from haxlb.linux import bpf
from haxlb.linux.bpf_call import closing
from haxlb.linux.bpffs import unmount
from haxlb.linux.maps import Maps
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.virtual_server import ForwardingMethod
from tests.bpf.aging import age_flows
from tests.bpf.any_port import admit

FEATURES = Features(
    stateless=False,
    list=False,
    thresholds=False,
    persistence=False,
    one_packet=True,
    any_port=True,
    ipv6=True,
    shared=False,
    tunnel=False,
    nat=True,
    jumbo=False,
)
LOOPBACK = 1
OTHER_INTERFACE = 77
OWN_MAC = "02:00:00:00:00:aa"
CLIENT_MAC = "02:00:00:00:00:cc"
ROUTER_MAC = "02:00:00:00:00:dd"
REPLIES = 64
CLIENT, CLIENT6 = "198.51.100.7", "fd99::7"


NO_FLAGS = FrontendFlag(0)


@dataclass(frozen=True)
class Site:
    """One virtual server and its only real server."""

    number: int
    vip: str
    port: int
    protocol: Protocol
    server: str
    server_port: int
    flags: FrontendFlag = NO_FLAGS
    method: ForwardingMethod = ForwardingMethod.NAT

    @property
    def mac(self) -> str:
        return f"02:00:00:00:01:{ip_address(self.server).packed[-1]:02x}"

    @property
    def place(self) -> Place:
        return Place(address=ip_address(self.server), port=self.server_port)

    def vport(self, client_port: int) -> int:
        """A port that the client may ask for."""
        return self.port or 1 + client_port % 50


WEB = Site(1, "10.0.0.1", 80, Protocol.TCP, "192.168.1.10", 8080)
DNS = Site(2, "10.0.0.1", 53, Protocol.UDP, "192.168.1.10", 5353)
ALL = Site(3, "10.0.0.2", 0, Protocol.TCP, "192.168.1.11", 0, FrontendFlag.ANY_PORT)
TWIN = Site(4, "10.0.0.3", 80, Protocol.TCP, "192.168.1.10", 8080)
WEB6 = Site(5, "fd00::1", 80, Protocol.TCP, "fd01::10", 8080)
DNS6 = Site(6, "fd00::1", 53, Protocol.UDP, "fd01::10", 5353)
ALL6 = Site(7, "fd00::2", 0, Protocol.UDP, "fd01::11", 0, FrontendFlag.ANY_PORT)
SINGLE = Site(8, "10.0.0.4", 53, Protocol.UDP, "192.168.1.12", 53, FrontendFlag.ONE_PACKET)
DIRECT = Site(9, "10.0.0.5", 80, Protocol.TCP, "192.168.1.13", 80, FrontendFlag(0), ForwardingMethod.DR)
SITES = (WEB, DNS, ALL, TWIN, WEB6, DNS6, ALL6, SINGLE, DIRECT)


def packet(site, client, port, *, flags="S", data=b"", ttl=64, to=OWN_MAC, by=CLIENT_MAC, vport=0, ip=None):
    """A frame of a client."""
    vport = vport or site.vport(port)
    segment = (
        TCP(sport=port, dport=vport, flags=flags) if site.protocol is Protocol.TCP else UDP(sport=port, dport=vport)
    )
    return bytes(Ether(dst=to, src=by) / _ip(client, site.vip, ttl, ip) / segment / data)


def answer(site, client, port, *, flags="SA", data=b"", ttl=64, to=OWN_MAC, vport=0, ip=None):
    """A frame of a server."""
    sport = site.server_port or vport or site.vport(port)
    segment = (
        TCP(sport=sport, dport=port, flags=flags) if site.protocol is Protocol.TCP else UDP(sport=sport, dport=port)
    )
    return bytes(Ether(dst=to, src=site.mac) / _ip(site.server, client, ttl, ip) / segment / data)


def error(quoted, source, *, to=OWN_MAC, by=ROUTER_MAC, most=548):
    """A router's word that a packet, given as the frame that it got, is too big."""
    inner = bytes(quoted[14 : 14 + most])
    sender = Ether(quoted)[1].src
    if ":" in sender:
        return bytes(Ether(dst=to, src=by) / IPv6(src=source, dst=sender) / ICMPv6PacketTooBig(mtu=1280) / inner)
    return bytes(Ether(dst=to, src=by) / IP(src=source, dst=sender) / ICMP(type=3, code=4, nexthopmtu=1280) / inner)


def _ip(source, destination, ttl, extra):
    if ":" in source:
        return IPv6(src=source, dst=destination, hlim=ttl, **(extra or {}))
    return IP(src=source, dst=destination, ttl=ttl, **(extra or {}))


CHECKED = (IP, TCP, UDP, ICMP, ICMPv6PacketTooBig)


def expect_checksums(frame: bytes) -> None:
    """Every checksum of the frame, and of the packet that it quotes, is what scapy computes for the same bytes."""
    made = Ether(frame)
    for kind in CHECKED:
        if kind not in made:
            continue
        field = "cksum" if kind is ICMPv6PacketTooBig else "chksum"
        layer = Ether(frame)
        was = getattr(layer[kind], field)
        delattr(layer[kind], field)
        assert getattr(Ether(bytes(layer))[kind], field) == was, f"{kind.__name__} of {made.summary()}"
    for kind, of in ((IPerror, IP), (IPerror6, IPv6)):
        if kind in made:
            expect_quoted(bytes(made[kind]), of)


def expect_quoted(raw: bytes, kind: type) -> None:
    """The same of what an error quotes, where that is whole."""
    inner = kind(raw)
    if (inner.len if kind is IP else inner.plen + 40) == len(raw):
        expect_checksums(bytes(Ether(dst=OWN_MAC, src=CLIENT_MAC) / kind(raw)))


@dataclass(frozen=True)
class Answered:
    verdict: str
    reason: str
    frame: bytes


VERDICTS = {bpf.XDP_PASS: "pass", bpf.XDP_DROP: "drop", bpf.XDP_TX: "send", bpf.XDP_REDIRECT: "redirect"}


class Natted:
    """The program, its maps, and what they hold."""

    def __init__(self, maps: Maps, program: int) -> None:
        self.maps = maps
        self.program = program
        self.macs = {LOOPBACK: OWN_MAC}
        self._verdicts: dict[str, int] = {}
        self.reset()

    def reset(self) -> None:
        """Empty tables, and the sites."""
        for name, fd in self.maps.fds.items():
            shape = self.maps.shape(name)
            if shape.kind in (layout.MapKind.HASH, layout.MapKind.LRU_HASH):
                for key in list(bpf.map_keys(fd, shape.key_size)):
                    bpf.map_delete(fd, key)
        for name in ("flows", "overflow", "wide_flows", "wide_overflow", "loads"):
            with self.table(name) as table:
                table[:] = bytes(len(table))
        self.maps.write("interfaces", INDEX.pack(LOOPBACK), layout.pack_own_mac(OWN_MAC))
        for site in SITES:
            self.serve(site)
        self._verdicts = self.verdicts()

    def serve(
        self, site: Site, *, hop: NextHop | None = None, incarnation: int = 0, peer: NextHop | None = None
    ) -> None:
        """Write a site's records."""
        number = site.number
        hop = hop or NextHop(interface_index=LOOPBACK, source_mac=OWN_MAC, destination_mac=site.mac)
        record = BackendRecord(
            service=number,
            address=ip_address(site.server),
            port=site.server_port,
            state=1,
            incarnation=incarnation,
            weight=1,
            method=site.method,
        )
        self.maps.write("backends", INDEX.pack(number), record.with_hop(hop, second=False).pack())
        slots = array("H", [number] + [0] * 31).tobytes()
        self.maps.write("rings", INDEX.pack(number), slots)
        ring = Generation(first=number, length=1, flags=GenerationFlag.SEQUENCE)
        service = ServiceRecord(identity=bytes(16), generations=(ring, Generation(), Generation()), peers=(peer, None))
        if peer is not None:
            service = ServiceRecord(
                identity=bytes(16),
                generations=(ring, Generation(), Generation()),
                peers=(peer, None),
                select=service.select | 0x20,
            )
        self.maps.write("services", INDEX.pack(number), service.pack())
        endpoint = Endpoint(address=ip_address(site.vip), port=site.port, protocol=site.protocol)
        frontend = FrontendRecord(index=number, service=number, flags=site.flags)
        admit(self.maps, endpoint)
        self.maps.write(endpoints_map(endpoint), pack_endpoint(endpoint), frontend.pack())

    @contextlib.contextmanager
    def table(self, name: str) -> Iterator[mmap.mmap]:
        shape = self.maps.shape(name)
        with mmap.mmap(self.maps.fds[name], shape.entries * shape.value_size) as table:
            yield table

    def flows(self) -> list[FlowEntry]:
        found: list[FlowEntry] = []
        for name in ("flows", "overflow", "wide_flows", "wide_overflow"):
            with self.table(name) as table:
                found += (unpack_wide_flows if name.startswith("wide") else unpack_flows)(table[:])
        return found

    def ports_with_room(self, count: int) -> range:
        """Of a client of all sites with NAT: such that no five of its flows from them meet in a bucket."""
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        table = str(bpf.map_info(self.maps.fds["flows"]).id).encode()
        seed = int.from_bytes(blake2b(boot + table, digest_size=4).digest(), "big")
        sizes = self.maps.sizes

        def bucket(site: Site, port: int) -> tuple[str, int]:
            if site.port and ":" not in site.vip:
                narrow = flow_hash(IPv4Address(CLIENT), port, site.number, seed=seed)
                return "narrow", narrow % sizes.flow_buckets
            client = ip_address(CLIENT6 if ":" in site.vip else CLIENT)
            to = 0 if site.port else site.vport(port)
            wide = wide_flow_hash(client, port, site.number, seed=seed, destination_port=to)
            return "wide", wide % sizes.wide_flow_buckets

        def meet(ports: range) -> int:
            return max(Counter(bucket(site, port) for site in SITES for port in ports).values())

        return next(
            ports
            for first in range(40000, 60000, count)
            if meet(ports := range(first, first + count)) <= layout.FLOW_WAYS
        )

    def age(self, seconds: float) -> None:
        """Let time pass for all flows."""
        ticks = round(seconds * self.ticks_per_second())
        for name, size in (("flows", 16), ("overflow", 16), ("wide_flows", 32), ("wide_overflow", 32)):
            with self.table(name) as table:
                age_flows(table, size, ticks)

    @staticmethod
    def ticks_per_second() -> int:
        return round(1 / time.clock_getres(6))

    def replies(self) -> dict[Answer, Reply]:
        shape = self.maps.shape("replies")
        batch = bpf.map_lookup_batch(self.maps.fds["replies"], shape.key_size, shape.value_size, shape.entries)
        return dict(unpack_replies(*batch))

    def verdicts(self) -> dict[str, int]:
        return layout.sum_verdicts(self.maps.read("verdicts", INDEX.pack(0)) or b"")

    def send(self, frame: bytes) -> Answered:
        """What the program does, and which reason it counted."""
        run = bpf.prog_test_run(self.program, frame)
        now = self.verdicts()
        counted = {name: now[name] - before for name, before in self._verdicts.items() if now[name] != before}
        self._verdicts = now
        assert list(counted.values()) == [1], f"one frame, counted as {counted}"
        return Answered(VERDICTS[run.verdict], next(iter(counted)), run.frame)


@contextlib.contextmanager
def natted(*, replies: int = REPLIES, flow_buckets_log2: int = 8) -> Iterator[Natted]:
    """Built into a bpffs of its own, which goes with it."""
    with tempfile.TemporaryDirectory(prefix="haxlb-") as runtime:
        directory = Path(runtime) / "bpf" / layout.ABI
        try:
            command = ["/usr/bin/python3", "-P", "-m", "haxlb.linux.compiler", f"--directory={directory}"]
            command += [
                f"--replies={replies}",
                f"--flow-buckets-log2={flow_buckets_log2}",
                f"--features={FEATURES.text}",
            ]
            tree = str(Path(haxlb.__file__).parent.parent)
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": tree}
            )
            said = json.loads(done.stdout)
            assert "program" in said, said
            with Maps.open(directory) as maps, closing(bpf.obj_get(Path(said["program"]))) as program:
                yield Natted(maps, program)
        finally:
            unmount(directory.parent)
