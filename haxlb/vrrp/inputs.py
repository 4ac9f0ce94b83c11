"""What a VRRP instance can be told, and what it asks for in return. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.facts import Fact
from haxlb.model.node import VrrpInstance
from haxlb.model.notification import NotifyDue
from haxlb.model.routes import Route, Rule
from haxlb.model.tracking import TrackResult
from haxlb.vrrp.advert import Advert


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Leave INIT; the link has been told before."""


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
class Reconfigure:
    """The same instance (interface and VRID) with other settings."""

    instance: VrrpInstance


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """How tracked things are now; those that are not named are as before."""

    results: tuple[TrackResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """Back to INIT, resigning if MASTER."""

    reason: str
    removed: bool = False
    """The instance has left the configuration; keepalived tells scripts FAULT then, not STOP."""


Input = Start | AdvertReceived | LinkChanged | TimerExpired | HandOver | Resume | Reconfigure | Tracked | Shutdown


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
    """Send gratuitous ARP for each address, `rounds` times over all of them."""

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
