"""What a reload does: the fate of every instance and server, with the reason and what comes of it.

It says what Speaker.configure, Checker.configure and the reload procedure do with the difference of two
configurations, as tests/machines/test_reload.py holds them to it. An instance is the same one by interface and VRID, a
virtual server by its endpoint, a real server by address and port in it, a check by all of its parameters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum

from haxlb.config.diff import instance_differences, real_server_differences, server_differences, settings_differences
from haxlb.forwarding.layout import Sizes
from haxlb.model.node import Check, ForwardingSettings, NodeConfig, RealServer, Role, VirtualServer, VrrpInstance
from haxlb.vrrp.changes import place, same_on_the_wire, vip_changes
from haxlb.vrrp.election import OWNER_PRIORITY, seconds
from haxlb.vrrp.timers import master_down_interval, skew_time


class Fate(Enum):
    """What becomes of something."""

    KEPT = "kept"
    """Not touched: no packet, no probe, no script."""
    RETUNED = "retuned"
    """Stays what it is, with other settings."""
    RECREATED = "recreated"
    """Ends, and something new of its name begins."""
    ADDED = "added"
    REMOVED = "removed"
    REFUSED = "refused"
    """The reload as a whole is refused, and nothing changes."""
    DEFERRED = "deferred"
    """Takes effect at the next start only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequence:
    """The fate of one thing."""

    kind: str
    """vrrp_instance, virtual_server, real_server or settings."""
    name: str
    fate: Fate
    reason: str = ""
    """What differs: `priority 100 -> 150`; empty when nothing does."""
    effects: tuple[str, ...] = ()
    """What happens, in order."""


def consequences(before: NodeConfig, after: NodeConfig) -> tuple[Consequence, ...]:
    """What a director that runs `before` does when it is told to run `after`; pure."""
    return (
        *_refusals(before, after),
        *_instances(before, after),
        *_servers(before, after),
        *_settings(before, after),
        *_planned(before, after),
    )


def _refusals(before: NodeConfig, after: NodeConfig) -> Iterator[Consequence]:
    """The tables are made at the start; those of an earlier run may have more room than is known here."""
    if not before.virtual_servers or not after.virtual_servers:
        return
    rooms = (
        ("virtual", len(after.virtual_servers), max(before.forwarding.max_services, len(before.virtual_servers))),
        ("real", _backends(after), max(_USUAL_BACKENDS, 2 * _backends(before)) - 1),
    )
    for what, wanted, room in rooms:
        if wanted > room:
            yield Consequence(
                kind="settings",
                name="forwarding",
                fate=Fate.REFUSED,
                reason=f"{wanted} {what} servers; the forwarder was made for {room}",
                effects=("nothing at all changes: restart haxlb instead",),
            )


def _backends(config: NodeConfig) -> int:
    return sum(len(each.real_servers) + (each.sorry_server is not None) for each in config.virtual_servers)


_USUAL_BACKENDS = Sizes().backends


# Instances


def _instances(before: NodeConfig, after: NodeConfig) -> Iterator[Consequence]:
    old = {each.key: each for each in before.instances}
    new = {each.key: each for each in after.instances}
    leaving = {each.name: each for key, each in old.items() if key not in new}
    for key, instance in new.items():
        was = old.get(key)
        if was is not None:
            yield _retuned_instance(was, instance)
            continue
        former = leaving.pop(instance.name, None)
        yield _new_instance(former, instance)
    for instance in leaving.values():
        yield Consequence(
            kind="vrrp_instance",
            name=instance.name,
            fate=Fate.REMOVED,
            reason=f"virtual_router_id {instance.vrid} on {instance.interface} is gone",
            effects=(_ends(instance),),
        )


def _ends(instance: VrrpInstance) -> str:
    return (
        f"when it is MASTER, it says priority 0 on {instance.interface}, takes its addresses off and runs notify_fault"
    )


def _new_instance(former: VrrpInstance | None, instance: VrrpInstance) -> Consequence:
    if former is None:
        return Consequence(
            kind="vrrp_instance",
            name=instance.name,
            fate=Fate.ADDED,
            reason=f"virtual_router_id {instance.vrid} on {instance.interface} is new",
            effects=(begins(instance),),
        )
    effects = [f"the former one ends: {_ends(former)}", f"the new one begins: {begins(instance)}"]
    if {place(vip) for vip in former.vips} & {place(vip) for vip in instance.vips}:
        effects.append("the addresses of both are off here until it is MASTER")
    if former.vrid != instance.vrid:
        effects.append("a peer that keeps the former virtual_router_id does not hear it: change both directors")
    return Consequence(
        kind="vrrp_instance",
        name=instance.name,
        fate=Fate.RECREATED,
        reason=", ".join(instance_differences(former, instance)),
        effects=tuple(effects),
    )


def begins(instance: VrrpInstance) -> str:
    """What an instance does at its start."""
    interval = instance.advert_interval_us
    if instance.priority == OWNER_PRIORITY:
        return "it is MASTER at once, being the addresses' owner (priority 255)"
    if instance.initial_role is Role.MASTER:
        wait = interval + skew_time(instance.version, OWNER_PRIORITY, interval)
        return f"it is MASTER after {seconds(wait)}, as `state MASTER` says, unless it hears a higher priority"
    wait = master_down_interval(instance.version, instance.priority, interval)
    return f"it is BACKUP, and MASTER after {seconds(wait)} without a better one"


def _retuned_instance(old: VrrpInstance, new: VrrpInstance) -> Consequence:
    if old == new:
        return Consequence(kind="vrrp_instance", name=new.name, fate=Fate.KEPT)
    return Consequence(
        kind="vrrp_instance",
        name=new.name,
        fate=Fate.RETUNED,
        reason=", ".join(instance_differences(old, new)),
        effects=("it keeps its state", *_retuning(old, new)),
    )


def _retuning(old: VrrpInstance, new: VrrpInstance) -> Iterator[str]:
    changes = vip_changes(old.vips, new.vips)
    replaced = [place(vip) for vip in changes.in_the_way]
    for what, vips in (
        ("takes off and puts on anew", changes.in_the_way),
        ("puts on", [vip for vip in changes.added if place(vip) not in replaced]),
        ("takes off", changes.gone),
    ):
        if vips:
            yield f"as MASTER it {what} {', '.join(str(vip.address) for vip in vips)}"
    if not same_on_the_wire(old, new):
        yield "as MASTER it sends an advert at once"
    if old.version != new.version or old.auth_pass != new.auth_pass:
        yield "it refuses the adverts of a peer that was not changed likewise, and both are MASTER meanwhile"
    elif old.advert_interval_us != new.advert_interval_us and new.version != 3:  # noqa: PLR2004 - VRRPv3 learns it
        yield "it refuses the adverts of a peer with another advert_int, and both are MASTER meanwhile"
    was, will = (master_down_interval(each.version, each.priority, each.advert_interval_us) for each in (old, new))
    if was != will:
        yield f"as BACKUP it takes over after {seconds(will)} of silence, not {seconds(was)}"
    if old.initial_role is not new.initial_role:
        yield "`state` counts at the start: nobody changes roles for it"


# Servers


def _servers(before: NodeConfig, after: NodeConfig) -> Iterator[Consequence]:
    old = {each.endpoint: each for each in before.virtual_servers}
    new = {each.endpoint: each for each in after.virtual_servers}
    known = frozenset(
        check for each in before.virtual_servers for server in each.real_servers for check in server.checks
    )
    for endpoint, server in new.items():
        was = old.get(endpoint)
        if was is not None:
            yield from _retuned_server(was, server, known)
            continue
        yield Consequence(
            kind="virtual_server",
            name=str(endpoint),
            fate=Fate.ADDED,
            reason=f"{len(server.real_servers)} real servers are new",
            effects=(f"its real servers count as {_assumed(server)} until their checks know",),
        )
    for endpoint in old:
        if endpoint not in new:
            yield Consequence(
                kind="virtual_server",
                name=str(endpoint),
                fate=Fate.REMOVED,
                reason="it is gone",
                effects=("its packets, also those of its connections, go to the kernel of this host",),
            )


def _assumed(server: VirtualServer) -> str:
    return "down (alpha)" if server.alpha else "up"


def _retuned_server(old: VirtualServer, new: VirtualServer, known: frozenset[Check]) -> Iterator[Consequence]:
    if old == new:
        yield Consequence(kind="virtual_server", name=str(new.endpoint), fate=Fate.KEPT)
        return
    own = ", ".join(server_differences(replace(old, real_servers=()), replace(new, real_servers=())))
    yield Consequence(
        kind="virtual_server",
        name=str(new.endpoint),
        fate=Fate.RETUNED,
        reason=own or "its real servers",
        effects=("its connections stay with their servers", *_server_effects(old, new)),
    )
    before = {each.key: each for each in old.real_servers}
    after = {each.key: each for each in new.real_servers}
    for key, server in after.items():
        yield _real_server(new, before.get(key), server, known)
    for key in before:
        if key not in after:
            yield Consequence(
                kind="real_server",
                name=f"{new.endpoint} {key}",
                fate=Fate.REMOVED,
                reason="it is gone",
                effects=("its connections go to other servers, which do not know them; drain it with weight 0 before",),
            )


def _server_effects(old: VirtualServer, new: VirtualServer) -> Iterator[str]:
    if (old.scheduler, old.mh_port) != (new.scheduler, new.mh_port):
        yield f"new ones are distributed by {new.scheduler.value}"
    if (old.quorum, old.hysteresis) != (new.quorum, new.hysteresis):
        yield "the quorum is judged anew at once"
    if old.alpha != new.alpha:
        yield "alpha counts for servers that are new"
    if old.sorry_server != new.sorry_server:
        yield "the sorry server changes at once when it serves"


def _real_server(
    service: VirtualServer, old: RealServer | None, new: RealServer, known: frozenset[Check]
) -> Consequence:
    name = f"{service.endpoint} {new.key}"
    if old is None:
        effect = f"counts as {_assumed(service)} until its checks know" if new.checks else "has no check: it is up"
        return Consequence(kind="real_server", name=name, fate=Fate.ADDED, reason="it is new", effects=(effect,))
    if old == new:
        return Consequence(kind="real_server", name=name, fate=Fate.KEPT)
    return Consequence(
        kind="real_server",
        name=name,
        fate=Fate.RETUNED,
        reason=", ".join(real_server_differences(old, new)),
        effects=tuple(_real_server_effects(old, new, known)),
    )


def _real_server_effects(old: RealServer, new: RealServer, known: frozenset[Check]) -> Iterator[str]:
    if old.weight != new.weight:
        yield (
            "new connections come by the new weights, its own stay"
            if new.weight
            else "it is drained: its connections stay, it gets no new ones"
        )
    if old.checks == new.checks:
        return
    if not new.checks:
        yield "without a check it is up from now on"
    elif unknown := [each for each in new.checks if each not in known]:
        yield f"{_checks(unknown)} without a verdict; until there is one the server stays as it is"


def _checks(checks: Iterable[Check]) -> str:
    kinds = [each.kind.value for each in checks]
    return f"{', '.join(kinds)} {'begins' if len(kinds) == 1 else 'begin'}"


# Settings


def _settings(before: NodeConfig, after: NodeConfig) -> Iterator[Consequence]:
    for change in settings_differences(before, after):
        effects, fate = [], Fate.RETUNED
        if change.name == "node":
            fate = Fate.DEFERRED
            effects.append("the director keeps its name until haxlb is restarted")
        elif change.name == "mqtt":
            effects.append("the connection to the broker is made anew")
        else:
            effects += _forwarding(before.forwarding, after.forwarding)
        yield Consequence(kind="settings", name=change.name, fate=fate, reason=change.reason, effects=tuple(effects))
    was, will = before.forwarding_interfaces, after.forwarding_interfaces
    if was != will:
        yield Consequence(
            kind="settings",
            name="interfaces",
            fate=Fate.RETUNED,
            reason=f"the forwarder is on {' '.join(was) or 'none'} -> {' '.join(will) or 'none'}",
            effects=tuple(_attachments(was, will)),
        )


def _forwarding(old: ForwardingSettings, new: ForwardingSettings) -> Iterator[str]:
    if old.mode != new.mode:
        yield "mode counts for interfaces that the forwarder is attached to from now on"
    for name in ("flow_buckets_log2", "max_services"):
        if getattr(old, name) != getattr(new, name):
            yield f"{name} counts from the next start on"


def _planned(before: NodeConfig, after: NodeConfig) -> Iterator[Consequence]:
    for name in _PLANNED:
        if getattr(before, name) != getattr(after, name):
            yield Consequence(
                kind="settings",
                name=name,
                fate=Fate.KEPT,
                reason="they are others",
                effects=("nothing: they are not supported yet",),
            )


_PLANNED = (
    "track_scripts",
    "sync_groups",
    "static_routes",
    "static_rules",
    "static_addresses",
    "virtual_server_groups",
)


def _attachments(was: tuple[str, ...], will: tuple[str, ...]) -> Iterator[str]:
    if not was:
        yield "the forwarder is compiled first, which takes seconds"
    yield from (f"it is attached to {each}" for each in will if each not in was)
    yield from (f"it is detached from {each}" for each in was if each not in will)
