"""PeerProbePort: signs of life of another director, although a backup says nothing.

Multicast: whoever runs VRRP has joined 224.0.0.18, and its kernel says so when it is asked by an IGMP query for that
group (RFC 3376 section 4.1): a membership ends with the process that holds it. The query comes from 0.0.0.0, so that no
router and no switch takes us for the link's querier (RFC 4541 section 2.1.1). A snooping switch may keep the answers
from us; then, and for unicast peers, an ARP answer of a known address is all that can be had: that host is up, its VRRP
unproven. Of IPv6, whoever has joined ff02::12 answers an echo request to it (group_echo). `haxlb failover` watches
the take-over in any case.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Iterator
from functools import partial
from ipaddress import IPv4Address, ip_address

from haxlb.linux.adverts import VRRP_GROUP
from haxlb.linux.arp import ArpSocket
from haxlb.linux.group_echo import first_listener
from haxlb.linux.neighbour_solicitation import NeighbourSocket
from haxlb.model.addresses import IPAddress
from haxlb.model.instance import VrrpInstance
from haxlb.vrrp.advert_checks import MULTICAST_GROUP6 as VRRP_GROUP6

ROUND_S = 0.4
QUICK_ROUND_S = 0.1
"""Where something waits for the answer; on a link it comes within a millisecond."""
ROUNDS = 2
"""A query or an answer may be lost."""
_IGMP_V3_ROUTERS = IPv4Address("224.0.0.22")
_ETH_P_IP = 0x0800
_QUERY = 0x11
_REPORTS_V1_V2 = (0x12, 0x16)
_REPORT_V3 = 0x22
_MAX_RESPONSE = 2
"""Tenths of a second within which hosts spread their answers."""
_JOINED = (2, 4)
"""Types of records that say membership: MODE_IS_EXCLUDE and CHANGE_TO_EXCLUDE (RFC 3376 section 4.2.12)."""


class PeerProbe:
    """On the running loop."""

    async def probe(self, instance: VrrpInstance, asked: tuple[str, ...]) -> str:
        """A sentence that says how a peer showed that it lives, empty when none did; takes at most two seconds."""
        if not instance.peers:
            group = instance.multicast_group or (VRRP_GROUP if instance.family == 4 else VRRP_GROUP6)  # noqa: PLR2004
            listener = await _first_listener(instance.interface, group)
            if listener:
                return f"{listener} listens to VRRP ({group}) on {instance.interface}"
        for address in map(ip_address, asked):
            mac = await _resolve(instance.interface, address)
            if mac:
                how = "ARP" if address.version == 4 else "neighbour discovery"  # noqa: PLR2004
                return f"{address} answers {how} ({mac}); whether it speaks VRRP cannot be seen, a backup is silent"
        return ""

    async def is_up(self, interface: str, address: IPAddress) -> bool:
        """Whether this address answers ARP or neighbour discovery now."""
        return bool(await _resolve(interface, address, QUICK_ROUND_S))


def igmp_query(group: IPv4Address) -> bytes:
    """An IP packet with a group-specific query of IGMP version 3, from 0.0.0.0."""
    message = struct.pack("!BBH4sBBH", _QUERY, _MAX_RESPONSE, 0, group.packed, 0, 0, 0)
    message = message[:2] + struct.pack("!H", _checksum(message)) + message[4:]
    router_alert = bytes((0x94, 4, 0, 0))
    total = 24 + len(message)
    header = struct.pack("!BBHHHBBH4s4s", 0x46, 0xC0, total, 0, 0, 1, socket.IPPROTO_IGMP, 0, bytes(4), group.packed)
    header += router_alert
    header = header[:10] + struct.pack("!H", _checksum(header)) + header[12:]
    return header + message


def reporter(packet: bytes, group: IPv4Address) -> IPv4Address | None:
    """Who says in this IP packet that it is a member of the group; None when nobody does."""
    if len(packet) < 20:  # noqa: PLR2004 - an IP header
        return None
    message = packet[(packet[0] & 0xF) * 4 :]
    source = IPv4Address(packet[12:16])
    if len(message) < 8:  # noqa: PLR2004 - the shortest IGMP message
        return None
    kind = message[0]
    if kind in _REPORTS_V1_V2:
        return source if message[4:8] == group.packed else None
    if kind == _REPORT_V3 and any(joined == group for joined in _joined(message)):
        return source
    return None


def _joined(report: bytes) -> Iterator[IPv4Address]:
    """Groups that a version 3 report says its sender is in."""
    (count,) = struct.unpack_from("!H", report, 6)
    offset = 8
    for _ in range(count):
        if len(report) < offset + 8:
            return
        kind, auxiliary, sources, group = struct.unpack_from("!BBH4s", report, offset)
        if kind in _JOINED:
            yield IPv4Address(group)
        offset += 8 + 4 * (sources + auxiliary)


async def _first_listener(interface: str, group: IPAddress) -> IPAddress | None:
    if not isinstance(group, IPv4Address):
        return await first_listener(interface, group, rounds=ROUNDS, round_s=ROUND_S)
    try:
        with _igmp_socket(interface) as ears, socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0) as mouth:
            group_mac = b"\x01\x00\x5e" + bytes((group.packed[1] & 0x7F,)) + group.packed[2:]
            for _ in range(ROUNDS):
                mouth.sendto(igmp_query(group), (interface, _ETH_P_IP, 0, 0, group_mac))
                with contextlib.suppress(TimeoutError):
                    return await asyncio.wait_for(_hear_report(ears, group), ROUND_S)
    except OSError:  # the interface is gone or down: nobody is heard there
        pass
    return None


async def _hear_report(ears: socket.socket, group: IPv4Address) -> IPv4Address:
    loop = asyncio.get_running_loop()
    while True:
        who = reporter(await loop.sock_recv(ears, 2048), group)
        # What our own kernel reports comes back to us, as all multicast does.
        if who is not None and not _is_ours(who):
            return who


def _is_ours(address: IPv4Address) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(address), 0))
        except OSError:
            return False
    return True


def _igmp_socket(interface: str) -> socket.socket:
    ears = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IGMP)
    try:
        ears.setblocking(False)
        ears.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        index = socket.if_nametoindex(interface)
        membership = struct.pack("=4s4si", _IGMP_V3_ROUTERS.packed, bytes(4), index)
        ears.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    except OSError:
        ears.close()
        raise
    return ears


async def _resolve(interface: str, address: IPAddress, round_s: float = ROUND_S) -> str:
    """MAC that answers for this address, empty when none does."""
    try:
        channel, ask = _channel(interface, address)
    except OSError:
        return ""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[str] = loop.create_future()

    def readable() -> None:
        with contextlib.suppress(OSError):
            for each in channel.receive():
                if each.address == address and not answered.done():
                    answered.set_result(each.mac)

    loop.add_reader(channel.fileno(), readable)
    try:
        for _ in range(ROUNDS):
            ask()
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(asyncio.shield(answered), round_s)
    except OSError:
        pass
    finally:
        loop.remove_reader(channel.fileno())
        channel.close()
    return ""


def _channel(interface: str, address: IPAddress) -> tuple[ArpSocket | NeighbourSocket, Callable[[], None]]:
    """Where the answer comes, and how to ask for it."""
    if isinstance(address, IPv4Address):
        arp = ArpSocket(interface)
        return arp, partial(arp.ask, address)
    neighbours = NeighbourSocket(interface)
    return neighbours, partial(neighbours.ask, address)


def _checksum(data: bytes) -> int:
    """RFC 1071."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
