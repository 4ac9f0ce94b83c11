"""LinkPort: interfaces as they are now, and a netlink monitor that says when one of them changes."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from types import MappingProxyType

from haxlb.daemon.ports import Link
from haxlb.linux.log import Log
from haxlb.linux.present_addresses import (
    IFA_F_DADFAILED,
    IFA_F_OPTIMISTIC,
    IFA_F_SECONDARY,
    IFA_F_TENTATIVE,
    IFADDRMSG,
    parse_address,
    present_addresses,
)
from haxlb.linux.rtnetlink import (
    IFLA_ADDRESS,
    IFLA_IFNAME,
    IFLA_MTU,
    RTM_DELADDR,
    RTM_DELLINK,
    RTM_GETLINK,
    RTM_NEWADDR,
    RTM_NEWLINK,
    RTMGRP_IPV4_IFADDR,
    RTMGRP_IPV6_IFADDR,
    RTMGRP_LINK,
    Rtnetlink,
    attribute,
    encode,
    split,
)
from haxlb.model.addresses import IPAddress

_IFF_UP = 0x1
_IFF_RUNNING = 0x40
_IFF_NOARP = 0x80
_NOT_USABLE = IFA_F_TENTATIVE | IFA_F_DADFAILED | IFA_F_OPTIMISTIC
_IFINFOMSG = struct.Struct("=BxHiII")
_HEADER_SIZE = 16
_SO_RCVBUFFORCE = 33
_BATCH = 64
"""Datagrams of events that are taken in one go: whoever changes interfaces without a pause must not hold up adverts."""


class Links:
    """The watched interfaces; `link` asks the kernel, `known` remembers the last answer."""

    def __init__(self, rtnetlink: Rtnetlink) -> None:
        self._rtnetlink = rtnetlink
        self._known: dict[str, Link | None] = {}
        self._indices: dict[str, int] = {}
        self._vips: frozenset[IPAddress] = frozenset()
        self._sources: dict[str, frozenset[IPAddress]] = {}
        """By interface, the configured source addresses whose loss is a fault there."""
        self._silent: set[str] = set()
        """Interfaces without address resolution (IFF_NOARP)."""

    @property
    def has_sources(self) -> bool:
        """Whether any source address is tracked."""
        return bool(self._sources)

    @property
    def watched(self) -> tuple[str, ...]:
        """Names of the watched interfaces."""
        return tuple(self._known)

    def watch(
        self,
        interfaces: Iterable[str],
        vips: Iterable[IPAddress],
        sources: Mapping[str, frozenset[IPAddress]] = MappingProxyType({}),
    ) -> None:
        """Watch exactly these, and never take one of our VIPs for an interface's own address.

        `sources`: by interface, the addresses that some interface of this host should have (track_src_ip).
        """
        self._vips = frozenset(vips)
        self._sources = dict(sources)
        self._known = dict.fromkeys(interfaces)
        self._indices.clear()
        for interface in self._known:
            self.link(interface)

    def narrow(self, interfaces: Iterable[str], vips: Iterable[IPAddress]) -> None:
        """Go on watching these only, of those that are watched; nothing is asked."""
        self._vips = frozenset(vips)
        wanted = frozenset(interfaces)
        self._known = {name: link for name, link in self._known.items() if name in wanted}
        self._indices = {name: index for name, index in self._indices.items() if name in wanted}

    def link(self, interface: str) -> Link | None:
        """The interface as it is now, None when there is none of that name."""
        found = self._ask(interface)
        link, index = found or (None, None)
        if interface in self._known:
            self._known[interface] = link
            if index is None:
                self._indices.pop(interface, None)
            else:
                self._indices[interface] = index
        return link

    def known(self, interface: str) -> Link | None:
        """The interface as it was when last asked for; no system call."""
        return self._known.get(interface)

    def index(self, interface: str) -> int | None:
        """Index of the interface as last known, None when it does not exist."""
        return self._indices.get(interface)

    @property
    def indices(self) -> dict[str, int]:
        """Index of every watched interface that exists."""
        return dict(self._indices)

    def mac(self, interface: str) -> str | None:
        """MAC of the interface as last known; empty where nobody resolves addresses, None without an interface."""
        link = self._known.get(interface)
        if link is None:
            return None
        return "" if interface in self._silent else link.mac

    def dependants(self, source: IPAddress) -> tuple[str, ...]:
        """The watched interfaces with an instance that tracks this source address."""
        return tuple(name for name, sources in self._sources.items() if source in sources)

    def is_vip(self, address: IPAddress) -> bool:
        """Whether this is one of our VIPs."""
        return address in self._vips

    def name(self, index: int) -> str | None:
        """Name of the watched interface that has this index."""
        return next((name for name, each in self._indices.items() if each == index), None)

    def _ask(self, interface: str) -> tuple[Link, int] | None:
        try:
            answer = self._rtnetlink.get(link_request(interface))[0]
        except OSError as problem:
            # ERANGE and EINVAL: a name that no interface can have.
            if problem.errno in (errno.ENODEV, errno.ERANGE, errno.EINVAL):
                return None
            raise
        _, _, index, flags, _ = _IFINFOMSG.unpack_from(answer, _HEADER_SIZE)
        mac = attribute(answer, _IFINFOMSG.size, IFLA_ADDRESS) or b""
        mtu = attribute(answer, _IFINFOMSG.size, IFLA_MTU) or b""
        (self._silent.add if flags & _IFF_NOARP else self._silent.discard)(interface)
        address, address6 = self._own_addresses(index)
        link = Link(
            interface=interface,
            up=bool(flags & _IFF_UP and flags & _IFF_RUNNING),
            mac=mac.hex(":"),
            address=address,
            mtu=int.from_bytes(mtu, sys.byteorder),
            address6=address6,
            absent_sources=self._absent(self._sources.get(interface, frozenset())),
        )
        return link, index

    def _absent(self, sources: frozenset[IPAddress]) -> frozenset[IPAddress]:
        """Those that no interface has, whichever: routing, not the instance, decides where a source must be."""
        if not sources:
            return sources
        present = present_addresses(self._rtnetlink)
        return sources - {each.address for each in present if not each.flags & _NOT_USABLE}

    def _own_addresses(self, index: int) -> tuple[IPv4Address | None, IPv6Address | None]:
        """The first IPv4 address that is not secondary, and the first usable link-local one; VIPs are neither."""
        first: IPv4Address | None = None
        first6: IPv6Address | None = None
        for each in present_addresses(self._rtnetlink, index=index):
            if each.address in self._vips:
                continue
            if isinstance(each.address, IPv4Address):
                if first is None and not each.flags & IFA_F_SECONDARY:
                    first = each.address
            elif first6 is None and each.address.is_link_local and not each.flags & _NOT_USABLE:
                first6 = each.address
        return first, first6


@lru_cache(maxsize=256)
def link_request(interface: str) -> bytes:
    """The question for one interface by its name."""
    from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

    request = ifinfmsg()
    request["attrs"] = [("IFLA_IFNAME", interface)]
    return encode(request, RTM_GETLINK, 0)


class LinkMonitor:
    """Calls `on_change(interface)` from the running loop when a watched interface or its addresses may have changed.

    Address changes that our own rtnetlink sockets asked for are left out: the VIPs are renewed all the time.
    The kernel does not say who asked for one of IPv6 (inet6_ifa_notify): of our VIPs only the loss of one that is held
    counts there.
    """

    def __init__(
        self,
        links: Links,
        rtnetlink: Rtnetlink,
        on_change: Callable[[str], None],
        log: Log,
        is_held: Callable[[IPAddress], bool] = lambda _: True,
        *,
        own_ports: Iterable[int] = (),
    ) -> None:
        """`is_held` says whether we want this VIP to be on; `own_ports` are those of further sockets of ours."""
        self._links = links
        self._own_ports = frozenset((rtnetlink.port, *own_ports))
        self._on_change = on_change
        self._log = log
        self._is_held = is_held
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.setblocking(False)
        self._enlarge_buffer()
        self._socket.bind((0, RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR))
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.fileno(), self._readable)
        self.resyncs = 0
        """How often the kernel had more events than the socket could hold."""

    def close(self) -> None:
        """Stop watching."""
        self._loop.remove_reader(self._socket.fileno())
        self._socket.close()

    def _enlarge_buffer(self) -> None:
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 1 << 20)
        except OSError:  # without CAP_NET_ADMIN the default must do; an overrun is handled
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)

    def _readable(self) -> None:
        changed: dict[str, None] = {}
        for _ in range(_BATCH):
            try:
                datagram = self._socket.recv(1 << 16)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as problem:
                if problem.errno != errno.ENOBUFS:
                    raise
                self.resyncs += 1
                self._log("info", "link_events_lost", detail="all interfaces are looked at anew", resyncs=self.resyncs)
                changed.update(dict.fromkeys(self._links.watched))
                continue
            for kind, port, message in split(datagram):
                changed.update(dict.fromkeys(self._interfaces(kind, port, message)))
        for interface in changed:
            self._on_change(interface)

    def _interfaces(self, kind: int, port: int, message: bytes) -> tuple[str, ...]:
        """The watched interfaces that an event is about."""
        interface = self._interface(kind, port, message)
        concerned: tuple[str, ...] = () if interface is None else (interface,)
        if kind in (RTM_NEWADDR, RTM_DELADDR) and self._links.has_sources:
            found = parse_address(message)
            if found is not None:
                concerned += self._links.dependants(found.address)
        return concerned

    def _interface(self, kind: int, port: int, message: bytes) -> str | None:
        """The watched interface that an event is about, None when it is about none of them."""
        if kind in (RTM_NEWADDR, RTM_DELADDR) and port not in self._own_ports:
            family, _, _, _, index = IFADDRMSG.unpack_from(message, _HEADER_SIZE)
            if family == socket.AF_INET6 and not self._matters(kind, message):
                return None
            return self._links.name(index)
        if kind in (RTM_NEWLINK, RTM_DELLINK):
            # By index too: a rename carries the new name only.
            former = self._links.name(_IFINFOMSG.unpack_from(message, _HEADER_SIZE)[2])
            name = (attribute(message, _IFINFOMSG.size, IFLA_IFNAME) or b"").rstrip(b"\0").decode(errors="replace")
            return former or (name if name in self._links.watched else None)
        return None

    def _matters(self, kind: int, message: bytes) -> bool:
        found = parse_address(message)
        if found is None or not self._links.is_vip(found.address):
            return True
        return kind == RTM_DELADDR and self._is_held(found.address)
