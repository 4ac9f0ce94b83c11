"""How an instance speaks: family, version, addresses of its adverts, peers, checksums."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from haxlb.config.defaults import MULTICAST_GROUPS, Defaults
from haxlb.config.vips import lines_of
from haxlb.model.addresses import IPAddress, TtlLimits
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.section import Entry, Section
from keepalived_compat.values_addresses import PeerLine, read_peers

V3 = 3
INET6 = 6
_SOURCES = ("unicast_src_ip", "mcast_src_ip")
_ADDRESSES = (*_SOURCES, "mcast_dst_ip")
_BLOCKS = ("unicast_peer", "virtual_ipaddress")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """Fields of the instance of the same names."""

    family: int
    version: int
    source: IPAddress | None
    peers: tuple[IPAddress, ...]
    multicast_group: IPAddress | None
    ttl_limits: tuple[TtlLimits, ...]
    unicast_ttl: int
    check_unicast_src: bool
    unicast_fault_no_peer: bool
    checksum_as_v2: bool
    old_unicast_checksum: str
    track_source: bool

    @property
    def unicast(self) -> bool:
        """Its adverts go to peers."""
        return bool(self.peers) or self.unicast_fault_no_peer


def read_wire(section: Section, name: str, defaults: Defaults, complaints: Complaints, *, strict: bool) -> Wire:
    """All of it; addresses of another family than the first are complained of and left out, as in keepalived."""
    return _Reader(section, name, defaults, complaints).read(strict=strict)


def family_of(section: Section) -> int:
    """4 or 6: that of the first address in the block, or what `native_ipv6` says; 4 where nothing does."""
    for entry in section.entries:
        keyword = entry.keyword.name
        if keyword in _ADDRESSES:
            return int(entry.value.version)
        if keyword == "native_ipv6":
            return INET6
        if keyword in _BLOCKS and entry.section is not None:
            for line in entry.section.lines:
                try:
                    return ip_address(line[0].text.partition("/")[0]).version
                except ValueError:
                    continue
    return 4


class _Reader:
    def __init__(self, section: Section, name: str, defaults: Defaults, complaints: Complaints) -> None:
        self._section = section
        self._name = name
        self._defaults = defaults
        self._complaints = complaints
        self._family = family_of(section)

    def read(self, *, strict: bool) -> Wire:
        section = self._section
        version = self._version(strict=strict)
        source = self._source()
        lines = self._lines()
        peers = self._peers(lines, source)
        fault = section.has("unicast_fault_no_peer")
        unicast = bool(peers) or fault
        asked = section.entry("unicast_src_ip")
        if asked is not None and not unicast:
            self._complaints.warning(
                "no-peers", asked.span, f"{self._name}: unicast_src_ip without unicast_peer: it uses multicast"
            )
        limits = tuple(
            TtlLimits(peer=each.address, lowest=each.min_ttl, highest=each.max_ttl)
            for each in lines
            if each.address in peers and (each.min_ttl, each.max_ttl) != (None, None)
        )
        return Wire(
            family=self._family,
            version=version,
            source=source,
            peers=peers,
            multicast_group=self._group(unicast=unicast),
            ttl_limits=limits,
            unicast_ttl=self._ttl(unicast=unicast),
            check_unicast_src=self._checked(limits, unicast=unicast),
            unicast_fault_no_peer=fault,
            checksum_as_v2=section.value("v3_checksum_as_v2", self._defaults.checksum_as_v2),
            old_unicast_checksum=self._old_checksum(),
            track_source=self._track_source(source),
        )

    def _version(self, *, strict: bool) -> int:
        entry = self._section.entry("version")
        if self._family != INET6:
            return int(entry.value) if entry is not None else self._defaults.version
        if entry is None or int(entry.value) == V3:
            return V3
        if not strict and not self._section.has("native_ipv6"):
            return int(entry.value)
        why = "vrrp_strict" if strict else "native_ipv6"
        self._complaints.warning(
            "strict-conflict",
            entry.argument_span,
            f"{self._name}: IPv6 with {why} is version 3, as in keepalived: RFC 3768 knows IPv4 only",
            "write `version 3`, on both directors",
        )
        return V3

    def _fits(self, address: IPAddress) -> bool:
        return address.version == self._family

    def _foreign(self, entry: Entry, what: str) -> None:
        self._complaints.error(
            "mixed-family",
            entry.argument_span,
            f"{self._name} speaks IPv{self._family}, as its first address says: {what} is not used, as in keepalived",
            "an instance has one family; virtual_ipaddress_excluded takes VIPs of both",
        )

    def _source(self) -> IPAddress | None:
        found: IPAddress | None = None
        for name in reversed(_SOURCES):
            entry = self._section.entry(name)
            if entry is None:
                continue
            if self._fits(entry.value):
                found = entry.value
            else:
                self._foreign(entry, f"{name} {entry.value}")
        return found

    def _group(self, *, unicast: bool) -> IPAddress | None:
        default = MULTICAST_GROUPS[self._family]
        entry = self._section.entry("mcast_dst_ip")
        wanted = self._defaults.multicast_groups.get(self._family, default)
        if entry is not None:
            if not self._fits(entry.value):
                self._foreign(entry, f"mcast_dst_ip {entry.value}")
            elif not entry.value.is_multicast or not _link_local_group(entry.value):
                self._complaints.error(
                    "bad-value",
                    entry.argument_span,
                    f"mcast_dst_ip: {entry.value} is no multicast group of a link; {wanted} is used",
                    "ff02::… for IPv6" if self._family == INET6 else "224.0.0.0 to 239.255.255.255",
                )
            elif unicast:
                self._complaints.warning(
                    "useless-option", entry.words[0], f"{self._name}: mcast_dst_ip is ignored with unicast_peer"
                )
            else:
                wanted = entry.value
        return None if unicast or wanted == default else wanted

    def _lines(self) -> tuple[PeerLine, ...]:
        """The lines of `unicast_peer`; of an address that stands twice the first."""
        found: dict[IPAddress, PeerLine] = {}
        for line in read_peers(lines_of(self._section, "unicast_peer"), self._complaints):
            first = found.setdefault(line.address, line)
            if first is not line:
                self._complaints.warning(
                    "given-twice",
                    line.word,
                    f"unicast_peer: {line.address} stands twice; the first line counts",
                    f"the first stands at {first.word.span}; keep one",
                )
        return tuple(found.values())

    def _peers(self, lines: tuple[PeerLine, ...], source: IPAddress | None) -> tuple[IPAddress, ...]:
        peers = []
        for line in lines:
            if not self._fits(line.address):
                self._complaints.error(
                    "mixed-family",
                    line.word,
                    f"{self._name} speaks IPv{self._family}, as its first address says:"
                    f" the peer {line.address} is not used, as in keepalived",
                    "an instance has one family",
                )
            elif line.address == source:
                self._complaints.warning(
                    "self-peer",
                    line.word,
                    f"{self._name}: {line.address} is its own unicast_src_ip; it is no peer",
                    "delete it",
                )
            else:
                peers.append(line.address)
        return tuple(peers)

    def _ttl(self, *, unicast: bool) -> int:
        entry = self._section.entry("unicast_ttl")
        if entry is None:
            return 255
        if not unicast:
            self._complaints.warning(
                "useless-option", entry.words[0], f"{self._name}: unicast_ttl without unicast_peer is ignored"
            )
            return 255
        if entry.value == 0:
            self._complaints.warning(
                "inexact-value", entry.argument_span, "unicast_ttl 0 is taken as 255: nothing arrives with TTL 0"
            )
        return int(entry.value) or 255

    def _checked(self, limits: tuple[TtlLimits, ...], *, unicast: bool) -> bool:
        if not unicast:
            entry = self._section.entry("check_unicast_src")
            if entry is not None:
                self._complaints.warning(
                    "useless-option", entry.words[0], f"{self._name}: check_unicast_src without unicast_peer is ignored"
                )
            return False
        return self._section.has("check_unicast_src") or self._defaults.check_unicast_src or bool(limits)

    def _old_checksum(self) -> str:
        entry = self._section.entry("old_unicast_checksum")
        if entry is None:
            return "auto"
        if entry.value is None:
            return "always"
        if entry.value != "never":
            self._complaints.error(
                "bad-value",
                entry.argument_span,
                f"old_unicast_checksum: `{entry.value}` is not known; it is found out from the peer",
                "`never`, or nothing for always",
            )
            return "auto"
        return "never"

    def _track_source(self, source: IPAddress | None) -> bool:
        entry = self._section.entry("track_src_ip")
        if entry is not None and source is None:
            self._complaints.warning(
                "useless-option",
                entry.words[0],
                f"{self._name}: track_src_ip without unicast_src_ip or mcast_src_ip is ignored, as in keepalived",
                "name the source",
            )
        return entry is not None and source is not None


def _link_local_group(group: IPAddress) -> bool:
    """Of IPv6 the scope must be the link (RFC 4291 section 2.7); keepalived takes every group of IPv4."""
    return not isinstance(group, IPv6Address) or group.packed[1] & 0x0F == 2  # noqa: PLR2004 - link-local scope
