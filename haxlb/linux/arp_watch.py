"""VipWatchPort: while a VIP is ours, asks the network every few seconds whether somebody else has it, too.

An answer, or a gratuitous announcement, by another MAC is evidence of a second MASTER that does not depend on adverts:
it is seen also where a filter, an authentication or a version that differs keeps the adverts from us.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address

from haxlb.daemon.messages import PeersKnown
from haxlb.daemon.ports import ClockPort
from haxlb.linux.arp import ArpSocket, Heard
from haxlb.linux.log import Log
from haxlb.linux.neighbour_solicitation import NeighbourSocket
from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.facts import ForeignMacHeard
from haxlb.model.units import SECOND_US

PERIOD_S = 3.0
REPORT_PAUSE_US = SECOND_US
"""Per VIP and MAC: a flood of ARP must not become a flood of facts."""
MOST_MACS = 256
_VRRP_MACS = ("00:00:5e:00:01:", "00:00:5e:00:02:")
"""The virtual router's MAC (RFC 9568 section 7.3), as keepalived's use_vmac has it: a director's in any case."""

Place = tuple[str, int]
"""Interface, and 4 or 6."""


class ArpWatch:
    """On the running loop; calls `on_fact` with ForeignMacHeard."""

    def __init__(
        self,
        clock: ClockPort,
        on_fact: Callable[[ForeignMacHeard], None],
        log: Log,
        *,
        period_s: float = PERIOD_S,
    ) -> None:
        self._clock = clock
        self._on_fact = on_fact
        self._log = log
        self._period_s = period_s
        self._vips: dict[str, tuple[IPAddress, ...]] = {}
        self._peers: dict[str, tuple[IPAddress, ...]] = {}
        self._sockets: dict[Place, ArpSocket | NeighbourSocket] = {}
        self._directors: dict[tuple[str, str], IPAddress] = {}
        """By interface and MAC."""
        self._reported: dict[tuple[IPAddress, str], int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, vips: Iterable[Vip], peers: Iterable[PeersKnown]) -> None:
        """Watch exactly these VIPs from now on; a MAC that belongs to one of the peers is a director's."""
        self._peers = {each.interface: each.peers for each in peers}
        wanted: dict[str, tuple[IPAddress, ...]] = {}
        for vip in vips:
            wanted[vip.interface] = (*wanted.get(vip.interface, ()), vip.address)
        if wanted == self._vips:
            return
        self._vips = wanted
        places = {(interface, vip.version) for interface, vips in wanted.items() for vip in vips}
        for place in [each for each in self._sockets if each not in places]:
            self._close(place)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if wanted:
            # Not at once: a master that has just lost the election still takes its addresses off.
            self._timer = asyncio.get_running_loop().call_later(min(1.0, self._period_s), self._ask)

    def close(self) -> None:
        """Stop watching."""
        self.watch((), ())

    def _ask(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._period_s, self._ask)
        for interface, vips in self._vips.items():
            everybody = (*vips, *self._peers.get(interface, ()))
            for version in dict.fromkeys(vip.version for vip in vips):
                place = (interface, version)
                try:
                    self._ask_for(place, [each for each in everybody if each.version == version])
                except OSError as problem:  # the interface is down or gone: so is our role, soon
                    self._close(place)
                    self._log("debug", "vip_not_watched", interface=interface, reason=problem.strerror)

    def _ask_for(self, place: Place, addresses: Iterable[IPAddress]) -> None:
        channel = self._open(place)
        for address in addresses:
            # Each of the two takes addresses of its own family, and `place` has that of these.
            if isinstance(address, IPv4Address):
                if isinstance(channel, ArpSocket):
                    channel.ask(address)
            elif isinstance(channel, NeighbourSocket):
                channel.ask(address)

    def _open(self, place: Place) -> ArpSocket | NeighbourSocket:
        interface, version = place
        channel = self._sockets.get(place)
        if channel is not None and channel.index == socket.if_nametoindex(interface):
            return channel
        self._close(place)
        channel = ArpSocket(interface) if version == 4 else NeighbourSocket(interface)  # noqa: PLR2004 - the family
        self._sockets[place] = channel
        asyncio.get_running_loop().add_reader(channel.fileno(), self._readable, place, channel)
        return channel

    def _close(self, place: Place) -> None:
        channel = self._sockets.pop(place, None)
        if channel is not None:
            asyncio.get_running_loop().remove_reader(channel.fileno())
            channel.close()

    def _readable(self, place: Place, channel: ArpSocket | NeighbourSocket) -> None:
        try:
            heard = channel.receive()
        except OSError:  # ENETDOWN
            self._close(place)
            return
        for each in heard:
            self._take(place[0], each)

    def _take(self, interface: str, heard: Heard) -> None:
        if heard.address in self._peers.get(interface, ()):
            if len(self._directors) >= MOST_MACS:
                self._directors.clear()
            self._directors[interface, heard.mac] = heard.address
        if heard.address not in self._vips.get(interface, ()):
            return
        now = self._clock.now()
        last = self._reported.get((heard.address, heard.mac))
        if last is not None and now - last < REPORT_PAUSE_US:
            return
        if len(self._reported) >= MOST_MACS:
            self._reported.clear()
        self._reported[heard.address, heard.mac] = now
        self._on_fact(
            ForeignMacHeard(
                vip=heard.address,
                interface=interface,
                mac=heard.mac,
                at_us=now,
                director=self._director(interface, heard.mac),
            )
        )

    def _director(self, interface: str, mac: str) -> IPAddress | None:
        known = self._directors.get((interface, mac))
        if known is None and mac.startswith(_VRRP_MACS):
            return next(iter(self._peers.get(interface, ())), None)
        return known
