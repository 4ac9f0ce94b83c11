"""What a reload does to instances."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from haxlb.config.diff import identity, instance_differences
from haxlb.config.fate import Consequence, Fate
from haxlb.config.meaning_value import counted
from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.instance import Role, VrrpInstance
from haxlb.model.node import NodeConfig
from haxlb.vrrp.changes import place, same_on_the_wire, vip_changes
from haxlb.vrrp.election import OWNER_PRIORITY, seconds
from haxlb.vrrp.holdings import addresses
from haxlb.vrrp.timers import master_down_interval, skew_time

_Homes = Mapping[tuple[IPAddress, str], str]
"""The instance that has an address on an interface, of those that are not new."""


def instance_consequences(before: NodeConfig, after: NodeConfig) -> Iterator[Consequence]:
    """Of instances, as Speaker.configure does it: the same one is the one with the same `VrrpInstance.key`."""
    old = {each.key: each for each in before.instances}
    new = {each.key: each for each in after.instances}
    homes = {place(vip): each.name for key, each in new.items() if key in old for vip in addresses(each)}
    leaving = {each.name: each for key, each in old.items() if key not in new}
    for key, instance in new.items():
        was = old.get(key)
        if was is not None:
            yield _retuned_instance(was, instance, homes)
            continue
        former = leaving.pop(instance.name, None)
        yield _new_instance(former, instance)
    for instance in leaving.values():
        yield Consequence(
            kind="vrrp_instance",
            name=instance.name,
            fate=Fate.REMOVED,
            reason=f"{identity(instance)} is gone",
            effects=(_ends(instance),),
        )


def _ends(instance: VrrpInstance) -> str:
    tells = "notify_deleted" if instance.notify.tells_deleted else "notify_fault"
    return f"when it is MASTER, it says priority 0 on {instance.interface}, takes its addresses off and runs {tells}"


def _new_instance(former: VrrpInstance | None, instance: VrrpInstance) -> Consequence:
    if former is None:
        return Consequence(
            kind="vrrp_instance",
            name=instance.name,
            fate=Fate.ADDED,
            reason=f"{identity(instance)} is new",
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
    return f"it is BACKUP, and MASTER after {seconds(down_interval(instance))} without a better one"


def down_interval(instance: VrrpInstance, priority: int | None = None) -> int:
    """How long it hears nothing before it takes over, in µs; with another priority than its own where one is given."""
    return master_down_interval(
        instance.version,
        instance.priority if priority is None else priority,
        instance.advert_interval_us,
        instance.down_timer_adverts,
    )


def _retuned_instance(old: VrrpInstance, new: VrrpInstance, homes: _Homes) -> Consequence:
    if old == new:
        return Consequence(kind="vrrp_instance", name=new.name, fate=Fate.KEPT)
    return Consequence(
        kind="vrrp_instance",
        name=new.name,
        fate=Fate.RETUNED,
        reason=", ".join(instance_differences(old, new)),
        effects=("it keeps its state", *_handed_on(old, new, homes), *_retuning(old, new)),
    )


def _handed_on(old: VrrpInstance, new: VrrpInstance, homes: _Homes) -> Iterator[str]:
    """What another instance has now that was there before, too: Speaker.configure claims it before it is let go."""
    gone = vip_changes(addresses(old), addresses(new)).gone
    for name in dict.fromkeys(homes[place(vip)] for vip in gone if place(vip) in homes):
        mine = ", ".join(str(vip.address) for vip in gone if homes.get(place(vip)) == name)
        yield f"{name} has {mine} now: where both are MASTER, it stays on"


def _retuning(old: VrrpInstance, new: VrrpInstance) -> Iterator[str]:
    yield from _moved(old, new)
    if not same_on_the_wire(old, new):
        yield "as MASTER it sends an advert at once"
    yield from _parted(old, new)
    was, will = down_interval(old), down_interval(new)
    if was != will:
        yield f"as BACKUP it takes over after {seconds(will)} of silence, not {seconds(was)}"
    if old.initial_role is not new.initial_role:
        yield "`state` counts at the start: nobody changes roles for it"
    if old.tracks != new.tracks:
        yield from _retracked(old, new)


def _moved(old: VrrpInstance, new: VrrpInstance) -> Iterator[str]:
    changes = vip_changes(addresses(old), addresses(new))
    replaced = [place(vip) for vip in changes.in_the_way]
    for what, vips in (
        ("takes off and puts on anew", changes.in_the_way),
        ("puts on", [vip for vip in changes.added if place(vip) not in replaced]),
        ("takes off", changes.gone),
    ):
        if vips:
            yield f"as MASTER it {what} {_by_interface(vips)}"
    routing = (
        counted((len(_without(new.routes, old.routes)), "route", "routes")),
        counted((len(_without(new.rules, old.rules)), "rule", "rules")),
        counted((len(_without(old.routes, new.routes)), "route", "routes")),
        counted((len(_without(old.rules, new.rules)), "rule", "rules")),
    )
    for what, texts in (("puts on", routing[:2]), ("takes off", routing[2:])):
        if any(texts):
            yield f"as MASTER it {what} {', '.join(filter(None, texts))}"
    was = {each.interface: each for each in old.virtual_macs}
    will = {each.interface: each for each in new.virtual_macs}
    for name in [each for each in was if each not in will]:
        yield f"the interface {name} of its virtual MAC is removed"
    for name, mac in will.items():
        if name not in was:
            yield f"the interface {name} is made"
        elif was[name] != mac:
            yield f"the interface {name} is made anew"


def _by_interface(vips: Iterable[Vip]) -> str:
    places: dict[str, list[str]] = {}
    for vip in vips:
        places.setdefault(vip.interface, []).append(str(vip.address))
    return ", ".join(f"{', '.join(found)} on {interface}" for interface, found in places.items())


def _without(things: tuple[Any, ...], others: tuple[Any, ...]) -> list[Any]:
    return [each for each in things if each not in others]


def _parted(old: VrrpInstance, new: VrrpInstance) -> Iterator[str]:
    """What makes two MASTERs until the peer is changed likewise."""
    deaf = (old.version, old.auth_pass, old.auth_ah) != (new.version, new.auth_pass, new.auth_ah)
    if deaf:
        yield "it refuses the adverts of a peer that was not changed likewise, and both are MASTER meanwhile"
    elif old.advert_interval_us != new.advert_interval_us and new.version != 3:  # noqa: PLR2004 - VRRPv3 learns it
        yield "it refuses the adverts of a peer with another advert_int, and both are MASTER meanwhile"
    elif _destinations(old) != _destinations(new):
        yield "a peer that is not changed likewise may not hear it any more, and both are MASTER meanwhile"


def _destinations(instance: VrrpInstance) -> tuple[Any, ...]:
    return (bool(instance.peers), instance.multicast_group, frozenset(instance.peers))


def _retracked(old: VrrpInstance, new: VrrpInstance) -> Iterator[str]:
    known = {(each.kind, each.name) for each in old.tracks}
    fresh = [each.name for each in new.tracks if (each.kind, each.name) not in known]
    if fresh:
        yield f"{', '.join(fresh)} counts as well until its first result: nobody changes roles for the reload"
    yield "its priority, or FAULT, follows from what it tracks now"
