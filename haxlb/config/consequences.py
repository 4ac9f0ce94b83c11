"""What a reload does: the fate of every instance and server, with the reason and what comes of it.

It says what Speaker.configure, Checker.configure and the reload procedure do with the difference of two
configurations, as tests/machines/test_reload.py holds them to it. An instance is the same one by interface and VRID, a
virtual server by its name (its address and port, its group or its mark), a real server by address and port in it, a
check by all of its parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from haxlb.config.consequences_instances import begins, instance_consequences
from haxlb.config.consequences_servers import server_consequences
from haxlb.config.diff import field_differences, settings_differences, tracked_things
from haxlb.config.fate import Consequence, Fate
from haxlb.forwarding.layout import Sizes
from haxlb.model.groups import SyncGroup
from haxlb.model.node import NodeConfig
from haxlb.model.settings import TABLE_SIZES, ForwardingSettings
from haxlb.model.tracking import TrackScript

__all__ = ["Consequence", "Fate", "begins", "consequences"]


def consequences(before: NodeConfig, after: NodeConfig) -> tuple[Consequence, ...]:
    """What a director that runs `before` does when it is told to run `after`; pure."""
    return (
        *_refusals(before, after),
        *instance_consequences(before, after),
        *_groups(before, after),
        *_tracked(before, after),
        *server_consequences(before, after),
        *_settings(before, after),
    )


def _refusals(before: NodeConfig, after: NodeConfig) -> Iterator[Consequence]:
    """The tables are made at the start; those of an earlier run may have more room than is known here."""
    if not before.virtual_servers or not after.virtual_servers:
        return
    rooms = (
        (
            "virtual servers",
            len(after.virtual_servers),
            max(before.forwarding.max_services, len(before.virtual_servers)),
        ),
        ("addresses and ports", _endpoints(after), max(_USUAL.frontends, 2 * _endpoints(before))),
        ("real servers", _backends(after), max(_USUAL.backends, 2 * _backends(before)) - 1),
    )
    for what, wanted, room in rooms:
        if wanted > room:
            yield Consequence(
                kind="settings",
                name="forwarding",
                fate=Fate.REFUSED,
                reason=f"{wanted} {what}; the forwarder was made for {room}",
                effects=("nothing at all changes: stop haxlb, `haxlb detach`, start it",),
            )


def _backends(config: NodeConfig) -> int:
    return sum(len(each.real_servers) + (each.sorry_server is not None) for each in config.virtual_servers)


def _endpoints(config: NodeConfig) -> int:
    return sum(1 + len(each.more_endpoints) for each in config.virtual_servers)


_USUAL = Sizes()


def _groups(before: NodeConfig, after: NodeConfig) -> Iterator[Consequence]:
    old = {each.name: each for each in before.sync_groups}
    new = {each.name: each for each in after.sync_groups}
    for name, group in new.items():
        yield _named("vrrp_sync_group", name, old.get(name), group, _regrouped)
    yield from (
        _named("vrrp_sync_group", name, group, None, _regrouped) for name, group in old.items() if name not in new
    )


def _regrouped(old: SyncGroup | None, new: SyncGroup | None) -> Iterator[str]:
    if new is None:
        yield "its instances fail over one by one from now on"
    elif old is None or old.members != new.members:
        yield f"{', '.join(new.members)} are MASTER together or not at all: where they are not, all become BACKUP"


def _tracked(before: NodeConfig, after: NodeConfig) -> Iterator[Consequence]:
    old, new = tracked_things(before), tracked_things(after)
    for (block, name), thing in new.items():
        yield _named(block, name, old.get((block, name)), thing, _watched)
    yield from (_named(*key, thing, None, _watched) for key, thing in old.items() if key not in new)


def _watched(old: Any, new: Any) -> Iterator[str]:
    if new is None:
        yield "it is not watched any more"
    elif old is None:
        yield "it is watched from now on, and counts as well until its first result"
    elif not isinstance(new, TrackScript):
        yield "it is looked at anew at once"
    elif old.run.argv != new.run.argv:
        yield "another command is another script: it counts as well until its first result"
    else:
        yield "its last result stays until it has run again"


def _named(kind: str, name: str, old: Any, new: Any, effects: Callable[[Any, Any], Iterator[str]]) -> Consequence:
    if old == new:
        return Consequence(kind=kind, name=name, fate=Fate.KEPT)
    fate = Fate.ADDED if old is None else Fate.REMOVED if new is None else Fate.RETUNED
    reason = "it is new" if old is None else "it is gone" if new is None else ", ".join(field_differences(old, new))
    return Consequence(kind=kind, name=name, fate=fate, reason=reason, effects=tuple(effects(old, new)))


def _settings(before: NodeConfig, after: NodeConfig) -> Iterator[Consequence]:
    for change in settings_differences(before, after):
        fate, effects = _SETTINGS.get(change.name, (Fate.RETUNED, ()))
        if change.name == "forwarding":
            effects = tuple(_forwarding(before.forwarding, after.forwarding))
        yield Consequence(kind="settings", name=change.name, fate=fate, reason=change.reason, effects=effects)
    if before.virtual_server_groups != after.virtual_server_groups:
        yield Consequence(
            kind="settings",
            name="virtual_server_groups",
            fate=Fate.KEPT,
            reason="they are others",
            effects=("what comes of it stands with the virtual servers that use them",),
        )
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
    for name in TABLE_SIZES:
        if getattr(old, name) != getattr(new, name):
            yield f"{name} counts where the tables are made anew: stop haxlb, `haxlb detach`, start it"


_SETTINGS: dict[str, tuple[Fate, tuple[str, ...]]] = {
    "node": (Fate.DEFERRED, ("the director keeps its name until haxlb is restarted",)),
    "mqtt": (Fate.RETUNED, ("the connection to the broker is made anew",)),
    "lvs_timeouts": (
        Fate.RETUNED,
        ("the forwarder is compiled anew and exchanged; connections stay, and live by the new times",),
    ),
    "speaker": (
        Fate.RETUNED,
        ("the life of VIPs and log_unknown_vrids count at once, the rest when the speaker starts the next time",),
    ),
    "checker": (Fate.RETUNED, ("the checker takes the class, the priority, the CPUs at once",)),
    "notification": (
        Fate.RETUNED,
        ("scripts, mail and FIFOs follow it from now on; a FIFO that is as before is not touched",),
    ),
    "static_routes": (Fate.RETUNED, ("those that are new are put on this host, those that are gone are taken off",)),
    "static_rules": (Fate.RETUNED, ("those that are new are put on this host, those that are gone are taken off",)),
    "static_addresses": (Fate.RETUNED, ("those that are new are put on this host, those that are gone are taken off",)),
}


def _attachments(was: tuple[str, ...], will: tuple[str, ...]) -> Iterator[str]:
    if not was:
        yield "the forwarder is compiled first, which takes seconds"
    yield from (f"it is attached to {each}" for each in will if each not in was)
    yield from (f"it is detached from {each}" for each in was if each not in will)
