"""What a VRRP instance can be told, and what it asks for in return. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.facts import Fact
from haxlb.model.instance import VrrpInstance
from haxlb.model.notification import NotifyDue
from haxlb.model.routes import Route, Rule
from haxlb.model.succession import Succession
from haxlb.model.tracking import TrackResult
from haxlb.vrrp.advert import Advert


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Leave INIT; the link, what is tracked and the sync group have been told before."""

    hurry: bool = True
    """False: `state MASTER` is not heeded, as not all members of the sync group have it."""
    quiet_until: int = 0
    """vrrp_startup_delay: until then, monotonic µs, no advert counts and BACKUP is not left."""
    succession: Succession | None = None
    """A process that was MASTER until now has died, and this one goes on in its place if it is in time."""
    reserve: str = ""
    """Why it must not preempt before `EndReserve`; empty = it may."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvertReceived:
    """A checked advert of another router, for this VRID."""

    source: IPAddress
    advert: Advert


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkChanged:
    """The instance's interface as it is now."""

    up: bool
    address: IPAddress | None
    """Primary address of the instance's family, the source of adverts unless one is configured."""
    present: bool = True
    """False: there is no interface of that name."""
    has_source: bool = True
    """False: the configured source is not an address of this host; a fault with `track_source`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerExpired:
    """The time of `next_deadline` has come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Give MASTER to the peer and do not preempt it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Take part in the election again as configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndReserve:
    """The cause of `Start.reserve` is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconfigure:
    """The same instance (interface and VRID) with other settings."""

    instance: VrrpInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """How tracked things are now; those that are not named are as before."""

    results: tuple[TrackResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """The sync group of the instance, and what of the other members keeps it in FAULT."""

    group: str
    """Empty = in none."""
    trouble: str = ""
    """In words; empty = no other member is in trouble."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMaster:
    """Every member of the sync group wants MASTER: become it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBackup:
    """Another member has left MASTER: follow it, without resigning (keepalived)."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAnnounce:
    """Another member has heard an advert of lower priority: announce, too (keepalived)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """Back to INIT, resigning if MASTER."""

    reason: str
    removed: bool = False
    """The instance has left the configuration; keepalived tells scripts FAULT then, not STOP."""


Input = (
    Start
    | AdvertReceived
    | LinkChanged
    | TimerExpired
    | HandOver
    | Resume
    | EndReserve
    | Reconfigure
    | Tracked
    | Grouped
    | GroupMaster
    | GroupBackup
    | GroupAnnounce
    | Shutdown
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SendAdvert:
    """Send one advert to every destination."""

    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddVips:
    """Put these addresses on."""

    vips: tuple[Vip, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveVips:
    """Take these addresses off."""

    vips: tuple[Vip, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """Send gratuitous ARP or a neighbour advertisement for each address, `rounds` times over all of them."""

    vips: tuple[Vip, ...]
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRoutes:
    """Put these routes and rules on."""

    routes: tuple[Route, ...]
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveRoutes:
    """Take these routes and rules off."""

    routes: tuple[Route, ...]
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """Tell the operator's scripts, FIFOs and mailbox."""

    due: NotifyDue


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Tell the world a fact."""

    fact: Fact


Effect = SendAdvert | AddVips | RemoveVips | AddRoutes | RemoveRoutes | Announce | Notify | Report
