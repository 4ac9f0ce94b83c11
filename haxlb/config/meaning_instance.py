"""What an instance means: its values, and what happens when something fails."""

from __future__ import annotations

from collections.abc import Iterator

from haxlb.config.consequences_instances import begins, down_interval
from haxlb.config.defaults import MULTICAST_GROUPS
from haxlb.config.instances import PlacedInstance
from haxlb.config.meaning_track import track_sentence
from haxlb.config.meaning_value import Origin, Value, counted, origin
from haxlb.config.printer import in_seconds
from haxlb.config.printer_addresses import option_words
from haxlb.model.instance import VrrpInstance
from haxlb.model.node import NodeConfig
from haxlb.vrrp.election import OWNER_PRIORITY, seconds
from haxlb.vrrp.sync_group import effective
from haxlb.vrrp.timers import skew_time
from keepalived_compat.section import Section

_HIGHEST_TTL = 255
_INET6 = 6
_GARP = ("master_repeat", "master_delay", "master_refresh", "master_refresh_repeat", "lower_prio_repeat")


def instance_values(placed: PlacedInstance, root: Section) -> Iterator[Value]:
    """The effective values, in the order in which people look for them."""
    instance, section = placed.instance, placed.section

    def value(name: str, text: str, globally: str = "") -> Value:
        return Value(name=name, text=text, origin=origin(name, section, everywhere=root, globally=globally))

    def switch(name: str, *, on: bool, default: bool, globally: str = "") -> Iterator[Value]:
        if on is not default:
            yield value(name, "yes" if on else "no", globally)

    yield value("state", instance.initial_role.value)
    yield value("vrf" if instance.vrf else "interface", instance.interface)
    yield value("virtual_router_id", str(instance.vrid))
    yield value("priority", str(instance.priority))
    ipv6 = instance.family == _INET6
    version = f"{instance.version}, IPv6" if ipv6 else str(instance.version)
    yield value("version", version, "" if ipv6 else "vrrp_version")
    yield value("advert_int", f"{in_seconds(instance.advert_interval_us)} s")
    yield value("down_timer_adverts", str(instance.down_timer_adverts), "vrrp_down_timer_adverts")
    yield from switch("strict_mode", on=instance.strict, default=False, globally="vrrp_strict")
    if instance.nopreempt:
        yield value("nopreempt", "yes")
    else:
        yield value("preempt_delay", f"{in_seconds(instance.preempt_delay_us)} s")
    yield value("authentication", "none" if instance.auth_pass is None else "AH" if instance.auth_ah else "PASS")
    yield _source(instance, section)
    if instance.peers:
        yield value("unicast_peer", " ".join(map(str, instance.peers)))
        yield value("check_unicast_src", "yes" if instance.check_unicast_src else "no", "vrrp_check_unicast_src")
        if instance.unicast_ttl != _HIGHEST_TTL:
            yield value("unicast_ttl", str(instance.unicast_ttl))
    else:
        yield value("mcast_dst_ip", str(_group(instance)), f"vrrp_mcast_group{instance.family}")
    if instance.virtual_mac is not None:
        mac = instance.virtual_mac
        yield value("use_ipvlan" if mac.ipvlan else "use_vmac", " ".join(filter(None, (mac.interface, mac.mac))))
        yield from switch("vmac_xmit_base", on=mac.xmit_base, default=False)
    yield value("virtual_ipaddress", " ".join(f"{vip} dev {vip.interface}" for vip in instance.vips) or "none")
    if instance.excluded_vips:
        shown = " ".join(f"{vip} dev {vip.interface}" for vip in instance.excluded_vips)
        yield value("virtual_ipaddress_excluded", shown)
    yield from switch("accept", on=instance.accept, default=True)
    yield from switch("track_src_ip", on=instance.track_source, default=False)
    yield from switch(
        "lower_prio_no_advert", on=instance.lower_prio_no_advert, default=False, globally="vrrp_lower_prio_no_advert"
    )
    yield from switch(
        "higher_prio_send_advert",
        on=instance.higher_prio_send_advert,
        default=False,
        globally="vrrp_higher_prio_send_advert",
    )
    for name in _GARP:
        found = getattr(instance.garp, name, None)
        text = str(found) if found is not None else f"{in_seconds(getattr(instance.garp, f'{name}_us'))} s"
        yield value(f"garp_{name}", text, f"vrrp_garp_{name}")
    yield from switch("smtp_alert", on=instance.smtp_alert, default=False, globally="smtp_alert")


def _group(instance: VrrpInstance) -> object:
    return instance.multicast_group or MULTICAST_GROUPS[instance.family]


def _source(instance: VrrpInstance, section: Section) -> Value:
    name = "unicast_src_ip" if instance.peers else "mcast_src_ip"
    if instance.source is not None:
        return Value(name=name, text=str(instance.source), origin=origin(name, section))
    what = "link-local" if instance.family == _INET6 else "first"
    return Value(name=name, text=f"the {what} address of {instance.interface}", origin=Origin.DEFAULT)


def instance_sentences(instance: VrrpInstance, config: NodeConfig) -> Iterator[str]:
    """What it does, with figures."""
    interval = instance.advert_interval_us
    yield f"at the start: {begins(instance)}"
    if instance.priority != OWNER_PRIORITY:
        skew = skew_time(instance.version, instance.priority, interval)
        yield (
            f"as BACKUP it takes over {seconds(down_interval(instance))} after the last advert,"
            f" {seconds(skew)} after the MASTER has resigned"
        )
        yield _preemption(instance)
    lowest, highest = (down_interval(instance, each) for each in (OWNER_PRIORITY - 1, 1))
    where = "its peers" if instance.peers else str(_group(instance))
    yield (
        f"as MASTER it sends an advert to {where} every {in_seconds(interval)} s; when it dies, a peer takes over"
        f" {seconds(lowest)} to {seconds(highest)} after the last one, by its own priority; when it is stopped, within"
        f" {seconds(skew_time(instance.version, 1, interval))}"
    )
    yield _announcements(instance)
    yield from _addresses(instance, config)
    if instance.track_primary:
        yield f"the loss of {instance.interface} makes it FAULT: it gives up its addresses"
    else:
        yield f"the loss of {instance.interface} is no fault (dont_track_primary)"
    for group in config.sync_groups:
        others = [each for each in group.members if each != instance.name]
        if instance.name in group.members and others:
            yield f"it fails over together with {', '.join(others)} (vrrp_sync_group {group.name})"
    own = next((each for each in config.sync_groups if instance.name in each.members), None)
    member = effective(instance, own)
    companions = [
        effective(each, own)
        for each in config.instances
        if own is not None and each.name in own.members and each.name != instance.name
    ]
    for track in member.tracks:
        yield track_sentence(member, track, config, companions)


def _addresses(instance: VrrpInstance, config: NodeConfig) -> Iterator[str]:
    following = counted(
        (len(instance.excluded_vips), "further address", "further addresses"),
        (len(instance.routes), "route", "routes"),
        (len(instance.rules), "rule", "rules"),
    )
    if following:
        yield f"{following} come and go with the MASTER; adverts do not name them"
    for vip in (*instance.vips, *instance.excluded_vips):
        if words := option_words(vip):
            yield f"{vip.address} is put on with `{words}`"
    if instance.virtual_mac is not None:
        mac = instance.virtual_mac
        sender = instance.interface if mac.xmit_base else mac.interface
        yield f"its addresses live on {mac.interface}, made on {instance.interface}; adverts leave from {sender}"
    for mac in instance.address_macs:
        yield f"those on {mac.base} live on {mac.interface}, made there with the MAC {mac.mac}"
    if not instance.accept:
        yield "packets to its addresses are dropped, but for what ARP or neighbour discovery needs: they only forward"
    lifetime = config.speaker.vip_lifetime_s
    if instance.vips and lifetime:
        yield f"should haxlb die as a whole, the kernel takes its addresses off within {lifetime} s"
    if instance.check_unicast_src:
        yield "adverts of others than its peers do not count"
    for limits in instance.ttl_limits:
        lowest, highest = limits.lowest or 0, _HIGHEST_TTL if limits.highest is None else limits.highest
        yield f"adverts of {limits.peer} count with a TTL of {lowest} to {highest} only"


def _preemption(instance: VrrpInstance) -> str:
    if instance.nopreempt:
        return "it leaves a MASTER of lower priority alone (nopreempt)"
    delay = instance.preempt_delay_us
    after = f", {in_seconds(delay)} s after it has heard of it" if delay else ""
    return f"it takes over from a MASTER of lower priority than {instance.priority}{after}"


def _announcements(instance: VrrpInstance) -> str:
    garp = instance.garp
    how = "unsolicited neighbour advertisements" if instance.family == _INET6 else "gratuitous ARP"
    text = f"it announces its addresses by {how} {_times(garp.master_repeat)} on becoming MASTER"
    if garp.master_delay_us:
        text += f", again after {in_seconds(garp.master_delay_us)} s"
    if garp.master_refresh_us:
        text += f", and every {in_seconds(garp.master_refresh_us)} s"
    return text


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
