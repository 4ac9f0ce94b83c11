"""From one node's configuration to a cluster: who the other directors are, and which cables join them.

A file describes one director. Unless the others' files are given, they are derived: a counterpart has the mirrored
role, the mirrored unicast addresses, and a priority 50 away. docs/reference/drill.md states the rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address

from haxlb.model.addresses import IPAddress
from haxlb.model.errors import ConfigError
from haxlb.model.instance import Role, VrrpInstance
from haxlb.model.node import NodeConfig
from haxlb.model.tracking import TrackKind
from haxlb.vrrp.holdings import addresses

PRIORITY_STEP = 50
_DEFAULT_PRIORITY = 100
_OWNER_PRIORITY = 255
MOST_NODES = 9
_IPV4 = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class NicPlan:
    """One network interface of one director."""

    interface: str
    segment: str
    """The LAN that it is on: the first node's name for it."""
    mac: str
    addresses: tuple[IPAddress, ...]
    """Of both families; the primary one of each first."""
    base: str = ""
    """The interface that it is a macvlan or ipvlan of (`use_vmac`); empty = of none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """One director's place in the world."""

    config: NodeConfig
    nics: tuple[NicPlan, ...]
    derived: bool
    """Made up as a counterpart, not read from a file."""


def plan(config: NodeConfig, others: tuple[NodeConfig, ...] = (), nodes: int | None = None) -> tuple[Station, ...]:
    """The stations of a cluster: the node itself, those whose configuration is given, derived ones up to `nodes`.

    Without `nodes` there are as many as the unicast peers say, at least two. Raises ConfigError when there is
    nothing to rehearse.
    """
    if not config.instances:
        raise ConfigError(
            f"{config.node} has no vrrp_instance: there is nothing that could fail over",
            remedy="name a configuration with at least one vrrp_instance",
        )
    count = nodes or max(2, 1 + len(others), 1 + max(len(each.peers) for each in config.instances))
    known = _renamed((config, *others))
    if not max(2, len(known)) <= count <= MOST_NODES:
        raise ConfigError(
            f"a drill of {count} directors is not possible",
            remedy=f"between {max(2, len(known))} and {MOST_NODES} are",
        )
    configs = _with_sources([replace(each, virtual_servers=()) for each in known])
    if len(known) < count:
        configs = _with_counterparts(configs, count)
    segments = _segments(configs)
    return tuple(
        Station(config=each, nics=_nics(each, index, segments), derived=index >= len(known))
        for index, each in enumerate(configs)
    )


def _renamed(configs: tuple[NodeConfig, ...]) -> list[NodeConfig]:
    """Two files with one router_id are still two directors."""
    out: list[NodeConfig] = []
    for each in configs:
        taken = {other.node for other in out}
        name, number = each.node, 2
        while name in taken:
            name, number = f"{each.node}-{number}", number + 1
        out.append(replace(each, node=name))
    return out


def _with_counterparts(known: list[NodeConfig], count: int) -> list[NodeConfig]:
    first = known[0]
    names = [f"{first.node}-peer", *(f"{first.node}-peer{number}" for number in range(2, count))]
    taken = {each.node for each in known}
    fresh = [name for name in names if name not in taken][: count - len(known)]
    derived = [
        replace(
            first, node=name, instances=tuple(_counterpart(each, rank) for each in first.instances), virtual_servers=()
        )
        for rank, name in enumerate(fresh, start=len(known))
    ]
    return _joined([*known, *derived], len(known))


def _counterpart(instance: VrrpInstance, rank: int) -> VrrpInstance:
    """The same instance on the director number `rank` (1 = the peer): role and priority mirrored."""
    priority, state = instance.priority, instance.initial_role
    instance = replace(instance, source=None)
    if state is Role.MASTER or priority > _DEFAULT_PRIORITY:
        return replace(instance, priority=max(1, priority - PRIORITY_STEP * rank), initial_role=Role.BACKUP)
    if rank == 1:
        # Two nodes that both say BACKUP and nopreempt are a pattern of its own: no state is to be mirrored.
        mirrored = Role.BACKUP if instance.nopreempt else Role.MASTER
        return replace(instance, priority=min(_OWNER_PRIORITY - 1, priority + PRIORITY_STEP), initial_role=mirrored)
    return replace(instance, priority=max(1, priority - PRIORITY_STEP * (rank - 1)), initial_role=Role.BACKUP)


def _joined(configs: list[NodeConfig], known: int) -> list[NodeConfig]:
    """Unicast: every derived node gets an address, preferably one that the first node sends to already, and all
    nodes send to all. What a file says stays; it is only added to.
    """
    out = [list(each.instances) for each in configs]
    for number, instance in enumerate(configs[0].instances):
        if not instance.peers:
            continue
        owners = [_find(instances, instance) for instances in out]
        taken = [each.source for each in owners[:known] if each is not None and each.source is not None]
        free = [each for each in (*instance.peers, *_made_up(number, instance.family)) if each not in taken]
        sources = [
            owner.source if index < known and owner is not None and owner.source is not None else free.pop(0)
            for index, owner in enumerate(owners)
        ]
        for index, owner in enumerate(owners):
            if owner is None:
                continue
            others = [each for each in sources if each != sources[index]]
            peers = (*owner.peers, *others) if index < known else tuple(others)
            joined = replace(owner, source=sources[index], peers=tuple(dict.fromkeys(peers)))
            out[index][out[index].index(owner)] = joined
    return [replace(config, instances=tuple(instances)) for config, instances in zip(configs, out, strict=True)]


def _with_sources(configs: list[NodeConfig]) -> list[NodeConfig]:
    """A unicast node without unicast_src_ip sends from its interface's address, which its file does not say.

    The others' files do: it is the one address that they send to and that no node has.
    """
    out = []
    for config in configs:
        others = [each for each in configs if each is not config]
        instances = []
        for instance in config.instances:
            found = instance
            if instance.peers and instance.source is None:
                twins = [twin for each in others if (twin := _find(each.instances, instance)) is not None]
                taken = {twin.source for twin in twins}
                called = dict.fromkeys(address for twin in twins for address in twin.peers if address not in taken)
                if len(called) == 1:
                    found = replace(instance, source=next(iter(called)))
            instances.append(found)
        out.append(replace(config, instances=tuple(instances)))
    return out


def _find(instances: Iterable[VrrpInstance], like: VrrpInstance) -> VrrpInstance | None:
    """The same virtual router on another node: same VRID and family, on the interface of that name if there is one."""
    same = [each for each in instances if each.key[1] == like.key[1]]
    return next((each for each in same if each.interface == like.interface), same[0] if same else None)


def _made_up(segment: int, family: int) -> list[IPAddress]:
    """Addresses of networks that are nobody's, one per director: of RFC 2544, and link-local ones."""
    numbers = range(1, MOST_NODES + 1)
    if family == _IPV4:
        return [IPv4Address(f"198.18.{segment}.{number}") for number in numbers]
    return [IPv6Address(f"fe80::{segment:x}:{number:x}") for number in numbers]


def _segments(configs: list[NodeConfig]) -> dict[tuple[str, str], str]:
    """The segment of each node's interfaces. Interfaces that carry the same VRID are joined by one cable.

    A macvlan is on its base's segment.
    """
    first = configs[0]
    out = {(first.node, interface): base or interface for interface, base in _interfaces(first).items()}
    for config in configs[1:]:
        for instance in config.instances:
            if (config.node, instance.interface) in out:
                continue
            same = [each.interface for each in first.instances if each.key[1] == instance.key[1]]
            segment = instance.interface if instance.interface in same or not same else same[0]
            out[config.node, instance.interface] = segment
        for interface, base in _interfaces(config).items():
            segment = out.get((config.node, base), base) if base else interface
            out.setdefault((config.node, interface), segment)
    return out


def _interfaces(config: NodeConfig) -> dict[str, str]:
    """All interfaces by name, each with the one that it is a macvlan of, or an empty text."""
    out: dict[str, str] = {}
    for instance in config.instances:
        out.setdefault(instance.interface, "")
        for mac in instance.virtual_macs:
            out.setdefault(mac.base, "")
            out.setdefault(mac.interface, mac.base)
        for vip in addresses(instance):
            out.setdefault(vip.interface, "")
    lists = (*(each.tracks for each in config.instances), *(each.tracks for each in config.sync_groups))
    for track in (each for listed in lists for each in listed):
        if track.kind is TrackKind.INTERFACE:
            out.setdefault(track.name, "")
    return out


def _nics(config: NodeConfig, index: int, segments: dict[tuple[str, str], str]) -> tuple[NicPlan, ...]:
    order = list(dict.fromkeys(segments.values()))
    virtual = {mac.interface: mac for each in config.instances for mac in each.virtual_macs}
    macs: dict[str, str] = {}
    out = []
    for number, (interface, base) in enumerate(_interfaces(config).items()):
        segment = segments[config.node, interface]
        own = f"02:00:00:00:{index + 1:02x}:{number + 1:02x}"
        # An ipvlan has the MAC of its base.
        macs[interface] = (virtual[interface].mac if not virtual[interface].ipvlan else macs[base]) if base else own
        sources = [each.source for each in config.instances if each.interface == (base or interface)]
        listed = [each for each in sources if each is not None]
        for family in (4, 6):
            if not any(each.version == family for each in listed):
                listed.append(_made_up(order.index(segment), family)[index])
        out.append(
            NicPlan(
                interface=interface,
                segment=segment,
                mac=macs[interface],
                addresses=tuple(dict.fromkeys(listed)),
                base=base,
            )
        )
    return tuple(out)
