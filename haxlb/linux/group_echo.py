"""Who has joined an IPv6 multicast group on a link: whoever answers an echo request that is sent to it.

A query of MLD would say so, too, but has to come from a link-local address (RFC 3810 section 5.1.14), by which we would
become the link's querier for switches that snoop. Members of a group answer to it by default (RFC 4443 section 4.2;
net.ipv6.icmp.echo_ignore_multicast).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from ipaddress import IPv6Address

_ECHO_REQUEST, _ECHO_REPLY = 128, 129
_HEADER = struct.Struct("!BBH4s")
"""Type, code, checksum (the kernel's matter, RFC 3542 section 3.1), and what comes back as it was sent."""
_ICMP6_FILTER = 1
# A set bit keeps a type out (RFC 3542 section 3.2).
_REPLIES_ONLY = struct.pack(
    "=8I",
    *(0xFFFFFFFF & ~(1 << (_ECHO_REPLY & 31)) if word == _ECHO_REPLY >> 5 else 0xFFFFFFFF for word in range(8)),
)


async def first_listener(interface: str, group: IPv6Address, *, rounds: int, round_s: float) -> IPv6Address | None:
    """The first host that answers, None when none does or the interface cannot be asked on."""
    token = os.urandom(4)
    try:
        with _socket(interface) as channel:
            index = socket.if_nametoindex(interface)
            for _ in range(rounds):
                channel.sendto(_HEADER.pack(_ECHO_REQUEST, 0, 0, token), (str(group), 0, 0, index))
                with contextlib.suppress(TimeoutError):
                    return await asyncio.wait_for(_hear(channel, token), round_s)
    except OSError:  # the interface is gone or down, or has no link-local address: nobody is heard there
        pass
    return None


async def _hear(channel: socket.socket, token: bytes) -> IPv6Address:
    loop = asyncio.get_running_loop()
    while True:
        message, sender = await loop.sock_recvfrom(channel, 256)
        if len(message) >= _HEADER.size and _HEADER.unpack_from(message)[3] == token:
            return IPv6Address(sender[0].partition("%")[0])


def _socket(interface: str) -> socket.socket:
    channel = socket.socket(socket.AF_INET6, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.IPPROTO_ICMPV6)
    try:
        channel.setblocking(False)
        channel.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, _REPLIES_ONLY)
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        channel.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex(interface))
        channel.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 1)
        channel.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)  # we are members as well
    except OSError:
        channel.close()
        raise
    return channel
