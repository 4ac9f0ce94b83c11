"""One raw socket for VRRP: opening it, and what has arrived by it."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from haxlb.daemon.ports import Datagram
from haxlb.linux.advert_filter import CALM, KNOWN_SENDERS, THINNED, Kind, Signature, attach, program
from haxlb.linux.ip_packets import address6, packet_of, parse_ip_packet
from haxlb.model.addresses import IPAddress
from haxlb.model.errors import HostError, NotPermitted
from haxlb.model.units import SECOND_US
from haxlb.vrrp.authentication_header import AH_PROTOCOL_NUMBER

RECEIVE_BUFFER = 4 << 20
FLOOD_WINDOW_US = 100_000
FLOOD_PAUSE_US = 10 * SECOND_US
"""How long the filter then sheds load, until it is tried without again."""
_UNBEARABLE = 5
_MOST_KNOWN = 64
_MOST_SHED = 16_384
"""More than RECEIVE_BUFFER holds; some microseconds each."""
_MOST_KEPT = 256
"""The newest."""

_SO_RCVBUFFORCE = 33
_IP_MULTICAST_ALL = 49
_IP_PKTINFO = 8
_PKTINFO = struct.Struct("=i4s4s")
_IPV6_HDRINCL = 36
_IPV6_FREEBIND = 78
_IPV6_MULTICAST_ALL = 29
_PKTINFO6 = struct.Struct("=16sI")
_LONGEST = 8192
"""More than 255 IPv6 addresses with all their headers."""
_ANCILLARY = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a socket is bound to."""

    family: int
    protocol: int
    """112, or 51 for messages behind an authentication header."""
    device: str
    """The interface of multicast; the VRF of unicast, empty = any interface."""
    group: IPAddress | None
    """None = unicast."""

    @property
    def kind(self) -> Kind:
        """For its filter."""
        return Kind(family=self.family, ah=self.protocol == AH_PROTOCOL_NUMBER, unicast=self.group is None)


class _Taken(NamedTuple):
    """A message as the socket gave it."""

    data: bytes
    ancillary: Sequence[tuple[int, int, bytes]]
    sender: str
    """Of IPv6 only."""


class AdvertSocket:
    """An open socket. Raises HostError where it cannot be opened."""

    def __init__(self, place: Place, index: int) -> None:
        self.place = place
        self.index = index
        """Of the device; a socket stays bound to it when another interface gets the name."""
        self.wanted: dict[int, Signature] = {}
        self.stage = CALM
        """Of the filter; it stays until `calm_at`."""
        self.calm_at = 0
        self._window_at = 0
        self._window_count = 0
        self._window_senders: set[IPAddress] = set()
        self._seen_once: set[IPAddress] = set()
        self._known: dict[IPAddress, None] = {}
        """Who was heard while there was no flood, the latest last."""
        self._strangers = False
        self._kept: deque[_Taken] = deque(maxlen=_MOST_KEPT)
        """Taken from the socket already; the loop does not know of them."""
        self.socket = _open(place, index)

    def want(self, wanted: Mapping[int, Signature], *, strangers: bool) -> None:
        """Hear messages for these VRIDs, and with `strangers` for all others."""
        if (self.wanted, self._strangers) == (wanted, strangers):
            return
        self.wanted, self._strangers = dict(wanted), strangers
        self._filter()

    def count(self, taken: int, senders: set[IPAddress], limit: int, now: int) -> bool:
        """Count messages that were taken; more than `limit` in a window are a flood. Whether one has just begun.

        While it goes on, the filter passes from stage to stage until the rest is few enough.
        """
        if now - self._window_at > FLOOD_WINDOW_US:
            if self.stage == CALM:
                self._remember()
            self._window_at, self._window_count, self._window_senders = now, 0, set()
        self._window_count += taken
        # Thinned, the peer is hardly heard either: worth it only where there is no time left for anything else.
        if self._window_count <= (limit if self.stage < KNOWN_SENDERS else limit * _UNBEARABLE):
            if self.stage == CALM:
                self._window_senders.update(senders)
            return False
        self._window_count = 0
        self._window_senders, self._seen_once = set(), set()
        begun = self.stage == CALM
        if begun:
            self.calm_at = now + FLOOD_PAUSE_US
        if self.stage < THINNED:
            self.stage += 1
            self._filter()
            self._shed()
        return begun

    def calm(self, now: int) -> None:
        """Try without: if the flood goes on, it will be noticed anew within milliseconds."""
        self.stage, self._window_at, self._window_count = CALM, now, 0
        self._filter()

    @property
    def has_kept(self) -> bool:
        """Whether `receive` has something although the socket may have nothing."""
        return bool(self._kept)

    def receive(self, now: int) -> tuple[Datagram | None, int] | None:
        """The next message and the index of the interface that it came by (0 = the socket's own).

        A message of None has headers that make no sense. None when nothing is there. Raises OSError.
        """
        try:
            taken = self._kept.popleft() if self._kept else self._take()
        except (BlockingIOError, InterruptedError):
            return None
        if self.place.family != 4:  # noqa: PLR2004 - the family
            return self._parse6(taken, now)
        index = 0
        for level, kind, data in taken.ancillary:
            if (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO):
                index = _PKTINFO.unpack_from(data)[0]
        return parse_ip_packet(taken.data, self.place.device, now), index

    def close(self) -> None:
        """Close it."""
        self.socket.close()

    def _filter(self) -> None:
        made = program(self.place.kind, self.wanted, stage=self.stage, known=self._known, strangers=self._strangers)
        attach(self.socket, made)

    def _remember(self) -> None:
        """Who was heard in two windows without a flood is known: the first of a flood may look like none."""
        for each in self._window_senders:
            if each in self._known or each in self._seen_once:
                self._known.pop(each, None)
                self._known[each] = None
        for each in list(self._known)[:-_MOST_KNOWN]:
            del self._known[each]
        self._seen_once = (
            self._window_senders if len(self._seen_once) > _MOST_KNOWN else (self._seen_once | self._window_senders)
        )

    def _take(self) -> _Taken:
        if self.place.family == 4 and self.place.group is not None:  # noqa: PLR2004
            return _Taken(self.socket.recv(_LONGEST), (), "")
        data, ancillary, _, sender = self.socket.recvmsg(_LONGEST, _ANCILLARY)
        return _Taken(data, ancillary, sender[0])

    def _shed(self) -> None:
        """Of what was in the buffer when a stage began, keep what known senders have sent.

        Else the rest of the flood would count against the new stage, and delay what comes behind it.
        """
        known = {each.packed for each in self._known}
        for _ in range(_MOST_SHED):
            try:
                taken = self._take()
            except OSError:  # empty, or what `receive` will hear of, too
                return
            packed = taken.data[12:16] if self.place.family == 4 else _packed6(taken.sender)  # noqa: PLR2004
            if packed in known:
                self._kept.append(taken)

    def _parse6(self, taken: _Taken, now: int) -> tuple[Datagram | None, int]:
        destination, index, hops = None, 0, -1
        for level, kind, data in taken.ancillary:
            if level != socket.IPPROTO_IPV6:
                continue
            if kind == socket.IPV6_PKTINFO:
                packed, index = _PKTINFO6.unpack_from(data)
                destination = address6(packed)
            elif kind == socket.IPV6_HOPLIMIT:
                hops = struct.unpack_from("=i", data)[0]
        if destination is None:
            return None, 0
        return (
            Datagram(
                interface=self.place.device,
                source=address6(_packed6(taken.sender)),
                destination=destination,
                ttl=hops,
                payload=taken.data,
                at_us=now,
            ),
            index,
        )


def allow_any_source(opened: socket.socket) -> None:
    """Let a raw socket of IPv6 send with headers of our own, from addresses that its interface does not have."""
    opened.setsockopt(socket.IPPROTO_IPV6, _IPV6_HDRINCL, 1)
    opened.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)


def send6(by: socket.socket, datagram: Datagram, scope: int) -> None:
    """Send over IPv6; `scope` is the interface's index for multicast and link-local destinations. Raises OSError.

    The source is named beside the packet, too: without it the kernel looks for one on the interface, although it will
    not use it, and a macvlan may have none (ip6_dst_lookup_tail, net/ipv6/ip6_output.c).
    """
    source = [(socket.IPPROTO_IPV6, socket.IPV6_PKTINFO, _PKTINFO6.pack(datagram.source.packed, scope))]
    by.sendmsg([packet_of(datagram)], source, 0, (str(datagram.destination), 0, 0, scope))


def _packed6(sender: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6, sender.partition("%")[0])


def _open(place: Place, index: int) -> socket.socket:
    family = socket.AF_INET if place.family == 4 else socket.AF_INET6  # noqa: PLR2004 - the family
    try:
        opened = socket.socket(family, socket.SOCK_RAW, place.protocol)
    except PermissionError as problem:
        raise NotPermitted(
            "may not speak VRRP: CAP_NET_RAW is missing",
            remedy="run as root, or give the unit AmbientCapabilities=CAP_NET_RAW CAP_NET_ADMIN",
        ) from problem
    except OSError as problem:
        raise HostError(
            f"cannot speak VRRP over IPv{place.family}: {problem.strerror}", remedy="the kernel must support the family"
        ) from problem
    try:
        # First of all: nothing unwanted shall be in the buffer when the socket is ready.
        attach(opened, program(place.kind, {}))
        _prepare(opened, place, index)
    except OSError as problem:
        opened.close()
        where = place.device or f"IPv{place.family} unicast"
        raise HostError(
            f"cannot listen for VRRP on {where}: {problem.strerror}",
            remedy="the interface must exist, be enabled for the address family and support multicast; "
            "else use unicast_peer",
        ) from problem
    return opened


def _prepare(opened: socket.socket, place: Place, index: int) -> None:
    opened.setblocking(False)
    try:
        opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER)
    except OSError:  # without CAP_NET_ADMIN: as much as net.core.rmem_max allows
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    if place.device:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, place.device.encode())
    # Else it would hear, and report twice, the multicast that other sockets of this host have joined (ip(7)).
    if place.family == 4:  # noqa: PLR2004 - the family
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_HDRINCL, 1)
        opened.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
    else:
        allow_any_source(opened)
        with contextlib.suppress(OSError):  # Linux 4.20; the filter keeps multicast from unicast's socket, too
            opened.setsockopt(socket.IPPROTO_IPV6, _IPV6_MULTICAST_ALL, 0)
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
    if isinstance(place.group, IPv4Address):
        membership = struct.pack("=4s4si", place.group.packed, bytes(4), index)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, membership)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
        opened.bind((str(place.group), 0))
    elif isinstance(place.group, IPv6Address):
        membership = struct.pack("=16si", place.group.packed, index)
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, membership)
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)
        opened.bind((str(place.group), 0, 0, index))
    elif place.family == 4:  # noqa: PLR2004
        opened.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
