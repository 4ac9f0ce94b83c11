"""The shapes of bpf/abi.h in Python: records of the maps, and the maps themselves.

A test compiles abi.h and compares sizes, offsets and constants with this module.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field, replace
from enum import IntEnum
from hashlib import blake2b
from ipaddress import IPv4Address
from typing import Final, Self

from haxlb.forwarding.wanted import NextHop, Tally
from haxlb.model.addresses import Endpoint, Protocol

ABI_VERSION: Final = 1
SHAPES_DIGEST: Final = "67f1d161"
"""`shapes_digest` of bpf/abi.h and bpf/maps.h, which this module says in Python. A test tells the new one."""
ABI: Final = f"{ABI_VERSION}-{SHAPES_DIGEST}"
"""Names the directory of pins. A process compares its own, which it has had in memory since it began, with that of what
it finds on disk: haxlb may have been exchanged under it."""

RING_SLOTS: Final = 16384
RING_SLOTS_PER_ELEMENT: Final = 32
RING_ELEMENTS: Final = RING_SLOTS // RING_SLOTS_PER_ELEMENT
FLOW_WAYS: Final = 4

SELECT_HALF: Final = 0x01
SELECT_PEER: Final = 0x02
SELECT_PEER_KNOWN: Final = 0x04
HALF_SEQUENCE: Final = 0x01
HALF_HASH_PORT: Final = 0x02
BACKEND_ALIVE: Final = 0x01
BACKEND_HOP: Final = 0x02
BACKEND_LOCAL: Final = 0x04

LIFETIME_CLAIMED: Final = 1
LIFETIME_TCP_NEW: Final = 60
LIFETIME_TCP_ESTABLISHED: Final = 900
LIFETIME_TCP_CLOSING: Final = 120
LIFETIME_UDP: Final = 300

REASONS: Final = (
    "forwarded",
    "new_flow",
    "moved_flow",
    "unknown_flow",
    "table_full",
    "asked_peer",
    "not_ipv4",
    "malformed",
    "fragment",
    "not_tcp_udp",
    "no_service",
    "not_for_us",
    "local",
    "loop",
    "no_server",
)
"""Names of `enum reason`, in its order."""


class FlowState(IntEnum):
    """FLOW_… of abi.h."""

    EMPTY = 0
    CLAIMED = 1
    TCP_NEW = 2
    TCP_ESTABLISHED = 3
    TCP_CLOSING = 4
    UDP_NEW = 5
    UDP = 6


class MapKind(IntEnum):
    """BPF_MAP_TYPE_… of include/uapi/linux/bpf.h."""

    HASH = 1
    ARRAY = 2
    PERCPU_ARRAY = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much the tables hold."""

    services: int = 64
    backends: int = 4096
    """Real servers of all services, those that left lately included."""
    flow_buckets_log2: int = 16

    @property
    def flow_buckets(self) -> int:
        """Number of 64-byte buckets."""
        return 1 << self.flow_buckets_log2


@dataclass(frozen=True, slots=True, kw_only=True)
class MapShape:
    """What a map must look like."""

    name: str
    kind: MapKind
    key_size: int
    value_size: int
    entries: int
    mmapable: bool = False


_ENDPOINT: Final = struct.Struct("=4s2sBx")
_HOP: Final = struct.Struct("=6s6sI")
_SERVICE: Final = struct.Struct("=BB2s4sIHxxIHxx16s16sI4x")
_BACKEND: Final = struct.Struct("=BBH4s2sHI16s16s16x")
_FLOW: Final = struct.Struct("=4s2sHHBBI")
_OWN_MAC: Final = struct.Struct("=6sxx")
_TALLY: Final = struct.Struct("=QQQ8x")
INDEX: Final = struct.Struct("=I")
CURSOR: Final = struct.Struct("=Q")
TALLY_BYTES: Final = _TALLY.size
VERDICTS: Final = struct.Struct(f"={len(REASONS)}Q")


def shapes(sizes: Sizes) -> tuple[MapShape, ...]:
    """All maps of a forwarder of these sizes. Index 0 of services and backends stays unused: it means none."""
    services = sizes.services + 1
    array, percpu, index = MapKind.ARRAY, MapKind.PERCPU_ARRAY, INDEX.size

    def shape(name: str, kind: MapKind, key: int, value: int, entries: int, *, mmapable: bool = False) -> MapShape:
        return MapShape(name=name, kind=kind, key_size=key, value_size=value, entries=entries, mmapable=mmapable)

    return (
        shape("endpoints", MapKind.HASH, _ENDPOINT.size, INDEX.size, sizes.services),
        shape("services", array, index, _SERVICE.size, services),
        shape("cursors", array, index, CURSOR.size, services),
        shape("rings", array, index, 2 * RING_SLOTS_PER_ELEMENT, services * 2 * RING_ELEMENTS, mmapable=True),
        shape("backends", array, index, _BACKEND.size, sizes.backends),
        shape("flows", array, index, FLOW_WAYS * _FLOW.size, sizes.flow_buckets, mmapable=True),
        shape("interfaces", MapKind.HASH, index, _OWN_MAC.size, 64),
        shape("service_tallies", percpu, index, _TALLY.size, services),
        shape("backend_tallies", percpu, index, _TALLY.size, sizes.backends),
        shape("verdicts", percpu, index, VERDICTS.size, 1),
    )


def shapes_digest(*sources: str) -> str:
    """Eight hex digits of C sources, comments and white space aside."""
    code = (re.sub(r"/\*.*?\*/|//[^\n]*", " ", source, flags=re.DOTALL) for source in sources)
    return blake2b(" ".join(" ".join(code).split()).encode(), digest_size=4).hexdigest()


def ring_element(service: int, half: int) -> int:
    """Index of the first element of a half of a service's ring."""
    return (service * 2 + half) * RING_ELEMENTS


def pack_mac(mac: str) -> bytes:
    """Six bytes of `02:00:00:00:00:01`."""
    return bytes.fromhex(mac.replace(":", ""))


def pack_own_mac(mac: str) -> bytes:
    """Value of `interfaces`."""
    return _OWN_MAC.pack(pack_mac(mac))


def pack_endpoint(endpoint: Endpoint) -> bytes:
    """Key of `endpoints`."""
    return _ENDPOINT.pack(endpoint.address.packed, endpoint.port.to_bytes(2, "big"), endpoint.protocol.number)


def unpack_endpoint(raw: bytes) -> Endpoint:
    """Endpoint of a key of `endpoints`."""
    address, port, protocol = _ENDPOINT.unpack(raw)
    return Endpoint(address=IPv4Address(address), port=int.from_bytes(port, "big"), protocol=_protocol(protocol))


def _protocol(number: int) -> Protocol:
    return Protocol.TCP if number == Protocol.TCP.number else Protocol.UDP


def _pack_hop(hop: NextHop | None) -> bytes:
    if hop is None:
        return bytes(_HOP.size)
    return _HOP.pack(pack_mac(hop.destination_mac), pack_mac(hop.source_mac), hop.interface_index)


def _unpack_hop(raw: bytes) -> NextHop | None:
    if not any(raw):
        return None
    destination, source, interface = _HOP.unpack(raw)
    return NextHop(interface_index=interface, source_mac=source.hex(":"), destination_mac=destination.hex(":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """How one half of a service's ring is to be read."""

    length: int = 0
    flags: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRecord:
    """struct service."""

    endpoint: Endpoint
    select: int = 0
    halves: tuple[Half, Half] = field(default=(Half(), Half()))
    peers: tuple[NextHop | None, NextHop | None] = (None, None)
    retired: int = 0

    @property
    def half(self) -> int:
        """Which half is in force."""
        return self.select & SELECT_HALF

    @property
    def peer(self) -> NextHop | None:
        """The other director as packets see it."""
        return self.peers[bool(self.select & SELECT_PEER)] if self.select & SELECT_PEER_KNOWN else None

    def pack(self) -> bytes:
        """Value of `services`."""
        first, second = self.halves
        return _SERVICE.pack(
            self.select,
            self.endpoint.protocol.number,
            self.endpoint.port.to_bytes(2, "big"),
            self.endpoint.address.packed,
            first.length,
            first.flags,
            second.length,
            second.flags,
            *map(_pack_hop, self.peers),
            self.retired,
        )

    @classmethod
    def unpack(cls, raw: bytes) -> Self:
        """Record of a value of `services`."""
        select, protocol, port, address, length0, flags0, length1, flags1, peer0, peer1, retired = _SERVICE.unpack(raw)
        return cls(
            endpoint=Endpoint(
                address=IPv4Address(address), port=int.from_bytes(port, "big"), protocol=_protocol(protocol)
            ),
            select=select,
            halves=(Half(length=length0, flags=flags0), Half(length=length1, flags=flags1)),
            peers=(_unpack_hop(peer0), _unpack_hop(peer1)),
            retired=retired,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendRecord:
    """struct backend."""

    service: int
    address: IPv4Address
    port: int
    state: int = 0
    incarnation: int = 0
    weight: int = 0
    """For people and for counters: the ring is what counts."""
    retired: int = 0
    hops: tuple[NextHop | None, NextHop | None] = (None, None)

    @property
    def identity(self) -> tuple[int, IPv4Address, int]:
        """Which server of which service this is."""
        return (self.service, self.address, self.port)

    @property
    def alive(self) -> bool:
        """Gets packets."""
        return bool(self.state & BACKEND_ALIVE)

    @property
    def hop(self) -> NextHop | None:
        """The next hop as packets see it."""
        return self.hops[bool(self.state & BACKEND_HOP)]

    def with_hop(self, hop: NextHop, *, second: bool) -> Self:
        """The same with `hop` in one of the two places."""
        return replace(self, hops=(self.hops[0], hop) if second else (hop, self.hops[1]))

    def pack(self) -> bytes:
        """Value of `backends`."""
        return _BACKEND.pack(
            self.state,
            self.incarnation,
            self.service,
            self.address.packed,
            self.port.to_bytes(2, "big"),
            self.weight,
            self.retired,
            *map(_pack_hop, self.hops),
        )

    @classmethod
    def unpack(cls, raw: bytes) -> Self:
        """Record of a value of `backends`."""
        state, incarnation, service, address, port, weight, retired, hop0, hop1 = _BACKEND.unpack(raw)
        return cls(
            service=service,
            address=IPv4Address(address),
            port=int.from_bytes(port, "big"),
            state=state,
            incarnation=incarnation,
            weight=weight,
            retired=retired,
            hops=(_unpack_hop(hop0), _unpack_hop(hop1)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowEntry:
    """struct flow."""

    source: IPv4Address
    source_port: int
    service: int
    backend: int
    incarnation: int
    state: FlowState
    stamp: int
    """jiffies of the last packet, exact to a second."""

    def pack(self) -> bytes:
        """One way of a value of `flows`."""
        return _FLOW.pack(
            self.source.packed,
            self.source_port.to_bytes(2, "big"),
            self.service,
            self.backend,
            self.incarnation,
            self.state,
            self.stamp,
        )


def unpack_flows(raw: bytes) -> list[FlowEntry | None]:
    """All ways of some buckets in their order; None = empty."""
    return [
        FlowEntry(
            source=IPv4Address(source),
            source_port=int.from_bytes(port, "big"),
            service=service,
            backend=backend,
            incarnation=incarnation,
            state=FlowState(state),
            stamp=stamp,
        )
        if state
        else None
        for source, port, service, backend, incarnation, state, stamp in _FLOW.iter_unpack(raw)
    ]


def sum_tallies(raw: bytes) -> Tally:
    """The value of one index of a per-CPU tally map, summed."""
    packets, octets, flows = (sum(column) for column in zip(*_TALLY.iter_unpack(raw), strict=True))
    return Tally(packets=packets, bytes=octets, flows=flows)


def sum_verdicts(raw: bytes) -> dict[str, int]:
    """The value of `verdicts`, summed; every reason is named."""
    # The kernel rounds a CPU's part up to eight bytes; these are whole words already.
    columns = zip(*VERDICTS.iter_unpack(raw), strict=True)
    return dict(zip(REASONS, map(sum, columns), strict=True))
