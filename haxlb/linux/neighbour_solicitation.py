"""Neighbour discovery on Ethernet (RFC 4861): questions that touch nobody's cache, and what others answer."""

from __future__ import annotations

import contextlib
import socket
import struct
from ipaddress import IPv6Address

from haxlb.linux.arp import Heard, hardware_address
from haxlb.linux.neighbour_advertisement import icmpv6_frame

_SOLICITATION = 135
_ADVERTISEMENT = 136
_TARGET_LINK_LAYER_ADDRESS = 2
_FIXED = 24
"""Of an advertisement: type, code, checksum, flags, target."""
_HOP_LIMIT = 255
_ARPHRD_ETHER = 1
_SO_BINDTODEVICE = 25
_ICMP6_FILTER = 1
_IPV6_RECVHOPLIMIT, _IPV6_HOPLIMIT = 51, 52
_UNSPECIFIED = IPv6Address("::")
# A set bit keeps a type out (RFC 3542 section 3.2).
_ADVERTISEMENTS_ONLY = struct.pack(
    "=8I",
    *(0xFFFFFFFF & ~(1 << (_ADVERTISEMENT & 31)) if word == _ADVERTISEMENT >> 5 else 0xFFFFFFFF for word in range(8)),
)


def probe(mac: bytes, target: IPv6Address) -> bytes:
    """A solicitation as duplicate address detection sends it (RFC 4862 section 5.4.2): from the unspecified address.

    Whoever has the target answers to all nodes.
    """
    group = IPv6Address(int.from_bytes(IPv6Address("ff02::1:ff00:0").packed) | int(target) & 0xFFFFFF)
    return icmpv6_frame(mac, _UNSPECIFIED, group, _SOLICITATION, bytes(4) + target.packed)


def parse(message: bytes) -> Heard | None:
    """Whose address an advertisement says to have; None for anything that is none, or names no MAC."""
    if len(message) < _FIXED or message[0] != _ADVERTISEMENT or message[1]:
        return None
    offset = _FIXED
    while offset + 2 <= len(message):
        kind, units = message[offset], message[offset + 1]
        if units == 0:  # RFC 4861 section 4.6: the whole packet is to be dropped
            return None
        if kind == _TARGET_LINK_LAYER_ADDRESS and units == 1 and offset + 8 <= len(message):
            return Heard(mac=message[offset + 2 : offset + 8].hex(":"), address=IPv6Address(message[8:_FIXED]))
        offset += units * 8
    return None


class NeighbourSocket:
    """Neighbour discovery on one interface. Raises OSError where it is gone or has no Ethernet address."""

    def __init__(self, interface: str) -> None:
        self.index = socket.if_nametoindex(interface)
        with contextlib.ExitStack() as opened:
            # Protocol 0: it sends, and receives nothing.
            self._mouth = opened.enter_context(
                socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
            )
            self._mouth.bind((interface, 0))
            kind, self.mac = hardware_address(self._mouth, interface)
            if kind != _ARPHRD_ETHER:
                raise OSError(0, f"{interface} is no Ethernet interface")
            self._ear = opened.enter_context(
                socket.socket(socket.AF_INET6, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.IPPROTO_ICMPV6)
            )
            self._ear.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, _ADVERTISEMENTS_ONLY)
            self._ear.setsockopt(socket.SOL_SOCKET, _SO_BINDTODEVICE, interface.encode())
            self._ear.setsockopt(socket.IPPROTO_IPV6, _IPV6_RECVHOPLIMIT, 1)
            self._ear.setblocking(False)
            opened.pop_all()

    def fileno(self) -> int:
        """For the loop to watch."""
        return self._ear.fileno()

    def ask(self, target: IPv6Address) -> None:
        """Send a probe for this address. Raises OSError."""
        self._mouth.send(probe(self.mac, target))

    def receive(self) -> list[Heard]:
        """All that others have said since the last time; what we send does not come back here. Raises OSError."""
        heard: list[Heard] = []
        while True:
            try:
                message, ancillary, _, _ = self._ear.recvmsg(256, 64)
            except (BlockingIOError, InterruptedError):
                return heard
            # From farther than this link (RFC 4861 section 7.1.2) it is forged.
            if (socket.IPPROTO_IPV6, _IPV6_HOPLIMIT, struct.pack("=i", _HOP_LIMIT)) not in ancillary:
                continue
            each = parse(message)
            if each is not None and each.mac != self.mac.hex(":"):
                heard.append(each)

    def close(self) -> None:
        """Close the sockets."""
        self._mouth.close()
        self._ear.close()
