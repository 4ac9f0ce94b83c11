"""`vrrp_instance` blocks to values, with the defaults of `global_defs`."""

from __future__ import annotations

from dataclasses import dataclass, replace

from haxlb.config.address_macs import AddressMacs
from haxlb.config.authentication import Authentication, read_authentication
from haxlb.config.commands import notify_scripts
from haxlb.config.defaults import Defaults, at_least_one, extra_interfaces
from haxlb.config.instance_mac import MacNames, read_virtual_mac
from haxlb.config.instance_role import Standing, advert_interval, read_standing
from haxlb.config.instance_vips import InstanceVips, read_instance_vips
from haxlb.config.instance_wire import Wire, read_wire
from haxlb.config.routes import routes_of, rules_of
from haxlb.config.tracking import PlacedTrack
from haxlb.config.vips import PlacedVip
from haxlb.model.instance import GarpConfig, VirtualMac, VrrpInstance
from haxlb.model.units import SECOND_US
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.section import Entry, Section
from keepalived_compat.source import Span

_LONGEST_INTERFACE = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedInstance:
    """An instance with the places that cross-checks point at."""

    instance: VrrpInstance
    name: Span
    interface: Span
    vrid: Span
    priority: Span
    vips: tuple[PlacedVip, ...]
    excluded: tuple[PlacedVip, ...]
    section: Section
    """What its block says."""
    keyword: Span
    """Where its block begins."""
    tracks: tuple[PlacedTrack, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What has been read of a block."""

    wire: Wire
    standing: Standing
    authentication: Authentication
    mac: VirtualMac | None
    address_macs: tuple[VirtualMac, ...]
    vips: InstanceVips
    strict: bool
    vrf: str


class InstanceReader:
    """Reads one `vrrp_instance` block."""

    def __init__(
        self,
        entry: Entry,
        defaults: Defaults,
        complaints: Complaints,
        *,
        tracks: tuple[PlacedTrack, ...] = (),
        macs: MacNames,
    ) -> None:
        self._entry = entry
        self._tracks = tracks
        self._macs = macs
        self._section = entry.section if entry.section is not None else Section("vrrp_instance")
        self._defaults = defaults
        self._complaints = complaints
        self._name = str(entry.value)

    def read(self) -> PlacedInstance | None:
        """The instance; None when it cannot be used, which has been complained of."""
        section, complaints, name = self._section, self._complaints, self._name
        strict = bool(section.value("strict_mode", self._defaults.strict))
        wire = read_wire(section, name, self._defaults, complaints, strict=strict)
        vrf = self._vrf(unicast=wire.unicast)
        interface = self._name_of("vrf", vrf) if vrf else self._interface()
        vrid = self._vrid()
        authentication = read_authentication(
            section, instance=name, version=wire.version, family=wire.family, strict=strict, complaints=complaints
        )
        # All of it is read even where a part makes it unusable: every complaint at once.
        standing = read_standing(
            section, name, self._defaults, complaints, block=self._entry, version=wire.version, strict=strict
        )
        if strict and wire.unicast:
            complaints.fatal(
                "strict-conflict",
                self._place("unicast_peer"),
                f"{name} has unicast_peer, which RFC 9568 does not know: keepalived does not start with this and"
                " vrrp_strict",
                "delete vrrp_strict, or use multicast",
            )
        mac = read_virtual_mac(
            section,
            instance=name,
            family=wire.family,
            vrid=vrid or 0,
            names=self._macs,
            unicast=wire.unicast,
            strict=strict,
            complaints=complaints,
        )
        vips = read_instance_vips(self._entry, section, name, wire, complaints, base=interface or "", strict=strict)
        homes = AddressMacs(
            instance=name,
            base=interface or "",
            vrid=vrid or 0,
            family=wire.family,
            own=mac,
            everywhere=section.has("use_vmac_addr"),
            names=self._macs,
            complaints=complaints,
        )
        vips = InstanceVips(
            advertised=tuple(map(homes.place, vips.advertised)), excluded=tuple(map(homes.place, vips.excluded))
        )
        instance = self._instance(
            interface or "",
            vrid or 0,
            _Parts(
                wire=wire,
                standing=standing,
                authentication=authentication,
                mac=mac,
                address_macs=homes.made,
                vips=vips,
                strict=strict,
                vrf=vrf,
            ),
        )
        if not authentication.usable or interface is None or vrid is None:
            return None
        return PlacedInstance(
            instance=instance,
            name=self._entry.argument_span,
            interface=self._place("vrf" if vrf else "interface"),
            vrid=self._place("virtual_router_id"),
            priority=self._place("priority"),
            vips=vips.advertised,
            excluded=vips.excluded,
            section=section,
            keyword=self._entry.words[0].span,
            tracks=self._tracks,
        )

    def _instance(self, interface: str, vrid: int, parts: _Parts) -> VrrpInstance:
        wire, standing, authentication, vips = parts.wire, parts.standing, parts.authentication, parts.vips
        section, complaints = self._section, self._complaints
        return VrrpInstance(
            name=self._name,
            interface=interface,
            vrid=vrid,
            priority=standing.priority,
            initial_role=standing.initial_role,
            version=wire.version,
            advert_interval_us=advert_interval(section, self._name, wire.version, complaints),
            nopreempt=standing.nopreempt,
            preempt_delay_us=standing.preempt_delay_us,
            auth_pass=authentication.password,
            auth_ah=authentication.header,
            family=wire.family,
            source=wire.source,
            peers=wire.peers,
            multicast_group=wire.multicast_group,
            vips=tuple(vip for vip, _ in vips.advertised),
            excluded_vips=tuple(vip for vip, _ in vips.excluded),
            routes=routes_of(section, "virtual", complaints),
            rules=rules_of(section, "virtual", complaints),
            garp=self._garp(interface, strict=parts.strict),
            notify=notify_scripts(section),
            notify_priority_changes=section.value("notify_priority_changes", self._defaults.priority_changes),
            smtp_alert=section.value("smtp_alert", self._defaults.smtp_alert),
            tracks=tuple(each.track for each in self._tracks),
            ttl_limits=wire.ttl_limits,
            unicast_ttl=wire.unicast_ttl,
            check_unicast_src=wire.check_unicast_src,
            unicast_fault_no_peer=wire.unicast_fault_no_peer,
            checksum_as_v2=wire.checksum_as_v2,
            old_unicast_checksum=wire.old_unicast_checksum,
            down_timer_adverts=standing.down_timer_adverts,
            accept=standing.accept,
            strict=parts.strict,
            lower_prio_no_advert=standing.lower_prio_no_advert,
            higher_prio_send_advert=standing.higher_prio_send_advert,
            owner_ignore_adverts=standing.owner_ignore_adverts,
            track_primary=not section.has("dont_track_primary"),
            track_source=wire.track_source,
            promote_secondaries=self._promote(parts.mac),
            virtual_mac=parts.mac,
            address_macs=parts.address_macs,
            vrf=parts.vrf,
        )

    def _promote(self, mac: VirtualMac | None) -> bool:
        entry = self._section.entry("promote_secondaries")
        if entry is not None and mac is not None:
            self._complaints.warning(
                "useless-option",
                entry.words[0],
                f"{self._name}: promote_secondaries with {'use_ipvlan' if mac.ipvlan else 'use_vmac'} is ignored,"
                " as in keepalived",
            )
        return entry is not None and mac is None

    def _place(self, name: str) -> Span:
        found = self._section.entry(name)
        return found.argument_span if found else self._entry.argument_span

    def _vrf(self, *, unicast: bool) -> str:
        """The VRF whose sockets it uses, in the place of an interface; empty = none."""
        entry = self._section.entry("vrf")
        if entry is None:
            return ""
        beside = self._section.has("interface") or "interface" in self._section.refused
        if beside or not unicast:
            why = "beside `interface`" if beside else "without unicast_peer"
            self._complaints.warning(
                "useless-option", entry.words[0], f"{self._name}: vrf {why} is ignored, as in keepalived"
            )
            return ""
        return str(entry.value)

    def _interface(self) -> str | None:
        found = self._section.value("interface")
        if found is None:
            if "interface" not in self._section.refused:
                self._complaints.fatal(
                    "missing-keyword",
                    self._entry.argument_span,
                    f"{self._name} names no interface",
                    "add `interface eth0`: where its adverts and VIPs go",
                )
            return None
        return self._name_of("interface", str(found))

    def _name_of(self, keyword: str, name: str) -> str | None:
        if len(name.encode()) <= _LONGEST_INTERFACE:
            return name
        self._complaints.fatal(
            "bad-value",
            self._place(keyword),
            f"{keyword}: `{name}` is longer than {_LONGEST_INTERFACE} characters",
            "no interface can have this name; `ip link` lists those that exist",
        )
        return None

    def _vrid(self) -> int | None:
        found = self._section.value("virtual_router_id")
        if found is None and "virtual_router_id" not in self._section.refused:
            self._complaints.fatal(
                "missing-keyword",
                self._entry.argument_span,
                f"{self._name} has no virtual_router_id",
                "add `virtual_router_id N`, 1 to 255: the same on both directors, and nobody else's on the network",
            )
        return None if found is None else int(found)

    def _garp(self, interface: str, *, strict: bool) -> GarpConfig:
        section, complaints = self._section, self._complaints
        given = self._defaults.garp_groups.get(interface, self._defaults.garp)
        delay = section.entry("garp_master_delay")
        repeat = at_least_one(section.entry("garp_master_repeat"), given.master_repeat, complaints)
        refresh_repeat = section.entry("garp_master_refresh_repeat")
        period, everywhere = extra_interfaces(
            section.entry("garp_extra_if"), (given.extra_if_us, given.extra_if_all), complaints
        )

        def scaled(name: str, default: int) -> int:
            found = section.value(name)
            return default if found is None else int(found) * SECOND_US

        garp = replace(
            given,
            master_repeat=repeat,
            master_delay_us=int(delay.value) * SECOND_US if delay else given.master_delay_us,
            master_refresh_us=scaled("garp_master_refresh", given.master_refresh_us),
            master_refresh_repeat=at_least_one(refresh_repeat, given.master_refresh_repeat, complaints),
            lower_prio_repeat=int(section.value("garp_lower_prio_repeat", given.lower_prio_repeat)),
            lower_prio_delay_us=scaled("garp_lower_prio_delay", given.lower_prio_delay_us),
            extra_if_us=period,
            extra_if_all=everywhere,
        )
        # keepalived answers no advert of lower priority under vrrp_strict, so it announces nothing either.
        return replace(garp, lower_prio_repeat=0, lower_prio_delay_us=0) if strict else garp
