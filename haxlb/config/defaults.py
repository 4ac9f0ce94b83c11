"""What `global_defs` and `garp_group` say for all instances."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv6Address, ip_address

from haxlb.config.globals import Globals
from haxlb.config.vips import lines_of
from haxlb.model.addresses import IPAddress
from haxlb.model.instance import GarpConfig
from haxlb.model.units import SECOND_US
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.grammar import integer
from keepalived_compat.section import Entry, Section
from keepalived_compat.source import Span
from keepalived_compat.values import Unusable, number

DOWN_TIMER_ADVERTS = 3
"""Adverts missed before a BACKUP takes over (RFC 9568 section 6.1, Active_Down_Interval)."""
MULTICAST_GROUPS: dict[int, IPAddress] = {4: IPv4Address("224.0.0.18"), 6: IPv6Address("ff02::12")}
"""By family (RFC 9568 sections 5.1.1.2 and 5.1.2.2)."""
_LONGEST_PERIOD = integer(0, 86400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The defaults of instances."""

    version: int = 2
    garp: GarpConfig = field(default_factory=GarpConfig)
    garp_groups: dict[str, GarpConfig] = field(default_factory=dict)
    """By interface."""
    down_timer_adverts: int = DOWN_TIMER_ADVERTS
    multicast_groups: dict[int, IPAddress] = field(default_factory=dict)
    """By family; those that are named."""
    strict: bool = False
    lower_prio_no_advert: bool = False
    higher_prio_send_advert: bool = False
    owner_ignore_adverts: bool = False
    check_unicast_src: bool = False
    checksum_as_v2: bool = False
    priority_changes: bool = False
    smtp_alert: bool = False
    """Of instances and sync groups."""
    smtp_alert_checker: bool = False
    """Of virtual servers."""
    smtp_alert_server: bool = False
    """Of real servers."""
    notify_up_at_start: bool = False
    """rs_init_notifies."""
    vmac_prefix: str = "vrrp"
    vmac_addr_prefix: str = "vrrp"
    default_interface: str = "eth0"


def read_defaults(root: Section, given: Globals, complaints: Complaints) -> Defaults:
    """The defaults for instances."""
    _complain_of_order(root, complaints)
    garp = _garp(given, complaints)
    alert = given.value("smtp_alert")
    mails = given.has("smtp_server") and given.has("notification_email")
    return Defaults(
        version=int(given.value("vrrp_version", 2)),
        garp=garp,
        garp_groups=_garp_groups(root, garp, complaints),
        down_timer_adverts=given.value("vrrp_down_timer_adverts", DOWN_TIMER_ADVERTS),
        multicast_groups=_multicast_groups(given, complaints),
        strict=given.value("vrrp_strict", default=False),
        lower_prio_no_advert=given.value("vrrp_lower_prio_no_advert", default=False),
        higher_prio_send_advert=given.value("vrrp_higher_prio_send_advert", default=False),
        owner_ignore_adverts=given.value("vrrp_owner_ignore_adverts", default=False),
        check_unicast_src=given.has("vrrp_check_unicast_src"),
        checksum_as_v2=given.has("v3_checksum_as_v2"),
        priority_changes=given.value("vrrp_notify_priority_changes", default=False),
        smtp_alert=bool(given.value("smtp_alert_vrrp", alert)),
        smtp_alert_checker=bool(given.value("smtp_alert_checker", alert)),
        # keepalived mails about real servers unless told not to; without a mail server nothing is to be said of it.
        smtp_alert_server=bool(given.value("smtp_alert_checker", mails if alert is None else alert)),
        notify_up_at_start=given.value("rs_init_notifies", default=False),
        vmac_prefix=given.value("vmac_prefix", "vrrp"),
        vmac_addr_prefix=given.value("vmac_addr_prefix", given.value("vmac_prefix", "vrrp")),
        default_interface=given.value("default_interface", "eth0"),
    )


def _garp(given: Globals, complaints: Complaints) -> GarpConfig:
    minimal = given.value("vrrp_min_garp", default=False)
    delay = given.value("vrrp_garp_master_delay", 0 if minimal else 5)
    repeat = at_least_one(given.entry("vrrp_garp_master_repeat"), 1 if minimal else 5, complaints)
    extra, extra_all = extra_interfaces(given.entry("vrrp_garp_extra_if"), (0, False), complaints)
    return GarpConfig(
        master_repeat=repeat,
        master_delay_us=delay * SECOND_US,
        master_refresh_us=given.value("vrrp_garp_master_refresh", 0) * SECOND_US,
        master_refresh_repeat=at_least_one(given.entry("vrrp_garp_master_refresh_repeat"), 1, complaints),
        lower_prio_repeat=given.value("vrrp_garp_lower_prio_repeat", repeat),
        lower_prio_delay_us=given.value("vrrp_garp_lower_prio_delay", delay) * SECOND_US,
        interval_us=given.value("vrrp_garp_interval", 0),
        gna_interval_us=given.value("vrrp_gna_interval", 0),
        extra_if_us=extra,
        extra_if_all=extra_all,
    )


def extra_interfaces(entry: Entry | None, default: tuple[int, bool], complaints: Complaints) -> tuple[int, bool]:
    """`[all] SECONDS`: the period in µs, and whether all virtual MACs are meant."""
    if entry is None:
        return default
    words = list(entry.words[1:])
    everywhere = words[0].text == "all"
    word = words[-1] if everywhere else words[0]
    try:
        return int(str(number(word.text, _LONGEST_PERIOD).value)) * SECOND_US, everywhere
    except Unusable as problem:
        complaints.error("bad-value", word, f"{entry.keyword.name}: {problem.message}; it is not used", "[all] SECONDS")
        return default


def _multicast_groups(given: Globals, complaints: Complaints) -> dict[int, IPAddress]:
    found: dict[int, IPAddress] = {}
    for family in (4, 6):
        entry = given.entry(f"vrrp_mcast_group{family}")
        if entry is None:
            continue
        try:
            address = ip_address(str(entry.value))
        except ValueError:
            address = None
        if address is None or address.version != family or not address.is_multicast:
            complaints.error(
                "bad-value",
                entry.argument_span,
                f"{entry.keyword.name}: `{entry.value}` is no IPv{family} multicast group;"
                f" {MULTICAST_GROUPS[family]} is used",
            )
        else:
            found[family] = address
    return found


def _garp_groups(root: Section, garp: GarpConfig, complaints: Complaints) -> dict[str, GarpConfig]:
    groups: dict[str, GarpConfig] = {}
    places: dict[str, Span] = {}
    for entry in root.all("garp_group"):
        section = entry.section
        if section is None:
            continue
        words = [each.words[1] for each in section.all("interface")]
        words += [word for line in lines_of(section, "interfaces") for word in line]
        own = []
        for word in words:
            first = places.setdefault(word.text, word.span)
            if first == word.span:
                own.append(word.text)
                continue
            complaints.error(
                "given-twice",
                word,
                f"garp_group: {word.text} is in a group already, at {first}; it is not taken into this one",
            )
        if not words:
            complaints.warning("missing-keyword", entry.span, "garp_group has no interface and does nothing")
        if not own:
            continue
        group = replace(
            garp,
            interval_us=section.value("garp_interval", 0),
            gna_interval_us=section.value("gna_interval", 0),
            group=" ".join(own),
        )
        groups |= dict.fromkeys(own, group)
    return groups


def at_least_one(entry: Entry | None, default: int, complaints: Complaints) -> int:
    """A count of rounds; keepalived takes 0 as 1."""
    if entry is None:
        return default
    if entry.value == 0:
        complaints.warning(
            "inexact-value",
            entry.argument_span,
            f"{entry.keyword.name} 0 is taken as 1, as in keepalived",
            "a master has to announce itself",
        )
    return max(int(entry.value), 1)


def _complain_of_order(root: Section, complaints: Complaints) -> None:
    """Keepalived copies these values into an instance when its block begins, so later ones miss it."""
    instances = False
    for block in root.entries:
        instances = instances or block.keyword.name == "vrrp_instance"
        if not instances or block.keyword.name != "global_defs" or block.section is None:
            continue
        for each in block.section.entries:
            if each.keyword.name.startswith("vrrp_garp_") or each.keyword.name == "vrrp_down_timer_adverts":
                complaints.warning(
                    "order",
                    each.span,
                    f"{each.keyword.name} stands after a vrrp_instance: it counts here, not for keepalived's",
                    "put global_defs first",
                )
