"""Routes and rules as lines of keepalived.conf."""

from __future__ import annotations

from collections.abc import Iterator

from haxlb.config.printer_words import block, word
from haxlb.model.routes import NextHop, Route, Rule


def routing_lines(prefix: str, routes: tuple[Route, ...], rules: tuple[Rule, ...]) -> Iterator[str]:
    """The blocks of routes and rules; `prefix` is virtual or static."""
    if routes:
        yield from block(f"{prefix}_routes", map(route_line, routes))
    if rules:
        yield from block(f"{prefix}_rules", map(rule_line, rules))


def route_line(route: Route) -> str:
    """One line of a block of routes; it is read to the same route."""
    return " ".join(map(word, _route(route)))


def rule_line(rule: Rule) -> str:
    """One line of a block of rules; it is read to the same rule."""
    words = ["inet6" if rule.family == 6 else "inet"]  # noqa: PLR2004 - IPv6
    for name, text in rule.selectors:
        words += [name, text] if text else [name]
    return " ".join(map(word, (*words, *rule.action)))


def _route(route: Route) -> Iterator[str]:
    if route.kind != "unicast":
        yield route.kind
    yield from ("to", route.destination)
    yield from _named("via", route.via, family=True)
    yield from _named("dev", route.device)
    yield from _named("src", route.source)
    yield from _named("from", route.from_prefix)
    if route.metric is not None:
        yield from ("metric", str(route.metric))
    if route.onlink:
        yield "onlink"
    if route.encap:
        yield from ("encap", *route.encap)
    for name, number in route.numbers:
        yield from (name, "lock", str(number)) if name == "mtu" and route.mtu_locked else (name, str(number))
    for name, text in route.texts:
        yield from (name, text)
    for hop in route.nexthops:
        yield "nexthop"
        yield from _hop(hop)
    if route.no_track:
        yield "no_track"


def _hop(hop: NextHop) -> Iterator[str]:
    yield from _named("via", hop.via, family=True)
    yield from _named("dev", hop.device)
    yield from ("weight", str(hop.weight))
    if hop.onlink:
        yield "onlink"
    yield from _named("realms", hop.realms)
    if hop.encap:
        yield from ("encap", *hop.encap)


def _named(name: str, text: str, *, family: bool = False) -> tuple[str, ...]:
    if not text:
        return ()
    # A gateway may be of the other family than its route (RTA_VIA).
    return (name, "inet6" if ":" in text else "inet", text) if family else (name, text)
