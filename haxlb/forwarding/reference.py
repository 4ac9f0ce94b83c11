"""What the forwarder must do to one frame: the oracle that tests hold the XDP program against.

Written from docs/explanation/forwarder.md, for clarity and not for speed. Its flow table has no bounds: what happens
when a bucket is full is not said here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from ipaddress import IPv4Address
from typing import Final

from haxlb.forwarding.hashing import ring_hash
from haxlb.forwarding.layout import (
    LIFETIME_TCP_CLOSING,
    LIFETIME_TCP_ESTABLISHED,
    LIFETIME_TCP_NEW,
    LIFETIME_UDP,
    RING_SLOTS,
    FlowState,
    pack_mac,
)
from haxlb.forwarding.maglev import maglev
from haxlb.forwarding.ring import seeds
from haxlb.forwarding.sequence import sequence
from haxlb.forwarding.wanted import NextHop, WantedServer, WantedService, WantedTable
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.node import Scheduler

_LIFETIME_S: Final = {
    FlowState.TCP_NEW: LIFETIME_TCP_NEW,
    FlowState.TCP_ESTABLISHED: LIFETIME_TCP_ESTABLISHED,
    FlowState.TCP_CLOSING: LIFETIME_TCP_CLOSING,
    FlowState.UDP_NEW: LIFETIME_UDP,
    FlowState.UDP: LIFETIME_UDP,
}
_CLOSING_SURE_S: Final = 2
"""For how long a closing flow without a packet is not in doubt: CLOSING_SURE of bpf/flow.h."""
_IPV4, _IN_DOUBT = b"\x08\x00", b"\x88\xb5"
_FIN, _SYN, _RST, _ACK = 0x01, 0x02, 0x04, 0x10
_ETHERNET, _IP, _TCP, _UDP = 14, 20, 20, 8


class Action(Enum):
    """What becomes of a frame."""

    PASS = "pass"  # noqa: S105 - no password
    DROP = "drop"
    SEND = "send"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The forwarder's answer to a frame."""

    action: Action
    reason: str
    """One of layout.REASONS."""
    frame: bytes
    """As it leaves; untouched unless it is sent."""
    interface: int | None = None
    """Where it leaves, when it is sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packet:
    """What counts of a frame that may be a service's."""

    endpoint: Endpoint
    source: IPv4Address
    source_port: int
    flags: int

    @property
    def is_syn(self) -> bool:
        """Asks for a connection."""
        return self.flags & (_SYN | _ACK | _RST | _FIN) == _SYN

    @property
    def begins(self) -> bool:
        """May be the first of its flow."""
        return self.endpoint.protocol is Protocol.UDP or self.is_syn


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A flow on record."""

    server: str
    """Its key."""
    state: FlowState
    stamp_s: float


def parse(frame: bytes) -> Packet | str:  # noqa: PLR0911 - one for each reason
    """The packet, or the reason to leave the frame to the kernel."""
    if len(frame) < _ETHERNET:
        return "malformed"
    if frame[12:14] != _IPV4:
        return "not_ipv4"
    ip = frame[_ETHERNET:]
    if len(ip) < _IP:
        return "malformed"
    header = (ip[0] & 0x0F) * 4
    if ip[0] >> 4 != 4 or header < _IP:  # noqa: PLR2004 - IPv4
        return "malformed"
    if int.from_bytes(ip[6:8], "big") & 0x3FFF:
        return "fragment"
    protocol = {each.number: each for each in Protocol}.get(ip[9])
    if protocol is None:
        return "not_tcp_udp"
    length = int.from_bytes(ip[2:4], "big")
    if length < header + (_TCP if protocol is Protocol.TCP else _UDP) or length > len(ip):
        return "malformed"
    segment = ip[header:]
    return Packet(
        endpoint=Endpoint(address=IPv4Address(ip[16:20]), port=int.from_bytes(segment[2:4], "big"), protocol=protocol),
        source=IPv4Address(ip[12:16]),
        source_port=int.from_bytes(segment[:2], "big"),
        flags=segment[13] if protocol is Protocol.TCP else 0,
    )


class Reference:
    """A forwarder with an unbounded flow table."""

    def __init__(self, own_macs: Mapping[int, str]) -> None:
        """`own_macs` by the index of the interfaces that carry the program."""
        self._own_macs = own_macs
        self._services: dict[Endpoint, WantedService] = {}
        self._rings: dict[Endpoint, tuple[WantedServer, ...]] = {}
        self._cursors: Counter[Endpoint] = Counter()
        self.flows: dict[tuple[Endpoint, IPv4Address, int], Flow] = {}

    def configure(self, wanted: WantedTable) -> None:
        """From now on this; flows stay."""
        self._services = {service.endpoint: service for service in wanted.services}
        self._rings = {service.endpoint: _ring(service) for service in wanted.services}

    def handle(self, frame: bytes, interface: int, now_s: float) -> Verdict:  # noqa: PLR0911 - as above
        """What becomes of a frame that arrives on an interface."""
        in_doubt = frame[12:14] == _IN_DOUBT and self._for_us(frame, interface)
        if in_doubt:
            frame = frame[:12] + _IPV4 + frame[14:]
        packet = parse(frame)
        if isinstance(packet, str):
            return Verdict(action=Action.PASS, reason=packet, frame=frame)
        service = self._services.get(packet.endpoint)
        if service is None:
            return Verdict(action=Action.PASS, reason="no_service", frame=frame)
        if not self._for_us(frame, interface):
            return Verdict(action=Action.PASS, reason="not_for_us", frame=frame)
        key = (packet.endpoint, packet.source, packet.source_port)
        flow = self.flows.get(key)
        if in_doubt and flow is None and not packet.begins and self._is_from_peer(service, frame):
            # It knows the flow and asked whether we know a later one: what it knows decides.
            assert service.peer is not None
            return _sent(frame, service.peer, "asked_peer")
        server = self._live(service, flow) if flow else None
        if flow and server and _goes_on(flow, packet, now_s):
            if _is_in_doubt(flow, now_s) and self._peer_may_know(service, frame):
                assert service.peer is not None
                return _sent(frame[:12] + _IN_DOUBT + frame[14:], service.peer, "asked_peer")
            self.flows[key] = _touched(flow, packet, now_s)
            return self._send(frame, server, "forwarded")
        reason = "new_flow" if packet.begins else "moved_flow" if flow else "unknown_flow"
        if reason == "unknown_flow" and self._peer_may_know(service, frame):
            assert service.peer is not None
            return _sent(frame, service.peer, "asked_peer")
        server = self._choose(packet, in_turn=reason != "unknown_flow")
        if server is None:
            return Verdict(action=Action.DROP, reason="no_server", frame=frame)
        self.flows[key] = Flow(server=server.key, state=_first_state(packet), stamp_s=now_s)
        return self._send(frame, server, reason)

    @staticmethod
    def _live(service: WantedService, flow: Flow) -> WantedServer | None:
        return next((each for each in service.servers if each.key == flow.server and _gets_packets(each)), None)

    def _for_us(self, frame: bytes, interface: int) -> bool:
        return frame[:6] == pack_mac(self._own_macs.get(interface, "00:00:00:00:00:00"))

    def _peer_may_know(self, service: WantedService, frame: bytes) -> bool:
        return _has_peer(service) and not self._is_from_peer(service, frame)

    @staticmethod
    def _is_from_peer(service: WantedService, frame: bytes) -> bool:
        if service.peer is None or not _has_peer(service):
            return False
        return frame[6:12] == pack_mac(service.peer.destination_mac)

    def _choose(self, packet: Packet, *, in_turn: bool) -> WantedServer | None:
        ring = self._rings[packet.endpoint]
        if not ring:
            return None
        service = self._services[packet.endpoint]
        if service.scheduler not in (Scheduler.RR, Scheduler.WRR):
            port = packet.source_port if service.hash_port else None
            return ring[ring_hash(packet.source, port) % len(ring)]
        if in_turn:
            turn = self._cursors[packet.endpoint]
            self._cursors[packet.endpoint] += 1
            return ring[turn % len(ring)]
        return ring[ring_hash(packet.source, packet.source_port) % len(ring)]

    @staticmethod
    def _send(frame: bytes, server: WantedServer, reason: str) -> Verdict:
        assert server.next_hop is not None
        if server.next_hop.destination_mac == server.next_hop.source_mac:
            return Verdict(action=Action.PASS, reason="local", frame=frame)
        if frame[6:12] == pack_mac(server.next_hop.destination_mac):
            return Verdict(action=Action.PASS, reason="loop", frame=frame)
        return _sent(frame, server.next_hop, reason)


def _sent(frame: bytes, hop: NextHop, reason: str) -> Verdict:
    changed = pack_mac(hop.destination_mac) + pack_mac(hop.source_mac) + frame[12:]
    return Verdict(action=Action.SEND, reason=reason, frame=changed, interface=hop.interface_index)


def _has_peer(service: WantedService) -> bool:
    return service.peer is not None and service.scheduler in (Scheduler.RR, Scheduler.WRR)


def _gets_packets(server: WantedServer) -> bool:
    return server.alive and server.next_hop is not None


def _ring(service: WantedService) -> tuple[WantedServer, ...]:
    seed = seeds(service.servers)
    servers = sorted(service.servers, key=lambda each: (int(each.address), each.port))
    servers = [each for each in servers if _gets_packets(each) and each.weight > 0]
    if service.scheduler is Scheduler.RR:
        positions = sequence([1] * len(servers), RING_SLOTS)
    elif service.scheduler is Scheduler.WRR:
        positions = sequence([each.weight for each in servers], RING_SLOTS)
    else:
        positions = maglev([seed[each.key] for each in servers], [each.weight for each in servers], RING_SLOTS)
    return tuple(servers[position] for position in positions)


def _goes_on(flow: Flow, packet: Packet, now_s: float) -> bool:
    if not packet.begins:
        return True
    return flow.state is not FlowState.TCP_CLOSING and now_s - flow.stamp_s < _LIFETIME_S[flow.state]


def _is_in_doubt(flow: Flow, now_s: float) -> bool:
    """Its client may have opened another one on the same ports since, through the other director."""
    return flow.state is FlowState.TCP_CLOSING and now_s - flow.stamp_s >= _CLOSING_SURE_S


def _touched(flow: Flow, packet: Packet, now_s: float) -> Flow:
    state = flow.state
    if packet.endpoint.protocol is Protocol.UDP:
        state = FlowState.UDP
    elif packet.flags & (_FIN | _RST):
        state = FlowState.TCP_CLOSING
    elif state is FlowState.TCP_NEW and not packet.is_syn:
        state = FlowState.TCP_ESTABLISHED
    if state is flow.state and now_s - flow.stamp_s < 1:
        return flow
    return replace(flow, state=state, stamp_s=now_s)


def _first_state(packet: Packet) -> FlowState:
    if packet.endpoint.protocol is Protocol.UDP:
        return FlowState.UDP_NEW
    return FlowState.TCP_CLOSING if packet.flags & (_FIN | _RST) else FlowState.TCP_NEW
