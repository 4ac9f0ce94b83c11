"""The shapes of bpf/abi.h in Python: the maps, and what they are called.

A test compiles abi.h and compares sizes, offsets and constants with this module and with haxlb.forwarding.records.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b
from typing import Final

from haxlb.forwarding.wanted import Tally

ABI_VERSION: Final = 3
SHAPES_DIGEST: Final = "aff215c1"
"""`shapes_digest` of bpf/abi.h and bpf/maps.h, which this module says in Python. A test tells the new one."""
ABI: Final = f"{ABI_VERSION}-{SHAPES_DIGEST}"
"""Names the directory of pins. A process compares its own, which it has had in memory since it began, with that of what
it finds on disk: haxlb may have been exchanged under it."""

RING_SLOTS: Final = 16384
RING_SLOTS_PER_ELEMENT: Final = 32
LIST_SERVERS: Final = 256
EXCEPTION_SLOTS: Final = 512
EXCEPTION_ELEMENTS: Final = RING_SLOTS // EXCEPTION_SLOTS
FLOW_WAYS: Final = 4
NEAR_INTERFACES: Final = 64
ADDRESS_BITS: Final = 4096
"""Of `answer_bits` and `any_port_bits`."""
GENERATIONS: Final = 3
"""In use; the record has a fourth, so that two bits are a safe mask."""
PROGRAMS: Final = (
    "decide4",
    "decide4_wide",
    "decide6",
    "place4",
    "place4_wide",
    "place6",
    "any",
    "any4",
    "any6",
    "compare",
    "locate",
    "related4",
    "related6",
    "tunnel",
    "nat",
    "reply",
    "tag",
    "too_big",
    "expect",
)
"""Parts of the program by their place in `programs`; a part is the function haxlb_<name>. haxlb_forward is attached."""
PROGRAM_PLACES: Final = 24

LIFETIME_CLAIMED: Final = 1
LIFETIME_NEW: Final = 60
NEW_KEPT: Final = 3
CLOSING_KEPT: Final = 5
CLOSING_SURE: Final = 2
SWEEP_BUCKETS: Final = 16
"""Of one run of the sweep; every table holds a multiple."""

REASONS: Final = (
    "forwarded",
    "hashed",
    "new_flow",
    "moved_flow",
    "unknown_flow",
    "table_full",
    "icmp_error",
    "later_fragment",
    "reply",
    "too_big",
    "asked_peer",
    "not_ip",
    "malformed",
    "fragment",
    "other_protocol",
    "no_service",
    "not_for_us",
    "local",
    "loop",
    "no_server",
    "no_room",
    "hop_limit",
)
"""Names of `enum reason`, in its order."""


class MapKind(IntEnum):
    """BPF_MAP_TYPE_… of include/uapi/linux/bpf.h."""

    HASH = 1
    ARRAY = 2
    PROG_ARRAY = 3
    PERCPU_ARRAY = 6
    LRU_HASH = 9
    DEVMAP_HASH = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How much the tables hold."""

    services: int = 64
    frontends: int = 256
    """Endpoints of all services."""
    backends: int = 4096
    """Real servers of all services, those that left lately included."""
    rings: int = 8192
    """Elements of 32 slots, of all generations of all rings."""
    flow_buckets_log2: int = 16
    replies: int = 1 << 16
    """Flows of NAT."""

    @property
    def flow_buckets(self) -> int:
        """Number of 64-byte buckets of four flows."""
        return 1 << self.flow_buckets_log2

    @property
    def overflow_buckets(self) -> int:
        """The same of flows whose bucket has no room; never more, or a bucket would overflow into several."""
        return max(self.flow_buckets // 8, min(self.flow_buckets, 64))

    @property
    def wide_flow_buckets(self) -> int:
        """Number of 128-byte buckets of four flows of IPv6 or of endpoints for all ports."""
        return max(self.flow_buckets // 4, 64)

    @property
    def wide_overflow_buckets(self) -> int:
        """The same of those whose bucket has no room."""
        return max(self.wide_flow_buckets // 8, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapShape:
    """What a map must look like."""

    name: str
    kind: MapKind
    key_size: int
    value_size: int
    entries: int
    mmapable: bool = False


INDEX: Final = struct.Struct("=I")
CURSOR: Final = struct.Struct("=Q")
ELEMENT_BYTES: Final = 2 * RING_SLOTS_PER_ELEMENT
EXCEPTION_BYTES: Final = EXCEPTION_SLOTS // 8
_TALLY: Final = struct.Struct("=QQQ8x")
TALLY_BYTES: Final = _TALLY.size
LOAD_BYTES: Final = 64
VERDICTS: Final = struct.Struct(f"={len(REASONS)}Q")


def shapes(sizes: Sizes) -> tuple[MapShape, ...]:
    """All maps of a forwarder of these sizes. Index 0 of services, frontends and backends means none."""
    services = sizes.services + 1
    array, percpu, hashed, index = MapKind.ARRAY, MapKind.PERCPU_ARRAY, MapKind.HASH, INDEX.size

    def shape(name: str, kind: MapKind, key: int, value: int, entries: int, *, mmapable: bool = False) -> MapShape:
        return MapShape(name=name, kind=kind, key_size=key, value_size=value, entries=entries, mmapable=mmapable)

    return (
        # Each index once, of an endpoint that is offered or withdrawn, and those without ports.
        shape("endpoints", hashed, 8, 8, 2 * (sizes.frontends + 1)),
        shape("endpoints6", hashed, 20, 8, 2 * (sizes.frontends + 1)),
        shape("any_port_bits", array, index, ADDRESS_BITS // 8, 1),
        shape("services", array, index, 128, services),
        shape("cursors", array, index, CURSOR.size, services),
        shape("rings", array, index, ELEMENT_BYTES, sizes.rings, mmapable=True),
        shape("exceptions", array, index, EXCEPTION_BYTES, services * EXCEPTION_ELEMENTS, mmapable=True),
        shape("backends", array, index, 128, sizes.backends),
        shape("loads", array, index, LOAD_BYTES, sizes.backends, mmapable=True),
        shape("flows", array, index, 16 * FLOW_WAYS, sizes.flow_buckets, mmapable=True),
        shape("overflow", array, index, 16 * FLOW_WAYS, sizes.overflow_buckets, mmapable=True),
        shape("wide_flows", array, index, 32 * FLOW_WAYS, sizes.wide_flow_buckets, mmapable=True),
        shape("wide_overflow", array, index, 32 * FLOW_WAYS, sizes.wide_overflow_buckets, mmapable=True),
        shape("interfaces", hashed, index, 8, 256),
        shape("near_interfaces", array, index, 12, NEAR_INTERFACES),
        shape("virtual_macs", hashed, 12, index, 1024),
        shape("devices", MapKind.DEVMAP_HASH, index, index, 256),
        shape("fragments", MapKind.LRU_HASH, 40, 12, 8192),
        shape("replies", hashed, 40, 56, sizes.replies),
        shape("answer_bits", array, index, ADDRESS_BITS // 8, 1),
        shape("reply_fragments", MapKind.LRU_HASH, 40, 56, 4096),
        shape("localities", MapKind.LRU_HASH, 24, 32, 4096),
        shape("scratchpad", percpu, index, 256, 1),
        shape("service_tallies", percpu, index, TALLY_BYTES, services),
        shape("backend_tallies", percpu, index, TALLY_BYTES, sizes.backends),
        shape("verdicts", percpu, index, VERDICTS.size, 1),
        shape("sweeps", array, index, 16, 1),
    )


def programs_shape() -> MapShape:
    """The map of one build's parts: each build has its own, beside the maps that all share."""
    return MapShape(name="programs", kind=MapKind.PROG_ARRAY, key_size=4, value_size=4, entries=PROGRAM_PLACES)


def shapes_digest(*sources: str) -> str:
    """Eight hex digits of C sources, comments and white space aside."""
    code = (re.sub(r"/\*.*?\*/|//[^\n]*", " ", source, flags=re.DOTALL) for source in sources)
    return blake2b(" ".join(" ".join(code).split()).encode(), digest_size=4).hexdigest()


def pack_mac(mac: str) -> bytes:
    """Six bytes of `02:00:00:00:00:01`."""
    return bytes.fromhex(mac.replace(":", ""))


def pack_own_mac(mac: str) -> bytes:
    """Value of `interfaces`."""
    return pack_mac(mac) + bytes(2)


def pack_near_interface(interface_index: int, mac: str) -> bytes:
    """Value of `near_interfaces`, at the lower bits of the index."""
    return INDEX.pack(interface_index) + pack_own_mac(mac)


def pack_virtual_mac(interface_index: int, mac: str) -> bytes:
    """Key of `virtual_macs`."""
    return INDEX.pack(interface_index) + pack_mac(mac) + bytes(2)


def sum_tallies(raw: bytes) -> Tally:
    """The value of one index of a per-CPU tally map, summed."""
    packets, octets, flows = (sum(column) for column in zip(*_TALLY.iter_unpack(raw), strict=True))
    return Tally(packets=packets, bytes=octets, flows=flows)


def sum_verdicts(raw: bytes) -> dict[str, int]:
    """The value of `verdicts`, summed; every reason is named."""
    # The kernel rounds a CPU's part up to eight bytes; these are whole words already.
    columns = zip(*VERDICTS.iter_unpack(raw), strict=True)
    return dict(zip(REASONS, map(sum, columns), strict=True))
