"""The speaker's ports in the virtual world: a clock, an alarm clock, sockets, addresses, ARP, links, scripts.

The same contracts as `haxlb.linux`; what the kernel does by itself there (lifetimes of addresses, the queue of a
socket whose process is stopped) is done here by `haxlb.sim.director`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv6Address

from haxlb.daemon.ports import Datagram, Link
from haxlb.model.addresses import Vip
from haxlb.model.errors import HostError
from haxlb.model.routes import Route, Rule
from haxlb.sim.lan import Lan, Nic
from haxlb.sim.loop import Timer, VirtualLoop


class VirtualClock:
    """ClockPort. Directors were not booted at the same moment: each clock has its own zero."""

    def __init__(self, loop: VirtualLoop, offset_us: int) -> None:
        self._loop = loop
        self.offset_us = offset_us

    def now(self) -> int:
        """Monotonic time in µs."""
        return self._loop.now_us + self.offset_us


class VirtualWake:
    """WakePort: calls `on_wake` at the requested time.

    A backup moves its deadline with every advert that it hears. Only a deadline that comes nearer costs an entry on
    the heap; the one of before, when it fires early, moves on to the present deadline.
    """

    def __init__(self, loop: VirtualLoop, clock: VirtualClock, on_wake: Callable[[], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._on_wake = on_wake
        self._deadline_us: int | None = None
        """On the node's own clock, which stands still while its host is suspended."""
        self._timer: Timer | None = None

    def wake_at(self, deadline_us: int | None) -> None:
        """Replace the former request; None = no wake-up."""
        self._deadline_us = deadline_us
        if deadline_us is None:
            return
        at = deadline_us - self._clock.offset_us
        if self._timer is not None:
            if self._timer.when_us <= at:
                return
            self._timer.cancel()
        self._timer = self._loop.at(at, self._fire)

    def close(self) -> None:
        """Its process is gone."""
        self._deadline_us = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fire(self) -> None:
        self._timer = None
        if self._deadline_us is None:
            return
        if self._deadline_us > self._clock.now():
            self._timer = self._loop.at(self._deadline_us - self._clock.offset_us, self._fire)
            return
        self._deadline_us = None
        self._on_wake()


class VirtualAdverts:
    """AdvertPort: a socket with a receive queue, which fills while the process is stopped."""

    def __init__(self, lan: Lan, nics: dict[str, Nic]) -> None:
        self._lan = lan
        self._nics = nics
        self.queue: list[Datagram] = []

    def send(self, datagram: Datagram) -> None:
        """Onto the LAN at once; without a carrier it is lost, as from a real socket."""
        nic = self._nics.get(datagram.interface)
        if nic is not None:
            self._lan.send(nic, datagram)

    def receive(self) -> list[Datagram]:
        """All that waits, oldest first."""
        waiting, self.queue = self.queue, []
        return waiting


class AddressTable:
    """AddressPort: the addresses that this host's kernel has, and those that haxlb renews."""

    def __init__(self, interfaces: Iterable[str], on_change: Callable[[], None]) -> None:
        self._interfaces = frozenset(interfaces)
        self._on_change = on_change
        self.present: dict[Vip, None] = {}
        """What the kernel has now."""
        self.held: dict[Vip, None] = {}
        """What the process renews, again and again; forgotten when it dies."""

    def add(self, vips: Iterable[Vip]) -> None:
        """Put on. Raises HostError for an interface that this host lacks."""
        for vip in vips:
            if vip.interface not in self._interfaces:
                raise HostError(f"cannot add {vip}: there is no interface {vip.interface}", remedy="name another one")
            self.held[vip] = None
            self.present[vip] = None
        self._on_change()

    def remove(self, vips: Iterable[Vip]) -> None:
        """Take off; those not there are no error."""
        for vip in vips:
            self.held.pop(vip, None)
            self.present.pop(vip, None)
        self._on_change()

    def expire(self) -> None:
        """The lifetimes are over, and nobody has renewed them."""
        self.present.clear()
        self._on_change()

    def renew(self) -> None:
        """The process lives again and renews what it believes to hold."""
        self.present.update(self.held)
        self._on_change()


class VirtualAnnouncer:
    """AnnouncePort: gratuitous ARP."""

    def __init__(self, lan: Lan, nics: dict[str, Nic]) -> None:
        self._lan = lan
        self._nics = nics

    def announce(self, vips: Iterable[Vip]) -> None:
        """One frame for each address, from its interface's MAC."""
        by_interface: dict[str, list[Vip]] = {}
        for vip in vips:
            by_interface.setdefault(vip.interface, []).append(vip)
        for interface, listed in by_interface.items():
            nic = self._nics.get(interface)
            if nic is not None:
                self._lan.announce(nic, (vip.address for vip in listed))


class VirtualLinks:
    """LinkPort."""

    def __init__(self, nics: dict[str, Nic]) -> None:
        self._nics = nics

    def link(self, interface: str) -> Link | None:
        """The interface as it is now."""
        nic = self._nics.get(interface)
        if nic is None:
            return None
        return Link(
            interface=interface,
            up=nic.carrier,
            mac=nic.mac,
            address=next((each for each in nic.addresses if isinstance(each, IPv4Address)), None),
            address6=next((each for each in nic.addresses if isinstance(each, IPv6Address)), None),
        )


class RouteTable:
    """RoutePort: the virtual routes and rules that this host's kernel has."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self.present: dict[Route | Rule, None] = {}

    def add(self, routes: Iterable[Route], rules: Iterable[Rule]) -> None:
        """Put on."""
        self.present.update(dict.fromkeys((*routes, *rules)))
        self._on_change()

    def remove(self, routes: Iterable[Route], rules: Iterable[Rule]) -> None:
        """Take off; those not there are no error."""
        entries: tuple[Route | Rule, ...] = (*routes, *rules)
        for each in entries:
            self.present.pop(each, None)
        self._on_change()
