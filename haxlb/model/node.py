"""NodeConfig: everything a director does, as values. Built by `haxlb.config`, read by every process.

Times are whole microseconds (`_us`). Defaults are keepalived's unless DESIGN section 7 says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from ipaddress import IPv4Address

from haxlb.model.addresses import Endpoint, StaticAddress, TtlLimits, Vip, VipOptions
from haxlb.model.groups import SyncGroup, VirtualServerGroup
from haxlb.model.routes import Route, Rule
from haxlb.model.tracking import Track, Tracked, TrackScript

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
    SH = "sh"
    MH = "mh"


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
    """Pause between two frames on one interface."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyScripts:
    """Commands as argument vectors; empty = none. `any` gets INSTANCE NAME STATE PRIORITY appended."""

    master: tuple[str, ...] = ()
    backup: tuple[str, ...] = ()
    fault: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    any: tuple[str, ...] = ()


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
    """PASS authentication, version 2 only, at most 8 bytes; a secret: never logged or shown."""
    source: IPv4Address | None = None
    """unicast_src_ip or mcast_src_ip; None = the interface's primary address."""
    peers: tuple[IPv4Address, ...] = ()
    """unicast_peer; empty = multicast to 224.0.0.18."""
    vips: tuple[Vip, ...] = ()
    garp: GarpConfig = field(default_factory=GarpConfig)
    notify: NotifyScripts = field(default_factory=NotifyScripts)
    tracks: tuple[Track, ...] = ()
    """Planned: what is tracked changes neither priority nor state yet."""
    excluded_vips: tuple[Vip, ...] = ()
    """Planned: addresses that follow the master and are not in its adverts."""
    routes: tuple[Route, ...] = ()
    """Planned: virtual_routes do not follow the master yet."""
    rules: tuple[Rule, ...] = ()
    """Planned, likewise."""
    ttl_limits: tuple[TtlLimits, ...] = ()
    """Planned: of those peers that have some; every TTL is taken yet."""
    vip_options: tuple[VipOptions, ...] = ()
    """Planned: of those of `vips` and `excluded_vips` that have some."""
    ipv6_vips: tuple[StaticAddress, ...] = ()
    """Planned: lines of virtual_ipaddress that do not follow the master yet; no advert names them."""
    excluded_ipv6_vips: tuple[StaticAddress, ...] = ()
    """Planned, likewise."""

    @property
    def key(self) -> tuple[str, int]:
        """What makes two instances the same one across a reload: interface and VRID."""
        return (self.interface, self.vrid)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One checker of one real server, with its timing."""

    kind: CheckKind
    address: IPv4Address
    """connect_ip, or the real server."""
    port: int
    """connect_port, or the real server's."""
    bind_address: IPv4Address | None = None
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RealServer:
    """One `real_server` block, or the `sorry_server`."""

    address: IPv4Address
    port: int
    weight: int = 1
    """0 = drain: established flows stay, no new ones."""
    inhibit_on_failure: bool = False
    """On failure weight 0 instead of removal: its flows stay."""
    checks: tuple[Check, ...] = ()
    notify_up: tuple[str, ...] = ()
    notify_down: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """`address:port`, how the real server is named in status and logs."""
        return f"{self.address}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualServer:
    """One `virtual_server ADDRESS PORT` block. Forwarding is DR."""

    endpoint: Endpoint
    scheduler: Scheduler = Scheduler.WRR
    mh_port: bool = False
    """Hash schedulers: hash the source port too (`mh-port`, `sh-port`)."""
    alpha: bool = False
    """Servers start DOWN until a check succeeds."""
    quorum: int = 1
    hysteresis: int = 0
    quorum_up: tuple[str, ...] = ()
    quorum_down: tuple[str, ...] = ()
    sorry_server: RealServer | None = None
    real_servers: tuple[RealServer, ...] = ()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """One director."""

    node: str
    """router_id, or the host name: how this director is called in logs, status and MQTT."""
    instances: tuple[VrrpInstance, ...] = ()
    virtual_servers: tuple[VirtualServer, ...] = ()
    mqtt: MqttSettings | None = None
    forwarding: ForwardingSettings = field(default_factory=ForwardingSettings)
    track_scripts: tuple[TrackScript, ...] = ()
    """Planned: they are not run yet."""
    tracked: tuple[Tracked, ...] = ()
    """Planned: they are not watched yet."""
    sync_groups: tuple[SyncGroup, ...] = ()
    """Planned: their instances fail over one by one."""
    static_routes: tuple[Route, ...] = ()
    """Planned: they are not put on this host yet."""
    static_rules: tuple[Rule, ...] = ()
    """Planned, likewise."""
    static_addresses: tuple[StaticAddress, ...] = ()
    """Planned, likewise."""
    virtual_server_groups: tuple[VirtualServerGroup, ...] = ()
    """Planned: virtual servers that use them are left out."""

    @property
    def forwarding_interfaces(self) -> tuple[str, ...]:
        """Interfaces that carry the XDP program, in configuration order; none without virtual servers."""
        if not self.virtual_servers:
            return ()
        named = self.forwarding.interfaces or tuple(i.interface for i in self.instances)
        return tuple(dict.fromkeys(named))
