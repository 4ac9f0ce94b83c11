"""What the forwarder must do to one frame: the oracle that tests hold the XDP program against.

Written from docs/explanation/forwarder.md, for clarity and not for speed. Its flow tables have no bounds: what happens
when a bucket is full is not said here. Parts that do more than exchange MACs have modules of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from haxlb.forwarding.features import Lifetimes
from haxlb.forwarding.flows import FlowState
from haxlb.forwarding.layout import CLOSING_SURE, LIFETIME_NEW, pack_mac
from haxlb.forwarding.reference_choice import Chooser, alive
from haxlb.forwarding.reference_flows import ClientKey, Flow, FlowKey, FlowTable, client_key, flow_key
from haxlb.forwarding.reference_packet import (
    ANSWERED,
    IN_DOUBT,
    Datagram,
    Link,
    Packet,
    Standing,
    parse_datagram,
    parse_link,
    parse_packet,
)
from haxlb.forwarding.reference_rings import Rings
from haxlb.forwarding.reference_tags import retag
from haxlb.forwarding.wanted import NextHop, Tally, WantedServer, WantedService, WantedTable
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.virtual_server import ForwardingMethod


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
class Delivery:
    """A packet that has a server; what is left is to send it there."""

    packet: Packet
    service: WantedService
    endpoint: Endpoint
    server: WantedServer
    hop: NextHop
    reason: str
    begins_flow: bool
    now_s: float


Deliver = Callable[[Delivery], Verdict]
"""How a method sends: the frame that leaves, or what else becomes of it."""


class Reference:
    """A forwarder with unbounded flow tables."""

    def __init__(
        self,
        own_macs: Mapping[int, str],
        *,
        virtual_macs: Iterable[tuple[int, str]] = (),
        lifetimes: Lifetimes | None = None,
    ) -> None:
        """`own_macs` by the index of the interfaces that carry the program, `virtual_macs` likewise."""
        self._own_macs = own_macs
        self.virtual_macs = {(interface, pack_mac(mac)) for interface, mac in virtual_macs}
        self._lifetimes = lifetimes or Lifetimes()
        self._endpoints: dict[Endpoint, WantedService] = {}
        self._rings = Rings()
        self.flows = FlowTable()
        self._chooser = Chooser(self._rings, self.flows)
        self.service_tallies: dict[str, Tally] = {}
        self.server_tallies: dict[tuple[str, str], Tally] = {}
        self.deliveries: dict[ForwardingMethod, Deliver] = {ForwardingMethod.DR: exchange_macs}

    def configure(self, wanted: WantedTable, now_s: float = 0.0) -> None:
        """From now on this; flows stay."""
        self._endpoints = {each: service for service in wanted.services for each in service.endpoints}
        self._rings.configure(wanted.services, now_s)

    def settle(self, now_s: float, lifetime_s: int) -> None:
        """End the transitions between rings that are over; `lifetime_s`: of an established flow without packets."""
        self._rings.settle(now_s, lifetime_s, self.flows.loads_of)

    def handle(self, frame: bytes, interface: int, now_s: float) -> Verdict:
        """What becomes of a frame that arrives on an interface."""
        for_us = self._for_us(frame, interface)
        link = parse_link(frame, for_us=for_us)
        if isinstance(link, str):
            return passed(frame, link)
        datagram = parse_datagram(link)
        if isinstance(datagram, str):
            return passed(link.frame, datagram)
        packet = parse_packet(datagram)
        if isinstance(packet, str):
            if packet == "malformed":
                return passed(link.frame, packet)
            return self._without_ports(datagram, packet, now_s, for_us=for_us)
        endpoint = packet.endpoint()
        if endpoint not in self._endpoints:
            endpoint = packet.endpoint(any_port=True)
        if endpoint not in self._endpoints:
            return self._no_service(packet, now_s)
        return self._serve(packet, endpoint, now_s, for_us=for_us)

    def _serve(self, packet: Packet, endpoint: Endpoint, now_s: float, *, for_us: bool) -> Verdict:
        service, link = self._endpoints[endpoint], packet.link
        if service.shared and link.standing is Standing.PLAIN and comes_from(link, service.peer):
            # It has chosen us, the server: to forward the packet again could go on for ever.
            return passed(link.frame, "local")
        # None where the flow may be on record, or the server of the slot has just died.
        server = alive(service, self._rings.certain(service, packet)) if service.stateless else None
        if server is None:
            return self._by_record(packet, endpoint, now_s, for_us=for_us)
        if packet.source == packet.destination:
            return passed(link.frame, "malformed")
        if not for_us:
            return passed(link.frame, "not_for_us")
        return self._hand_over(packet, endpoint, server, "hashed", begins_flow=False, now_s=now_s)

    def _for_us(self, frame: bytes, interface: int) -> bool:
        own = self._own_macs.get(interface)
        return own is not None and (frame[:6] == pack_mac(own) or (interface, frame[:6]) in self.virtual_macs)

    def _without_ports(self, datagram: Datagram, reason: str, now_s: float, *, for_us: bool) -> Verdict:  # noqa: ARG002 - for those who extend it
        """A later fragment, or a packet of another protocol."""
        return passed(datagram.link.frame, reason)

    def _no_service(self, packet: Packet, now_s: float) -> Verdict:  # noqa: ARG002 - likewise
        """It is no client's."""
        return passed(packet.link.frame, "no_service")

    def _by_record(self, packet: Packet, endpoint: Endpoint, now_s: float, *, for_us: bool) -> Verdict:
        service = self._endpoints[endpoint]
        key = flow_key(endpoint, packet)
        flow = self.flows.get(key)
        server = alive(service, flow.server) if flow is not None and flow.service == service.name else None
        if flow is None or server is None or not self._goes_on(flow, packet, now_s):
            if not for_us:
                return passed(packet.link.frame, "not_for_us")
            return self._decide(packet, endpoint, flow, now_s)
        if not for_us:
            return passed(packet.link.frame, "not_for_us")
        state = _state_after(packet, flow.state)
        if state is not flow.state or now_s - flow.stamp_s >= 1:
            peer = None if service.stateless else service.peer
            doubtful = flow.state is FlowState.TCP_CLOSING and now_s - flow.stamp_s >= CLOSING_SURE
            if doubtful and peer and not comes_from(packet.link, peer):
                return ask(packet.link, peer, IN_DOUBT)
            self.flows.put(key, replace(flow, state=state, stamp_s=now_s))
            if service.persistence_s:
                client = client_key(service, endpoint, packet)
                template = self.flows.templates.get(client)
                if template is not None and now_s - template.stamp_s < service.persistence_s:
                    self.flows.templates[client] = replace(template, stamp_s=now_s)
        return self._hand_over(packet, endpoint, server, "forwarded", begins_flow=False, now_s=now_s)

    def _goes_on(self, flow: Flow, packet: Packet, now_s: float) -> bool:
        """A TCP packet without SYN can only belong to the flow; a SYN or a UDP packet does while it lives."""
        if not packet.begins:
            return True
        return flow.state is not FlowState.TCP_CLOSING and now_s - flow.stamp_s < self._lifetime_s(flow.state)

    def _lifetime_s(self, state: FlowState) -> int:
        return {
            FlowState.TCP_NEW: LIFETIME_NEW,
            FlowState.TCP_ESTABLISHED: self._lifetimes.established,
            FlowState.TCP_CLOSING: self._lifetimes.closing,
            FlowState.UDP_NEW: self._lifetimes.udp,
            FlowState.UDP: self._lifetimes.udp,
        }[state]

    def _decide(self, packet: Packet, endpoint: Endpoint, flow: Flow | None, now_s: float) -> Verdict:
        """No live server is on record for it."""
        service = self._endpoints[endpoint]
        if packet.source == packet.destination:
            return passed(packet.link.frame, "malformed")
        known = flow is not None and flow.service == service.name
        reason = "new_flow" if packet.begins else "moved_flow" if known else "unknown_flow"
        server = None
        if service.stateless:
            certain = None if flow or self._rings.changing(service) else self._rings.current(service, packet)
            if (current := alive(service, certain)) is not None:
                # A record would say the same, and slots would stay exceptions for as long as there are records.
                return self._hand_over(packet, endpoint, current, "hashed", begins_flow=False, now_s=now_s)
        if not known and (reason == "unknown_flow" or packet.protocol is Protocol.UDP):
            # UDP does not say what is a first packet: while the ring has just changed, it is of an earlier flow.
            server = alive(service, self._rings.former(service, packet))
        if reason == "unknown_flow" and server is None and not service.stateless:
            question = _question(packet, service)
            if question is not None:
                return question
        return self._place(packet, endpoint, server, reason, now_s)

    def _place(
        self, packet: Packet, endpoint: Endpoint, server: WantedServer | None, reason: str, now_s: float
    ) -> Verdict:
        """It is to be decided here: who gets it, unless that is `server`."""
        service = self._endpoints[endpoint]
        client = client_key(service, endpoint, packet) if service.persistence_s else None
        if server is None and client is not None:
            server = self._server_of_client(service, client, now_s)
        key = None if service.one_packet else flow_key(endpoint, packet)
        if key is None:
            reason = "new_flow"
        in_turn = reason in ("new_flow", "moved_flow")
        server = server or self._chooser.choose(service, packet, now_s, in_turn=in_turn)
        if server is None:
            return Verdict(action=Action.DROP, reason="no_server", frame=packet.link.frame)
        if key is not None:
            self._record(key, packet, service, server, now_s)
        if client is not None and in_turn:
            self.flows.templates[client] = Flow(
                service=service.name, server=server.key, state=FlowState.TEMPLATE, stamp_s=now_s
            )
        return self._hand_over(packet, endpoint, server, reason, begins_flow=key is not None, now_s=now_s)

    def _record(self, key: FlowKey, packet: Packet, service: WantedService, server: WantedServer, now_s: float) -> None:
        # As when a connection is bound: the mark of a full server follows each change of its flows.
        self._chooser.is_full(service, server)
        self.flows.put(
            key,
            Flow(service=service.name, server=server.key, state=_first_state(packet), stamp_s=now_s),
        )
        self._chooser.is_full(service, server)

    def _server_of_client(self, service: WantedService, key: ClientKey, now_s: float) -> WantedServer | None:
        """persistence_timeout: the server that this client has."""
        template = self.flows.templates.get(key)
        if template is None or template.service != service.name or now_s - template.stamp_s >= service.persistence_s:
            return None
        server = alive(service, template.server)
        if server is not None:
            self.flows.templates[key] = replace(template, stamp_s=now_s)
        return server

    def _hand_over(
        self, packet: Packet, endpoint: Endpoint, server: WantedServer, reason: str, *, begins_flow: bool, now_s: float
    ) -> Verdict:
        hop = server.next_hop
        assert hop is not None
        if hop.local:
            return passed(packet.link.frame, "local")
        # By any other method clients and servers may well be behind one router. And what is asked about may have been
        # placed on the director that asks.
        link = packet.link
        asked = link.standing is Standing.IN_DOUBT
        if server.method is ForwardingMethod.DR and not asked and comes_from(link, hop):
            return passed(link.frame, "loop")
        service = self._endpoints[endpoint]
        delivery = Delivery(
            packet=packet,
            service=service,
            endpoint=endpoint,
            server=server,
            hop=hop,
            reason=reason,
            begins_flow=begins_flow,
            now_s=now_s,
        )
        verdict = self.deliveries[server.method](delivery)
        if verdict.reason == reason:
            tally = Tally(packets=1, bytes=packet.datagram.length, flows=int(begins_flow))
            self.service_tallies[service.name] = _sum(self.service_tallies.get(service.name), tally)
            name = (service.name, server.key)
            self.server_tallies[name] = _sum(self.server_tallies.get(name), tally)
        return verdict


def exchange_macs(delivery: Delivery) -> Verdict:
    """DR."""
    return sent(retag(delivery.packet.link.frame, delivery.hop.vlan), delivery.hop, delivery.reason)


def sent(frame: bytes, hop: NextHop, reason: str) -> Verdict:
    """Out to a next hop."""
    changed = pack_mac(hop.destination_mac) + pack_mac(hop.source_mac) + frame[12:]
    return Verdict(action=Action.SEND, reason=reason, frame=changed, interface=hop.interface_index)


def ask(link: Link, peer: NextHop, kind: bytes | None) -> Verdict:
    """To the other director, as a frame of another EtherType where `kind` says so."""
    return sent(link.frame if kind is None else link.with_kind(kind), peer, "asked_peer")


def _question(packet: Packet, service: WantedService) -> Verdict | None:
    """A packet of a flow that is not on record, for the other director; None where it is to be decided here."""
    link, peer = packet.link, service.peer
    if peer is None:
        return None
    if link.standing is Standing.IN_DOUBT and comes_from(link, peer):
        # What it doubts it knows, or nobody does: the packet goes back, and it decides.
        return ask(link, peer, ANSWERED if service.shared else None)
    if not comes_from(link, peer):
        return ask(link, peer, IN_DOUBT if service.shared else None)
    return None


def passed(frame: bytes, reason: str) -> Verdict:
    """To the kernel."""
    return Verdict(action=Action.PASS, reason=reason, frame=frame)


def comes_from(link: Link, hop: NextHop | None) -> bool:
    """Who sent the frame is that next hop."""
    return hop is not None and link.source_mac == pack_mac(hop.destination_mac)


def _state_after(packet: Packet, state: FlowState) -> FlowState:
    """Of a flow after this packet of it."""
    if packet.protocol is Protocol.UDP:
        return FlowState.UDP
    if packet.ends:
        return FlowState.TCP_CLOSING
    if state is FlowState.TCP_NEW and not packet.is_syn:
        return FlowState.TCP_ESTABLISHED
    return state


def _first_state(packet: Packet) -> FlowState:
    if packet.protocol is Protocol.UDP:
        return FlowState.UDP_NEW
    return FlowState.TCP_CLOSING if packet.ends else FlowState.TCP_NEW


def _sum(before: Tally | None, more: Tally) -> Tally:
    if before is None:
        return more
    return Tally(
        packets=before.packets + more.packets, bytes=before.bytes + more.bytes, flows=before.flows + more.flows
    )
