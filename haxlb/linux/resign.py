"""BequestPort: what is left to do for a speaker that has died, in as few steps as it takes.

Priority 0 first: the peer then waits only its skew time (RFC 9568 section 6.4.2). The addresses go next, all of them:
the speaker may have died between putting one on and telling of it. Last, the forwarder forgets the virtual MACs, or it
would go on delivering what a switch floods beside the new MASTER. Standard library only, and nothing to import, resolve
or encode on the day, but for the authentication header, which has to have a number above the speaker's last.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from haxlb.daemon.ports import Datagram, Link
from haxlb.daemon.speaker_frames import resignation, sign
from haxlb.linux.advert_socket import allow_any_source, send6
from haxlb.linux.ip_packets import packet_of
from haxlb.linux.present_addresses import present_addresses
from haxlb.linux.routing import GONE, encode_removals
from haxlb.linux.rtnetlink import IFA_LOCAL, NLM_F_ACK, RTM_DELADDR, Rtnetlink
from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.errors import HostError
from haxlb.model.instance import VrrpInstance
from haxlb.vrrp.advert import Expected
from haxlb.vrrp.authentication_header import Key, clock_sequence

_IFADDRMSG = struct.Struct("=BBBBI")
_NLMSG = struct.Struct("=IHHII")
_NLM_F_REQUEST = 1
_GONE = (errno.EADDRNOTAVAIL, errno.ENODEV, errno.ENXIO)
_SEQUENCE_LEAD = 16
"""Above the clock's number: adverts out of turn may have taken the speaker this far ahead of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Will:
    """Of one instance."""

    name: str
    interface: str
    vrf: str
    farewells: tuple[Datagram, ...]
    key: Key | None
    vips: tuple[Vip, ...]
    routing: tuple[bytes, ...]
    """The removal of routes and rules."""
    macs: frozenset[str] = frozenset()
    """Virtual ones that the forwarder takes frames to."""


class Bequest:
    """Keeps the datagrams and requests of the present configuration ready."""

    def __init__(self, bpf_directory: Path | None = None) -> None:
        """`bpf_directory` is where the data plane is pinned; None = nowhere."""
        self._bpf_directory = bpf_directory
        self._forget: Callable[[Path, frozenset[str]], None] | None = None
        self._rtnetlink = Rtnetlink()
        self._wills: tuple[_Will, ...] = ()

    def prepare(self, instances: Iterable[VrrpInstance]) -> None:
        """Build the datagrams; addresses of our interfaces are looked up now, our VIPs are none of them."""
        listed = tuple(instances)
        ours = {vip.address for each in listed for vip in (*each.vips, *each.excluded_vips)}
        self._wills = tuple(
            _Will(
                name=each.name,
                interface=each.interface,
                vrf=each.vrf,
                farewells=tuple(resignation(each, self._link(each.interface, ours))),
                key=Expected.of(each).key,
                vips=(*each.vips, *each.excluded_vips),
                routing=tuple(encode_removals(each.routes, each.rules)),
                macs=frozenset(mac.mac.lower() for mac in each.virtual_macs if not mac.ipvlan),
            )
            for each in listed
        )
        if self._forget is None and any(will.macs for will in self._wills):
            from haxlb.linux.forwarded_macs import forget

            self._forget = forget

    def execute(self, masters: frozenset[str], kept: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """Send priority 0 for the masters, take VIPs, routes and rules off; what went wrong, one sentence each.

        What belongs to the kept instances stays.
        """
        problems = []
        for will in self._wills:
            if will.name in masters:
                problems += list(_send_all(will))
                if not will.farewells:
                    problems.append(f"no priority 0 for {will.name}: its interface has no address")
        staying = {vip for will in self._wills if will.name in kept for vip in will.vips}
        going = [will for will in self._wills if will.name not in kept]
        vips = dict.fromkeys(vip for will in going for vip in will.vips if vip not in staying)
        kept_routing = {request for will in self._wills if will.name in kept for request in will.routing}
        routing = [request for will in going for request in will.routing if request not in kept_routing]
        kept_macs = frozenset[str]().union(*(will.macs for will in self._wills if will.name in kept))
        macs = frozenset[str]().union(*(will.macs for will in going)) - kept_macs
        return (*problems, *self._remove_vips(vips), *self._remove_routing(routing), *self._forget_macs(macs))

    def close(self) -> None:
        """Close the socket."""
        self._rtnetlink.close()

    def _remove_vips(self, going: Iterable[Vip]) -> list[str]:
        requests, vips = [], []
        for vip in going:
            try:
                requests.append(_removal(vip, socket.if_nametoindex(vip.interface)))
            except OSError:  # no such interface: nor the address
                continue
            vips.append(vip)
        try:
            results = self._rtnetlink.change(requests)
        except (OSError, HostError) as problem:
            return [f"VIPs may still be on: {problem}"]
        return [
            f"cannot take {vip} off {vip.interface}: {os.strerror(number)}"
            for vip, number in zip(vips, results, strict=True)
            if number and number not in _GONE
        ]

    def _remove_routing(self, requests: list[bytes]) -> list[str]:
        try:
            results = self._rtnetlink.change(requests)
        except (OSError, HostError) as problem:
            return [f"routes and rules may still be on: {problem}"]
        numbers = {number for number in results if number} - GONE
        return [f"a route or rule cannot be taken off: {os.strerror(number)}" for number in sorted(numbers)]

    def _forget_macs(self, macs: frozenset[str]) -> list[str]:
        if self._forget is None or self._bpf_directory is None or not macs:
            return []
        try:
            self._forget(self._bpf_directory, macs)
        except (OSError, HostError) as problem:
            return [f"frames to virtual MACs may still be forwarded: {problem}"]
        return []

    def _link(self, interface: str, ours: set[IPAddress]) -> Link:
        """The first addresses of the interface that are none of our VIPs: what the speaker sends from."""
        address: IPv4Address | None = None
        address6: IPv6Address | None = None
        try:
            present = list(present_addresses(self._rtnetlink, index=socket.if_nametoindex(interface)))
        except OSError:
            present = []
        for each in present:
            if each.address in ours:
                continue
            if isinstance(each.address, IPv4Address):
                address = address or each.address
            elif each.address.is_link_local:
                address6 = address6 or each.address
        return Link(interface=interface, up=True, mac="", address=address, address6=address6)


def _send_all(will: _Will) -> Iterator[str]:
    """Send the farewells; what went wrong."""
    farewells: Iterable[Datagram] = will.farewells
    if will.key is not None:
        farewells = sign(farewells, will.key, clock_sequence(time.time_ns() // 1000) + _SEQUENCE_LEAD)
    for each in farewells:
        try:
            _send(each, will)
        except OSError as problem:
            yield f"priority 0 to {each.destination} on {each.interface} not sent: {problem.strerror}"


def _send(farewell: Datagram, will: _Will) -> None:
    try:
        index = socket.if_nametoindex(farewell.interface)
    except OSError:  # a macvlan that is gone: its base reaches the same peers
        index = socket.if_nametoindex(will.interface)
    family = socket.AF_INET if farewell.destination.version == 4 else socket.AF_INET6  # noqa: PLR2004 - the family
    # IPPROTO_RAW: it sends, and never receives what would fill its buffer.
    with socket.socket(family, socket.SOCK_RAW, socket.IPPROTO_RAW) as mouth:
        if will.vrf and not farewell.destination.is_multicast:
            mouth.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, will.vrf.encode())
        if family == socket.AF_INET6:
            mouth.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)
            scoped = farewell.destination.is_multicast or farewell.destination.is_link_local
            allow_any_source(mouth)
            send6(mouth, farewell, index if scoped else 0)
            return
        if farewell.destination.is_multicast:
            membership = struct.pack("=4s4si", bytes(4), bytes(4), index)
            mouth.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, membership)
            mouth.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
        mouth.sendto(packet_of(farewell), (str(farewell.destination), 0))


def _removal(vip: Vip, index: int) -> bytes:
    """IFA_LOCAL alone matches any label, and of IPv4 any prefix length (net/ipv4/devinet.c, inet_rtm_deladdr).

    IPv6 wants the prefix length, too (net/ipv6/addrconf.c, inet6_addr_del).
    """
    packed = vip.address.packed
    family, length = (socket.AF_INET, 0) if vip.family == 4 else (socket.AF_INET6, vip.prefix_length)  # noqa: PLR2004
    body = _IFADDRMSG.pack(family, length, 0, 0, index) + struct.pack("=HH", 4 + len(packed), IFA_LOCAL) + packed
    return _request(RTM_DELADDR, NLM_F_ACK, body)


def _request(kind: int, flags: int, body: bytes) -> bytes:
    return _NLMSG.pack(_NLMSG.size + len(body), kind, flags | _NLM_F_REQUEST, 0, 0) + body
