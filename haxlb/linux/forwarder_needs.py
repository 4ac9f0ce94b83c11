"""What a configuration needs of the forwarder: what is compiled into the program, and how large its tables are."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from haxlb.forwarding.arena import blocks
from haxlb.forwarding.features import Features, Lifetimes, features, lifetimes
from haxlb.forwarding.layout import GENERATIONS, LIST_SERVERS, RING_SLOTS, Sizes
from haxlb.forwarding.ring import elements_of, ring_length
from haxlb.forwarding.sequence import sequence
from haxlb.linux.interface_mtu import needs_several_buffers
from haxlb.linux.link_layers import carrier_of
from haxlb.model.errors import HostError
from haxlb.model.node import NodeConfig
from haxlb.model.virtual_server import Scheduler, VirtualServer


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What the program must be able to do; the tables are another matter, and stay."""

    features: Features
    lifetimes: Lifetimes
    frags: bool
    """Frames of several buffers come in."""

    def met_by(self, built: Needs) -> bool:
        """Whether a program that was built for `built` will do."""
        return (self.lifetimes, self.frags) == (built.lifetimes, built.frags) and _union(
            self.features, built.features
        ) == built.features

    def beside(self, built: Needs) -> Needs:
        """These, and what `built` can do: for a program that is attached while the tables are still the former ones."""
        return replace(self, features=_union(self.features, built.features))


def _union(one: Features, other: Features) -> Features:
    return Features(**{each.name: getattr(one, each.name) or getattr(other, each.name) for each in fields(Features)})


def needs(config: NodeConfig) -> Needs:
    """Of a configuration, on this host."""
    jumbo = needs_several_buffers(_carrier(each) for each in config.forwarding_interfaces)
    return Needs(
        features=features(config, jumbo=jumbo),
        lifetimes=lifetimes(config.timeouts, config.virtual_servers),
        frags=jumbo,
    )


def _carrier(interface: str) -> str:
    """Whose frames the program sees; itself where there is no such interface (yet)."""
    try:
        return carrier_of(interface)[0]
    except HostError:
        return interface


def least(config: NodeConfig) -> Sizes:
    """Tables in which this configuration just fits."""
    servers = config.virtual_servers
    return Sizes(
        services=len(servers),
        frontends=sum(len(each.endpoints) for each in servers),
        backends=sum(len(each.real_servers) + (each.sorry_server is not None) for each in servers),
        rings=sum(map(_elements, servers)),
        flow_buckets_log2=config.forwarding.flow_buckets_log2,
    )


def roomy(config: NodeConfig) -> Sizes:
    """Tables in which it can change.

    What has left keeps its place until its flows have ended: room for as many again. Of rings there may be three
    generations; a fourth share is against free elements that lie badly.
    """
    needed, usual = least(config), Sizes()
    return replace(
        needed,
        services=max(config.forwarding.max_services, needed.services),
        frontends=max(usual.frontends, 2 * needed.frontends),
        backends=max(usual.backends, 2 * needed.backends),
        rings=max(usual.rings, (GENERATIONS + 1) * needed.rings),
    )


def excess(config: NodeConfig, room: Sizes) -> str:
    """What of it tables of these sizes have no room for; empty when all fits."""
    needed = least(config)
    for kind, many, most in (
        ("virtual servers", needed.services, room.services),
        ("addresses and ports of virtual servers", needed.frontends, room.frontends),
        ("real servers", needed.backends, room.backends - 1),
        ("elements of slots", needed.rings, room.rings // 2),
    ):
        if many > most:
            return f"{many} {kind} are configured, the forwarder has room for {most}"
    return ""


def _elements(server: VirtualServer) -> int:
    weights = [each.weight for each in server.real_servers]
    if server.sorry_server is not None:
        weights.append(server.sorry_server.weight)
    if server.scheduler.hashes:
        return blocks(elements_of(ring_length(len(weights))))
    if not server.scheduler.takes_turns:
        return blocks(elements_of(LIST_SERVERS))
    turns = [1 if server.scheduler is Scheduler.RR else each for each in weights if each]
    return blocks(elements_of(max(len(sequence(turns, RING_SLOTS)), 1)))
