"""BequestPort: what is left to do for a speaker that has died, in as few steps as it takes.

Priority 0 first: the peer then waits only its skew time (RFC 9568 section 6.4.2). The addresses go next, all of them:
the speaker may have died between putting one on and telling of it. Standard library only, and nothing to import,
resolve or encode on the day.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address

from haxlb.daemon.ports import Datagram, Link
from haxlb.daemon.speaker_member import resignation
from haxlb.linux.adverts import ip_packet
from haxlb.linux.rtnetlink import IFA_LOCAL, NLM_F_ACK, NLM_F_DUMP, RTM_DELADDR, RTM_GETADDR, Rtnetlink, attribute
from haxlb.model.addresses import Vip
from haxlb.model.errors import HostError
from haxlb.model.node import VrrpInstance

_IFADDRMSG = struct.Struct("=BBBBI")
_NLMSG = struct.Struct("=IHHII")
_NLM_F_REQUEST = 1
_GONE = (errno.EADDRNOTAVAIL, errno.ENODEV)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Will:
    """Of one instance."""

    name: str
    farewells: tuple[Datagram, ...]


class Bequest:
    """Keeps the datagrams and requests of the present configuration ready."""

    def __init__(self) -> None:
        self._rtnetlink = Rtnetlink()
        self._wills: tuple[_Will, ...] = ()
        self._vips: tuple[Vip, ...] = ()

    def prepare(self, instances: Iterable[VrrpInstance]) -> None:
        """Build the datagrams; addresses of our interfaces are looked up now, our VIPs are none of them."""
        listed = tuple(instances)
        self._vips = tuple(dict.fromkeys(vip for each in listed for vip in each.vips))
        ours = {vip.address for vip in self._vips}
        wills = []
        for each in listed:
            address = self._own_address(each.interface, ours)
            link = Link(interface=each.interface, up=True, mac="", address=address)
            wills.append(_Will(name=each.name, farewells=tuple(resignation(each, link))))
        self._wills = tuple(wills)

    def execute(self, masters: frozenset[str]) -> tuple[str, ...]:
        """Send priority 0 for the masters, take all VIPs off; what went wrong, one sentence each."""
        problems = []
        for will in self._wills:
            if will.name in masters:
                problems += [problem for farewell in will.farewells if (problem := _send(farewell))]
                if not will.farewells:
                    problems.append(f"no priority 0 for {will.name}: its interface has no address")
        return (*problems, *self._remove_vips())

    def close(self) -> None:
        """Close the socket."""
        self._rtnetlink.close()

    def _remove_vips(self) -> list[str]:
        requests, vips = [], []
        for vip in self._vips:
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

    def _own_address(self, interface: str, ours: set[IPv4Address]) -> IPv4Address | None:
        """The first address of the interface that is not one of our VIPs: what the speaker sends from."""
        try:
            index = socket.if_nametoindex(interface)
            body = _IFADDRMSG.pack(socket.AF_INET, 0, 0, 0, index)
            answers = self._rtnetlink.get(_request(RTM_GETADDR, NLM_F_DUMP, body))
        except OSError:
            return None
        for answer in answers:
            local = attribute(answer, _IFADDRMSG.size, IFA_LOCAL)
            if _IFADDRMSG.unpack_from(answer, _NLMSG.size)[4] == index and local is not None:
                address = IPv4Address(local)
                if address not in ours:
                    return address
        return None


def _send(farewell: Datagram) -> str:
    """Empty when it went out."""
    packet = ip_packet(farewell.source, farewell.destination, farewell.payload)
    try:
        # IPPROTO_RAW: it sends, and never receives what would fill its buffer.
        with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as mouth:
            if farewell.destination.is_multicast:
                index = socket.if_nametoindex(farewell.interface)
                mouth.setsockopt(
                    socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack("=4s4si", bytes(4), bytes(4), index)
                )
                mouth.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
            mouth.sendto(packet, (str(farewell.destination), 0))
    except OSError as problem:
        return f"priority 0 to {farewell.destination} on {farewell.interface} not sent: {problem.strerror}"
    return ""


def _removal(vip: Vip, index: int) -> bytes:
    """IFA_LOCAL alone matches any prefix length and label (net/ipv4/devinet.c, inet_rtm_deladdr)."""
    body = _IFADDRMSG.pack(socket.AF_INET, 0, 0, 0, index) + struct.pack("=HH4s", 8, IFA_LOCAL, vip.address.packed)
    return _request(RTM_DELADDR, NLM_F_ACK, body)


def _request(kind: int, flags: int, body: bytes) -> bytes:
    return _NLMSG.pack(_NLMSG.size + len(body), kind, flags | _NLM_F_REQUEST, 0, 0) + body
