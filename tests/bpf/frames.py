"""Frames as clients send them."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address

from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether

from haxlb.linux.specimen import OWN_MAC, PORT, VIP

CLIENT_MAC = "02:00:00:00:00:cc"
CLIENT = "192.0.2.1"


def tcp(
    flags="S", *, source=CLIENT, port=40000, vip=str(VIP), vport=PORT, to=OWN_MAC, by=CLIENT_MAC, data=b"", ip=None
):
    segment = TCP(sport=port, dport=vport, flags=flags) / data
    return bytes(Ether(dst=to, src=by) / IP(src=source, dst=vip, **(ip or {})) / segment)


def udp(*, source=CLIENT, port=40000, vip=str(VIP), vport=PORT, to=OWN_MAC, by=CLIENT_MAC, data=b"query", ip=None):
    return bytes(Ether(dst=to, src=by) / IP(src=source, dst=vip, **(ip or {})) / UDP(sport=port, dport=vport) / data)


def in_doubt(frame: bytes) -> bytes:
    """As a director asks the other one whether it knows a later flow of the same ports."""
    return frame[:12] + b"\x88\xb5" + frame[14:]


class Stamp:
    """The same frame from many clients, without asking scapy each time."""

    def __init__(self, frame: bytes) -> None:
        self._frame = bytearray(frame)

    def of(self, source: int, port: int) -> bytes:
        struct.pack_into("!I", self._frame, 26, source)
        struct.pack_into("!H", self._frame, 34, port)
        return bytes(self._frame)


def client(number: int) -> tuple[int, int]:
    """Address (as a number) and port of one of many clients."""
    return int(IPv4Address("198.18.0.0")) + number // 16, 1024 + number * 7919 % 60000
