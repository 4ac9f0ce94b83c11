"""One raw socket for VRRP: opening it, and what has arrived by it."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from haxlb.daemon.ports import Datagram
from haxlb.linux.advert_filter import Kind, Signature, attach, program
from haxlb.linux.ip_packets import address6, parse_ip_packet
from haxlb.model.addresses import IPAddress
from haxlb.model.errors import HostError, NotPermitted
from haxlb.vrrp.authentication_header import AH_PROTOCOL_NUMBER

RECEIVE_BUFFER = 4 << 20

_SO_RCVBUFFORCE = 33
_IP_MULTICAST_ALL = 49
_IP_PKTINFO = 8
_PKTINFO = struct.Struct("=i4s4s")
_IPV6_HDRINCL = 36
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


class AdvertSocket:
    """An open socket. Raises HostError where it cannot be opened."""

    def __init__(self, place: Place, index: int) -> None:
        self.place = place
        self.index = index
        """Of the device; a socket stays bound to it when another interface gets the name."""
        self.wanted: dict[int, Signature] = {}
        self.tight_until: int | None = None
        """While there is a flood the filter also judges fixed bytes; µs."""
        self.window_at = 0
        self.window_count = 0
        """Messages taken since then, to notice a flood by."""
        self._strangers = False
        self.socket = _open(place, index)

    def want(self, wanted: Mapping[int, Signature], *, strangers: bool) -> None:
        """Hear messages for these VRIDs, and with `strangers` for all others."""
        if (self.wanted, self._strangers) == (wanted, strangers):
            return
        self.wanted, self._strangers = dict(wanted), strangers
        self._filter()

    def tighten(self, until: int | None) -> None:
        """Judge fixed bytes in the kernel until then (µs); None = no longer."""
        before, self.tight_until = self.tight_until, until
        if (before is None) != (until is None):
            self._filter()

    def receive(self, now: int) -> tuple[Datagram | None, int] | None:
        """The next message and the index of the interface that it came by (0 = the socket's own).

        A message of None has headers that make no sense. None when nothing is there. Raises OSError.
        """
        try:
            if self.place.family != 4:  # noqa: PLR2004 - the family
                return self._receive6(now)
            if self.place.group is not None:
                return parse_ip_packet(self.socket.recv(_LONGEST), self.place.device, now), 0
            packet, ancillary, _, _ = self.socket.recvmsg(_LONGEST, _ANCILLARY)
        except (BlockingIOError, InterruptedError):
            return None
        index = 0
        for level, kind, data in ancillary:
            if (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO):
                index = _PKTINFO.unpack_from(data)[0]
        return parse_ip_packet(packet, self.place.device, now), index

    def close(self) -> None:
        """Close it."""
        self.socket.close()

    def _filter(self) -> None:
        tight = self.tight_until is not None
        attach(self.socket, program(self.place.kind, self.wanted, tight=tight, strangers=self._strangers))

    def _receive6(self, now: int) -> tuple[Datagram | None, int]:
        payload, ancillary, _, sender = self.socket.recvmsg(_LONGEST, _ANCILLARY)
        destination, index, hops = None, 0, -1
        for level, kind, data in ancillary:
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
                source=address6(socket.inet_pton(socket.AF_INET6, sender[0].partition("%")[0])),
                destination=destination,
                ttl=hops,
                payload=payload,
                at_us=now,
            ),
            index,
        )


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
        opened.setsockopt(socket.IPPROTO_IPV6, _IPV6_HDRINCL, 1)
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
