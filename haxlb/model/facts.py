"""Facts: what has happened, in the past tense. They feed the log, the history, MQTT and the detector."""

from __future__ import annotations

from dataclasses import dataclass

from haxlb.model.addresses import IPAddress
from haxlb.model.instance import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleChanged:
    """An instance has changed its state; its VIPs have already followed."""

    instance: str
    vrid: int
    before: Role
    after: Role
    reason: str
    """In words, for people: `no advert for 3.609 s`."""
    priority: int
    at_us: int
    """Monotonic clock of the node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerHeard:
    """A valid advert of another director for one of our VRIDs: the first, or one that differs from the last."""

    instance: str
    vrid: int
    address: IPAddress
    priority: int
    at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignAdvertHeard:
    """A valid advert, priority above 0, for our VRID while we are MASTER, whatever became of it."""

    instance: str
    vrid: int
    address: IPAddress
    priority: int
    master_down_interval_us: int
    """Our own at that moment: the measure of the protocol's window."""
    at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvertRejected:
    """A VRRP packet for a socket of ours that failed a check; sent at most once a second per reason and source."""

    instance: str | None
    """None where no instance has its VRID."""
    address: IPAddress
    reason: str
    """Stable name, as in keepalived's counters: `ip_ttl_err`, `chk_err`, …"""
    detail: str
    at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignMacHeard:
    """Somebody else answered ARP, or a neighbour solicitation, for a VIP that we hold."""

    vip: IPAddress
    interface: str
    mac: str
    at_us: int
    director: IPAddress | None = None
    """The other director whose MAC it is, where that is known; None = most likely a real server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerClaimed:
    """Another node's retained claim on MQTT: it is MASTER of this VRID, or (`master` false) no longer."""

    node: str
    vrid: int
    master: bool
    at_us: int
    instance: str = ""
    """Its name on that node: tells two instances apart that share a VRID on different links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendChanged:
    """A real server of a virtual server went up or down."""

    virtual_server: str
    real_server: str
    up: bool
    reason: str
    at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumChanged:
    """A virtual server gained or lost its quorum."""

    virtual_server: str
    up: bool
    reason: str
    at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChanged:
    """A sync group has changed its state."""

    group: str
    before: str
    """MASTER, BACKUP, FAULT, STOP, DELETED; empty = it was not told before."""
    after: str
    at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityChanged:
    """The effective priority of an instance is another one."""

    instance: str
    vrid: int
    before: int
    after: int
    reason: str
    """What it consists of, in words: `150 - 20 (track_script chk_http)`."""
    at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackChanged:
    """A tracked script, file, process or BFD session is not as it was."""

    kind: str
    """track_script, track_file, track_process, track_bfd."""
    name: str
    before: int | None
    """A file: its number. All others: 1 well, 0 not. None = not known yet."""
    after: int | None
    at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmRaised:
    """A condition that a person must know of."""

    key: str
    """Stable and unique while raised: `split-brain/VI_1`."""
    severity: str
    """critical or warning."""
    summary: str
    evidence: tuple[str, ...]
    at_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmCleared:
    """The alarm of this key is over."""

    key: str
    reason: str
    at_us: int


Fact = (
    RoleChanged
    | PeerHeard
    | ForeignAdvertHeard
    | AdvertRejected
    | ForeignMacHeard
    | PeerClaimed
    | BackendChanged
    | QuorumChanged
    | GroupChanged
    | PriorityChanged
    | TrackChanged
    | AlarmRaised
    | AlarmCleared
)
