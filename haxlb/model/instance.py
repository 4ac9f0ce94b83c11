"""VRRP instances of the configuration, defaults applied."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from haxlb.model.addresses import IPAddress, TtlLimits, Vip
from haxlb.model.notification import NotifyScripts
from haxlb.model.routes import Route, Rule
from haxlb.model.tracking import Track
from haxlb.model.units import SECOND_US


class Role(Enum):
    """States of a VRRP instance (RFC 9568 section 6.4; FAULT is keepalived's)."""

    INIT = "INIT"
    BACKUP = "BACKUP"
    MASTER = "MASTER"
    FAULT = "FAULT"


@dataclass(frozen=True, slots=True, kw_only=True)
class GarpConfig:
    """Gratuitous ARP: how often, how many (keepalived `garp_*`)."""

    master_repeat: int = 5
    """Rounds sent at once on entering MASTER."""
    master_delay_us: int = 5 * SECOND_US
    """The second set follows after this; 0 = no second set."""
    master_refresh_us: int = 0
    """Period of refresh rounds while MASTER; 0 = off."""
    master_refresh_repeat: int = 1
    lower_prio_repeat: int = 5
    """Rounds sent when an advert of lower priority is heard while MASTER."""
    lower_prio_delay_us: int = 5 * SECOND_US
    interval_us: int = 0
    """Pause between two gratuitous ARP frames on one interface."""
    gna_interval_us: int = 0
    """Pause between two unsolicited neighbour advertisements on one interface."""
    group: str = ""
    """Interfaces of one `garp_group` share the pause; empty = the interface has its own."""
    extra_if_us: int = 0
    """garp_extra_if: period of announcements from virtual MACs whose interface carries no adverts; 0 = off."""
    extra_if_all: bool = False
    """Of all virtual MACs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualMac:
    """`use_vmac`: the VIPs live on a macvlan of their own that has the virtual router's MAC (RFC 9568 section 7.3)."""

    interface: str
    """Name of the macvlan."""
    mac: str
    """00:00:5e:00:01:VRID, for IPv6 00:00:5e:00:02:VRID, unless another is configured."""
    xmit_base: bool = False
    """Adverts are sent from the instance's interface, not from the macvlan."""
    group: int = 0
    """rtnetlink link group."""
    ipvlan: str = ""
    """bridge, private or vepa: an ipvlan instead of a macvlan; it has the MAC of its base."""
    ipvlan_address: str = ""
    """ADDRESS/PREFIX of the ipvlan itself."""
    base: str = ""
    """The interface that it is made on; empty = the instance's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VrrpInstance:
    """One `vrrp_instance` block with defaults applied."""

    name: str
    interface: str
    vrid: int
    """virtual_router_id, 1 to 255; identifies the instance together with the interface."""
    priority: int = 100
    """1 to 254, 255 = address owner."""
    initial_role: Role = Role.BACKUP
    """`state`: a hint for start-up only."""
    version: int = 2
    """VRRP version, 2 (RFC 3768) or 3 (RFC 9568)."""
    advert_interval_us: int = SECOND_US
    nopreempt: bool = False
    preempt_delay_us: int = 0
    auth_pass: str | None = field(default=None, repr=False)
    """Key of PASS or AH authentication, version 2 only, at most 8 bytes; a secret: never logged or shown."""
    auth_ah: bool = False
    """auth_pass is the key of an IPsec authentication header (RFC 2338 section 5.3.6.3), not a password."""
    family: int = 4
    """4 or 6: of the adverts, and of the addresses in them."""
    source: IPAddress | None = None
    """unicast_src_ip or mcast_src_ip; None = the interface's primary address (IPv6: its link-local one)."""
    peers: tuple[IPAddress, ...] = ()
    """unicast_peer; empty = multicast."""
    multicast_group: IPAddress | None = None
    """mcast_dst_ip, vrrp_mcast_group4 or 6; None = 224.0.0.18 or ff02::12."""
    vips: tuple[Vip, ...] = ()
    """All of the instance's family: its adverts name them, in this order."""
    excluded_vips: tuple[Vip, ...] = ()
    """Addresses of either family that follow the master and are not in its adverts."""
    routes: tuple[Route, ...] = ()
    """virtual_routes: they follow the master."""
    rules: tuple[Rule, ...] = ()
    """virtual_rules, likewise."""
    garp: GarpConfig = field(default_factory=GarpConfig)
    notify: NotifyScripts = field(default_factory=NotifyScripts)
    notify_priority_changes: bool = False
    smtp_alert: bool = False
    tracks: tuple[Track, ...] = ()
    ttl_limits: tuple[TtlLimits, ...] = ()
    """Of those peers that have some."""
    unicast_ttl: int = 255
    """TTL or hop limit of unicast adverts."""
    check_unicast_src: bool = False
    """Only adverts of `peers` count."""
    unicast_fault_no_peer: bool = False
    """Unicast although it has no peers; FAULT until it has."""
    checksum_as_v2: bool = False
    """v3_checksum_as_v2: version 3 without the pseudo-header, and received checksums are not judged."""
    old_unicast_checksum: str = "auto"
    """auto, always, never: unicast version 3 with the pseudo-header of the multicast group, as old keepaliveds do."""
    down_timer_adverts: int = 3
    """Missed adverts after which the MASTER counts as gone; RFC 9568 has 3."""
    accept: bool = True
    """False: packets to the VIPs are not accepted, but for pings of neighbours' discovery (RFC 9568 section 6.1)."""
    strict: bool = False
    """vrrp_strict: its consequences are in the other fields already; for show and explain."""
    lower_prio_no_advert: bool = False
    """A MASTER does not answer adverts of lower priority."""
    higher_prio_send_advert: bool = False
    """A MASTER sends one more advert before it yields to a higher priority."""
    owner_ignore_adverts: bool = False
    """At priority 255 adverts of others are not heard."""
    track_primary: bool = True
    """False (dont_track_primary): the loss of its own interface is no fault."""
    track_source: bool = False
    """track_src_ip: the loss of `source` from this host is a fault."""
    promote_secondaries: bool = False
    """The kernel promotes secondary addresses of the interface while the instance runs."""
    virtual_mac: VirtualMac | None = None
    address_macs: tuple[VirtualMac, ...] = ()
    """`use_vmac_addr` and `use_vmac` of an address: macvlans for addresses alone, most on other interfaces."""
    vrf: str = ""
    """Master device whose sockets it uses."""

    @property
    def key(self) -> tuple[str, int]:
        """What makes two instances the same one across a reload: interface and VRID (IPv6 ones: VRID + 256).

        An IPv4 and an IPv6 instance may share a VRID on one interface (RFC 9568 section 5.2.3).
        """
        return (self.interface, self.vrid if self.family == 4 else self.vrid + 256)  # noqa: PLR2004 - the family

    @property
    def virtual_macs(self) -> tuple[VirtualMac, ...]:
        """All that are made for it, its own first; each names its base."""
        own = () if self.virtual_mac is None else (replace(self.virtual_mac, base=self.interface),)
        return (*own, *self.address_macs)
