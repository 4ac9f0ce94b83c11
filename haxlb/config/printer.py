"""A NodeConfig as keepalived.conf: every value that counts written out, so that it loads again to the same one.

What haxlb.yml says has no place in that file and is not printed.
"""

from __future__ import annotations

from collections.abc import Iterator

from haxlb.config.printer_addresses import group_lines, static_address_line
from haxlb.config.printer_global import garp_group_blocks, global_lines, link_delay_block
from haxlb.config.printer_instance import STARS, instance_lines
from haxlb.config.printer_routes import routing_lines
from haxlb.config.printer_servers import virtual_server_head, virtual_server_lines
from haxlb.config.printer_tracking import group_blocks, thing_blocks, track_group_blocks
from haxlb.config.printer_words import block, in_seconds, word
from haxlb.model.node import NodeConfig

__all__ = ["STARS", "in_seconds", "keepalived_conf"]


def keepalived_conf(config: NodeConfig, *, secrets: bool = False) -> str:
    """The effective configuration as text; without `secrets` passwords are starred, and the text loads to others.

    Raises ConfigError for what the language cannot say: a double quote in a word, two values of what is one for all.
    """
    return "\n".join(_lines(config, secrets=secrets)) + "\n"


def _lines(config: NodeConfig, *, secrets: bool) -> Iterator[str]:
    yield from block("global_defs", global_lines(config))
    yield from thing_blocks(config)
    yield from garp_group_blocks(config)
    yield from link_delay_block(config)
    yield from track_group_blocks(config)
    if config.static_addresses:
        yield from ("", *block("static_ipaddress", map(static_address_line, config.static_addresses)))
    yield from routing_lines("static", config.static_routes, config.static_rules)
    yield from group_blocks(config)
    changes = config.notification.priority_changes
    for instance in config.instances:
        lines = instance_lines(instance, secrets=secrets, priority_changes=changes)
        yield from ("", *block(f"vrrp_instance {word(instance.name)}", lines))
    for services in config.virtual_server_groups:
        yield from ("", *block(f"virtual_server_group {word(services.name)}", group_lines(services)))
    mails = config.notification.mail is not None
    for server in config.virtual_servers:
        yield from ("", *block(virtual_server_head(server), virtual_server_lines(server, mails=mails)))
