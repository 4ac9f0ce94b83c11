"""Spoofed SYNs, each of another client: `python syn_flood.py MAC VIP FIRST COUNT PORT…`, out of eth0.

FIRST is the number of the first client. JSON says how many were sent.
"""

from __future__ import annotations

import ctypes
import json
import socket
import struct
import sys
import time
from ipaddress import IPv4Address

from tests.netns.flooder import BURST, _Header, _Message, _Vector

_SOL_PACKET, _PACKET_QDISC_BYPASS = 263, 20
_RATE = 150_000
"""A second: as fast as it goes, queues on the way would lose most of them."""
_BEHIND = 1_000
"""Of what was not sent in time no more than this is made up for: a burst would be lost as well."""


def frame(mac: str, vip: str) -> bytes:
    """Whose checksums are wrong: the director does not look at them, and no server answers."""
    ether = bytes.fromhex(mac.replace(":", "")) + b"\x02\0\0\0\0\x67" + b"\x08\0"
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 40, 0, 0, 64, 6, 0, bytes(4), IPv4Address(vip).packed)
    return ether + ip + struct.pack("!HHIIBBHHH", 0, 0, 0, 0, 0x50, 0x02, 8192, 0, 0)


def flood(mac: str, vip: str, first: int, count: int, ports: list[int]) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    made = frame(mac, vip)
    memory = ctypes.create_string_buffer(made * BURST, len(made) * BURST)
    base = ctypes.addressof(memory)
    vectors = [_Vector(base + number * len(made), len(made)) for number in range(BURST)]
    batch = (_Message * BURST)(*(_Message(_Header(None, 0, ctypes.pointer(each), 1)) for each in vectors))
    network = int(IPv4Address("198.18.0.0"))
    sent = 0
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as mouth:
        mouth.bind(("eth0", 0))
        mouth.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
        began = time.monotonic()
        while sent < count:
            behind = (time.monotonic() - began) * _RATE - sent
            if behind < 0:
                time.sleep(0.0002)
                continue
            began += max(0.0, behind - _BEHIND) / _RATE
            room = min(BURST, count - sent)
            for at in range(room):
                number = first + sent + at
                struct.pack_into("!I", memory, at * len(made) + 26, network + number % 0x20000)
                port = ports[number % len(ports)]
                struct.pack_into("!HH", memory, at * len(made) + 34, 1024 + number // 0x20000, port)
            sent += max(0, libc.sendmmsg(mouth.fileno(), batch, room, 0))
    return sent


if __name__ == "__main__":
    mac, vip, *numbers = sys.argv[1:]
    first, count, *ports = map(int, numbers)
    print(json.dumps({"sent": flood(mac, vip, first, count, ports)}))
