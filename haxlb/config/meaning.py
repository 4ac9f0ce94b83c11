"""What a configuration means: effective values with their origin, and sentences with figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from haxlb.config.load import Loaded
from haxlb.config.meaning_instance import instance_sentences, instance_values
from haxlb.config.meaning_server import probing, server_sentences, server_values
from haxlb.config.meaning_value import Value, counted, origin
from haxlb.config.printer import in_seconds
from haxlb.model.node import NodeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """One block, or the whole."""

    kind: str
    """node, vrrp_instance or virtual_server."""
    name: str
    values: tuple[Value, ...] = ()
    sentences: tuple[str, ...] = ()


def meaning(loaded: Loaded) -> tuple[Meaning, ...]:
    """What is used of a configuration, explained; empty when it cannot be used."""
    return () if loaded.config is None else tuple(_meanings(loaded, loaded.config))


def _meanings(loaded: Loaded, config: NodeConfig) -> Iterator[Meaning]:
    name = Value(
        name="router_id",
        text=config.node,
        origin=origin("router_id", *(each.section for each in loaded.written.all("global_defs"))),
    )
    yield Meaning(kind="node", name=config.node, values=(name,), sentences=tuple(_node(config)))
    for placed in loaded.instances:
        yield Meaning(
            kind="vrrp_instance",
            name=placed.instance.name,
            values=tuple(instance_values(placed, loaded.written)),
            sentences=tuple(instance_sentences(placed.instance, config)),
        )
    owners = {vip.address: each.name for each in config.instances for vip in (*each.vips, *each.excluded_vips)}
    for each in loaded.servers:
        yield Meaning(
            kind="virtual_server",
            name=each.virtual_server.name,
            values=tuple(server_values(each)),
            sentences=tuple(server_sentences(each, owners)),
        )


def _node(config: NodeConfig) -> Iterator[str]:
    if config.virtual_servers:
        where = " ".join(config.forwarding_interfaces)
        yield f"packets are forwarded on {where or 'no interface: name some in haxlb.yml'}, whoever is MASTER"
        yield probing(config.virtual_servers)
    static = counted(
        (len(config.static_addresses), "address", "addresses"),
        (len(config.static_routes), "route", "routes"),
        (len(config.static_rules), "rule", "rules"),
    )
    if static:
        yield f"static, on this host while haxlb runs, whoever is MASTER: {static}"
    for group in config.virtual_server_groups:
        entries = [*map(str, group.ranges), *map(str, group.marks)]
        more = f" and {len(entries) - _SHOWN} more" if len(entries) > _SHOWN else ""
        yield f"virtual_server_group {group.name} is {', '.join(entries[:_SHOWN])}{more}"
    yield from _notification(config)
    if not config.instances and not config.virtual_servers:
        yield "it does nothing: there is no instance and no virtual server that can be used"


def _notification(config: NodeConfig) -> Iterator[str]:
    notification = config.notification
    for fifo in notification.fifos:
        what = "everything" if fifo.vrrp and fifo.lvs else "instances and groups" if fifo.vrrp else "services"
        reader = f", which `{fifo.script}` reads" if fifo.script else ""
        yield f"lines about {what} go to {fifo.path}{reader}"
    if notification.mail is not None:
        mail = notification.mail
        yield f"mail goes to {', '.join(mail.recipients)} by {mail.server} port {mail.port}"
    if config.speaker.startup_delay_us:
        yield f"no instance becomes MASTER in the first {in_seconds(config.speaker.startup_delay_us)} s"
    if config.speaker.delay_after_boot_us:
        delay = in_seconds(config.speaker.delay_after_boot_us)
        yield f"no instance becomes MASTER in the first {delay} s after the start of the host"


_SHOWN = 4
"""Entries of a group."""
