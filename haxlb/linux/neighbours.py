"""How frames reach real servers: NextHop by netlink, kept fresh.

In direct routing the kernel sends nothing to a real server but health checks, so nothing confirms its neighbour entry.
Every REFRESH_S each entry is *used* (RTM_NEWNEIGH with NTF_USE): the kernel then does what it does for a packet
(net/core/neighbour.c, neigh_event_send): asks by ARP or neighbour discovery where there is no entry or a failed one,
and confirms a stale one by unicast after delay_first_probe_time. The address that is known stays in use meanwhile.
NTF_EXT_MANAGED would do it inside the kernel from 5.16 on, but would leave entries behind that are probed for ever.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterable
from ipaddress import IPv6Address
from itertools import islice

from haxlb.forwarding.wanted import NextHop
from haxlb.linux.link_layers import KIND_LINK, LinkLayer, carrier, dump_links, read_link
from haxlb.linux.log import Log
from haxlb.linux.neighbours_wire import (
    EVENT_GROUPS,
    KIND_NEIGHBOUR,
    Entry,
    Route,
    RouteKind,
    dump_neighbours,
    read_neighbour,
    read_route,
    route_request,
    use_request,
)
from haxlb.linux.rtnetlink import Rtnetlink, split
from haxlb.model.addresses import IPAddress

REFRESH_S = 3.0
ROUTES_PER_REFRESH = 64
"""Routes through gateways that are looked at anew each time: no event tells that the MTU of a path was found out."""
MOST_MTU = 65535
"""Of IP; that of a loopback interface is one more."""
_SO_RCVBUFFORCE = 33
_LOOPBACK_MAC = "00:00:00:00:00:00"
_NO_ROUTE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EINVAL, errno.EACCES)
"""RTN_UNREACHABLE, RTN_PROHIBIT and RTN_BLACKHOLE of IPv4 answer with an errno of their own."""

Report = Callable[[IPAddress, NextHop | None, str, IPAddress | None], None]
"""Address, the way there or None, why there is none, and the gateway on the way, None where there is none."""
_State = tuple[NextHop | None, str, IPAddress | None]


class Neighbours:
    """NeighbourPort: calls `on_neighbour(address, next_hop, reason, gateway)` from the running loop, at changes only,
    and `on_interfaces()` when any interface has another MAC or is new.

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
        self._entries: dict[tuple[int, IPAddress], Entry] = {}
        self._routes: dict[IPAddress, Route] = {}
        self._said: dict[IPAddress, _State | None] = {}
        """Every followed address, with what was last reported of it."""
        self._scheduled: asyncio.Handle | None = None
        self._timer: asyncio.Handle = self._loop.call_later(refresh_s, self._refresh)
        self._look_at_everything()
        self._loop.add_reader(self._events.fileno(), self._readable)

    def follow(self, addresses: Iterable[IPAddress]) -> None:
        """Follow exactly these; what is already known of a new one is reported from the loop, at once.

        A link-local one names its interface as its scope: `fe80::1%eth0`.
        """
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
        routed = (address for address, route in self._routes.items() if route.kind is RouteKind.GATEWAY)
        for address in list(islice(routed, ROUTES_PER_REFRESH)):
            del self._routes[address]  # to the end: the next time it is the turn of others
            self._routes[address] = self._route(address)
        self._use(self._said)
        self._report()

    def _use(self, addresses: Iterable[IPAddress]) -> None:
        routes = (self._routes[address] for address in addresses)
        wanted = dict.fromkeys((route.interface_index, route.via) for route in routes)
        requests = [use_request(index, via) for index, via in wanted if via is not None]
        # A refusal (an interface that has just gone) is answered by the events of what caused it.
        if requests:
            self._requests.change(requests)

    def _route(self, address: IPAddress) -> Route:
        interface = 0
        if isinstance(address, IPv6Address) and address.is_link_local:
            scope = address.scope_id or ""
            interface = next((each.index for each in self._links.values() if scope in (each.name, str(each.index))), 0)
            if not scope:
                return Route(kind=RouteKind.NONE, reason=f"{address} is link-local, and names no interface (`%eth0`)")
            if not interface:
                return Route(kind=RouteKind.NONE, reason=f"there is no interface {scope} for {address}")
        try:
            return read_route(self._requests.get(route_request(address, interface)), address)
        except OSError as problem:
            reason = f"no route to {address}"
            if problem.errno not in _NO_ROUTE:
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
            if link is None:
                return False
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

    def _state(self, address: IPAddress) -> _State | None:
        """What is to be said of an address; None while nobody has answered yet, nor failed to."""
        route = self._routes[address]
        gateway = route.via if route.kind is RouteKind.GATEWAY else None
        obstacle = self._obstacle(address, route)
        if obstacle:
            return None, obstacle, gateway
        link = self._links[route.interface_index]
        mtu = min(filter(None, (route.mtu, link.mtu, MOST_MTU)))
        if route.via is None:
            return self._local(route, mtu), "", None
        entry = self._entries.get((link.index, route.via))
        if entry is None or not (entry.mac or entry.failed):
            return None
        if not entry.mac:
            return None, _silence(address, route, link.name), gateway
        below = carrier(self._links, link.index)
        hop = NextHop(
            interface_index=below.index,
            source_mac=link.mac,
            destination_mac=entry.mac,
            vlan=below.vlan,
            source=route.source,
            mtu=mtu,
        )
        return hop, "", gateway

    def _obstacle(self, address: IPAddress, route: Route) -> str:
        """Why no frame can be sent there, whoever answers; empty when it can."""
        if route.kind is RouteKind.NONE:
            return route.reason
        link = self._links.get(route.interface_index)
        if link is None:
            return f"the interface to {address} is gone"
        if route.kind is RouteKind.LOCAL:
            return ""
        if not link.mac:
            return f"{address} is behind {link.name}, which has no MAC: forwarding needs Ethernet"
        return carrier(self._links, link.index).problem

    def _local(self, route: Route, mtu: int) -> NextHop:
        """To this host itself, by its loopback interface."""
        loopback = next((each.index for each in self._links.values() if each.loopback), route.interface_index)
        return NextHop(
            interface_index=loopback,
            source_mac=_LOOPBACK_MAC,
            destination_mac=_LOOPBACK_MAC,
            source=route.source,
            mtu=mtu,
        )


def _silence(address: IPAddress, route: Route, interface: str) -> str:
    """Who was asked, and did not answer."""
    asked = "ARP" if route.via is None or route.via.version == 4 else "neighbour discovery"  # noqa: PLR2004 - the family
    if route.kind is RouteKind.GATEWAY:
        return f"no {asked} answer on {interface} from {route.via}, the gateway to {address}"
    return f"no {asked} answer from {address} on {interface}"


def _event_socket() -> socket.socket:
    events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
    try:
        events.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 20)
    except OSError:  # without CAP_NET_ADMIN the default must do; an overrun is handled
        events.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    events.bind((0, EVENT_GROUPS))
    return events
