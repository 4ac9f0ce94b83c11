"""What a reload changes, in words: the difference of two NodeConfigs, and nothing else of either."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

from haxlb.config.diff_words import field_name, prefix, shown
from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.commands import Command
from haxlb.model.instance import VrrpInstance
from haxlb.model.node import NodeConfig
from haxlb.model.virtual_server import RealServer, VirtualServer

_SECRET = ("auth_pass", "password")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that a reload touches."""

    name: str
    """As status and logs call it: an instance's name, a virtual server by `[10.0.0.1]:tcp:80`."""
    reason: str
    """In words: `priority 100 -> 150`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Touched:
    """The instances, or the virtual servers, by what becomes of them."""

    kept: tuple[str, ...] = ()
    """Equal in every respect: not touched."""
    changed: tuple[Change, ...] = ()
    added: tuple[Change, ...] = ()
    removed: tuple[Change, ...] = ()

    @property
    def none(self) -> bool:
        """Nothing but what is kept."""
        return not (self.changed or self.added or self.removed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReloadPlan:
    """The difference of two configurations."""

    instances: Touched
    """The same instance is the one with the same interface and VRID, whatever its name (keepalived: vrrp_exist())."""
    virtual_servers: Touched
    """The same virtual server is the one with the same address and port, group, or fwmark, and protocol."""
    sync_groups: Touched = field(default_factory=Touched)
    tracked: Touched = field(default_factory=Touched)
    """Scripts, files, processes and BFD sessions."""
    settings: tuple[Change, ...] = ()
    """node, mqtt, forwarding, lvs_timeouts, speaker, checker, notification, static_addresses, static_routes,
    static_rules."""

    @property
    def empty(self) -> bool:
        """The two are the same."""
        return not self.settings and all(
            each.none for each in (self.instances, self.virtual_servers, self.sync_groups, self.tracked)
        )

    def lines(self) -> Iterator[str]:
        """The plan for people, one line each."""
        for kind, touched in (
            ("vrrp_instance", self.instances),
            ("vrrp_sync_group", self.sync_groups),
            ("track", self.tracked),
            ("virtual_server", self.virtual_servers),
        ):
            for verb, changes in (("removed", touched.removed), ("changed", touched.changed), ("added", touched.added)):
                for each in changes:
                    yield f"{kind} {each.name} {verb}: {each.reason}"
        for each in self.settings:
            yield f"{each.name} changed: {each.reason}"


def plan_reload(before: NodeConfig, after: NodeConfig) -> ReloadPlan:
    """What has to be done to get from one configuration to the other; pure."""
    return ReloadPlan(
        instances=_touched(
            {each.key: each for each in before.instances},
            {each.key: each for each in after.instances},
            name=lambda each: each.name,
            identity=identity,
            differences=instance_differences,
        ),
        virtual_servers=_touched(
            {each.name: each for each in before.virtual_servers},
            {each.name: each for each in after.virtual_servers},
            name=lambda each: each.name,
            identity=_service,
            differences=server_differences,
        ),
        sync_groups=_touched(
            {each.name: each for each in before.sync_groups},
            {each.name: each for each in after.sync_groups},
            name=lambda each: each.name,
            identity=lambda each: f"the group of {', '.join(each.members)}",
            differences=field_differences,
        ),
        tracked=_touched(
            tracked_things(before),
            tracked_things(after),
            name=lambda each: each.name,
            identity=lambda each: each.name,
            differences=field_differences,
        ),
        settings=tuple(settings_differences(before, after)),
    )


def identity(instance: VrrpInstance) -> str:
    """What makes an instance the same one, in words."""
    ipv6 = "" if instance.family == 4 else "IPv6 "  # noqa: PLR2004 - the family
    return f"{ipv6}virtual_router_id {instance.vrid} on {instance.interface}"


def _service(server: VirtualServer) -> str:
    number = len(server.real_servers)
    return f"a service with {number or 'no'} real server{'' if number == 1 else 's'}"


def tracked_things(config: NodeConfig) -> dict[tuple[str, str], Any]:
    """Everything that is defined to be tracked, by keepalived's block and name."""
    return {
        (block, each.name): each
        for block, things in (
            ("vrrp_script", config.track_scripts),
            ("track_file", config.track_files),
            ("vrrp_track_process", config.track_processes),
            ("bfd_instance", config.bfd_sessions),
        )
        for each in things
    }


def _touched(before: dict[Any, Any], after: dict[Any, Any], *, name: Any, identity: Any, differences: Any) -> Touched:
    kept, changed = [], []
    for key, new in after.items():
        old = before.get(key)
        if old is None:
            continue
        if old == new:
            kept.append(name(new))
        else:
            changed.append(Change(name=name(new), reason=", ".join(differences(old, new)) or "order"))
    return Touched(
        kept=tuple(kept),
        changed=tuple(changed),
        added=tuple(
            Change(name=name(new), reason=f"{identity(new)} is new") for key, new in after.items() if key not in before
        ),
        removed=tuple(
            Change(name=name(old), reason=f"{identity(old)} is gone") for key, old in before.items() if key not in after
        ),
    )


def instance_differences(old: VrrpInstance, new: VrrpInstance) -> Iterator[str]:
    """What differs between two settings of an instance: `priority 100 -> 150`."""
    yield from _vip_differences("vip", old.vips, new.vips)
    yield from _list_differences("peer", old.peers, new.peers)
    yield from _list_differences("track", old.tracks, new.tracks)
    yield from _vip_differences("excluded vip", old.excluded_vips, new.excluded_vips)
    macs = ((f"{mac.interface} on {mac.base}" for mac in each.address_macs) for each in (old, new))
    yield from _list_differences("virtual MAC", *macs)
    yield from (f"other {name}" for name in _UNNAMED if getattr(old, name) != getattr(new, name))
    yield from field_differences(old, new, skip=("vips", "peers", "tracks", "excluded_vips", "address_macs", *_UNNAMED))


_UNNAMED = ("routes", "rules", "ttl_limits")
"""Not told apart one by one: they have no names."""


def server_differences(old: VirtualServer, new: VirtualServer) -> Iterator[str]:
    """What differs between two settings of a virtual server, its real servers included."""
    before = {each.key: each for each in old.real_servers}
    after = {each.key: each for each in new.real_servers}
    yield from _list_differences("real_server", before, after)
    for key, server in after.items():
        was = before.get(key)
        if was is not None and was != server:
            yield f"real_server {key} ({', '.join(real_server_differences(was, server))})"
    yield from _list_differences("address", map(str, old.endpoints), map(str, new.endpoints))
    yield from field_differences(old, new, skip=("real_servers", "endpoint", "more_endpoints"))


def real_server_differences(old: RealServer, new: RealServer) -> Iterator[str]:
    """What differs between two settings of a real server."""
    yield from field_differences(old, new, skip=("checks",))
    if old.checks != new.checks:
        yield "checks"


def _list_differences(what: str, old: Iterable[Hashable], new: Iterable[Hashable]) -> Iterator[str]:
    before, after = dict.fromkeys(old), dict.fromkeys(new)
    yield from (f"{what} {each} removed" for each in before if each not in after)
    yield from (f"{what} {each} added" for each in after if each not in before)


def _vip_differences(what: str, old: Iterable[Vip], new: Iterable[Vip]) -> Iterator[str]:
    before, after = {_place(each): each for each in old}, {_place(each): each for each in new}
    added = {str(vip): vip for place, vip in after.items() if place not in before}
    for vip in (vip for place, vip in before.items() if place not in after):
        moved = added.pop(str(vip), None)
        yield f"{what} {vip} {'removed' if moved is None else f'{vip.interface} -> {moved.interface}'}"
    yield from (f"{what} {vip} added" for vip in added)
    for place, vip in after.items():
        was = before.get(place)
        if was is not None and was != vip:
            yield f"{what} {vip} ({', '.join(field_differences(was, vip))})"


def _place(vip: Vip) -> tuple[IPAddress, str]:
    return vip.address, vip.interface


def field_differences(old: Any, new: Any, *, skip: tuple[str, ...] = ()) -> Iterator[str]:
    """What differs between two values of one type, field by field; secrets are not shown."""
    for each in fields(old):
        was, is_now = getattr(old, each.name), getattr(new, each.name)
        if each.name in skip or was == is_now:
            continue
        name = field_name(old, each.name)
        if each.name in _SECRET:
            yield f"{name} is another one"
        elif hasattr(was, "__dataclass_fields__") and type(was) is type(is_now) and not isinstance(was, Command):
            before = prefix(was, name)
            yield from (f"{before}{inner}" for inner in field_differences(was, is_now))
        else:
            yield f"{name} {shown(each.name, was)} -> {shown(each.name, is_now)}"


def settings_differences(before: NodeConfig, after: NodeConfig) -> Iterator[Change]:
    """What differs of all but instances, groups, what is tracked, and servers."""
    if before.node != after.node:
        yield Change(name="node", reason=f"{before.node} -> {after.node}")
    for name in ("mqtt", "forwarding", "speaker", "checker", "notification"):
        old, new = getattr(before, name), getattr(after, name)
        if old == new:
            continue
        if old is None or new is None:
            yield Change(name=name, reason="switched on" if old is None else "switched off")
        else:
            yield Change(name=name, reason=", ".join(field_differences(old, new)))
    if before.timeouts != after.timeouts:
        yield Change(name="lvs_timeouts", reason=", ".join(field_differences(before.timeouts, after.timeouts)))
    for name in ("static_addresses", "static_routes", "static_rules"):
        if getattr(before, name) != getattr(after, name):
            yield Change(name=name, reason="they are others")
