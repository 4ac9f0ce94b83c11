"""UDP sockets of BFD sessions (RFC 5881 section 4, RFC 5883): a socket to send from for each session, and one to
receive on for each family and port in use.

They receive on the wildcard address: a `source_ip` may be a VIP that comes and goes. For what a packet must look like
see haxlb.bfd.table.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address

from haxlb.bfd.packet import FIRST_SOURCE_PORT, LAST_SOURCE_PORT, MULTIHOP_PORT, SINGLE_HOP_PORT
from haxlb.bfd.table import Arrival, SessionKey, Transmit
from haxlb.linux import bfd_filter
from haxlb.linux.log import Complaints
from haxlb.model.addresses import IPAddress
from haxlb.model.errors import HostError

BATCH = 256
"""Packets taken from one socket per `receive`: a flood may not keep the sessions from their timers."""
RECEIVE_BUFFER = 1 << 20

# <linux/in.h>, <linux/in6.h>
_IP_PKTINFO = 8
_IP_RECVTTL = 12
_IP_FREEBIND = 15
_IPV6_FREEBIND = 78
_SO_RCVBUFFORCE = 33
_TOS_NETWORK_CONTROL = 0xC0
_LONGEST = 512
"""More than any Control packet with authentication; what is longer is cut off."""
_ANCILLARY_SPACE = 256


class BfdSockets:
    """Opened before a session sends, retired when it is gone."""

    def __init__(self, complaints: Complaints) -> None:
        self._complaints = complaints
        self._receiving: dict[tuple[int, bool], socket.socket] = {}
        """By family and multihop."""
        self._sending: dict[SessionKey, socket.socket] = {}
        self.flooded = False
        """The last `receive` has left packets behind."""

    @property
    def fds(self) -> frozenset[int]:
        """Of the sockets that packets arrive on."""
        return frozenset(each.fileno() for each in self._receiving.values())

    def open(self, ttls: Mapping[SessionKey, int]) -> dict[SessionKey, HostError]:
        """Open what these sessions need beside what is open, and set their TTLs; for each that fails, why."""
        problems: dict[SessionKey, HostError] = {}
        for key, ttl in ttls.items():
            place = (key.neighbor.version, key.multihop)
            try:
                if place not in self._receiving:
                    self._receiving[place] = _open_receiving(*place)
                if key not in self._sending:
                    self._sending[key] = _open_sending(key)
            except HostError as problem:
                problems[key] = problem
                continue
            if key.neighbor.version == 4:  # noqa: PLR2004
                self._sending[key].setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
            else:
                self._sending[key].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, ttl)
        return problems

    def retire(self, keys: frozenset[SessionKey]) -> None:
        """Close what none of these sessions needs."""
        for key in [each for each in self._sending if each not in keys]:
            self._sending.pop(key).close()
        places = {(each.neighbor.version, each.multihop) for each in keys}
        for place in [each for each in self._receiving if each not in places]:
            self._receiving.pop(place).close()

    def send(self, transmit: Transmit) -> None:
        """Hand to the kernel at once; a failure is counted and logged."""
        neighbor = transmit.key.neighbor
        port = MULTIHOP_PORT if transmit.key.multihop else SINGLE_HOP_PORT
        try:
            self._sending[transmit.key].sendto(transmit.payload, _destination(neighbor, port))
        except OSError as problem:
            reason = problem.strerror or str(problem)
            self._complaints.complain("bfd_packet_not_sent", neighbor=neighbor, reason=reason)

    def receive(self) -> list[Arrival]:
        """What has arrived and was not yet taken, oldest first for each socket."""
        arrivals: list[Arrival] = []
        self.flooded = False
        for (version, multihop), opened in self._receiving.items():
            for _ in range(BATCH):
                try:
                    payload, ancillary, _, sender = opened.recvmsg(_LONGEST, _ANCILLARY_SPACE)
                except (BlockingIOError, InterruptedError):
                    break
                except OSError as problem:
                    self._complaints.complain("bfd_not_received", reason=problem.strerror or str(problem))
                    break
                take = _arrival4 if version == 4 else _arrival6  # noqa: PLR2004
                arrivals.append(take(payload, ancillary, sender, multihop=multihop))
            else:
                self.flooded = True
        return arrivals

    def shield(self, lowest_ttls: Mapping[SessionKey, int] | None) -> None:
        """Let the kernel drop what is of no neighbour or came from too far; None = let everything through again."""
        for (version, multihop), opened in self._receiving.items():
            with contextlib.suppress(OSError):  # without a filter it is slower, or there is none to detach
                if lowest_ttls is None:
                    bfd_filter.unshield(opened)
                    continue
                own = {
                    key.neighbor: ttl
                    for key, ttl in lowest_ttls.items()
                    if (key.neighbor.version, key.multihop) == (version, multihop)
                }
                bfd_filter.shield(opened, version, own, min(own.values(), default=0))

    def close(self) -> None:
        """Close all."""
        self.retire(frozenset())


def _open_receiving(version: int, multihop: bool) -> socket.socket:  # noqa: FBT001 - half of a dictionary's key
    port = MULTIHOP_PORT if multihop else SINGLE_HOP_PORT
    opened = socket.socket(socket.AF_INET if version == 4 else socket.AF_INET6, socket.SOCK_DGRAM)  # noqa: PLR2004
    opened.setblocking(False)
    try:
        opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER)
    except OSError:  # without CAP_NET_ADMIN: as much as net.core.rmem_max allows
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    try:
        if version == 4:  # noqa: PLR2004
            opened.setsockopt(socket.IPPROTO_IP, _IP_RECVTTL, 1)
            opened.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
            opened.bind(("", port))
        else:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVHOPLIMIT, 1)
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
            opened.bind(("::", port))
    except OSError as problem:
        opened.close()
        remedy = "report this as a bug"
        if problem.errno == errno.EADDRINUSE:
            remedy = f"stop the other BFD daemon of this host: ss -lunp 'sport = :{port}' names it"
        raise HostError(f"cannot receive BFD on UDP port {port}: {problem.strerror}", remedy=remedy) from problem
    return opened


def _open_sending(key: SessionKey) -> socket.socket:
    four = key.neighbor.version == 4  # noqa: PLR2004
    opened = socket.socket(socket.AF_INET if four else socket.AF_INET6, socket.SOCK_DGRAM)
    opened.setblocking(False)
    try:
        if four:
            opened.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, _TOS_NETWORK_CONTROL)
            opened.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
        else:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, _TOS_NETWORK_CONTROL)
            opened.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
        _bind_to_a_source_port(opened, key)
    except OSError as problem:
        opened.close()
        raise HostError(
            f"cannot send BFD to {key.neighbor}: {problem.strerror}",
            remedy=f"see that source_ip {key.source} and the interface of {key.neighbor} are right",
        ) from problem
    return opened


def _bind_to_a_source_port(opened: socket.socket, key: SessionKey) -> None:
    """The first one that is free: it is the session's own for as long as the socket lives (RFC 5881 section 4)."""
    for port in range(FIRST_SOURCE_PORT, LAST_SOURCE_PORT + 1):
        try:
            if key.source is None:
                opened.bind(("" if key.neighbor.version == 4 else "::", port))  # noqa: PLR2004
            else:
                opened.bind(_destination(_scoped_like(key.source, key.neighbor), port))
        except OSError as problem:
            if problem.errno != errno.EADDRINUSE:
                raise
        else:
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _scoped_like(source: IPAddress, neighbor: IPAddress) -> IPAddress:
    if isinstance(source, IPv6Address) and source.is_link_local and isinstance(neighbor, IPv6Address):
        return IPv6Address(f"{source}%{neighbor.scope_id}")
    return source


def _destination(address: IPAddress, port: int) -> tuple[str, int] | tuple[str, int, int, int]:
    """Raises OSError where the interface of a link-local address does not exist."""
    if isinstance(address, IPv4Address):
        return str(address), port
    index = socket.if_nametoindex(address.scope_id) if address.scope_id else 0
    return str(IPv6Address(int(address))), port, 0, index


# The same few neighbours send a hundred times a second, and reading an address takes as long as receiving it.
_address4 = lru_cache(maxsize=1024)(IPv4Address)
_address6 = lru_cache(maxsize=1024)(IPv6Address)


def _arrival4(
    payload: bytes, ancillary: list[tuple[int, int, bytes]], sender: tuple[str, int], *, multihop: bool
) -> Arrival:
    ttl, destination = 0, None
    for level, kind, data in ancillary:
        if (level, kind) == (socket.IPPROTO_IP, socket.IP_TTL):
            (ttl,) = struct.unpack("=i", data)
        elif (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO):
            destination = IPv4Address(data[8:12])
    return Arrival(source=IPv4Address(sender[0]), destination=destination, ttl=ttl, multihop=multihop, payload=payload)


def _arrival6(
    payload: bytes, ancillary: list[tuple[int, int, bytes]], sender: tuple[str, int, int, int], *, multihop: bool
) -> Arrival:
    ttl, destination = 0, None
    for level, kind, data in ancillary:
        if (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_HOPLIMIT):
            (ttl,) = struct.unpack("=i", data)
        elif (level, kind) == (socket.IPPROTO_IPV6, socket.IPV6_PKTINFO):
            destination = _address6(data[:16])
    text, _, _, index = sender
    if index:  # of the interface, for a link-local sender
        with contextlib.suppress(OSError):  # it is gone already
            text = f"{text}%{socket.if_indextoname(index)}"
    return Arrival(source=_address6(text), destination=destination, ttl=ttl, multihop=multihop, payload=payload)
