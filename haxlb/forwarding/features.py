"""What the configuration needs of the program: what no service uses is not compiled, so that it costs nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from haxlb.model.addresses import Endpoint
from haxlb.model.node import NodeConfig
from haxlb.model.virtual_server import FlowTimeouts, ForwardingMethod, RealServer, VirtualServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """One WITH_… of bpf/features.h each."""

    stateless: bool = True
    stateful: bool = True
    list: bool = True
    thresholds: bool = True
    persistence: bool = True
    one_packet: bool = True
    any_port: bool = True
    ipv6: bool = True
    shared: bool = True
    tunnel: bool = True
    nat: bool = True
    jumbo: bool = True

    def defines(self) -> dict[str, int]:
        """Preprocessor constants."""
        return {f"WITH_{each.name.upper()}": int(getattr(self, each.name)) for each in fields(self)}

    @property
    def text(self) -> str:
        """The names of those that are compiled: an argument of the compiler, and what a person reads."""
        return ",".join(each.name for each in fields(self) if getattr(self, each.name)) or "none"

    @classmethod
    def parse(cls, text: str) -> Features:
        """From `text`, or `all`. Raises ValueError."""
        if text == "all":
            return cls()
        named = set() if text == "none" else set(text.split(","))
        known = {each.name for each in fields(cls)}
        if unknown := sorted(named - known):
            raise ValueError(f"no such features: {', '.join(unknown)}")
        return cls(**{name: name in named for name in known})


ALL = Features()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """Seconds without a packet after which a flow is no more."""

    established: int = 900
    closing: int = 120
    udp: int = 300
    template: int = 360
    """The longest persistence_timeout."""

    def defines(self) -> dict[str, int]:
        """Preprocessor constants; the program counts them in 16 bits."""
        longest = 0xFFFF
        return {
            "LIFETIME_TCP_ESTABLISHED": min(self.established, longest),
            "LIFETIME_CLOSING": min(self.closing, longest),
            "LIFETIME_UDP": min(self.udp, longest),
            "LIFETIME_TEMPLATE": min(self.template, longest),
        }


def lifetimes(timeouts: FlowTimeouts, virtual_servers: Iterable[VirtualServer]) -> Lifetimes:
    """Those that a configuration asks for."""
    return Lifetimes(
        established=timeouts.tcp_s,
        closing=timeouts.tcp_fin_s,
        udp=timeouts.udp_s,
        template=max((each.persistence_s for each in virtual_servers), default=0) or 1,
    )


def features(config: NodeConfig, *, jumbo: bool) -> Features:
    """What this configuration needs; `jumbo`: some interface takes frames that do not fit into one buffer."""
    servers = config.virtual_servers
    stateless = [each for each in servers if is_stateless(each)]
    return Features(
        stateless=bool(stateless),
        stateful=len(stateless) < len(servers),
        list=any(not each.scheduler.hashes and each.scheduler.value not in ("rr", "wrr") for each in servers),
        thresholds=any(each.upper_threshold for each in _real_servers(servers)),
        persistence=any(each.persistence_s for each in servers),
        one_packet=any(each.one_packet for each in servers),
        any_port=any(not each.port for each in _endpoints(servers))
        or any(each.method is ForwardingMethod.NAT and not each.port for each in _real_servers(servers)),
        ipv6=any(each.address.version == 6 for each in _endpoints(servers)),  # noqa: PLR2004 - the family
        # Which servers are this host is known by its neighbours only, and changes.
        shared=bool(config.instances),
        tunnel=any(each.method is ForwardingMethod.TUN for each in _real_servers(servers)),
        nat=any(each.method is ForwardingMethod.NAT for each in _real_servers(servers)),
        jumbo=jumbo,
    )


def is_stateless(server: VirtualServer) -> bool:
    """WantedService.stateless, known from the configuration."""
    return (
        server.scheduler.hashes
        and not server.persistence_s
        and not server.one_packet
        and not any(each.upper_threshold for each in server.real_servers)
        and all(each.method is not ForwardingMethod.NAT for each in _real_servers([server]))
    )


def _real_servers(servers: Iterable[VirtualServer]) -> Iterable[RealServer]:
    for server in servers:
        yield from server.real_servers
        if server.sorry_server is not None:
            yield server.sorry_server


def _endpoints(servers: Iterable[VirtualServer]) -> Iterable[Endpoint]:
    for server in servers:
        yield from server.endpoints
