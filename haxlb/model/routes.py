"""Routes and rules that follow the master or are put on at start, as values.

Addresses and networks are text in canonical form, of either family; `0.0.0.0/0` and `::/0` are default routes. An empty
text or None = not given.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class NextHop:
    """One way of a route with several."""

    via: str = ""
    device: str = ""
    weight: int = 1
    onlink: bool = False
    realms: str = ""
    encap: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One line of `virtual_routes` or `static_routes`, in the words of ip-route(8)."""

    destination: str
    kind: str = "unicast"
    via: str = ""
    device: str = ""
    source: str = ""
    from_prefix: str = ""
    metric: int | None = None
    onlink: bool = False
    mtu_locked: bool = False
    encap: tuple[str, ...] = ()
    numbers: tuple[tuple[str, int], ...] = ()
    """Metrics by name."""
    texts: tuple[tuple[str, str], ...] = ()
    """tos, table, protocol, scope, …"""
    nexthops: tuple[NextHop, ...] = ()
    no_track: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of `virtual_rules` or `static_rules`: what it selects and does, in the words of ip-rule(8)."""

    family: int
    """4 or 6."""
    selectors: tuple[tuple[str, str], ...]
    """By option: (`from`, `192.0.2.0/24`), (`fwmark`, `1/255`); flags have an empty text."""
    action: tuple[str, ...]
    """(`table`, `100`), (`blackhole`,)."""
