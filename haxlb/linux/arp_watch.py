"""VipWatchPort: while a VIP is ours, asks the network every few seconds whether somebody else has it, too.

An answer, or a gratuitous announcement, by another MAC is evidence of a second MASTER that does not depend on adverts:
it is seen also where a filter, an authentication or a version that differs keeps the adverts from us.

IPv4 only: IPv6 VIPs are not watched.
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
from haxlb.model.addresses import Vip
from haxlb.model.facts import ForeignMacHeard
from haxlb.model.node import SECOND_US

PERIOD_S = 3.0
REPORT_PAUSE_US = SECOND_US
"""Per VIP and MAC: a flood of ARP must not become a flood of facts."""
MOST_MACS = 256
_VRRP_MAC = "00:00:5e:00:01:"
"""The virtual router's MAC (RFC 9568 section 7.3), as keepalived's use_vmac has it: a director's in any case."""


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
        self._vips: dict[str, tuple[IPv4Address, ...]] = {}
        self._peers: dict[str, tuple[IPv4Address, ...]] = {}
        self._sockets: dict[str, ArpSocket] = {}
        self._directors: dict[tuple[str, str], IPv4Address] = {}
        """By interface and MAC."""
        self._reported: dict[tuple[IPv4Address, str], int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, vips: Iterable[Vip], peers: Iterable[PeersKnown]) -> None:
        """Watch exactly these VIPs from now on; a MAC that belongs to one of the peers is a director's."""
        self._peers = {
            each.interface: tuple(peer for peer in each.peers if isinstance(peer, IPv4Address)) for each in peers
        }
        wanted: dict[str, tuple[IPv4Address, ...]] = {}
        for vip in vips:
            if isinstance(vip.address, IPv4Address):
                wanted[vip.interface] = (*wanted.get(vip.interface, ()), vip.address)
        if wanted == self._vips:
            return
        self._vips = wanted
        for interface in [name for name in self._sockets if name not in wanted]:
            self._close(interface)
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
            try:
                channel = self._open(interface)
                for address in (*vips, *self._peers.get(interface, ())):
                    channel.ask(address)
            except OSError as problem:  # the interface is down or gone: so is our role, soon
                self._close(interface)
                self._log("debug", "vip_not_watched", interface=interface, reason=problem.strerror)

    def _open(self, interface: str) -> ArpSocket:
        channel = self._sockets.get(interface)
        if channel is not None and channel.index == socket.if_nametoindex(interface):
            return channel
        self._close(interface)
        channel = self._sockets[interface] = ArpSocket(interface)
        asyncio.get_running_loop().add_reader(channel.fileno(), self._readable, interface, channel)
        return channel

    def _close(self, interface: str) -> None:
        channel = self._sockets.pop(interface, None)
        if channel is not None:
            asyncio.get_running_loop().remove_reader(channel.fileno())
            channel.close()

    def _readable(self, interface: str, channel: ArpSocket) -> None:
        try:
            heard = channel.receive()
        except OSError:  # ENETDOWN
            self._close(interface)
            return
        for each in heard:
            self._take(interface, each)

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

    def _director(self, interface: str, mac: str) -> IPv4Address | None:
        known = self._directors.get((interface, mac))
        if known is None and mac.startswith(_VRRP_MAC):
            return next(iter(self._peers.get(interface, ())), None)
        return known
