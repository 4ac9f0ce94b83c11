"""NodeConfig: everything a director does, as values. Built by `haxlb.config`, read by every process.

Times are whole microseconds (`_us`). Defaults are keepalived's unless DESIGN section 7 says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from haxlb.model.addresses import Endpoint, IPAddress, StaticAddress, TtlLimits, Vip
from haxlb.model.commands import NO_COMMAND, Command
from haxlb.model.groups import SyncGroup, TrackGroup, VirtualServerGroup
from haxlb.model.hashed_once import HashedOnce
from haxlb.model.made_often import made_often
from haxlb.model.notification import NotificationSettings, NotifyScripts
from haxlb.model.routes import Route, Rule
from haxlb.model.tracking import BfdSession, Track, TrackFile, TrackProcess, TrackScript

SECOND_US = 1_000_000


class Role(Enum):
    """States of a VRRP instance (RFC 9568 section 6.4; FAULT is keepalived's)."""

    INIT = "INIT"
    BACKUP = "BACKUP"
    MASTER = "MASTER"
    FAULT = "FAULT"


class Scheduler(Enum):
    """Schedulers that the forwarder implements, by their IPVS names."""

    RR = "rr"
    WRR = "wrr"
    LC = "lc"
    WLC = "wlc"
    LBLC = "lblc"
    LBLCR = "lblcr"
    SH = "sh"
    DH = "dh"
    MH = "mh"
    SED = "sed"
    NQ = "nq"
    FO = "fo"
    OVF = "ovf"
    TWOS = "twos"

    @property
    def hashes(self) -> bool:
        """The choice is a function of the packet's addresses."""
        return self in (Scheduler.SH, Scheduler.DH, Scheduler.MH)

    @property
    def takes_turns(self) -> bool:
        """New flows go round the servers (twos: two of them are looked at)."""
        return self in (Scheduler.RR, Scheduler.WRR, Scheduler.TWOS)


class ForwardingMethod(Enum):
    """How packets reach a real server, by IPVS's names."""

    DR = "DR"
    TUN = "TUN"
    NAT = "NAT"


class TunnelKind(Enum):
    """`lvs_method TUN type …`."""

    IPIP = "ipip"
    GUE = "gue"
    GRE = "gre"


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


class CheckKind(Enum):
    """Kinds of health check, by keepalived's block names."""

    TCP = "TCP_CHECK"
    HTTP = "HTTP_GET"
    SSL = "SSL_GET"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpUrl:
    """One `url` block: every criterion that is given must hold."""

    path: str
    digest: str | None = None
    """md5 of the body, 32 lower-case hex digits."""
    status_codes: tuple[tuple[int, int], ...] = ((200, 299),)
    """Accepted codes as inclusive ranges."""
    virtualhost: str | None = None
    regex: str | None = None
    regex_no_match: bool = False


@made_often
@dataclass(frozen=True, slots=True, kw_only=True)
class Check(HashedOnce):
    """One checker of one real server, with its timing."""

    __hash__ = HashedOnce.__hash__

    kind: CheckKind
    address: IPAddress
    """connect_ip, or the real server."""
    port: int
    """connect_port, or the real server's."""
    bind_address: IPAddress | None = None
    bind_port: int = 0
    connect_timeout_us: int = 5 * SECOND_US
    """Total deadline of a TCP_CHECK, or of each url from connect to last byte (keepalived: of the connect and of each
    read; see docs/reference/health.md)."""
    delay_loop_us: int = 60 * SECOND_US
    """Pause from the end of a probe to the next one."""
    warmup_us: int | None = None
    """First probe comes within this; None = within one delay_loop, at most one second."""
    retry: int | None = None
    """None = haxlb's two-up/two-down; N = N further attempts, so N + 1 consecutive failures take the server down."""
    delay_before_retry_us: int = SECOND_US
    urls: tuple[HttpUrl, ...] = ()
    """HTTP_GET and SSL_GET; probed in order, all must pass."""
    http_protocol: str = "1.0"
    """1.0 or 1.1."""
    virtualhost: str | None = None
    """Host header where the url names none."""
    sni: str | None = None
    """Server name sent in the TLS handshake; None = none is sent."""

    @property
    def target(self) -> str:
        """`address:port`, of IPv6 `[address]:port`."""
        return f"[{self.address}]:{self.port}" if self.address.version == 6 else f"{self.address}:{self.port}"  # noqa: PLR2004 - the family


@made_often
@dataclass(frozen=True, slots=True, kw_only=True)
class RealServer:
    """One `real_server` block, or the `sorry_server`."""

    address: IPAddress
    port: int
    """0 = that of the packet: a virtual server of all ports."""
    weight: int = 1
    """0 = drain: established flows stay, no new ones."""
    inhibit_on_failure: bool = False
    """On failure weight 0 instead of removal: its flows stay.

    Of a sorry server (`sorry_server_inhibit`): the same while it does not serve.
    """
    alpha: bool | None = None
    """It starts DOWN until its checks succeed; None = as the virtual server says."""
    checks: tuple[Check, ...] = ()
    notify_up: Command = NO_COMMAND
    notify_up_at_start: bool = False
    """rs_init_notifies: notify_up is run for a server that counts as up without having been probed, too."""
    notify_down: Command = NO_COMMAND
    smtp_alert: bool = False
    method: ForwardingMethod = ForwardingMethod.DR
    tunnel: TunnelKind = TunnelKind.IPIP
    tunnel_port: int = 0
    """UDP port of GUE."""
    tunnel_checksum: bool = False
    """csum: the outer UDP or GRE header has a checksum; `remcsum` is not supported."""
    upper_threshold: int = 0
    """uthreshold: with so many connections it gets no more; 0 = any number."""
    lower_threshold: int = 0
    """lthreshold: until it has fewer than this again; 0 = three quarters of the upper one."""

    @property
    def key(self) -> str:
        """`address:port`, of IPv6 `[address]:port`: how the real server is named in status and logs."""
        return f"[{self.address}]:{self.port}" if self.address.version == 6 else f"{self.address}:{self.port}"  # noqa: PLR2004 - the family


@made_often
@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualServer:
    """One `virtual_server` block."""

    endpoint: Endpoint
    """Of several the first."""
    more_endpoints: tuple[Endpoint, ...] = ()
    """Of a `virtual_server group` or `fwmark`: the others that share its servers."""
    group: str = ""
    """`virtual_server group NAME`."""
    fwmark: int = 0
    """`virtual_server fwmark N`: it serves the addresses of the group that names the mark."""
    scheduler: Scheduler = Scheduler.WRR
    mh_port: bool = False
    """Hash schedulers: hash the source port too (`mh-port`, `sh-port`)."""
    persistence_s: int = 0
    """persistence_timeout: a client keeps its server for so long after its last packet; 0 = off."""
    persistence_granularity: int | None = None
    """Bits of a client's address that count, an IPv4 mask or an IPv6 prefix; None = all."""
    one_packet: bool = False
    """ops: each UDP packet is scheduled anew."""
    alpha: bool = False
    """Servers start DOWN until a check succeeds."""
    quorum: int = 1
    hysteresis: int = 0
    quorum_up: Command = NO_COMMAND
    quorum_down: Command = NO_COMMAND
    smtp_alert: bool = False
    sorry_server: RealServer | None = None
    real_servers: tuple[RealServer, ...] = ()

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """All of them."""
        return (self.endpoint, *self.more_endpoints)

    @property
    def name(self) -> str:
        """How it is called in status and logs, and what makes it the same one across a reload."""
        protocol = self.endpoint.protocol.value.lower()
        if self.fwmark:
            family = " inet6" if self.endpoint.address.version == 6 else ""  # noqa: PLR2004 - the family
            return f"fwmark {self.fwmark}{family} {protocol}"
        return f"group {self.group} {protocol}" if self.group else str(self.endpoint)


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowTimeouts:
    """`lvs_timeouts`: seconds without a packet after which a flow is no more. Defaults are the kernel's."""

    tcp_s: int = 900
    tcp_fin_s: int = 120
    udp_s: int = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttSettings:
    """`mqtt:` of haxlb.yml."""

    host: str
    port: int = 1883
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    site: str = "default"
    """Topics are haxlb/<site>/…; the directors of a pair share it."""
    keepalive_s: int = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardingSettings:
    """`forwarding:` of haxlb.yml."""

    interfaces: tuple[str, ...] = ()
    """Where the XDP program is attached; empty = every interface that carries a VRRP instance."""
    mode: str = "auto"
    """auto (native, else generic with a warning), native, generic."""
    flow_buckets_log2: int = 16
    """2^N buckets of four flows, 64 bytes each; the default holds 262,144 flows in 4 MiB."""
    max_services: int = 64
    """Lower bound of the table's size; a configuration with more virtual servers gets a larger one at start."""


TABLE_SIZES = ("flow_buckets_log2", "max_services")
"""Settings of the forwarder that count only where its tables are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkDelay:
    """One line of `interface_up_down_delays`."""

    interface: str
    down_us: int
    """So long a link must be down before it counts as down."""
    up_us: int = 0

    def __str__(self) -> str:
        return f"{self.interface} {self.down_us / SECOND_US:g} {self.up_us / SECOND_US:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerSettings:
    """How the process that speaks VRRP runs."""

    realtime_priority: int = 20
    """vrrp_rt_priority, SCHED_RR 1 to 99; 0 = the normal class."""
    nice: int = 0
    """vrrp_priority, where it is in the normal class."""
    lock_memory: bool = True
    """haxlb locks unless haxlb.yml says otherwise; vrrp_no_swap asks for the same."""
    cpus: tuple[int, ...] = ()
    """vrrp_cpu_affinity; empty = all."""
    runaway_us: int = 2 * SECOND_US
    """vrrp_rlimit_rttime: CPU time without a blocking call after which the kernel ends it."""
    startup_delay_us: int = 0
    """vrrp_startup_delay: no instance leaves BACKUP, and no advert counts, before this."""
    delay_after_boot_us: int = 0
    """vrrp_delay_after_boot: likewise, counted from the start of the host; the later end of the two counts."""
    vip_lifetime_s: int = 2
    """`vips: lifetime:` of haxlb.yml: after so long without renewal the kernel takes a VIP off; 0 = never."""
    log_unknown_vrids: bool = False
    disable_local_igmp: bool = False
    """The host reports no membership of link-local IPv4 groups (224.0.0.0/24) while the speaker runs."""
    link_delays: tuple[LinkDelay, ...] = ()
    spare: bool = True
    """`processes: spare_speaker:` of haxlb.yml: whether a second speaker waits to take the place of a dead one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckerSettings:
    """How the process that checks servers runs: by default as any other."""

    realtime_priority: int = 0
    """checker_rt_priority, SCHED_RR, always below the speaker's; 0 = the normal class."""
    nice: int = 0
    """checker_priority, where it is in the normal class."""
    lock_memory: bool = False
    """checker_no_swap."""
    cpus: tuple[int, ...] = ()
    """checker_cpu_affinity; empty = all."""
    runaway_us: int = 2 * SECOND_US
    """checker_rlimit_rttime: CPU time without a blocking call after which the kernel ends it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """One director."""

    node: str
    """router_id, or the host name: how this director is called in logs, status and MQTT."""
    instances: tuple[VrrpInstance, ...] = ()
    virtual_servers: tuple[VirtualServer, ...] = ()
    mqtt: MqttSettings | None = None
    forwarding: ForwardingSettings = field(default_factory=ForwardingSettings)
    speaker: SpeakerSettings = field(default_factory=SpeakerSettings)
    checker: CheckerSettings = field(default_factory=CheckerSettings)
    notification: NotificationSettings = field(default_factory=NotificationSettings)
    track_scripts: tuple[TrackScript, ...] = ()
    track_files: tuple[TrackFile, ...] = ()
    track_processes: tuple[TrackProcess, ...] = ()
    bfd_sessions: tuple[BfdSession, ...] = ()
    sync_groups: tuple[SyncGroup, ...] = ()
    vmac_addr_prefix: str = "vrrp"
    """How the names of `address_macs` begin; for printing only."""
    track_groups: tuple[TrackGroup, ...] = ()
    """What they come to is in the `tracks` of their instances."""
    static_routes: tuple[Route, ...] = ()
    """Put on this host while haxlb runs."""
    static_rules: tuple[Rule, ...] = ()
    static_addresses: tuple[StaticAddress, ...] = ()
    virtual_server_groups: tuple[VirtualServerGroup, ...] = ()
    timeouts: FlowTimeouts = field(default_factory=FlowTimeouts)

    @property
    def forwarding_interfaces(self) -> tuple[str, ...]:
        """Interfaces that carry the XDP program, in configuration order; none without virtual servers."""
        if not self.virtual_servers:
            return ()
        named = self.forwarding.interfaces or tuple(i.interface for i in self.instances)
        return tuple(dict.fromkeys(named))
