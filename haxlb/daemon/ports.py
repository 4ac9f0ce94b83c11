"""Ports: all that the machines' shell may ask of the outside world.

`haxlb.linux` and `haxlb.sim` hold the two sets of adapters. Every call is synchronous, returns at once and raises
nothing but HostError; what the world says comes in through the `Speaker`'s `on_…` methods. Times are monotonic µs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Protocol

from haxlb.forwarding.wanted import Counters, WantedTable
from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.commands import Command
from haxlb.model.facts import Fact
from haxlb.model.notification import NotifyDue
from haxlb.model.routes import Route, Rule
from haxlb.model.status import LinkStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Datagram:
    """A VRRP message with what its IP header said."""

    interface: str
    source: IPAddress
    destination: IPAddress
    ttl: int
    """TTL or hop limit."""
    payload: bytes
    """The VRRP message, without the IP header."""
    ah: bytes = b""
    """The authentication header in front of it (RFC 4302), with its ICV; empty = none."""
    ip_header: bytes = b""
    """As received, for the ICV of the authentication header; only where there is one."""
    at_us: int
    """Arrival, stamped by the adapter; when sending, unused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """An interface as it is now."""

    interface: str
    up: bool
    """IFF_UP and IFF_RUNNING."""
    mac: str
    address: IPv4Address | None
    """Primary IPv4 address that is not one of our VIPs."""
    mtu: int = 1500
    address6: IPv6Address | None = None
    """Link-local IPv6 address, usable (not tentative)."""
    absent_sources: frozenset[IPAddress] = frozenset()
    """Of the configured source addresses that its instances track, those that no interface of this host has."""


class ClockPort(Protocol):
    """The node's monotonic clock."""

    def now(self) -> int:
        """Monotonic time in µs."""
        ...


class WakePort(Protocol):
    """One alarm clock for the driver; a timerfd on Linux, the virtual clock in the simulator."""

    def wake_at(self, deadline_us: int | None) -> None:
        """Call the driver's `on_wake` at this time (replaces the former request); None = not at all."""
        ...


class AdvertPort(Protocol):
    """Sends VRRP messages; IP protocol 112, TTL 255."""

    def send(self, datagram: Datagram) -> None:
        """Hand to the kernel at once. A failure is counted and logged by the adapter, never raised."""
        ...

    def receive(self) -> list[Datagram]:
        """All that has arrived and was not yet taken, oldest first.

        The speaker calls it before it handles an expired timer: a process that was stalled must find the advert
        that was waiting before it promotes itself.
        """
        ...


class AddressPort(Protocol):
    """The addresses of this host's interfaces."""

    def add(self, vips: Iterable[Vip]) -> None:
        """Put addresses on their interfaces; those already there are left as they are. Raises HostError."""
        ...

    def remove(self, vips: Iterable[Vip]) -> None:
        """Take addresses off; those not there are no error. Raises HostError."""
        ...


class AnnouncePort(Protocol):
    """Gratuitous ARP, and unsolicited neighbour advertisements for IPv6."""

    def announce(self, vips: Iterable[Vip]) -> None:
        """Send one frame for each address, from its interface's MAC."""
        ...


class VirtualMacPort(Protocol):
    """Tells the forwarder of this host which virtual MACs are its own at the moment."""

    def accept(self, macs: frozenset[tuple[str, str]]) -> None:
        """Take frames to exactly these, each a base interface and a MAC. A failure is logged by the adapter."""
        ...


class RoutePort(Protocol):
    """The routes and rules of this host."""

    def add(self, routes: Iterable[Route], rules: Iterable[Rule]) -> None:
        """Put on; those already there are left as they are. Raises HostError."""
        ...

    def remove(self, routes: Iterable[Route], rules: Iterable[Rule]) -> None:
        """Take off; those not there are no error. Raises HostError."""
        ...


class LinkPort(Protocol):
    """The state of interfaces; changes come in through `on_link`."""

    def link(self, interface: str) -> Link | None:
        """The interface as it is now, None when there is none of that name."""
        ...


class NotifyPort(Protocol):
    """Tells the operator's scripts, FIFOs and mailbox what has become of an instance or a sync group."""

    def notify(self, due: NotifyDue) -> None:
        """In order per instance; never waits."""
        ...


class ScriptPort(Protocol):
    """Runs the operator's commands, in order per queue, without waiting for them."""

    def run(self, queue: str, command: Command) -> None:
        """Start the command when the earlier ones of this queue have ended."""
        ...


class RecorderPort(Protocol):
    """Outlives the process: when each instance said last that it is MASTER, for whoever finds the process dead."""

    def sent(self, key: tuple[str, int], at_us: int) -> None:
        """The instance of this key has sent an advert as MASTER; monotonic µs."""
        ...

    def left(self, key: tuple[str, int]) -> None:
        """It is not MASTER any more; told before anything is done about it."""
        ...


class ReportPort(Protocol):
    """Where facts go: to the supervisor, or the simulator's ledger."""

    def report(self, fact: Fact) -> None:
        """Never blocks; the oldest is dropped when nobody listens."""
        ...


class ForwarderPort(Protocol):
    """The data plane of this host. Everything it holds is pinned: it goes on forwarding when the caller dies."""

    def attach(self, program: str, interfaces: tuple[str, ...], mode: str) -> tuple[LinkStatus, ...]:
        """Attach the pinned program to each interface, or swap it in where a link of ours is already there.

        `mode` is auto, native or generic. Interfaces that are no longer named are detached. Raises HostError.
        """
        ...

    def apply(self, wanted: WantedTable) -> None:
        """Make the maps say what `wanted` says, by the smallest ordered set of writes. Raises HostError."""
        ...

    def settle(self, now_s: int, lifetime_s: int) -> None:
        """End what changes of stateless services have left to be ended: to be called about once a second.

        `now_s`: CLOCK_MONOTONIC; `lifetime_s`: of an established flow without packets. Raises HostError.
        """
        ...

    def counters(self) -> Counters:
        """Counters since the maps were made."""
        ...

    def links(self) -> tuple[LinkStatus, ...]:
        """Where the program is attached, and how."""
        ...

    def repin(self) -> tuple[str, ...]:
        """Pin again what somebody has removed, though it is in use; its names. Raises HostError."""
        ...
