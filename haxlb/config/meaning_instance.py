"""What an instance means: its values, and what happens when something fails."""

from __future__ import annotations

from collections.abc import Iterator

from haxlb.config.consequences import begins
from haxlb.config.crosscheck_election import highest_priority, lowest_priority
from haxlb.config.instances import PlacedInstance
from haxlb.config.meaning_value import LATER, Origin, Value, counted, origin
from haxlb.config.printer import in_seconds
from haxlb.model.node import NodeConfig, VrrpInstance
from haxlb.model.tracking import Track, TrackKind, TrackScript
from haxlb.vrrp.advert import MULTICAST_GROUP
from haxlb.vrrp.election import OWNER_PRIORITY, seconds
from haxlb.vrrp.timers import master_down_interval, skew_time
from keepalived_compat.section import Section

_HIGHEST_TTL = 255
_GARP = ("master_repeat", "master_delay", "master_refresh", "master_refresh_repeat", "lower_prio_repeat")


def instance_values(placed: PlacedInstance, root: Section) -> Iterator[Value]:
    """The effective values, in the order in which people look for them."""
    instance, section = placed.instance, placed.section

    def value(name: str, text: str, globally: str = "") -> Value:
        return Value(name=name, text=text, origin=origin(name, section, everywhere=root, globally=globally))

    yield value("state", instance.initial_role.value)
    yield value("interface", instance.interface)
    yield value("virtual_router_id", str(instance.vrid))
    yield value("priority", str(instance.priority))
    yield value("version", str(instance.version), "vrrp_version")
    yield value("advert_int", f"{in_seconds(instance.advert_interval_us)} s")
    if instance.nopreempt:
        yield value("nopreempt", "yes")
    else:
        yield value("preempt_delay", f"{in_seconds(instance.preempt_delay_us)} s")
    yield value("authentication", "none" if instance.auth_pass is None else "PASS")
    yield _source(instance, section)
    if instance.peers:
        yield value("unicast_peer", " ".join(map(str, instance.peers)))
    else:
        yield value("mcast_dst_ip", str(MULTICAST_GROUP), "vrrp_mcast_group4")
    yield value("virtual_ipaddress", " ".join(f"{vip} dev {vip.interface}" for vip in instance.vips) or "none")
    for name in _GARP:
        found = getattr(instance.garp, name, None)
        text = str(found) if found is not None else f"{in_seconds(getattr(instance.garp, f'{name}_us'))} s"
        yield value(f"garp_{name}", text, f"vrrp_garp_{name}")


def _source(instance: VrrpInstance, section: Section) -> Value:
    name = "unicast_src_ip" if instance.peers else "mcast_src_ip"
    if instance.source is None:
        return Value(name=name, text=f"the first address of {instance.interface}", origin=Origin.DEFAULT)
    return Value(name=name, text=str(instance.source), origin=origin(name, section))


def instance_sentences(instance: VrrpInstance, config: NodeConfig) -> Iterator[str]:
    """What it does, with figures."""
    interval = instance.advert_interval_us
    yield f"at the start: {begins(instance)}"
    if instance.priority != OWNER_PRIORITY:
        skew = skew_time(instance.version, instance.priority, interval)
        down = master_down_interval(instance.version, instance.priority, interval)
        yield (
            f"as BACKUP it takes over {seconds(down)} after the last advert,"
            f" {seconds(skew)} after the MASTER has resigned"
        )
        yield _preemption(instance)
    lowest, highest = (master_down_interval(instance.version, each, interval) for each in (OWNER_PRIORITY - 1, 1))
    where = "its peers" if instance.peers else str(MULTICAST_GROUP)
    yield (
        f"as MASTER it sends an advert to {where} every {in_seconds(interval)} s; when it dies, a peer takes over"
        f" {seconds(lowest)} to {seconds(highest)} after the last one, by its own priority; when it is stopped, within"
        f" {seconds(skew_time(instance.version, 1, interval))}"
    )
    yield _announcements(instance)
    yield f"the loss of {instance.interface} makes it FAULT: it gives up its addresses"
    yield from _planned(instance, config)
    scripts = {each.name: each for each in config.track_scripts}
    for track in instance.tracks:
        if (track.kind, track.name) != (TrackKind.INTERFACE, instance.interface):
            script = scripts.get(track.name) if track.kind is TrackKind.SCRIPT else None
            yield f"{_track(instance, track, script)} {LATER}"


def _planned(instance: VrrpInstance, config: NodeConfig) -> Iterator[str]:
    for group in config.sync_groups:
        others = [each for each in group.members if each != instance.name]
        if instance.name in group.members and others:
            yield f"it fails over together with {', '.join(others)} (vrrp_sync_group {group.name}) {LATER}"
    further = instance.excluded_vips
    following = counted(
        (len(further), "further address", "further addresses"),
        (len(instance.routes), "route", "routes"),
        (len(instance.rules), "rule", "rules"),
    )
    if following:
        yield f"{following} come and go with the MASTER {LATER}"
    for limits in instance.ttl_limits:
        lowest, highest = limits.lowest or 0, _HIGHEST_TTL if limits.highest is None else limits.highest
        yield f"adverts of {limits.peer} count with a TTL of {lowest} to {highest} only {LATER}"


def _preemption(instance: VrrpInstance) -> str:
    if instance.nopreempt:
        return "it leaves a MASTER of lower priority alone (nopreempt)"
    delay = instance.preempt_delay_us
    after = f", {in_seconds(delay)} s after it has heard of it" if delay else ""
    return f"it takes over from a MASTER of lower priority than {instance.priority}{after}"


def _announcements(instance: VrrpInstance) -> str:
    garp = instance.garp
    text = f"it announces its addresses by gratuitous ARP {_times(garp.master_repeat)} on becoming MASTER"
    if garp.master_delay_us:
        text += f", again after {in_seconds(garp.master_delay_us)} s"
    if garp.master_refresh_us:
        text += f", and every {in_seconds(garp.master_refresh_us)} s"
    return text


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _noticed_us(script: TrackScript) -> int:
    """The worst case: it begins to hang right after a run that was well, and each run lasts its whole timeout.

    keepalived skips runs that are due while one is under way.
    """
    interval, timeout = script.interval_us, script.timeout_us
    period = max(-(-timeout // interval), 1) * interval
    return interval + (script.fall - 1) * period + timeout


def _in_a_row(fall: int) -> str:
    return "" if fall == 1 else f", {fall} times in a row"


def _track(instance: VrrpInstance, track: Track, script: TrackScript | None) -> str:
    what = f"{track.name} {'being well' if track.reverse else 'failing'}"
    if script is not None:
        noticed = _noticed_us(script)
        what += (
            f" ({script.run}, every {in_seconds(script.interval_us)} s{_in_a_row(script.fall)}:"
            f" noticed after at most {in_seconds(noticed)} s)"
        )
    if track.kind is TrackKind.FILE and track.weight:
        return f"{track.name} adds {track.weight} times the number in its file to the priority {instance.priority}"
    if not track.weight:
        return f"{what} makes it FAULT: it gives up its addresses, and any peer takes over"
    if instance.priority == OWNER_PRIORITY:
        return f"{what} changes nothing: priority 255 has no weights"
    well = highest_priority(instance)
    after = min(max(well - abs(track.weight), 1), 254)
    text = f"{what} makes {well} → {after}; a peer needs more than {after} to take over"
    if lowest_priority(instance) < after:
        text += f" (all of them failing: {lowest_priority(instance)})"
    return text
