"""Each kind of service, built as it needs it, in a harness that makes the whole frame anew for each run."""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from haxlb.forwarding.features import ALL, Features
from haxlb.forwarding.wanted import NextHop, WantedServer, WantedService, WantedTable
from haxlb.linux import bpf
from haxlb.linux.specimen import LOOPBACK, OWN_MAC, PORT, SERVERS, VIP, specimen
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.virtual_server import ForwardingMethod, Scheduler, TunnelKind
from tests.bpf.assembly import answer, renew
from tests.bpf.frames import CLIENT, CLIENT_MAC, tcp, udp

REPEAT, WARM_UP = 300_000, 300_000
MAP_TYPE_PROG_ARRAY = 3
VIP6 = IPv6Address("2001:db8:1::1")
CLIENT6 = "2001:db8:c::1"
CLIENTS_AT_6 = 36
"""Offset of the last two bytes of the source address."""
MANY = 1 << 16
SERVER_MAC = "02:00:00:00:01:01"


@dataclass(kw_only=True)
class Case:
    """A frame, and what it costs."""

    name: str
    frame: bytes
    clients: int = 1
    at: int = 28
    before: tuple[bytes, ...] = ()
    """Frames that begin its flow."""
    verdict: int = bpf.XDP_TX
    ns: list[int] = field(default_factory=list)
    harness: int = -1
    jumps: int = -1

    def prepare(self, program: int) -> None:
        """Warm up as well."""
        for frame in self.before:
            bpf.prog_test_run(program, frame)
        # The kernel empties the array when its last descriptor is closed: it stays open.
        self.jumps = bpf.map_create(MAP_TYPE_PROG_ARRAY, 4, 4, 1, name="jumps")
        bpf.map_update(self.jumps, bytes(4), program.to_bytes(4, "little"))
        code = renew(self.jumps, self.frame, clients=self.clients, at=self.at)
        self.harness = bpf.prog_load(code, name="renew")
        self._run(WARM_UP)

    def run(self) -> None:
        """Once more."""
        self.ns.append(self._run(REPEAT))

    def _run(self, repeat: int) -> int:
        done = bpf.prog_test_run(self.harness, self.frame, repeat=repeat)
        assert done.verdict == self.verdict, f"{self.name}: verdict {done.verdict}"
        return done.nanoseconds


def kinds(rounds: int) -> Iterator[dict[str, Any]]:
    """All kinds in one run, in turn."""
    with contextlib.ExitStack() as stack:
        floor = stack.enter_context(_closed(bpf.prog_load(answer(bpf.XDP_DROP), name="floor")))
        cases = [Case(name="floor: XDP_DROP", frame=_tcp("A"), verdict=bpf.XDP_DROP)]
        cases[0].prepare(floor)
        for service, features, some in _offered():
            built = ALL if features == "all" else replace(Features.parse(features), stateful=True)
            wanted = WantedTable(services=(service,))
            loaded = stack.enter_context(specimen(wanted, flow_buckets_log2=18, features=built))
            for case in some:
                case.prepare(loaded.program)
            cases += some
        for _ in range(rounds):
            for case in cases:
                case.run()
    least = min(cases[0].ns)
    for case in cases:
        yield {
            "case": case.name,
            "ns": statistics.median(case.ns),
            "min_ns": min(case.ns),
            "over_floor_ns": min(case.ns) - least,
        }


@contextlib.contextmanager
def _closed(program: int) -> Iterator[int]:
    try:
        yield program
    finally:
        os.close(program)


def _tcp(flags: str, **words: str) -> bytes:
    # Without padding: a tunnel would cut it off, and the frame would be another one each time.
    return tcp(flags, data=bytes(6), **words)


def _udp() -> bytes:
    return udp(data=bytes(18))


def _service(name: str, *, port: int = PORT, **words: Any) -> WantedService:
    protocol = words.pop("protocol", Protocol.TCP)
    address = words.pop("address", VIP)
    server = {key: words.pop(key) for key in ("method", "tunnel", "tunnel_port") if key in words}
    first = IPv6Address("2001:db8:9::") if address.version == 6 else VIP + 10
    mtu = 9000 if server else 1500
    return WantedService(
        name=name,
        endpoints=(Endpoint(address=address, port=port, protocol=protocol),),
        scheduler=Scheduler.RR,
        servers=tuple(
            WantedServer(
                address=first + number,
                port=port,
                weight=1,
                alive=True,
                next_hop=NextHop(
                    interface_index=LOOPBACK,
                    source_mac=OWN_MAC,
                    destination_mac=f"02:00:00:00:01:{number:02x}",
                    source=IPv4Address("10.200.1.2"),
                    mtu=mtu,
                ),
                **server,
            )
            for number in range(1, (1 if server else SERVERS) + 1)
        ),
        **words,
    )


def _tcp6(flags: str) -> bytes:
    packet = IPv6(src=CLIENT6, dst=str(VIP6)) / TCP(sport=40000, dport=PORT, flags=flags) / bytes(2)
    return bytes(Ether(dst=OWN_MAC, src=CLIENT_MAC) / packet)


def _udp6() -> bytes:
    packet = IPv6(src=CLIENT6, dst=str(VIP6)) / UDP(sport=40000, dport=PORT) / bytes(2)
    return bytes(Ether(dst=OWN_MAC, src=CLIENT_MAC) / packet)


def _reply() -> bytes:
    packet = IP(src=str(VIP + 11), dst=CLIENT) / TCP(sport=PORT, dport=40000, flags="A") / bytes(6)
    return bytes(Ether(dst=OWN_MAC, src=SERVER_MAC) / packet)


def _offered() -> Iterator[tuple[WantedService, str, list[Case]]]:
    """Services, what must be compiled for them, and cases."""
    began = (_tcp("S"), _tcp("A"))
    nat: dict[str, Any] = {"method": ForwardingMethod.NAT}
    ipip: dict[str, Any] = {"method": ForwardingMethod.TUN, "tunnel": TunnelKind.IPIP}
    gue: dict[str, Any] = {"method": ForwardingMethod.TUN, "tunnel": TunnelKind.GUE, "tunnel_port": 6080}
    yield (
        _service("tcp"),
        "none",
        [
            Case(name="TCP hit, 1 flow", frame=_tcp("A"), before=began),
            Case(name="TCP hit, 64k flows", frame=_tcp("A"), clients=MANY),
        ],
    )
    yield (
        _service("udp", protocol=Protocol.UDP),
        "none",
        [
            Case(name="UDP hit alone, 1 flow", frame=_udp(), before=(_udp(), _udp())),
            Case(name="UDP hit alone, 64k flows", frame=_udp(), clients=MANY),
        ],
    )
    yield (
        _service("tcp6", address=VIP6),
        "ipv6",
        [
            Case(name="IPv6 TCP hit, 1 flow", frame=_tcp6("A"), before=(_tcp6("S"), _tcp6("A"))),
            Case(name="IPv6 TCP hit, 64k flows", frame=_tcp6("A"), clients=MANY, at=CLIENTS_AT_6),
        ],
    )
    yield (
        _service("udp6", address=VIP6, protocol=Protocol.UDP),
        "ipv6",
        [Case(name="IPv6 UDP hit, 1 flow", frame=_udp6(), before=(_udp6(), _udp6()))],
    )
    yield (
        _service("ipip", **ipip),
        "tunnel",
        [Case(name="TUN ipip hit, 1 flow", frame=_tcp("A"), before=began)],
    )
    yield (
        _service("gue", **gue),
        "tunnel",
        [Case(name="TUN gue hit, 1 flow", frame=_tcp("A"), before=began)],
    )
    yield (
        _service("nat", **nat),
        "nat",
        [
            Case(name="NAT request, 1 flow", frame=_tcp("A"), before=began),
            Case(name="NAT reply, 1 flow", frame=_reply()),
            Case(name="NAT built, not a service's", frame=_tcp("A", vip="10.99.99.99"), verdict=bpf.XDP_PASS),
        ],
    )
    yield (
        _service("any", port=0),
        "any_port",
        [
            Case(name="all ports hit, 1 flow", frame=_tcp("A"), before=began),
            Case(name="all ports hit, 64k flows", frame=_tcp("A"), clients=MANY),
        ],
    )
    yield (
        _service("persistent", persistence_s=300),
        "persistence",
        [Case(name="persistent hit, 1 flow", frame=_tcp("A"), before=began)],
    )
