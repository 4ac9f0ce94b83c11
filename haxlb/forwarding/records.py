"""Records of the maps: struct endpoint, frontend, service, backend and load of bpf/abi.h."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from enum import IntFlag
from hashlib import blake2b
from ipaddress import IPv4Address, IPv6Address
from typing import Final, Self

from haxlb.forwarding.layout import LOAD_BYTES, pack_mac
from haxlb.forwarding.wanted import Load, NextHop
from haxlb.model.addresses import Endpoint, IPAddress, Protocol
from haxlb.model.virtual_server import ForwardingMethod, Scheduler, TunnelKind

_ENDPOINT: Final = struct.Struct("=4s2sBx")
_ENDPOINT6: Final = struct.Struct("=16s2sBx")
_FRONTEND: Final = struct.Struct("=HHHH")
_HOP: Final = struct.Struct("=6s6sI")
_GENERATION: Final = struct.Struct("=IHH")
_SERVICE: Final = struct.Struct("=BBBB4sI4x24s8xII8x16s16s16s16x")
_BACKEND: Final = struct.Struct("=BBHHBBIIIHH16s16s8x16s16s2sHBB2s24x")
_LOAD: Final = struct.Struct("=III4xII40x")

SELECT_CURRENT: Final = 0x03
SELECT_FORMER_SHIFT: Final = 2
SELECT_FORMER: Final = 0x0C
FORMER_NONE: Final = 3
SELECT_PEER: Final = 0x10
SELECT_PEER_KNOWN: Final = 0x20
SELECT_EXCEPTIONS: Final = 0x40
BACKEND_ALIVE: Final = 0x01
BACKEND_HOP: Final = 0x02
BACKEND_LOCAL: Final = 0x04
_BACKEND_TAGGED: Final = 0x08
"""Follows from the tag of the next hop: in the record only."""


class FrontendFlag(IntFlag):
    """FRONTEND_… of abi.h."""

    STATELESS = 0x01
    ANY_PORT = 0x02
    ONE_PACKET = 0x04
    PERSISTENT = 0x08
    SHARED = 0x10
    LIMITED = 0x20


class GenerationFlag(IntFlag):
    """GENERATION_… of abi.h."""

    SEQUENCE = 0x01
    HASH_PORT = 0x02
    HASH_DESTINATION = 0x04
    LIST = 0x08


_NO_FLAGS: Final = FrontendFlag(0)
_A_RING: Final = GenerationFlag(0)
COMPARES: Final = {
    Scheduler.LC: 1,
    Scheduler.WLC: 2,
    Scheduler.SED: 3,
    Scheduler.NQ: 4,
    Scheduler.FO: 5,
    Scheduler.OVF: 6,
    Scheduler.TWOS: 7,
    Scheduler.LBLC: 8,
    Scheduler.LBLCR: 9,
}
"""SCHEDULER_… of abi.h: those that compare servers."""
_METHODS: Final = {ForwardingMethod.DR: 0, ForwardingMethod.TUN: 1, ForwardingMethod.NAT: 2}
_TUNNELS: Final = {TunnelKind.IPIP: 0, TunnelKind.GUE: 1, TunnelKind.GRE: 2}
_METHOD_OF: Final = {number: method for method, number in _METHODS.items()}
_TUNNEL_OF: Final = {number: tunnel for tunnel, number in _TUNNELS.items()}
TUNNEL_CHECKSUM: Final = 0x01
_WITHDRAWN, _PORTLESS = 1, 2
RETIREMENT_S: Final = 64
SERVICE_UNRECORDED: Final = 0x01


def endpoints_map(endpoint: Endpoint) -> str:
    """Name of the map that it is a key of."""
    return "endpoints" if endpoint.address.version == 4 else "endpoints6"  # noqa: PLR2004 - the family


def pack_endpoint(endpoint: Endpoint) -> bytes:
    """Key of `endpoints` or `endpoints6`."""
    shape = _ENDPOINT if endpoint.address.version == 4 else _ENDPOINT6  # noqa: PLR2004 - the family
    return shape.pack(endpoint.address.packed, endpoint.port.to_bytes(2, "big"), endpoint.protocol.number)


def pack_withdrawn(endpoint: Endpoint) -> bytes:
    """Key under which the frontend of an endpoint that is withdrawn is kept: no packet looks for it."""
    return pack_endpoint(endpoint)[:-1] + bytes([_WITHDRAWN])


def is_withdrawn(raw: bytes) -> bool:
    """Whether a key of either map is such a one."""
    return raw[-1] == _WITHDRAWN


def pack_portless(endpoint: Endpoint) -> bytes:
    """Key of later fragments to an address, whose ports are not known; `endpoint` as of haxlb.forwarding.portless."""
    return pack_endpoint(endpoint)[:-1] + bytes([_PORTLESS])


def is_portless(raw: bytes) -> bool:
    """Whether a key of either map is such a one."""
    return raw[-1] == _PORTLESS


def unpack_endpoint(raw: bytes) -> Endpoint:
    """Endpoint of a key of either map."""
    shape = _ENDPOINT if len(raw) == _ENDPOINT.size else _ENDPOINT6
    address, port, protocol = shape.unpack(raw)
    return Endpoint(address=_address(address), port=int.from_bytes(port, "big"), protocol=Protocol.of(protocol))


def _address(packed: bytes) -> IPAddress:
    return IPv4Address(packed) if len(packed) == 4 else IPv6Address(packed)  # noqa: PLR2004 - bytes of an address


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontendRecord:
    """struct frontend."""

    index: int
    service: int
    flags: FrontendFlag = _NO_FLAGS
    retired: int = 0
    """Of an endpoint that is withdrawn: when, in units of RETIREMENT_S, modulo 65536 and never 0."""

    def pack(self) -> bytes:
        """Value of `endpoints` or `endpoints6`."""
        return _FRONTEND.pack(self.index, self.service, self.flags, self.retired)

    @classmethod
    def unpack(cls, raw: bytes) -> Self:
        """Record of such a value."""
        index, service, flags, retired = _FRONTEND.unpack(raw)
        return cls(index=index, service=service, flags=FrontendFlag(flags), retired=retired)


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
class Generation:
    """How one generation of a service's ring is to be read."""

    first: int = 0
    """Its first element in `rings`."""
    length: int = 0
    """Slots."""
    flags: GenerationFlag = _A_RING


def identity_of(name: str) -> bytes:
    """What a service's name is in its record: 16 bytes."""
    return blake2b(name.encode(), digest_size=16).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRecord:
    """struct service."""

    identity: bytes
    select: int = FORMER_NONE << SELECT_FORMER_SHIFT
    scheduler: int = 0
    """One of COMPARES; 0 = the slots say it all."""
    persistence_s: int = 0
    persistence_mask: int = 32
    persistence_prefix: int = 128
    generations: tuple[Generation, Generation, Generation] = (Generation(), Generation(), Generation())
    peers: tuple[NextHop | None, NextHop | None] = (None, None)
    retired: int = 0
    changed_s: int = 0
    """When the ring last changed, CLOCK_MONOTONIC."""
    unrecorded: bool = False
    """Flows of the ring in force may be on no record: it is a stateless service's."""

    @property
    def current(self) -> int:
        """Which generation is in force."""
        return self.select & SELECT_CURRENT

    @property
    def former(self) -> int | None:
        """Which one was before, while flows of its time may be unknown."""
        former = (self.select & SELECT_FORMER) >> SELECT_FORMER_SHIFT
        return None if former == FORMER_NONE else former

    @property
    def generation(self) -> Generation:
        """The one in force."""
        return self.generations[self.current]

    @property
    def in_use(self) -> tuple[Generation, ...]:
        """Those that packets look into."""
        former = self.former
        if former is None or former == self.current:
            return (self.generation,)
        return (self.generation, self.generations[former])

    @property
    def in_transition(self) -> bool:
        """Some flows may be elsewhere than the ring in force says."""
        return self.former is not None or bool(self.select & SELECT_EXCEPTIONS)

    @property
    def peer(self) -> NextHop | None:
        """The other director as packets see it."""
        return self.peers[bool(self.select & SELECT_PEER)] if self.select & SELECT_PEER_KNOWN else None

    def pack(self) -> bytes:
        """Value of `services`."""
        mask = (0xFFFFFFFF << 32 - self.persistence_mask & 0xFFFFFFFF).to_bytes(4, "big")
        return _SERVICE.pack(
            self.select,
            self.scheduler,
            self.persistence_prefix & 0xFF,
            SERVICE_UNRECORDED * self.unrecorded,
            mask,
            self.persistence_s,
            b"".join(_GENERATION.pack(each.first, each.length, each.flags) for each in self.generations),
            self.retired,
            self.changed_s,
            *map(_pack_hop, self.peers),
            self.identity,
        )

    @classmethod
    def unpack(cls, raw: bytes) -> Self:
        """Record of a value of `services`."""
        select, scheduler, prefix, flags, mask, persistence, generations, retired, changed, peer0, peer1, identity = (
            _SERVICE.unpack(raw)
        )
        first, second, third = (
            Generation(first=at, length=length, flags=GenerationFlag(how))
            for at, length, how in _GENERATION.iter_unpack(generations)
        )
        return cls(
            identity=identity,
            select=select,
            scheduler=scheduler,
            persistence_s=persistence,
            persistence_mask=int.from_bytes(mask, "big").bit_count(),
            persistence_prefix=prefix,
            generations=(first, second, third),
            peers=(_unpack_hop(peer0), _unpack_hop(peer1)),
            retired=retired,
            changed_s=changed,
            unrecorded=bool(flags & SERVICE_UNRECORDED),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendRecord:
    """struct backend."""

    service: int
    address: IPAddress
    port: int
    state: int = 0
    incarnation: int = 0
    weight: int = 0
    method: ForwardingMethod = ForwardingMethod.DR
    tunnel: TunnelKind = TunnelKind.IPIP
    tunnel_port: int = 0
    tunnel_flags: int = 0
    upper: int = 0
    lower: int = 0
    retired: int = 0
    hops: tuple[NextHop | None, NextHop | None] = (None, None)
    """Without source and MTU, which are the same for both."""
    vlans: tuple[int, int] = (0, 0)
    source: IPAddress | None = None
    """TUN: of the outer header."""
    mtu: int = 0

    @property
    def identity(self) -> tuple[int, IPAddress, int]:
        """Which server of which service this is."""
        return (self.service, self.address, self.port)

    @property
    def alive(self) -> bool:
        """Gets packets."""
        return bool(self.state & BACKEND_ALIVE)

    @property
    def hop(self) -> NextHop | None:
        """The next hop as packets see it, whole."""
        second = bool(self.state & BACKEND_HOP)
        hop = self.hops[second]
        if hop is None:
            return None
        return replace(hop, vlan=self.vlans[second], source=self.source, mtu=self.mtu)

    def with_hop(self, hop: NextHop, *, second: bool) -> Self:
        """The same with `hop` in one of the two places."""
        bare = NextHop(
            interface_index=hop.interface_index, source_mac=hop.source_mac, destination_mac=hop.destination_mac
        )
        return replace(
            self,
            hops=(self.hops[0], bare) if second else (bare, self.hops[1]),
            vlans=(self.vlans[0], hop.vlan) if second else (hop.vlan, self.vlans[1]),
            source=hop.source,
            mtu=hop.mtu,
        )

    def pack(self) -> bytes:
        """Value of `backends`."""
        tagged = bool(self.vlans[bool(self.state & BACKEND_HOP)])
        return _BACKEND.pack(
            self.state | _BACKEND_TAGGED * tagged,
            self.incarnation,
            self.service,
            self.weight,
            _METHODS[self.method],
            self.address.version,
            self.retired,
            self.upper,
            self.lower,
            *self.vlans,
            *map(_pack_hop, self.hops),
            self.address.packed,
            self.source.packed if self.source is not None else b"",
            self.port.to_bytes(2, "big"),
            self.mtu,
            _TUNNELS[self.tunnel],
            self.tunnel_flags,
            self.tunnel_port.to_bytes(2, "big"),
        )

    @classmethod
    def unpack(cls, raw: bytes) -> Self:
        """Record of a value of `backends`."""
        (
            state, incarnation, service, weight, method, family, retired, upper, lower, vlan0, vlan1, hop0, hop1,
            address, source, port, mtu, tunnel, flags, tunnel_port,
        ) = _BACKEND.unpack(raw)  # fmt: skip
        octets = 4 if family == 4 else 16  # noqa: PLR2004 - the family
        # The source is of the outer header, which need not be of the server's family.
        outer = source if any(source[4:]) else source[:4]
        return cls(
            service=service,
            address=_address(address[:octets]),
            port=int.from_bytes(port, "big"),
            state=state & ~_BACKEND_TAGGED,
            incarnation=incarnation,
            weight=weight,
            method=_METHOD_OF[method],
            tunnel=_TUNNEL_OF[tunnel],
            tunnel_port=int.from_bytes(tunnel_port, "big"),
            tunnel_flags=flags,
            upper=upper,
            lower=lower,
            retired=retired,
            hops=(_unpack_hop(hop0), _unpack_hop(hop1)),
            vlans=(vlan0, vlan1),
            source=_address(outer) if any(outer) else None,
            mtu=mtu,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRecord:
    """struct load."""

    load: Load = field(default_factory=Load)

    @staticmethod
    def unpack(raw: bytes, index: int = 0) -> Load:
        """The load at an index of the whole of `loads`, or of one value."""
        active, inactive, overloaded, *_ = _LOAD.unpack_from(raw, index * LOAD_BYTES)
        return Load(active=active, inactive=inactive, overloaded=bool(overloaded))
