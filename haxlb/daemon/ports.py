"""Ports: all that the machines' shell may ask of the outside world.

`haxlb.linux` and `haxlb.sim` hold the two sets of adapters. Every call is synchronous, returns at once and raises
nothing but HostError; what the world says comes in through the `Speaker`'s `on_…` methods. Times are monotonic µs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Protocol

from haxlb.forwarding.wanted import Counters, WantedTable
from haxlb.model.addresses import Vip
from haxlb.model.facts import Fact
from haxlb.model.status import LinkStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Datagram:
    """A VRRP message with what its IP header said."""

    interface: str
    source: IPv4Address
    destination: IPv4Address
    ttl: int
    payload: bytes
    """The VRRP message, without the IP header."""
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
    """Gratuitous ARP."""

    def announce(self, vips: Iterable[Vip]) -> None:
        """Send one gratuitous ARP request for each address, from its interface's MAC."""
        ...


class LinkPort(Protocol):
    """The state of interfaces; changes come in through `on_link`."""

    def link(self, interface: str) -> Link | None:
        """The interface as it is now, None when there is none of that name."""
        ...


class NotifyPort(Protocol):
    """Runs the operator's scripts, in order per instance, without waiting for them."""

    def run(self, instance: str, command: tuple[str, ...]) -> None:
        """Start the command when the earlier ones of this instance have ended."""
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

    def counters(self) -> Counters:
        """Counters since the maps were made."""
        ...

    def links(self) -> tuple[LinkStatus, ...]:
        """Where the program is attached, and how."""
        ...
