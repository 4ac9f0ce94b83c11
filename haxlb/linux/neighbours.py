"""How frames reach real servers: NextHop by netlink, kept fresh.

In direct routing the kernel sends nothing to a real server but health checks, so nothing confirms its neighbour entry.
Every REFRESH_S each entry is *used* (RTM_NEWNEIGH with NTF_USE): the kernel then does what it does for a packet
(net/core/neighbour.c, neigh_event_send): asks by ARP where there is no entry or a failed one, and confirms a stale one
by unicast after delay_first_probe_time. The address that is known stays in use meanwhile. NTF_EXT_MANAGED would do
it inside the kernel from 5.16 on, but would leave entries behind that are probed for ever.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address

from haxlb.forwarding.wanted import NextHop
from haxlb.linux.log import Log
from haxlb.linux.neighbours_wire import (
    EVENT_GROUPS,
    KIND_LINK,
    KIND_NEIGHBOUR,
    Entry,
    LinkLayer,
    Route,
    RouteKind,
    dump_links,
    dump_neighbours,
    read_link,
    read_neighbour,
    read_route,
    route_request,
    use_request,
)
from haxlb.linux.rtnetlink import Rtnetlink, split

REFRESH_S = 3.0
_SO_RCVBUFFORCE = 33

Report = Callable[[IPv4Address, NextHop | None, str], None]


class Neighbours:
    """NeighbourPort: calls `on_neighbour(address, next_hop, reason)` from the running loop, at changes only, and
    `on_interfaces()` when any interface has another MAC or is new.

    Two sockets: requests are answered at once on one, events arrive on the other.
    """

    def __init__(
        self,
        on_neighbour: Report,
        log: Log,
        *,
        on_interfaces: Callable[[], None] = lambda: None,
        refresh_s: float = REFRESH_S,
    ) -> None:
        self._on_neighbour = on_neighbour
        self._on_interfaces = on_interfaces
        self._log = log
        self._refresh_s = refresh_s
        self._loop = asyncio.get_running_loop()
        self._requests = Rtnetlink()
        self._events = _event_socket()
        self._links: dict[int, LinkLayer] = {}
        self._entries: dict[tuple[int, IPv4Address], Entry] = {}
        self._routes: dict[IPv4Address, Route] = {}
        self._said: dict[IPv4Address, tuple[NextHop | None, str] | None] = {}
        """Every followed address, with what was last reported of it."""
        self._scheduled: asyncio.Handle | None = None
        self._timer: asyncio.Handle = self._loop.call_later(refresh_s, self._refresh)
        self._look_at_everything()
        self._loop.add_reader(self._events.fileno(), self._readable)

    def follow(self, addresses: Iterable[IPv4Address]) -> None:
        """Follow exactly these; what is already known of a new one is reported from the loop, at once."""
        wanted = dict.fromkeys(addresses)
        new = [each for each in wanted if each not in self._said]
        for gone in [each for each in self._said if each not in wanted]:
            del self._said[gone]
            self._routes.pop(gone, None)
        for address in new:
            self._said[address] = None
            self._routes[address] = self._route(address)
        self._use(new)
        self._report_soon()

    def close(self) -> None:
        """Stop following; the kernel's entries stay."""
        self._loop.remove_reader(self._events.fileno())
        self._timer.cancel()
        if self._scheduled is not None:
            self._scheduled.cancel()
        self._events.close()
        self._requests.close()

    def _refresh(self) -> None:
        self._timer = self._loop.call_later(self._refresh_s, self._refresh)
        self._use(self._said)

    def _use(self, addresses: Iterable[IPv4Address]) -> None:
        routes = [(address, self._routes[address]) for address in addresses]
        requests = [
            use_request(route.interface_index, address)
            for address, route in routes
            if route.kind is RouteKind.CONNECTED
        ]
        # A refusal (an interface that has just gone) is answered by the events of what caused it.
        if requests:
            self._requests.change(requests)

    def _route(self, address: IPv4Address) -> Route:
        try:
            return read_route(self._requests.get(route_request(address)))
        except OSError as problem:
            # RTN_UNREACHABLE, RTN_PROHIBIT and RTN_BLACKHOLE answer with an errno of their own.
            reason = f"no route to {address}"
            if problem.errno not in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EINVAL, errno.EACCES):
                reason = f"{reason}: {problem.strerror}"
            return Route(kind=RouteKind.NONE, reason=reason)

    def _look_at_everything(self) -> None:
        self._links = {link.index: link for link in dump_links(self._requests)}
        self._entries = {(entry.interface_index, entry.address): entry for entry in dump_neighbours(self._requests)}
        self._look_at_routes()

    def _look_at_routes(self) -> None:
        for address in self._said:
            self._routes[address] = self._route(address)

    def _readable(self) -> None:
        routes_changed = lost = False
        macs_before = self._macs()
        while True:
            try:
                datagram = self._events.recv(1 << 16)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as problem:
                if problem.errno != errno.ENOBUFS:
                    raise
                lost = True
                continue
            for kind, _, message in split(datagram):
                routes_changed |= self._take(kind, message)
        before = dict(self._routes)
        if lost:
            # Only now: what was still queued is older than what a dump says.
            self._log("info", "neighbour_events_lost", consequence="everything is looked at anew")
            self._look_at_everything()
        elif routes_changed:
            self._look_at_routes()
        self._use([address for address, route in self._routes.items() if before[address] != route])
        self._report()
        if not self._macs().items() <= macs_before.items():
            self._on_interfaces()

    def _macs(self) -> dict[int, str]:
        """MAC by interface index."""
        return {index: link.mac for index, link in self._links.items()}

    def _take(self, kind: int, message: bytes) -> bool:
        """Take in one event; whether routes may have changed."""
        if kind in KIND_NEIGHBOUR:
            entry = read_neighbour(kind, message)
            if entry is not None:
                self._entries.pop((entry.interface_index, entry.address), None)
                if entry.mac or entry.failed:
                    self._entries[entry.interface_index, entry.address] = entry
            return False
        if kind in KIND_LINK:
            link = read_link(kind, message)
            former = self._links.pop(link.index, None)
            if link.exists:
                self._links[link.index] = link
            return link != former
        return True

    def _report_soon(self) -> None:
        if self._scheduled is None:
            self._scheduled = self._loop.call_soon(self._report)

    def _report(self) -> None:
        self._scheduled = None
        for address, said in list(self._said.items()):
            now = self._state(address)
            if now is not None and now != said and address in self._said:
                self._said[address] = now
                self._on_neighbour(address, *now)

    def _state(self, address: IPv4Address) -> tuple[NextHop | None, str] | None:
        """What is to be said of an address; None while ARP has not answered yet, nor failed."""
        route = self._routes[address]
        if route.kind is not RouteKind.CONNECTED:
            return None, route.reason
        link = self._links.get(route.interface_index)
        if link is None:
            return None, f"the interface to {address} is gone"
        if not link.mac:
            return None, f"{address} is behind {link.name}, which has no MAC: direct routing needs Ethernet"
        entry = self._entries.get((route.interface_index, address))
        if entry is not None and entry.mac:
            hop = NextHop(interface_index=route.interface_index, source_mac=link.mac, destination_mac=entry.mac)
            return hop, ""
        if entry is not None and entry.failed:
            return None, f"no ARP answer from {address} on {link.name}"
        return None


def _event_socket() -> socket.socket:
    events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
    try:
        events.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 20)
    except OSError:  # without CAP_NET_ADMIN the default must do; an overrun is handled
        events.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    events.bind((0, EVENT_GROUPS))
    return events
