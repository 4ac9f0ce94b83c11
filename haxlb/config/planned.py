"""Blocks that haxlb does not act on yet, as values: groups, routes, rules, addresses that no advert names, TTL limits.

They are read from the syntax tree; what is wrong with their lines is said where they are judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address

from haxlb.config.tracking import Tracking
from haxlb.config.vips import read_vips
from haxlb.model.addresses import StaticAddress, TtlLimits, Vip, VipOptions
from haxlb.model.groups import AddressRange, FirewallMark, SyncGroup, VirtualServerGroup
from haxlb.model.routes import NextHop, Route, Rule
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.nearest import Hints
from keepalived_compat.source import Word
from keepalived_compat.tree import Body, Statement
from keepalived_compat.values_addresses import AddressLine, read_addresses, read_peers
from keepalived_compat.values_groups import GroupMark, GroupRange, read_group
from keepalived_compat.values_line import INET6
from keepalived_compat.values_routes import NextHop as HopLine
from keepalived_compat.values_routes import RouteLine, read_routes
from keepalived_compat.values_rules import RuleLine, read_rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """What one instance, or the host, has of it: routes, rules, addresses that no advert names, limits of peers."""

    excluded: tuple[Vip, ...] = ()
    routes: tuple[Route, ...] = ()
    rules: tuple[Rule, ...] = ()
    ttl_limits: tuple[TtlLimits, ...] = ()
    lines: tuple[AddressLine, ...] = ()
    """Of `virtual_ipaddress`."""
    excluded_options: tuple[VipOptions, ...] = ()
    ipv6: tuple[StaticAddress, ...] = ()
    excluded_ipv6: tuple[StaticAddress, ...] = ()

    def options_of(self, vips: Iterable[tuple[Vip, Word]]) -> tuple[VipOptions, ...]:
        """The options of these addresses and of the excluded ones; of a place that has several the first count."""
        places: dict[tuple[IPv4Address, str], VipOptions] = {}
        for each in (*_vip_options(vips, self.lines), *self.excluded_options):
            places.setdefault((each.address, each.interface), each)
        return tuple(places.values())


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


def read_planned(body: Body | None, prefix: str, *, interface: str = "") -> Planned:
    """What a block has of it; `prefix` is virtual or static, `interface` where addresses go."""
    quiet = Complaints()
    excluded = read_vips(_lines(body, "virtual_ipaddress_excluded"), interface=interface, complaints=quiet)
    excluded_lines = read_addresses(_lines(body, "virtual_ipaddress_excluded"), quiet, block="")
    lines = read_addresses(_lines(body, "virtual_ipaddress"), quiet, block="")
    return Planned(
        excluded=tuple(vip for vip, _ in excluded),
        routes=tuple(map(_route, read_routes(_lines(body, f"{prefix}_routes"), quiet, block=f"{prefix}_routes"))),
        rules=tuple(map(_rule, read_rules(_lines(body, f"{prefix}_rules"), quiet, block=f"{prefix}_rules"))),
        ttl_limits=tuple(_ttl_limits(_lines(body, "unicast_peer"))),
        lines=lines,
        excluded_options=tuple(_vip_options(excluded, excluded_lines)),
        ipv6=tuple(_static_address(each, interface) for each in lines if each.address.version == INET6),
        excluded_ipv6=tuple(
            _static_address(each, interface) for each in excluded_lines if each.address.version == INET6
        ),
    )


def read_static_addresses(tree: Body) -> tuple[StaticAddress, ...]:
    """The lines of all `static_ipaddress` blocks, in file order."""
    named = [
        line.arguments[0].text
        for defs in _blocks(tree, "global_defs")
        if defs.body is not None
        for line in _blocks(defs.body, "default_interface")
        if line.arguments
    ]
    default = named[-1] if named else _DEFAULT_INTERFACE
    found = read_addresses(_lines(tree, "static_ipaddress"), Complaints(), block="static_ipaddress")
    return tuple(_static_address(each, default) for each in found)


def read_server_groups(tree: Body) -> tuple[VirtualServerGroup, ...]:
    """The groups in file order, without those that keepalived removes."""
    found = []
    for group in _blocks(tree, "virtual_server_group"):
        if not group.arguments or group.body is None:
            continue
        entries = read_group((line.words for line in group.body.statements), Complaints())
        ranges = [each for each in entries if isinstance(each, GroupRange)]
        marks = [each for each in entries if isinstance(each, GroupMark)]
        # A mark without a family takes that of the real servers, which cannot be of both.
        mixed = len({each.first.version for each in ranges}) > 1 and any(not each.family for each in marks)
        if entries and not mixed:
            found.append(
                VirtualServerGroup(
                    name=group.arguments[0].text,
                    ranges=tuple(
                        AddressRange(first=str(each.first), last=str(each.last), port=each.port) for each in ranges
                    ),
                    marks=tuple(FirewallMark(mark=each.fwmark, family=each.family) for each in marks),
                )
            )
    return tuple(found)


_DEFAULT_INTERFACE = "eth0"
"""keepalived's, of addresses without `dev`."""


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


def _ttl_limits(lines: Iterator[list[Word]]) -> Iterator[TtlLimits]:
    seen = set()
    for line in read_peers(lines, Complaints()):
        # Of a peer that stands twice the first line counts.
        if not isinstance(line.address, IPv4Address) or line.address in seen:
            continue
        seen.add(line.address)
        if (line.min_ttl, line.max_ttl) != (None, None):
            yield TtlLimits(peer=line.address, lowest=line.min_ttl, highest=line.max_ttl)


def _vip_options(vips: Iterable[tuple[Vip, Word]], lines: Iterable[AddressLine]) -> Iterator[VipOptions]:
    by_word = {(each.word.span, each.word.text): each for each in lines}
    for vip, word in vips:
        line = by_word.get((word.span, word.text))
        if line is None:
            continue
        options = VipOptions(
            address=vip.address,
            interface=vip.interface,
            peer=_text(line.peer),
            preferred_lifetime_s=line.preferred_lifetime_s,
            track_group=line.track_group,
            flags=_flags(line),
        )
        if options != VipOptions(address=vip.address, interface=vip.interface):
            yield options


def _static_address(line: AddressLine, default_interface: str) -> StaticAddress:
    return StaticAddress(
        address=str(line.address),
        prefix_length=line.prefix_length,
        interface=line.device or default_interface,
        label=line.label,
        scope=line.scope,
        broadcast=_text(line.broadcast),
        peer=_text(line.peer),
        preferred_lifetime_s=line.preferred_lifetime_s,
        track_group=line.track_group,
        flags=_flags(line),
    )


def _flags(line: AddressLine) -> tuple[str, ...]:
    flags = ("home", "nodad", "mngtmpaddr", "noprefixroute", "autojoin", "no_track", "use_vmac")
    # keepalived writes this one with a dash.
    return tuple("-nodad" if flag == "nodad" else flag for flag in flags if getattr(line, flag))


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
