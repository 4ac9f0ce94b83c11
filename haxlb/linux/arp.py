"""ARP frames on Ethernet (RFC 826): probes of RFC 5227, and what others say."""

from __future__ import annotations

import fcntl
import socket
import struct
from dataclasses import dataclass
from ipaddress import IPv4Address

from haxlb.model.addresses import IPAddress

ETH_P_ARP = 0x0806
_FRAME = struct.Struct("!6s6sHHHBBH6s4s6s4s")
_BROADCAST = b"\xff" * 6
_HTYPE_ETHERNET = 1
_PTYPE_IPV4 = 0x0800
_REQUEST = 1
_SIOCGIFHWADDR = 0x8927
_ARPHRD_ETHER = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """Who an ARP packet says its sender is, or a neighbour advertisement its target."""

    mac: str
    address: IPAddress
    """0.0.0.0 in a probe."""


def probe(mac: bytes, target: IPv4Address) -> bytes:
    """A request with sender address 0.0.0.0 (RFC 5227 section 1.1): it asks without touching anybody's cache."""
    return _FRAME.pack(
        _BROADCAST,
        mac,
        ETH_P_ARP,
        _HTYPE_ETHERNET,
        _PTYPE_IPV4,
        6,
        4,
        _REQUEST,
        mac,
        bytes(4),
        bytes(6),
        target.packed,
    )


def parse(frame: bytes) -> Heard | None:
    """The sender of an ARP packet, request or reply; None for anything that is no ARP of IPv4 on Ethernet."""
    if len(frame) < _FRAME.size:
        return None
    _, _, kind, hardware, protocol, hardware_length, protocol_length, _, mac, address, _, _ = _FRAME.unpack_from(frame)
    if (kind, hardware, protocol, hardware_length, protocol_length) != (
        ETH_P_ARP,
        _HTYPE_ETHERNET,
        _PTYPE_IPV4,
        6,
        4,
    ):
        return None
    return Heard(mac=mac.hex(":"), address=IPv4Address(address))


class ArpSocket:
    """ARP on one interface. Raises OSError where the interface is gone or has no Ethernet address."""

    def __init__(self, interface: str) -> None:
        self.index = socket.if_nametoindex(interface)
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        try:
            self._socket.setblocking(False)
            self._socket.bind((interface, ETH_P_ARP))
            kind, mac = hardware_address(self._socket, interface)
        except OSError:
            self._socket.close()
            raise
        if kind != _ARPHRD_ETHER:
            self._socket.close()
            raise OSError(0, f"{interface} is no Ethernet interface")
        self.mac = mac

    def fileno(self) -> int:
        """For the loop to watch."""
        return self._socket.fileno()

    def ask(self, target: IPv4Address) -> None:
        """Send a probe for this address. Raises OSError."""
        self._socket.send(probe(self.mac, target))

    def receive(self) -> list[Heard]:
        """All that others have said since the last time; what we send does not come back here. Raises OSError."""
        heard: list[Heard] = []
        while True:
            try:
                frame = self._socket.recv(128)
            except (BlockingIOError, InterruptedError):
                return heard
            each = parse(frame)
            if each is not None and each.mac != self.mac.hex(":"):
                heard.append(each)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def hardware_address(channel: socket.socket, interface: str) -> tuple[int, bytes]:
    """Kind (ARPHRD_…) and address of an interface. Raises OSError."""
    request = struct.pack("16s24x", interface.encode())
    answer = fcntl.ioctl(channel, _SIOCGIFHWADDR, request)
    (kind,) = struct.unpack_from("=H", answer, 16)
    return kind, answer[18:24]
