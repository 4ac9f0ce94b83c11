"""The oracle of bpf/related.h and bpf/fragments.h: later fragments, and ICMP errors about what a server sent.

Written from docs/explanation/related-packets.md, for clarity and not for speed. Its table of first fragments has
no bounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from haxlb.forwarding.portless import portless_endpoints
from haxlb.forwarding.reference import Reference, Verdict, ask, comes_from, passed
from haxlb.forwarding.reference_choice import alive
from haxlb.forwarding.reference_flows import flow_key
from haxlb.forwarding.reference_packet import ACK, IN_DOUBT, IPV4, Datagram, Packet, Part, Standing
from haxlb.forwarding.reference_quote import quoted_by
from haxlb.forwarding.wanted import WantedServer, WantedService, WantedTable
from haxlb.model.addresses import Endpoint, IPAddress, Protocol

FRAGMENTS_LAST_S: Final = 30


class Asked(Enum):
    """What the other director got the first fragment as."""

    QUESTION = "question"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """What makes fragments those of one datagram: RFC 791, RFC 8200 section 4.5."""

    source: IPAddress
    destination: IPAddress
    identification: int
    protocol: int
    """0 for IPv6, whose fragments need not agree on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class First:
    """Where the first fragment of a datagram went."""

    service: str
    server: str
    """Its key; empty where the other director got it."""
    asked: Asked | None
    kind: bytes | None
    """EtherType that the other director got it with, where it was not the packet's own."""
    stamp_s: float


def _name(datagram: Datagram) -> Name:
    return Name(
        source=datagram.source,
        destination=datagram.destination,
        identification=datagram.identification,
        protocol=datagram.protocol if datagram.link.kind == IPV4 else 0,
    )


class RelatedReference(Reference):
    """The forwarder, with what belongs to a flow without telling its ports."""

    firsts: dict[Name, First]
    _portless: dict[Endpoint, WantedService]

    def configure(self, wanted: WantedTable, now_s: float = 0.0) -> None:
        """From now on this; flows and fragments stay."""
        super().configure(wanted, now_s)
        self._portless = dict(portless_endpoints(wanted.services))
        if not hasattr(self, "firsts"):
            self.firsts = {}

    def _serve(self, packet: Packet, endpoint: Endpoint, now_s: float, *, for_us: bool) -> Verdict:
        verdict = super()._serve(packet, endpoint, now_s, for_us=for_us)
        datagram = packet.datagram
        if verdict.reason == "asked_peer" and datagram.part is Part.FIRST_FRAGMENT:
            offset = packet.link.offset
            kind = verdict.frame[offset - 2 : offset]
            self.firsts[_name(datagram)] = First(
                service=self._endpoints[endpoint].name,
                server="",
                asked=Asked.QUESTION if packet.link.standing is Standing.PLAIN else Asked.ANSWER,
                kind=None if kind == packet.link.kind else kind,
                stamp_s=now_s,
            )
        return verdict

    def _hand_over(
        self, packet: Packet, endpoint: Endpoint, server: WantedServer, reason: str, *, begins_flow: bool, now_s: float
    ) -> Verdict:
        if packet.datagram.part is Part.FIRST_FRAGMENT:
            self.firsts[_name(packet.datagram)] = First(
                service=self._endpoints[endpoint].name,
                server=server.key,
                asked=None,
                kind=None,
                stamp_s=now_s,
            )
        return super()._hand_over(packet, endpoint, server, reason, begins_flow=begins_flow, now_s=now_s)

    def _without_ports(self, datagram: Datagram, reason: str, now_s: float, *, for_us: bool) -> Verdict:
        if reason == "fragment":
            first = self.firsts.get(_name(datagram))
            if first is not None and now_s - first.stamp_s < FRAGMENTS_LAST_S:
                return self._follow(datagram, first, now_s, for_us=for_us)
            portless = self._by_ring_alone(datagram, now_s, for_us=for_us)
            return portless or super()._without_ports(datagram, reason, now_s, for_us=for_us)
        error = self._error(datagram, now_s, for_us=for_us)
        return error or super()._without_ports(datagram, reason, now_s, for_us=for_us)

    def _service(self, name: str) -> WantedService | None:
        return next((each for each in self._endpoints.values() if each.name == name), None)

    def _follow(self, datagram: Datagram, first: First, now_s: float, *, for_us: bool) -> Verdict:
        """A later fragment whose first one is known."""
        link, service = datagram.link, self._service(first.service)
        if not for_us:
            return passed(link.frame, "not_for_us")
        peer = service.peer if service else None
        plain, from_peer = link.standing is Standing.PLAIN, comes_from(link, peer)
        if service is not None and service.shared and from_peer and plain:
            return passed(link.frame, "local")
        if peer is not None and (
            (first.asked is Asked.QUESTION and plain and not from_peer)
            or (first.asked is Asked.ANSWER and link.standing is Standing.IN_DOUBT and from_peer)
        ):
            return ask(link, peer, first.kind)
        server = alive(service, first.server) if service else None
        if service is None or server is None:
            return passed(link.frame, "fragment")
        # Whichever of its endpoints the first one went to, the later ones count for the service.
        endpoint = service.endpoints[0]
        packet = Packet(datagram=datagram, protocol=endpoint.protocol, source_port=0, destination_port=0, flags=0)
        return self._hand_over(packet, endpoint, server, "later_fragment", begins_flow=False, now_s=now_s)

    def _by_ring_alone(self, datagram: Datagram, now_s: float, *, for_us: bool) -> Verdict | None:
        """A later fragment that comes before its first one; None where there is more than one way for it."""
        protocol = {each.number: each for each in Protocol}.get(datagram.protocol)
        if protocol is None:
            return None
        service = self._portless.get(Endpoint(address=datagram.destination, port=0, protocol=protocol))
        if service is None:
            return None
        link = datagram.link
        if not for_us:
            return passed(link.frame, "not_for_us")
        if service.shared and comes_from(link, service.peer) and link.standing is Standing.PLAIN:
            return passed(link.frame, "local")
        packet = Packet(datagram=datagram, protocol=protocol, source_port=0, destination_port=0, flags=0)
        server = alive(service, self._rings.certain(service, packet))
        if server is None:
            return passed(link.frame, "fragment")
        endpoint = next(
            each for each in service.endpoints if each.address == datagram.destination and each.protocol is protocol
        )
        return self._hand_over(packet, endpoint, server, "later_fragment", begins_flow=False, now_s=now_s)

    def _error(self, datagram: Datagram, now_s: float, *, for_us: bool) -> Verdict | None:  # noqa: PLR0911 - one for each case
        """An ICMP error; None where it is not about a packet from a virtual server."""
        quote = quoted_by(datagram)
        if quote is None or quote.source != datagram.destination:
            return None
        # What its client would answer to the packet that the error is about.
        packet = Packet(
            datagram=replace(datagram, source=quote.destination),
            protocol=quote.protocol,
            source_port=quote.destination_port,
            destination_port=quote.source_port,
            flags=ACK,
        )
        endpoint = packet.endpoint()
        if endpoint not in self._endpoints:
            endpoint = packet.endpoint(any_port=True)
        if endpoint not in self._endpoints or quote.source == quote.destination:
            return None
        service, link = self._endpoints[endpoint], datagram.link
        if not for_us:
            return passed(link.frame, "not_for_us")
        plain, from_peer = link.standing is Standing.PLAIN, comes_from(link, service.peer)
        if service.shared and plain and from_peer:
            return passed(link.frame, "local")
        server = self._server_of(service, packet, endpoint)
        if server is not None:
            delivered = replace(packet, datagram=datagram)
            return self._hand_over(delivered, endpoint, server, "icmp_error", begins_flow=False, now_s=now_s)
        known = self.flows.get(flow_key(endpoint, packet))
        unknown = known is None or known.service != service.name
        if service.peer and unknown and plain and not from_peer and not service.stateless and not service.one_packet:
            return ask(link, service.peer, IN_DOUBT if service.shared else None)
        return passed(link.frame, "other_protocol")

    def _server_of(self, service: WantedService, packet: Packet, endpoint: Endpoint) -> WantedServer | None:
        """Who has the flow, if that is alive; nothing is recorded."""
        if service.stateless:
            server = alive(service, self._rings.certain(service, packet))
            if server is not None:
                return server
        flow = self.flows.get(flow_key(endpoint, packet))
        if flow is not None and flow.service == service.name:
            return alive(service, flow.server)
        if not service.stateless:
            return None
        former = alive(service, self._rings.former(service, packet))
        return former or self._chooser.choose(service, packet, 0.0, in_turn=False)
