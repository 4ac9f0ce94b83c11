"""Blocks that haxlb does not act on yet, as values: groups of instances, routes, rules, excluded addresses.

They are read from the syntax tree; what is wrong with their lines is said where they are judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from haxlb.config.tracking import Tracking
from haxlb.config.vips import read_vips
from haxlb.model.addresses import Vip
from haxlb.model.groups import SyncGroup
from haxlb.model.routes import NextHop, Route, Rule
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.nearest import Hints
from keepalived_compat.source import Word
from keepalived_compat.tree import Body, Statement
from keepalived_compat.values_routes import NextHop as HopLine
from keepalived_compat.values_routes import RouteLine, read_routes
from keepalived_compat.values_rules import RuleLine, read_rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """The routes and rules of one instance, or of the host, and the addresses that no advert names."""

    excluded: tuple[Vip, ...] = ()
    routes: tuple[Route, ...] = ()
    rules: tuple[Rule, ...] = ()


def read_sync_groups(tree: Body, tracking: Tracking, complaints: Complaints) -> tuple[SyncGroup, ...]:
    """The groups in file order; members that do not exist are complained of and left out, as in keepalived."""
    known = {each.arguments[0].text for each in _blocks(tree, "vrrp_instance") if each.arguments}
    hints = Hints()
    found: dict[str, SyncGroup] = {}
    for group in _blocks(tree, "vrrp_sync_group"):
        if not group.arguments:
            continue
        members = tuple(dict.fromkeys(_members(group, known, hints, complaints)))
        name = group.arguments[0]
        tracks = tuple(each.track for each in tracking.of(group.keyword.span))
        if name.text not in found:
            found[name.text] = SyncGroup(name=name.text, members=members, tracks=tracks)
            continue
        complaints.error(
            "duplicate-name", name, f"a second vrrp_sync_group is called {name.text}; it is not used, as in keepalived"
        )
    return tuple(found.values())


def read_routing(body: Body | None, prefix: str, *, interface: str = "") -> Routing:
    """The routes and rules of a block; `prefix` is virtual or static, `interface` where addresses go."""
    quiet = Complaints()
    excluded = read_vips(_lines(body, "virtual_ipaddress_excluded"), interface=interface, complaints=quiet)
    return Routing(
        excluded=tuple(vip for vip, _ in excluded),
        routes=tuple(map(_route, read_routes(_lines(body, f"{prefix}_routes"), quiet, block=f"{prefix}_routes"))),
        rules=tuple(map(_rule, read_rules(_lines(body, f"{prefix}_rules"), quiet, block=f"{prefix}_rules"))),
    )


def _blocks(tree: Body, name: str) -> Iterator[Statement]:
    return (each for each in tree.statements if each.keyword.text == name)


def _lines(body: Body | None, name: str) -> Iterator[list[Word]]:
    for block in body.statements if body is not None else ():
        if block.keyword.text == name and block.body is not None:
            yield from (line.words for line in block.body.statements)


def _members(group: Statement, known: set[str], hints: Hints, complaints: Complaints) -> Iterator[str]:
    for line in _lines(group.body, "group"):
        for word in line:
            if word.text in known:
                yield word.text
                continue
            complaints.error(
                "undefined-member",
                word,
                f"vrrp_sync_group: there is no vrrp_instance {word.text}; it is left out, as in keepalived",
                hints.did_you_mean(word.text, known),
            )


def _route(line: RouteLine) -> Route:
    return Route(
        destination=str(line.destination),
        kind=line.kind,
        via=_text(line.via),
        device=line.device,
        source=_text(line.source),
        from_prefix=_text(line.from_prefix),
        metric=line.metric,
        onlink=line.onlink,
        mtu_locked=line.mtu_locked,
        encap=line.encap,
        numbers=line.numbers,
        texts=line.texts,
        nexthops=tuple(map(_hop, line.nexthops)),
        no_track=line.no_track,
    )


def _hop(line: HopLine) -> NextHop:
    return NextHop(
        via=_text(line.via),
        device=line.device,
        weight=line.weight,
        onlink=line.onlink,
        realms=line.realms,
        encap=line.encap,
    )


def _rule(line: RuleLine) -> Rule:
    mark = "" if line.fwmark is None else f"{line.fwmark}{'' if line.fwmask is None else f'/{line.fwmask}'}"
    given = {
        "from": _text(line.from_prefix),
        "to": _text(line.to_prefix),
        "fwmark": mark,
        "iif": line.iif,
        "oif": line.oif,
        "uidrange": _range(line.uid_range),
        "sport": _range(line.sport),
        "dport": _range(line.dport),
        "ipproto": line.ipproto,
        "tos": line.tos,
        "protocol": line.protocol,
        "realms": line.realms,
        "tunnel-id": _text(line.tunnel_id),
        "suppress_prefixlength": _text(line.suppress_prefixlength),
        "suppress_ifgroup": line.suppress_ifgroup,
        "preference": _text(line.preference),
        "track_group": line.track_group,
    }
    flags = {"not": line.negated, "l3mdev": line.l3mdev, "no_track": line.no_track}
    return Rule(
        family=line.family,
        selectors=(
            *((name, "") for name, is_set in flags.items() if is_set),
            *((name, text) for name, text in given.items() if text),
        ),
        action=_action(line),
    )


def _action(line: RuleLine) -> tuple[str, ...]:
    if line.action == "table":
        return ("table", line.table) if line.table else ()
    return ("goto", str(line.goto)) if line.action == "goto" else (line.action,)


def _range(ends: tuple[int, int] | None) -> str:
    return "" if ends is None else f"{ends[0]}-{ends[1]}"


def _text(value: object) -> str:
    return "" if value is None else str(value)
