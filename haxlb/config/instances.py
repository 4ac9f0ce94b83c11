"""`vrrp_instance` blocks to values, with the defaults of `global_defs`."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

from haxlb.config.authentication import read_authentication
from haxlb.config.defaults import DOWN_TIMER_ADVERTS, MULTICAST_GROUP, Defaults, at_least_one
from haxlb.config.planned import Planned
from haxlb.config.tracking import PlacedTrack
from haxlb.config.vips import read_vips
from haxlb.model.addresses import Vip
from haxlb.model.commands import Command
from haxlb.model.node import SECOND_US, GarpConfig, Role, VrrpInstance
from haxlb.model.notification import NotifyScripts
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.judgement import Entry, Section
from keepalived_compat.source import Span, Word

_OWNER = 255
_V3 = 3
_LONGEST_INTERFACE = 15
_MOST_VIPS = 255
"""Count IPvX Addr is one byte (RFC 9568 section 5.2.5)."""
_V3_LONGEST_ADVERT_US = 40_950_000
"""Twelve bits of centiseconds (RFC 9568 section 5.2.7)."""
_CENTISECOND_US = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedInstance:
    """An instance with the places that cross-checks point at."""

    instance: VrrpInstance
    name: Span
    interface: Span
    vrid: Span
    priority: Span
    vips: tuple[tuple[Vip, Span], ...]
    section: Section
    """What its block says."""
    keyword: Span
    """Where its block begins."""
    tracks: tuple[PlacedTrack, ...] = ()


class InstanceReader:
    """Reads one `vrrp_instance` block."""

    def __init__(
        self,
        entry: Entry,
        defaults: Defaults,
        complaints: Complaints,
        *,
        tracks: tuple[PlacedTrack, ...] = (),
        planned: Planned | None = None,
    ) -> None:
        self._entry = entry
        self._tracks = tracks
        self._planned = planned or Planned()
        self._section = entry.section if entry.section is not None else Section("vrrp_instance")
        self._defaults = defaults
        self._complaints = complaints
        self._name = str(entry.value)

    def read(self) -> PlacedInstance | None:
        """The instance; None when it cannot be used, which has been complained of."""
        section = self._section
        interface, vrid = self._interface(), self._vrid()
        version = self._version()
        authentication = read_authentication(
            section,
            instance=self._name,
            version=version,
            complaints=self._complaints,
        )
        usable = self._reachable() and authentication.usable and interface is not None and vrid is not None
        if not self._family():
            return None
        # All of it is read even where a part makes it unusable: every complaint at once.
        interface = interface or ""
        self._complain_of_tracking(interface)
        state = self._state()
        priority = self._priority(state)
        nopreempt, delay = self._preemption(state, priority)
        vips = self._vips(interface, version)
        source = self._source()
        peers = self._peers(source)
        unicast = section.entry("unicast_src_ip")
        if unicast is not None and not peers:
            self._complaints.warning(
                "no-peers", unicast.span, f"{self._name}: unicast_src_ip without unicast_peer: it uses multicast"
            )
        interval, garp, notify = self._advert_interval(version), self._garp(), self._notify()
        if not usable:
            return None
        instance = VrrpInstance(
            name=self._name,
            interface=interface,
            vrid=vrid or 0,
            priority=priority,
            initial_role=Role.MASTER if state == "MASTER" or (state is None and priority == _OWNER) else Role.BACKUP,
            version=version,
            advert_interval_us=interval,
            nopreempt=nopreempt,
            preempt_delay_us=delay,
            auth_pass=authentication.password,
            source=source,
            peers=peers,
            vips=tuple(vip for vip, _ in vips),
            garp=garp,
            notify=notify,
            tracks=tuple(each.track for each in self._tracks),
            excluded_vips=self._planned.excluded,
            routes=self._planned.routes,
            rules=self._planned.rules,
            ttl_limits=tuple(each for each in self._planned.ttl_limits if each.peer in peers),
            vip_options=self._planned.options_of(vips),
            ipv6_vips=self._planned.ipv6,
            excluded_ipv6_vips=self._planned.excluded_ipv6,
        )
        return PlacedInstance(
            instance=instance,
            name=self._entry.argument_span,
            interface=self._place("interface"),
            vrid=self._place("virtual_router_id"),
            priority=self._place("priority"),
            vips=tuple((vip, word.span) for vip, word in vips),
            section=section,
            keyword=self._entry.words[0].span,
            tracks=self._tracks,
        )

    def _complain_of_tracking(self, own: str) -> None:
        for block in self._section.all("track_interface"):
            for line in block.section.lines if block.section else ():
                if line[0].text != own:
                    self._complaints.error(
                        "not-supported-yet",
                        line[0],
                        f"tracking another interface is not supported yet: the loss of {line[0].text} changes nothing",
                    )

    def _state(self) -> str | None:
        found = self._section.entry("state")
        if found is None or found.value != "SLAVE":
            return None if found is None else str(found.value)
        self._complaints.warning(
            "old-spelling", found.argument_span, f"{self._name}: state SLAVE is taken as BACKUP", "write BACKUP"
        )
        return "BACKUP"

    def _place(self, name: str) -> Span:
        found = self._section.entry(name)
        return found.argument_span if found else self._entry.argument_span

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
        if len(found.encode()) > _LONGEST_INTERFACE:
            self._complaints.fatal(
                "bad-value",
                self._place("interface"),
                f"interface: `{found}` is longer than {_LONGEST_INTERFACE} characters",
                "no interface can have this name; `ip link` lists those that exist",
            )
            return None
        return str(found)

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

    def _version(self) -> int:
        return int(self._section.value("version", self._defaults.version))

    def _family(self) -> bool:
        """Whether the instance is an IPv4 one; IPv6 is not supported yet."""
        for name in ("unicast_src_ip", "mcast_src_ip"):
            found = self._section.entry(name)
            if found is not None and isinstance(found.value, IPv6Address):
                self._complaints.error(
                    "not-supported-yet", found.argument_span, f"IPv6 is not supported yet: {self._name} is left out"
                )
                return False
        if "native_ipv6" in self._section.refused:
            return False
        lines = [
            line[0].text
            for each in self._section.all("virtual_ipaddress")
            if each.section
            for line in each.section.lines
        ]
        if lines and all(":" in each for each in lines):
            self._complaints.error(
                "not-supported-yet",
                self._entry.argument_span,
                f"IPv6 is not supported yet: {self._name} has only IPv6 addresses and is left out",
            )
            return False
        return True

    def _reachable(self) -> bool:
        """Whether its peers will hear it; and whether it counts their adverts as it is told to."""
        entry = self._section.entry("down_timer_adverts")
        adverts = entry.value if entry else self._defaults.down_timer_adverts
        if adverts != DOWN_TIMER_ADVERTS:
            where = entry.argument_span if entry else self._entry.argument_span
            self._complaints.error(
                "not-supported-yet",
                where,
                f"down_timer_adverts {adverts} is not supported yet: 3 is used, as RFC 9568 has it",
            )
        group = self._section.entry("mcast_dst_ip")
        wanted = str(group.value) if group else self._defaults.multicast_group
        if wanted != MULTICAST_GROUP and not self._section.has("unicast_peer"):
            where = group.argument_span if group else self._entry.argument_span
            self._complaints.error(
                "not-supported-yet",
                where,
                f"a multicast group other than {MULTICAST_GROUP} is not supported yet: {self._name} is left out",
            )
            return False
        return True

    def _priority(self, state: str | None) -> int:
        found = self._section.entry("priority")
        if found is not None:
            return int(found.value)
        if state == "MASTER" and "priority" not in self._section.refused:
            self._complaints.warning(
                "owner-by-default",
                self._place("state"),
                f"{self._name}: `state MASTER` without priority means priority 255, as in keepalived",
                "name a priority below 255, different on each director",
            )
            return _OWNER
        return 100

    def _preemption(self, state: str | None, priority: int) -> tuple[bool, int]:
        switches = [each for each in self._section.entries if each.keyword.name in ("preempt", "nopreempt")]
        nopreempt = bool(switches) and switches[-1].keyword.name == "nopreempt"
        if nopreempt and (state == "MASTER" or priority == _OWNER):
            why = "`state MASTER`" if state == "MASTER" else "priority 255"
            self._complaints.warning(
                "useless-nopreempt",
                switches[-1].span,
                f"{self._name}: nopreempt does not work with {why} and is switched off, as in keepalived",
                "write `state BACKUP` on both directors",
            )
            nopreempt = False
        delay = self._section.entry("preempt_delay")
        if delay is None:
            return nopreempt, 0
        if delay.value and (nopreempt or state == "MASTER"):
            why = "nopreempt" if nopreempt else "`state MASTER`"
            self._complaints.warning(
                "useless-preempt-delay",
                delay.span,
                f"{self._name}: preempt_delay does not work with {why} and is 0, as in keepalived",
            )
            return nopreempt, 0
        return nopreempt, int(delay.value)

    def _advert_interval(self, version: int) -> int:
        found = self._section.entry("advert_int")
        if found is None:
            return SECOND_US
        wanted = int(found.value)
        if version == _V3:
            taken = min((wanted + _CENTISECOND_US // 2) // _CENTISECOND_US * _CENTISECOND_US, _V3_LONGEST_ADVERT_US)
            limit = "VRRPv3 counts hundredths of a second, up to 40.95"
        else:
            taken = max((wanted + SECOND_US // 2) // SECOND_US, 1) * SECOND_US
            limit = "VRRPv2 counts whole seconds"
        if taken != wanted:
            self._complaints.warning(
                "rounded-interval",
                found.argument_span,
                f"{self._name}: advert_int {wanted / SECOND_US:g} is taken as {taken / SECOND_US:g}: {limit}",
                "write what is meant, the same on both directors"
                + ("" if version == _V3 else ", or `version 3` on both"),
            )
        return taken

    def _source(self) -> IPv4Address | None:
        found = self._section.value("unicast_src_ip") or self._section.value("mcast_src_ip")
        return found if isinstance(found, IPv4Address) else None

    def _peers(self, source: IPv4Address | None) -> tuple[IPv4Address, ...]:
        peers: list[IPv4Address] = []
        for block in self._section.all("unicast_peer"):
            for line in block.section.lines if block.section else ():
                peer = self._peer(line)
                if peer is not None and peer == source:
                    self._complaints.warning(
                        "self-peer",
                        line[0],
                        f"{self._name}: {peer} is its own unicast_src_ip; it is no peer",
                        "delete it",
                    )
                elif peer is not None and peer not in peers:
                    peers.append(peer)
        return tuple(peers)

    def _peer(self, line: list[Word]) -> IPv4Address | None:
        try:
            address = ip_address(line[0].text)
        except ValueError:
            self._complaints.error(
                "bad-value", line[0], f"unicast_peer: `{line[0].text}` is not an IP address; it is not used"
            )
            return None
        if isinstance(address, IPv6Address):
            self._complaints.error(
                "not-supported-yet", line[0], f"IPv6 is not supported yet: the peer {address} is not used"
            )
            return None
        for word in line[1::2]:
            if word.text in ("min_ttl", "max_ttl"):
                self._complaints.warning(
                    "not-supported-yet", word, f"`{word.text}` is not supported yet: every TTL is taken"
                )
            else:
                self._complaints.error(
                    "surplus-words", word, f"`{word.text}` after a peer's address is not read", "one peer a line"
                )
        return address

    def _vips(self, interface: str, version: int) -> list[tuple[Vip, Word]]:
        lines = [line for each in self._section.all("virtual_ipaddress") if each.section for line in each.section.lines]
        found = read_vips(lines, interface=interface, complaints=self._complaints)
        unique: dict[IPv4Address, tuple[Vip, Word]] = {}
        for vip, word in found:
            first = unique.setdefault(vip.address, (vip, word))
            if first[1] is not word:
                self._complaints.warning(
                    "duplicate-vip",
                    word,
                    f"{vip.address} stands twice in {self._name}; it is taken once",
                    f"the first stands at {first[1].span}; delete one",
                )
        if len(unique) > _MOST_VIPS:
            self._complaints.fatal(
                "too-many-vips",
                self._entry.argument_span,
                f"{self._name} has {len(unique)} addresses; an advert has room for {_MOST_VIPS}",
                "share them out among several instances",
            )
        # Of lines that cannot be used each was complained of; in version 3 keepalived refuses the instance as well.
        bare = not lines and "virtual_ipaddress_excluded" not in self._section.refused
        if bare or (version == _V3 and not unique):
            complain = self._complaints.fatal if version == _V3 else self._complaints.warning
            complain(
                "no-vip",
                self._entry.argument_span,
                f"{self._name} has no virtual_ipaddress: a master without one serves nothing",
                "add `virtual_ipaddress { ADDRESS/PREFIX }`",
            )
        return list(unique.values())

    def _garp(self) -> GarpConfig:
        section, given = self._section, self._defaults.garp
        delay = section.entry("garp_master_delay")
        repeat = at_least_one(section.entry("garp_master_repeat"), given.master_repeat, self._complaints)
        refresh_repeat = section.entry("garp_master_refresh_repeat")

        def scaled(name: str, default: int) -> int:
            found = section.value(name)
            return default if found is None else int(found) * SECOND_US

        return GarpConfig(
            master_repeat=repeat,
            master_delay_us=int(delay.value) * SECOND_US if delay else given.master_delay_us,
            master_refresh_us=scaled("garp_master_refresh", given.master_refresh_us),
            master_refresh_repeat=at_least_one(refresh_repeat, given.master_refresh_repeat, self._complaints),
            lower_prio_repeat=int(section.value("garp_lower_prio_repeat", given.lower_prio_repeat)),
            lower_prio_delay_us=scaled("garp_lower_prio_delay", given.lower_prio_delay_us),
            interval_us=given.interval_us,
        )

    def _notify(self) -> NotifyScripts:
        def command(name: str) -> Command:
            return Command(argv=self._section.value(name, ()))

        return NotifyScripts(
            master=command("notify_master"),
            backup=command("notify_backup"),
            fault=command("notify_fault"),
            stop=command("notify_stop"),
            any=command("notify"),
        )
