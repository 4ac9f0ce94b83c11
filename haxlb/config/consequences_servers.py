"""What a reload does to virtual servers, real servers and their checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from haxlb.config.diff import real_server_differences, server_differences
from haxlb.config.fate import Consequence, Fate
from haxlb.config.meaning_value import counted
from haxlb.config.server_method import method_of, method_text
from haxlb.model.check import Check
from haxlb.model.node import NodeConfig
from haxlb.model.virtual_server import RealServer, VirtualServer


def server_consequences(before: NodeConfig, after: NodeConfig) -> Iterator[Consequence]:
    """Of virtual servers and their real servers, as Checker.configure does it."""
    old = {each.name: each for each in before.virtual_servers}
    new = {each.name: each for each in after.virtual_servers}
    known = frozenset(
        check for each in before.virtual_servers for server in each.real_servers for check in server.checks
    )
    for name, server in new.items():
        was = old.get(name)
        if was is not None:
            yield from _retuned_server(was, server, known)
            continue
        number = len(server.real_servers)
        yield Consequence(
            kind="virtual_server",
            name=name,
            fate=Fate.ADDED,
            reason=f"it is new, with {counted((number, 'real server', 'real servers')) or 'no real server'}",
            effects=(f"its real servers count as {_assumed(server, server.real_servers)} until their checks know",),
        )
    for name in old:
        if name not in new:
            yield Consequence(
                kind="virtual_server",
                name=name,
                fate=Fate.REMOVED,
                reason="it is gone",
                effects=("its packets, also those of its connections, go to the kernel of this host",),
            )


def _assumed(service: VirtualServer, servers: tuple[RealServer, ...]) -> str:
    down = {service.alpha if each.alpha is None else each.alpha for each in servers} or {service.alpha}
    return "up, those with alpha as down," if len(down) > 1 else "down (alpha)" if down.pop() else "up"


def _retuned_server(old: VirtualServer, new: VirtualServer, known: frozenset[Check]) -> Iterator[Consequence]:
    if old == new:
        yield Consequence(kind="virtual_server", name=new.name, fate=Fate.KEPT)
        return
    own = ", ".join(server_differences(replace(old, real_servers=()), replace(new, real_servers=())))
    yield Consequence(
        kind="virtual_server",
        name=new.name,
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
                name=f"{new.name} {key}",
                fate=Fate.REMOVED,
                reason="it is gone",
                effects=("its connections go to other servers, which do not know them; drain it with weight 0 before",),
            )


def _server_effects(old: VirtualServer, new: VirtualServer) -> Iterator[str]:
    if (old.scheduler, old.mh_port) != (new.scheduler, new.mh_port):
        yield f"new ones are distributed by {new.scheduler.value}"
    if gone := [each for each in old.endpoints if each not in new.endpoints]:
        what = str(gone[0]) if len(gone) == 1 else f"{gone[0]} and {len(gone) - 1} more"
        yield f"packets to {what}, also those of connections, go to the kernel of this host"
    if (old.persistence_s, old.persistence_granularity) != (new.persistence_s, new.persistence_granularity):
        yield (
            f"clients keep their server for {new.persistence_s} s from their next connection on"
            if new.persistence_s
            else "clients are not bound to a server any more; their connections stay"
        )
    if old.one_packet != new.one_packet:
        yield "each packet is scheduled anew" if new.one_packet else "packets of a flow stay with one server"
    if (old.quorum, old.hysteresis) != (new.quorum, new.hysteresis):
        yield "the quorum is judged anew at once"
    if old.alpha != new.alpha:
        yield "alpha counts for servers that are new"
    if old.sorry_server != new.sorry_server:
        yield "the sorry server changes at once when it serves"
        before, after = old.sorry_server, new.sorry_server
        kept = after is not None and after.inhibit_on_failure and before is not None and after.key == before.key
        if before is not None and before.inhibit_on_failure and not kept:
            yield "connections that are still with the former sorry server go to other servers, which do not know them"


def _real_server(
    service: VirtualServer, old: RealServer | None, new: RealServer, known: frozenset[Check]
) -> Consequence:
    name = f"{service.name} {new.key}"
    if old is None:
        effect = (
            f"counts as {_assumed(service, (new,))} until its checks know" if new.checks else "has no check: it is up"
        )
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
    if method_of(old) != method_of(new):
        yield f"its packets, also those of connections, are sent by {method_text(method_of(new))} from now on"
    if old.alpha != new.alpha:
        yield "alpha counts for servers that are new"
    if (old.upper_threshold, old.lower_threshold) != (new.upper_threshold, new.lower_threshold):
        yield "the number of its connections is judged anew at its next one"
    if old.checks == new.checks:
        return
    if not new.checks:
        yield "without a check it is up from now on"
    elif unknown := [each for each in new.checks if each not in known]:
        yield f"{_checks(unknown)} without a verdict; until there is one the server stays as it is"


def _checks(checks: Iterable[Check]) -> str:
    kinds = [each.kind.value for each in checks]
    return f"{', '.join(kinds)} {'begins' if len(kinds) == 1 else 'begin'}"
