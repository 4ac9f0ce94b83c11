"""NodeStatus: what `haxlb show --json` prints (schema `haxlb.status/1`, docs/reference/status.md).

Times ending in `_at` are seconds since the epoch (floats), so that a reader on another machine can use them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from haxlb.model.addresses import IPAddress
from haxlb.model.instance import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatus:
    """The last valid advert of one other director."""

    address: IPAddress
    priority: int
    heard_at: float
    version: int = 0
    interval_us: int = 0
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """What one tracked thing adds to the priority, or that it is a fault."""

    kind: str
    """track_script, track_interface, …"""
    name: str
    well: bool | None
    """None = not known yet."""
    change: int = 0
    """Added to the priority now; 0 for a track without weight."""
    fault: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionStatus:
    """One change of role."""

    at: float
    before: Role
    after: Role
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLag:
    """How late the speaker was woken, since its start, in µs."""

    wakes: int = 0
    last_us: int = 0
    max_us: int = 0
    max_at: float = 0.0
    over_ms: int = 0
    """Wakes that were a millisecond late or more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedStatus:
    """A script, file, process or BFD session that instances track."""

    kind: str
    name: str
    value: int | None
    since_at: float = 0.0
    detail: str = ""
    """For people: `exit code 1, 2 of 3 failures`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceStatus:
    """One VRRP instance as its speaker sees it."""

    name: str
    interface: str
    vrid: int
    version: int
    role: Role
    since_at: float
    reason: str
    """Why it is in this role."""
    priority: int
    """Effective: the configured one and what the tracked things add."""
    yielded: bool = False
    """After `haxlb failover`: does not preempt the peer until `haxlb resume`, or the peer is lost."""
    vips: tuple[str, ...] = ()
    peers: tuple[PeerStatus, ...] = ()
    master_down_interval_us: int = 0
    adverts_sent: int = 0
    adverts_received: int = 0
    adverts_rejected: dict[str, int] = field(default_factory=dict)
    """By reason."""
    last_rejected: str = ""
    """The last of them: who had sent it, and what was wrong with it; empty = none was rejected."""
    last_rejected_at: float | None = None
    transitions: int = 0
    family: int = 4
    base_priority: int = 0
    """As configured."""
    contributions: tuple[Contribution, ...] = ()
    sync_group: str = ""
    source: str = ""
    """Address that its adverts come from."""
    excluded_vips: tuple[str, ...] = ()
    virtual_mac: str = ""
    """The interface that `use_vmac` or `use_ipvlan` makes; empty = there is none."""
    address_macs: tuple[str, ...] = ()
    """Those that only addresses are on (`use_vmac_addr`): `vrrp1.51 on eth1`."""
    old_checksum: bool = False
    """It was found out that the peer wants the checksum of unicast as older keepalived makes it."""
    next_at: float | None = None
    """When something happens unless an advert comes first."""
    next_what: str = ""
    """`advert`, `becomes MASTER`, …"""
    latest: tuple[TransitionStatus, ...] = ()
    """The last twenty changes of role, newest last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RealServerStatus:
    """One server of one virtual server."""

    address: IPAddress
    port: int
    weight: int
    """Effective: 0 while drained or inhibited."""
    up: bool
    in_pool: bool
    """Receives new flows."""
    reason: str
    """Of the last change or of the last failed probe."""
    since_at: float
    mac: str | None
    """None = ARP unresolved: it cannot receive packets."""
    packets: int = 0
    bytes: int = 0
    flows: int = 0
    """New flows given to it."""
    is_sorry: bool = False
    checked_at: float | None = None
    """End of its last probe; None = not probed yet, or no check."""
    method: str = "DR"
    active: int | None = None
    """Connections on record, half-open ones included; None = the scheduler keeps no record."""
    inactive: int | None = None
    """Closing ones."""
    overloaded: bool = False
    """uthreshold is reached, and lthreshold not yet."""
    upper_threshold: int = 0
    """0 = none."""
    lower_threshold: int = 0
    local: bool = False
    """The server is this host."""
    configured_weight: int | None = None
    """Of a server whose weight an operator has set (`haxlb weight`, `haxlb drain`); None = nobody has."""

    @property
    def key(self) -> str:
        """`address:port`, of IPv6 `[address]:port`."""
        return f"[{self.address}]:{self.port}" if self.address.version == 6 else f"{self.address}:{self.port}"  # noqa: PLR2004 - the family


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualServerStatus:
    """One virtual server."""

    address: IPAddress
    """Of several the first."""
    port: int
    """0 = all ports."""
    protocol: str
    scheduler: str
    quorum_up: bool
    sorry: bool
    """The sorry server is serving."""
    real_servers: tuple[RealServerStatus, ...] = ()
    packets: int = 0
    bytes: int = 0
    flows: int = 0
    name: str = ""
    endpoints: tuple[str, ...] = ()
    """All of them: `[10.0.0.1]:tcp:80`."""
    persistence_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatus:
    """The XDP program on one interface."""

    interface: str
    mode: str
    """native, generic or none."""
    program: str
    """Name and tag of the attached program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlaneStatus:
    """The forwarder."""

    links: tuple[LinkStatus, ...] = ()
    abi: str = ""
    swaps: int = 0
    """Program swaps since the checker started."""
    verdicts: dict[str, int] = field(default_factory=dict)
    """Packets by verdict reason."""
    problem: str = ""
    """Why it is not forwarding, empty when it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmStatus:
    """One raised alarm."""

    key: str
    severity: str
    summary: str
    evidence: tuple[str, ...]
    raised_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """One process of the daemon."""

    name: str
    pid: int
    """0 while there is none."""
    restarts: int
    since_at: float
    problem: str = ""
    """Why its part of this status is old or missing; empty when it answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MailStatus:
    """What has become of the operator's mails, since haxlb was started."""

    delivered: int = 0
    dropped: int = 0
    """No server took them, or too many waited."""
    waiting: int = 0
    """Those that are being tried included."""
    problem: str = ""
    """Why the last attempt failed; empty when it did not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """One director, whole."""

    schema: str = "haxlb.status/1"
    node: str
    version: str
    at: float
    config_file: str
    config_loaded_at: float
    config_problem: str = ""
    """Why the last reload was refused, or what of it did not work; empty when it was taken."""
    config_refused: bool = False
    """The last reload was refused: the configuration before it is in force."""
    config_errors: tuple[str, ...] = ()
    """Of the file in force, `FILE:LINE: MESSAGE`: what they name is left out. The first ten."""
    starting: bool = False
    """Not all of the processes have been started yet: the forwarder is being compiled."""
    instances: tuple[InstanceStatus, ...] = ()
    virtual_servers: tuple[VirtualServerStatus, ...] = ()
    data_plane: DataPlaneStatus = field(default_factory=DataPlaneStatus)
    alarms: tuple[AlarmStatus, ...] = ()
    mqtt: str = "off"
    """off, connected, or why not."""
    fifo_lines_lost: dict[str, int] = field(default_factory=dict)
    """By path, since the FIFO was opened: nobody read them in time."""
    mail: MailStatus = field(default_factory=MailStatus)
    processes: tuple[ProcessStatus, ...] = ()
    lag: LoopLag = field(default_factory=LoopLag)
    tracked: tuple[TrackedStatus, ...] = ()
    history: tuple[str, ...] = ()
    """The last fifty facts, newest last, one line each."""
