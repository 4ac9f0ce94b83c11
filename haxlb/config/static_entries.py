"""`static_ipaddress`, `static_routes` and `static_rules` to values, and which of them are tied to a `track_group`."""

from __future__ import annotations

from dataclasses import dataclass

from haxlb.config.routes import route_of, rule_of
from haxlb.config.vips import lines_of, static_address_of
from haxlb.model.addresses import StaticAddress
from haxlb.model.routes import Route, Rule
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.section import Section
from keepalived_compat.source import Word
from keepalived_compat.values_addresses import AddressLine, read_addresses
from keepalived_compat.values_routes import RouteLine, read_routes
from keepalived_compat.values_rules import RuleLine, read_rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """A static entry that names a group."""

    group: str
    interface: str
    """Empty: it names none."""
    block: str
    no_track: bool
    word: Word
    """The first one of its line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticBlocks:
    """What the host is to have for as long as haxlb runs."""

    addresses: tuple[StaticAddress, ...]
    routes: tuple[Route, ...]
    rules: tuple[Rule, ...]
    ties: tuple[Tie, ...]


def read_static_blocks(root: Section, default_interface: str, complaints: Complaints) -> StaticBlocks:
    """All of them, in file order; `default_interface` is where addresses go unless their line says `dev`."""
    addresses = read_addresses(lines_of(root, "static_ipaddress"), complaints, block="static_ipaddress")
    routes = read_routes(lines_of(root, "static_routes"), complaints, block="static_routes")
    rules = read_rules(lines_of(root, "static_rules"), complaints, block="static_rules")
    found = [
        *(_tie("static_ipaddress", each, each.track_group, each.device or default_interface) for each in addresses),
        *(_tie("static_routes", each, dict(each.texts).get("track_group", ""), each.device) for each in routes),
        *(_tie("static_rules", each, each.track_group, each.iif) for each in rules),
    ]
    return StaticBlocks(
        addresses=tuple(static_address_of(each, default_interface) for each in addresses),
        routes=tuple(map(route_of, routes)),
        rules=tuple(map(rule_of, rules)),
        ties=tuple(each for each in found if each.group),
    )


def _tie(block: str, line: AddressLine | RouteLine | RuleLine, group: str, interface: str) -> Tie:
    return Tie(group=group, interface=interface, block=block, no_track=line.no_track, word=line.word)
