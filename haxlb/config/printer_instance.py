"""Instances as lines of keepalived.conf."""

from __future__ import annotations

from collections.abc import Iterator

from haxlb.config.instance_mac import looks_like_option
from haxlb.config.printer_addresses import peer_line, vip_line
from haxlb.config.printer_routes import routing_lines
from haxlb.config.printer_tracking import notify_lines, track_lines
from haxlb.config.printer_words import SECOND_US, block, boolean, in_seconds, switches, word
from haxlb.model.addresses import Vip
from haxlb.model.instance import GarpConfig, Role, VirtualMac, VrrpInstance
from haxlb.model.tracking import Track, TrackKind

STARS = "********"
"""What stands for a secret that is not shown."""
_OWNER = 255
_LONGEST_TTL = 255
_INET6 = 6


def instance_lines(instance: VrrpInstance, *, secrets: bool, priority_changes: bool) -> Iterator[str]:
    """The lines in a `vrrp_instance` block; `priority_changes` is what global_defs says of their notification."""
    yield f"state {'MASTER' if instance.initial_role is Role.MASTER else 'BACKUP'}"
    yield f"{'vrf' if instance.vrf else 'interface'} {word(instance.interface)}"
    yield f"virtual_router_id {instance.vrid}"
    yield f"priority {instance.priority}"
    yield f"version {instance.version}"
    yield f"advert_int {in_seconds(instance.advert_interval_us)}"
    yield f"down_timer_adverts {instance.down_timer_adverts}"
    yield from switches(("strict_mode", instance.strict), ("nopreempt", instance.nopreempt))
    if instance.preempt_delay_us:
        yield f"preempt_delay {in_seconds(instance.preempt_delay_us)}"
    if instance.auth_pass is not None:
        password = word(instance.auth_pass) if secrets else STARS
        yield from block(
            "authentication", (f"auth_type {'AH' if instance.auth_ah else 'PASS'}", f"auth_pass {password}")
        )
    if instance.virtual_mac is not None:
        yield from _virtual_mac(instance.virtual_mac)
    yield from _wire(instance)
    yield from _garp(instance.garp)
    bases = {each.interface: each.base for each in instance.address_macs}
    yield from _vips("virtual_ipaddress", instance.vips, bases)
    yield from _vips("virtual_ipaddress_excluded", instance.excluded_vips, bases)
    yield from switches(
        ("promote_secondaries", instance.promote_secondaries),
        ("no_accept", not instance.accept),
        ("accept", instance.accept and instance.strict),
        ("dont_track_primary", not instance.track_primary),
        ("track_src_ip", instance.track_source),
    )
    # Of its own interface a track_group may make a track, a line may not.
    yield from track_lines(tuple(each for each in instance.tracks if not _is_own(each, instance)))
    yield from routing_lines("virtual", instance.routes, instance.rules)
    yield from boolean("lower_prio_no_advert", instance.lower_prio_no_advert, default=instance.strict)
    yield from boolean("higher_prio_send_advert", instance.higher_prio_send_advert, default=False)
    owner = instance.strict and instance.priority == _OWNER
    yield from boolean("owner_ignore_adverts", instance.owner_ignore_adverts, default=owner)
    yield from notify_lines(instance.notify)
    yield from boolean("notify_priority_changes", instance.notify_priority_changes, default=priority_changes)
    yield from boolean("smtp_alert", instance.smtp_alert, default=False)


def _is_own(track: Track, instance: VrrpInstance) -> bool:
    return track.kind is TrackKind.INTERFACE and track.name == instance.interface


def _wire(instance: VrrpInstance) -> Iterator[str]:
    addresses = (instance.source, instance.multicast_group, *instance.peers, *instance.vips)
    if instance.family == _INET6 and not any(addresses):
        yield "native_ipv6"
    if instance.source is not None:
        yield f"{'unicast' if instance.peers else 'mcast'}_src_ip {instance.source}"
    if instance.multicast_group is not None:
        yield f"mcast_dst_ip {instance.multicast_group}"
    if instance.peers:
        yield from block("unicast_peer", (peer_line(peer, instance.ttl_limits) for peer in instance.peers))
    if instance.unicast_ttl != _LONGEST_TTL:
        yield f"unicast_ttl {instance.unicast_ttl}"
    yield from switches(
        ("unicast_fault_no_peer", instance.unicast_fault_no_peer),
        ("check_unicast_src", instance.check_unicast_src),
    )
    yield from boolean("v3_checksum_as_v2", instance.checksum_as_v2, default=False)
    if instance.old_unicast_checksum != "auto":
        yield "old_unicast_checksum" + (" never" if instance.old_unicast_checksum == "never" else "")


def _virtual_mac(mac: VirtualMac) -> Iterator[str]:
    words = ["use_ipvlan" if mac.ipvlan else "use_vmac", word(mac.interface)]
    if looks_like_option(mac.interface, ipvlan=bool(mac.ipvlan)):
        # keepalived 2.2.7 does not know the word: it would be the name.
        words.insert(1, "name")
    if mac.ipvlan:
        words += [each for each in (mac.ipvlan_address, mac.ipvlan) if each]
    elif not mac.mac.startswith(_RFC_PREFIXES):
        words.append(mac.mac)
    if mac.group:
        words += ["group", str(mac.group)]
    yield " ".join(words)
    yield from switches(("vmac_xmit_base", mac.xmit_base))


_RFC_PREFIXES = ("00:00:5e:00:01:", "00:00:5e:00:02:")


def _vips(name: str, vips: tuple[Vip, ...], bases: dict[str, str]) -> Iterator[str]:
    if vips:
        yield from block(name, (vip_line(each, bases) for each in vips))


def _garp(garp: GarpConfig) -> Iterator[str]:
    yield f"garp_master_repeat {garp.master_repeat}"
    yield f"garp_master_delay {garp.master_delay_us // SECOND_US}"
    yield f"garp_master_refresh {garp.master_refresh_us // SECOND_US}"
    yield f"garp_master_refresh_repeat {garp.master_refresh_repeat}"
    yield f"garp_lower_prio_repeat {garp.lower_prio_repeat}"
    yield f"garp_lower_prio_delay {garp.lower_prio_delay_us // SECOND_US}"
    if garp.extra_if_us:
        yield f"garp_extra_if {'all ' if garp.extra_if_all else ''}{garp.extra_if_us // SECOND_US}"
