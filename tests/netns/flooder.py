"""Sends frames from an interface at a rate: `python flooder.py IFACE RATE SECONDS`, the frames as hex lines on stdin.

A process of its own, so that what it costs is not taken from whom it floods. It goes before all others but those in a
real-time class, so that it is a flood on a busy machine, too. Prints a JSON line when the first frame is out, and one
with what it has done in the end.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import time

BURST = 64
"""Frames per sendmmsg(2): one system call each would not reach 100,000 a second beside the receivers' own work."""

_SOL_PACKET, _PACKET_QDISC_BYPASS = 263, 20


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Header(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint),
        ("vector", ctypes.POINTER(_Vector)),
        ("vectors", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Message(ctypes.Structure):
    _fields_ = (("header", _Header), ("length", ctypes.c_uint))


def flood(interface: str, rate: int, seconds: float, frames: list[bytes]) -> dict[str, float]:
    """Send them round and round; what was sent, and how fast."""
    libc = ctypes.CDLL(None, use_errno=True)
    buffers = [ctypes.create_string_buffer(each, len(each)) for each in frames]
    vectors = [_Vector(ctypes.addressof(each), len(each)) for each in buffers]
    batches = []
    for first in range(len(vectors)):
        chosen = [vectors[(first + n) % len(vectors)] for n in range(BURST)]
        batches.append((_Message * BURST)(*(_Message(_Header(None, 0, ctypes.pointer(v), 1)) for v in chosen)))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as mouth:
        mouth.bind((interface, 0))
        mouth.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
        begin = time.monotonic()
        sent, turn = 0, 0
        while (passed := time.monotonic() - begin) < seconds:
            if sent > passed * rate:
                time.sleep(0.0002)
                continue
            done = libc.sendmmsg(mouth.fileno(), batches[turn % len(batches)], BURST, 0)
            if not sent:
                print(json.dumps({"begun": True}), flush=True)
            sent += max(done, 0)
            turn += 1
        return {"sent": sent, "per_second": round(sent / (time.monotonic() - begin))}


if __name__ == "__main__":
    os.setpriority(os.PRIO_PROCESS, 0, -20)
    print(json.dumps(flood(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), list(map(bytes.fromhex, sys.stdin)))))
