"""AdvertPort: VRRP messages over raw sockets, IP protocol 112, with an IP header of our own making.

Multicast: one socket per interface, bound to it and to 224.0.0.18. Unicast: one socket for all, bound to no interface,
because routing decides by which of them the peer's packets come, and keepalived does the same.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address

from haxlb.daemon.ports import ClockPort, Datagram
from haxlb.linux.log import Complaints
from haxlb.model.errors import HostError, NotPermitted
from haxlb.model.node import VrrpInstance

VRRP_GROUP = IPv4Address("224.0.0.18")
VRRP_PROTOCOL = 112
TTL = 255
TOS_INTERNETWORK_CONTROL = 0xC0
BATCH = 1024
"""Datagrams taken from one socket per `receive`: a flood may not keep the speaker from its timers."""
RECEIVE_BUFFER = 4 << 20

_IP_HEADER = struct.Struct("!BBHHHBBH4s4s")
_SO_RCVBUFFORCE = 33
_IP_MULTICAST_ALL = 49
_IP_PKTINFO = 8
_PKTINFO = struct.Struct("=i4s4s")
_LONGEST_DATAGRAM = 65535


def ip_packet(source: IPv4Address, destination: IPv4Address, payload: bytes) -> bytes:
    """The packet as IP_HDRINCL wants it; the kernel fills in identification and checksum (raw(7))."""
    length = _IP_HEADER.size + len(payload)
    header = _IP_HEADER.pack(
        0x45, TOS_INTERNETWORK_CONTROL, length, 0, 0, TTL, VRRP_PROTOCOL, 0, source.packed, destination.packed
    )
    return header + payload


def parse_ip_packet(packet: bytes, interface: str, at_us: int) -> Datagram | None:
    """A received packet as a datagram, None where its IP header makes no sense."""
    if len(packet) < _IP_HEADER.size:
        return None
    version_length, _, total, _, _, ttl, _, _, source, destination = _IP_HEADER.unpack_from(packet)
    header = (version_length & 0xF) * 4
    if header < _IP_HEADER.size or not header <= total <= len(packet):
        return None
    return Datagram(
        interface=interface,
        source=IPv4Address(source),
        destination=IPv4Address(destination),
        ttl=ttl,
        payload=packet[header:total],
        at_us=at_us,
    )


@dataclass(slots=True)
class _Multicast:
    """The socket of one interface."""

    socket: socket.socket
    index: int
    vrids: frozenset[int]


class AdvertSockets:
    """Sends and receives for the instances that `configure` names."""

    def __init__(self, clock: ClockPort, complaints: Complaints) -> None:
        self._clock = clock
        self._complaints = complaints
        self._multicast: dict[str, _Multicast] = {}
        self._unwanted: set[str] = set()
        """Interfaces whose multicast sockets are open for a farewell only."""
        self._unicast: socket.socket | None = None
        self._unicast_interfaces: dict[IPv4Address, tuple[str, ...]] = {}
        self._unicast_vrids: frozenset[int] = frozenset()
        self.strangers = 0
        """Messages for VRIDs that no instance has: other routers' on the same segment."""
        self.malformed = 0
        """Packets whose IP header made no sense."""

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """All open sockets, for the loop to watch."""
        unicast = (self._unicast,) if self._unicast else ()
        return (*(each.socket for each in self._multicast.values()), *unicast)

    def configure(
        self, instances: Iterable[VrrpInstance], indices: dict[str, int], sources: dict[str, IPv4Address | None]
    ) -> dict[tuple[str, int], HostError]:
        """Open what these instances need; call again when an interface comes or goes.

        What they no longer need stays open until `retire`: whoever leaves must still be able to say priority 0.
        `indices` and `sources` hold the index and the own address of each interface that exists. Returns why an
        instance is deaf, by its key: one that cannot hear its peer must not run, it would become MASTER.
        """
        listed = tuple(instances)
        multicast = [each for each in listed if not each.peers]
        unicast = [each for each in listed if each.peers]
        deaf = self._configure_multicast(multicast, indices)
        deaf |= self._configure_unicast(unicast, sources)
        return deaf

    def retire(self) -> None:
        """Close what the instances of the last `configure` do not need."""
        for interface in self._unwanted:
            self._multicast.pop(interface).socket.close()
        self._unwanted = set()
        if self._unicast and not self._unicast_vrids:
            self._unicast.close()
            self._unicast = None

    def send(self, datagram: Datagram) -> None:
        """Hand to the kernel at once; a failure is counted and logged, never raised."""
        if datagram.destination.is_multicast:
            entry = self._multicast.get(datagram.interface)
            sender = entry.socket if entry else None
        else:
            sender = self._unicast
        if sender is None:
            self._complain(datagram, "no such interface")
            return
        packet = ip_packet(datagram.source, datagram.destination, datagram.payload)
        try:
            sender.sendto(packet, (str(datagram.destination), 0))
        except OSError as problem:
            self._complain(datagram, problem.strerror or str(problem))

    def receive(self) -> list[Datagram]:
        """All that has arrived, oldest first per socket; at most BATCH from each, the rest next time."""
        received: list[Datagram] = []
        for interface, entry in self._multicast.items():
            self._drain(entry.socket, interface, entry.vrids, received)
        if self._unicast:
            self._drain(self._unicast, None, self._unicast_vrids, received)
        return received

    def close(self) -> None:
        """Close all sockets."""
        for each in self.sockets:
            each.close()
        self._multicast.clear()
        self._unicast = None

    def _configure_multicast(
        self, instances: list[VrrpInstance], indices: dict[str, int]
    ) -> dict[tuple[str, int], HostError]:
        wanted = {each.interface: indices[each.interface] for each in instances if each.interface in indices}
        for interface, entry in list(self._multicast.items()):
            # A socket stays bound to the index it was opened for: an interface made anew needs another one.
            if indices.get(interface) not in (None, entry.index):
                entry.socket.close()
                del self._multicast[interface]
        self._unwanted = {each for each in self._multicast if each not in wanted}
        deaf: dict[tuple[str, int], HostError] = {}
        for interface, index in wanted.items():
            ours = [each for each in instances if each.interface == interface]
            vrids = frozenset(each.vrid for each in ours)
            if interface in self._multicast:
                self._multicast[interface].vrids = vrids
                continue
            try:
                self._multicast[interface] = _Multicast(_open_multicast(interface, index), index, vrids)
            except HostError as problem:
                deaf.update((each.key, problem) for each in ours)
        return deaf

    def _configure_unicast(
        self, instances: list[VrrpInstance], sources: dict[str, IPv4Address | None]
    ) -> dict[tuple[str, int], HostError]:
        self._unicast_vrids = frozenset(each.vrid for each in instances)
        interfaces: dict[IPv4Address, tuple[str, ...]] = {}
        for each in instances:
            source = each.source or sources.get(each.interface)
            if source:
                interfaces[source] = (*interfaces.get(source, ()), each.interface)
        self._unicast_interfaces = interfaces
        if instances and not self._unicast:
            try:
                self._unicast = _open_unicast()
            except HostError as problem:
                return {each.key: problem for each in instances}
        return {}

    def _drain(
        self, source: socket.socket, interface: str | None, vrids: frozenset[int], received: list[Datagram]
    ) -> None:
        for _ in range(BATCH):
            try:
                packet, ancillary, _, _ = source.recvmsg(_LONGEST_DATAGRAM, 64)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as problem:
                # ENETDOWN once, when the interface goes down; the link's own event tells the speaker.
                self._complaints.complain("advert_not_received", interface=interface, reason=problem.strerror)
                return
            datagram = parse_ip_packet(packet, interface or "", self._clock.now())
            if datagram is None:
                self.malformed += 1
                continue
            if interface is None:
                datagram = self._with_interface(datagram, ancillary)
            # The second byte is the VRID (RFC 9568 section 5.1).
            if len(datagram.payload) > 1 and datagram.payload[1] not in vrids:
                self.strangers += 1
            else:
                received.append(datagram)

    def _with_interface(self, datagram: Datagram, ancillary: list[tuple[int, int, bytes]]) -> Datagram:
        """A unicast datagram under the interface of the instance that it is for, whichever one it came in by."""
        arrival = ""
        for level, kind, data in ancillary:
            if (level, kind) == (socket.IPPROTO_IP, _IP_PKTINFO):
                with contextlib.suppress(OSError):
                    arrival = socket.if_indextoname(_PKTINFO.unpack_from(data)[0])
        candidates = self._unicast_interfaces.get(datagram.destination, ())
        return Datagram(
            interface=arrival if arrival in candidates or not candidates else candidates[0],
            source=datagram.source,
            destination=datagram.destination,
            ttl=datagram.ttl,
            payload=datagram.payload,
            at_us=datagram.at_us,
        )

    def _complain(self, datagram: Datagram, reason: str) -> None:
        self._complaints.complain(
            "advert_not_sent", interface=datagram.interface, destination=datagram.destination, reason=reason
        )


def _open_raw() -> socket.socket:
    try:
        opened = socket.socket(socket.AF_INET, socket.SOCK_RAW, VRRP_PROTOCOL)
    except PermissionError as problem:
        raise NotPermitted(
            "may not speak VRRP: CAP_NET_RAW is missing",
            remedy="run as root, or give the unit AmbientCapabilities=CAP_NET_RAW CAP_NET_ADMIN",
        ) from problem
    opened.setblocking(False)
    opened.setsockopt(socket.IPPROTO_IP, socket.IP_HDRINCL, 1)
    try:
        opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, RECEIVE_BUFFER)
    except OSError:  # without CAP_NET_ADMIN: as much as net.core.rmem_max allows
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    return opened


def _open_multicast(interface: str, index: int) -> socket.socket:
    opened = _open_raw()
    membership = struct.pack("=4s4si", VRRP_GROUP.packed, b"\0" * 4, index)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, membership)
        opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
        opened.bind((str(VRRP_GROUP), 0))
    except OSError as problem:
        opened.close()
        raise HostError(
            f"cannot listen for VRRP on {interface}: {problem.strerror}",
            remedy="the interface must exist and support multicast; else use unicast_peer",
        ) from problem
    return opened


def _open_unicast() -> socket.socket:
    opened = _open_raw()
    # Else it would hear, and report twice, the multicast that other sockets of this host have joined (ip(7)).
    opened.setsockopt(socket.IPPROTO_IP, _IP_MULTICAST_ALL, 0)
    opened.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
    return opened
