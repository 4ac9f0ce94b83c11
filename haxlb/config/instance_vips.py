"""The addresses of an instance: those that its adverts name, and those that only follow it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from haxlb.config.instance_wire import INET6, V3, Wire
from haxlb.config.vips import PlacedVip, lines_of, owner_key, read_vips, unique_vips
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.nearest import nearest
from keepalived_compat.section import Entry, Section
from keepalived_compat.source import Word

MOST_VIPS = {(4, 2): 255, (4, 3): 255, (6, 2): 89, (6, 3): 89}
"""By family and version: Count IPvX Addr is one byte (RFC 9568 section 5.2.5), and an Ethernet frame has room for
(1500 - 14 - 40 - 8) / 16 addresses of IPv6, as keepalived counts."""


_MOST_LOOKED_AT = 100
"""Unknown words of a block that may be a misspelt one; a block with more of them is no configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceVips:
    """Both lists."""

    advertised: tuple[PlacedVip, ...]
    excluded: tuple[PlacedVip, ...]


def read_instance_vips(
    block: Entry,
    section: Section,
    name: str,
    wire: Wire,
    complaints: Complaints,
    *,
    base: str,
    strict: bool,
) -> InstanceVips:
    """Those of a `vrrp_instance`; `base` is where they go unless their line says `dev`."""
    lines = lines_of(section, "virtual_ipaddress")
    found = _somewhere(read_vips(lines, complaints=complaints), base)
    outside = read_vips(
        lines_of(section, "virtual_ipaddress_excluded"),
        complaints=complaints,
        block="virtual_ipaddress_excluded",
    )
    outside = _somewhere(outside, base)
    found = unique_vips([each for each in found if _fits(each, name, wire, complaints)], name, complaints)
    most = MOST_VIPS[wire.family, wire.version]
    if len(found) > most:
        complaints.error(
            "too-many-vips",
            found[most][1],
            f"{name} has {len(found)} addresses, an advert has room for {most}: from here on they follow the master"
            " without being named in adverts, as in keepalived",
            "put them into virtual_ipaddress_excluded, on both directors",
        )
        outside = found[most:] + outside
        found = found[:most]
    taken = {owner_key(vip) for vip, _ in found}
    everything = unique_vips([*found, *outside], name, complaints)
    excluded = [each for each in everything if owner_key(each[0]) not in taken]
    # Of lines that cannot be used each was complained of; a misspelt block has been, too. In version 3 keepalived
    # refuses the instance as well.
    fatal = wire.version == V3 or strict
    meant = _misspelt(section) if not found else None
    if meant is not None:
        if fatal:
            complaints.escalate(meant)
    elif (not lines and not excluded) or (fatal and not found):
        complain = complaints.fatal if fatal else complaints.warning
        usable = " that can be used" if lines else ""
        complain(
            "no-vip",
            block.argument_span,
            f"{name} has no virtual_ipaddress{usable}: a master without one serves nothing",
            "add `virtual_ipaddress { ADDRESS/PREFIX }`",
        )
    if found and wire.family == INET6 and not wire.unicast and not found[0][0].address.is_link_local:
        complaints.warning(
            "link-local-first",
            found[0][1],
            f"{name}: the first address of an IPv6 instance has to be link-local (RFC 9568 section 5.2.9);"
            " other implementations may refuse the adverts, keepalived takes them",
            "put `fe80::…/64` first, on both directors",
        )
    return InstanceVips(advertised=tuple(found), excluded=tuple(excluded))


def _fits(placed: PlacedVip, name: str, wire: Wire, complaints: Complaints) -> bool:
    vip, where = placed
    if vip.family == wire.family:
        return True
    complaints.error(
        "mixed-family",
        where,
        f"{name} speaks IPv{wire.family}, as its first address says: {vip.address} is not used, as in keepalived",
        "put it into virtual_ipaddress_excluded, which takes both families, or into an instance of its own",
    )
    return False


def _somewhere(vips: Iterable[PlacedVip], base: str) -> list[PlacedVip]:
    """With the interface that they name, or the instance's."""
    return [(replace(vip, interface=vip.interface or base), where) for vip, where in vips]


def _misspelt(section: Section) -> Word | None:
    """The word in the block that may have been meant as virtual_ipaddress."""
    return next(
        (word for word in section.unknown[:_MOST_LOOKED_AT] if nearest(word.text, ("virtual_ipaddress",))), None
    )
