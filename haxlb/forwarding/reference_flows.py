"""The oracle's flow tables: what struct flow, wide_flow and load of bpf/abi.h hold, without bounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

from haxlb.forwarding.flows import FlowState
from haxlb.forwarding.reference_packet import Packet
from haxlb.forwarding.wanted import WantedService
from haxlb.model.addresses import Endpoint, IPAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowKey:
    """What a flow is found by."""

    endpoint: Endpoint | None
    """None where the source port is 0: that is the key of a client's template."""
    source: IPAddress
    source_port: int
    destination_port: int = 0
    """Of an endpoint for all ports; else 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientKey:
    """What the server of a client is found by, of a persistent service."""

    service: str
    """Its name: the endpoints of a service share its clients."""
    all_ports: bool
    """IPv4: the endpoint is one of all ports. Those have a table of their own."""
    network: IPAddress
    """The bits of its address that count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A flow on record, or a client's server."""

    service: str
    """Its name: an endpoint that went over to another service knows nothing of this flow."""
    server: str
    """Its key."""
    state: FlowState
    stamp_s: float
    """Of its last packet, exact to a second."""


class FlowTable:
    """The flows on record, and how many each server has."""

    def __init__(self) -> None:
        self._flows: dict[FlowKey, Flow] = {}
        self.templates: dict[ClientKey, Flow] = {}
        self.overloaded: set[tuple[str, str]] = set()
        """Service name and server key of those that have reached uthreshold and not fallen below lthreshold."""
        self._active: Counter[tuple[str, str]] = Counter()
        self._inactive: Counter[tuple[str, str]] = Counter()

    def __iter__(self) -> Iterator[tuple[FlowKey, Flow]]:
        return iter(self._flows.items())

    def get(self, key: FlowKey) -> Flow | None:
        """The record of a flow."""
        return self._flows.get(key)

    def put(self, key: FlowKey, flow: Flow) -> None:
        """Write a record; it counts for its server, and the one that it replaces no more."""
        if key in self._flows:
            self._account(self._flows[key], -1)
        self._flows[key] = flow
        self._account(flow, 1)

    def forget(self, source_port: int | None = None) -> None:
        """Flows from this port (or all) are on record no more, as after a sweep."""
        for key in [key for key in self._flows if source_port in (None, key.source_port)]:
            self._account(self._flows.pop(key), -1)

    def load(self, service: str, server: str) -> tuple[int, int]:
        """Active and inactive flows of a server. As in IPVS a half-open connection is active, a closing one is not."""
        return self._active[service, server], self._inactive[service, server]

    def services(self) -> set[str]:
        """Names of those of which a flow is or was on record."""
        return {name for table in (self._active, self._inactive) for name, _ in table}

    def loads_of(self, service: str) -> list[int]:
        """Flows of each server that a service has, or had."""
        return [
            count for table in (self._active, self._inactive) for (name, _), count in table.items() if name == service
        ]

    def _account(self, flow: Flow, change: int) -> None:
        table = self._inactive if flow.state is FlowState.TCP_CLOSING else self._active
        table[flow.service, flow.server] += change


def flow_key(endpoint: Endpoint, packet: Packet) -> FlowKey:
    """What the record of a packet's flow is found by."""
    return FlowKey(
        endpoint=endpoint if packet.source_port else None,
        source=packet.source,
        source_port=packet.source_port,
        destination_port=0 if endpoint.port else packet.destination_port,
    )


def client_key(service: WantedService, endpoint: Endpoint, packet: Packet) -> ClientKey:
    """The bits of the client's address that persistence_granularity leaves."""
    ipv4 = packet.source.version == 4  # noqa: PLR2004 - the family
    bits = service.persistence_mask if ipv4 else service.persistence_prefix
    network = ip_address(ip_network((packet.source, bits), strict=False).network_address)
    return ClientKey(service=service.name, all_ports=ipv4 and not endpoint.port, network=network)
