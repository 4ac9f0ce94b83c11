"""NodeStatus: what `haxlb show --json` prints (schema `haxlb.status/1`, docs/reference/status.md).

Times ending in `_at` are seconds since the epoch (floats), so that a reader on another machine can use them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Address

from haxlb.model.node import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatus:
    """The last valid advert of one other director."""

    address: IPv4Address
    priority: int
    heard_at: float


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
    yielded: bool = False
    """After `haxlb failover`: does not preempt the peer until `haxlb resume`, or the peer is lost."""
    vips: tuple[str, ...] = ()
    peers: tuple[PeerStatus, ...] = ()
    master_down_interval_us: int = 0
    adverts_sent: int = 0
    adverts_received: int = 0
    adverts_rejected: dict[str, int] = field(default_factory=dict)
    """By reason."""
    transitions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RealServerStatus:
    """One server of one virtual server."""

    address: IPv4Address
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


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualServerStatus:
    """One virtual server."""

    address: IPv4Address
    port: int
    protocol: str
    scheduler: str
    quorum_up: bool
    sorry: bool
    """The sorry server is serving."""
    real_servers: tuple[RealServerStatus, ...] = ()
    packets: int = 0
    bytes: int = 0
    flows: int = 0


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
class NodeStatus:
    """One director, whole."""

    schema: str = "haxlb.status/1"
    node: str
    version: str
    at: float
    config_file: str
    config_loaded_at: float
    config_problem: str = ""
    """Why the last reload was refused; empty when it was taken."""
    instances: tuple[InstanceStatus, ...] = ()
    virtual_servers: tuple[VirtualServerStatus, ...] = ()
    data_plane: DataPlaneStatus = field(default_factory=DataPlaneStatus)
    alarms: tuple[AlarmStatus, ...] = ()
    mqtt: str = "off"
    """off, connected, or why not."""
    processes: tuple[ProcessStatus, ...] = ()
    history: tuple[str, ...] = ()
    """The last fifty facts, newest last, one line each."""
