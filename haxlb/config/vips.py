"""Lines of `virtual_ipaddress`, `virtual_ipaddress_excluded` and `static_ipaddress` to values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address

from haxlb.model.addresses import StaticAddress, Vip
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.section import Section
from keepalived_compat.source import Span, Word
from keepalived_compat.values_addresses import AddressLine, read_addresses

PlacedVip = tuple[Vip, Span]
"""An address with the place of the word that names it."""

_FLAGS = ("home", "nodad", "mngtmpaddr", "noprefixroute", "autojoin", "no_track", "use_vmac")


def lines_of(section: Section, name: str) -> list[list[Word]]:
    """The lines of all blocks of this name in a section."""
    return [line for each in section.all(name) if each.section is not None for line in each.section.lines]


def read_vips(
    lines: Iterable[list[Word]], *, complaints: Complaints, block: str = "virtual_ipaddress"
) -> list[PlacedVip]:
    """The addresses of a block; the interface of those whose line names no `dev` is empty."""
    found = read_addresses(lines, complaints, block=block)
    for each in found:
        if each.track_group:
            complaints.warning(
                "useless-option", each.word, f"{block}: track_group is for static addresses; it is ignored"
            )
    return [(_vip(each), each.word.span) for each in found]


def unique_vips(vips: Iterable[PlacedVip], instance: str, complaints: Complaints) -> list[PlacedVip]:
    """Without those that stand twice, which keepalived would put on and advertise twice."""
    found: dict[object, PlacedVip] = {}
    for vip, where in vips:
        first = found.setdefault(owner_key(vip), (vip, where))
        if first[1] != where:
            complaints.warning(
                "duplicate-vip",
                where,
                f"{vip.address} stands twice in {instance}; it is taken once",
                f"the first stands at {first[1]}; delete one",
            )
    return list(found.values())


def owner_key(vip: Vip) -> object:
    """What one instance only can have: the address, a link-local one on its interface."""
    return (vip.address, vip.interface) if vip.address.is_link_local else vip.address


def _vip(line: AddressLine) -> Vip:
    return Vip(
        address=line.address,
        prefix_length=line.prefix_length,
        interface=line.device,
        label=line.label or None,
        scope=line.scope or 0,
        broadcast=line.broadcast if isinstance(line.broadcast, IPv4Address) else None,
        peer=line.peer,
        preferred_lifetime_s=line.preferred_lifetime_s,
        track_group=line.track_group,
        flags=tuple(_flags(line)),
    )


def static_address_of(line: AddressLine, default_interface: str) -> StaticAddress:
    """A line of `static_ipaddress` as a value; `default_interface` is where it goes unless it says `dev`."""
    return StaticAddress(
        address=str(line.address),
        prefix_length=line.prefix_length,
        interface=line.device or default_interface,
        label=line.label,
        scope=line.scope,
        broadcast="" if line.broadcast is None else str(line.broadcast),
        peer="" if line.peer is None else str(line.peer),
        preferred_lifetime_s=line.preferred_lifetime_s,
        track_group=line.track_group,
        flags=tuple(_flags(line)),
    )


def _flags(line: AddressLine) -> Iterator[str]:
    for flag in _FLAGS:
        if getattr(line, flag):
            # keepalived writes this one with a dash.
            yield "-nodad" if flag == "nodad" else flag
