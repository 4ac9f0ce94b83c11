"""Lines of `virtual_routes`, `virtual_rules`, `static_routes` and `static_rules` to values."""

from __future__ import annotations

from haxlb.config.vips import lines_of
from haxlb.model.routes import NextHop, Route, Rule
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.section import Section
from keepalived_compat.values_routes import NextHop as HopLine
from keepalived_compat.values_routes import RouteLine, read_routes
from keepalived_compat.values_rules import RuleLine, read_rules


def routes_of(section: Section, prefix: str, complaints: Complaints) -> tuple[Route, ...]:
    """The routes of a section; `prefix` is virtual or static."""
    block = f"{prefix}_routes"
    return tuple(map(route_of, read_routes(lines_of(section, block), complaints, block=block)))


def rules_of(section: Section, prefix: str, complaints: Complaints) -> tuple[Rule, ...]:
    """The rules of a section, likewise."""
    block = f"{prefix}_rules"
    return tuple(map(rule_of, read_rules(lines_of(section, block), complaints, block=block)))


def route_of(line: RouteLine) -> Route:
    """A line as a value."""
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


def rule_of(line: RuleLine) -> Rule:
    """A line as a value."""
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
