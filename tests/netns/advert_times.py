"""When a host's adverts reached another one, by the kernel's time stamps, whatever else is on the wire."""

from __future__ import annotations

import socket
import struct
import threading
from itertools import pairwise
from typing import Self

from haxlb.linux.advert_filter import attach
from tests.netns.standin import inside

_SO_TIMESTAMPNS = 35
_LOAD_HALF_ABSOLUTE, _LOAD_WORD_ABSOLUTE, _JUMP_IF_EQUAL, _RETURN = 0x28, 0x20, 0x15, 0x06


class AdvertTimes:
    """Listens to the frames of one MAC only, by a filter in the kernel: a flood does not reach it."""

    def __init__(self, namespace: str, mac: str, interface: str = "eth0") -> None:
        octets = bytes.fromhex(mac.replace(":", ""))
        with inside(namespace):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            attach(
                self._socket,
                [
                    (_LOAD_WORD_ABSOLUTE, 0, 0, 6),
                    (_JUMP_IF_EQUAL, 0, 3, int.from_bytes(octets[:4])),
                    (_LOAD_HALF_ABSOLUTE, 0, 0, 10),
                    (_JUMP_IF_EQUAL, 0, 1, int.from_bytes(octets[4:])),
                    (_RETURN, 0, 0, 0xFFFF),
                    (_RETURN, 0, 0, 0),
                ],
            )
            self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            self._socket.bind((interface, 0x0003))
        self._socket.settimeout(0.1)
        self._seen: list[tuple[int, int]] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()
        self._socket.close()

    def of(self, vrid: int, since_ns: int = 0) -> list[int]:
        """Times of its adverts for this VRID, in ns."""
        return [at_ns for at_ns, each in list(self._seen) if each == vrid and at_ns >= since_ns]

    def gaps_ms(self, vrid: int, since_ns: int = 0) -> list[float]:
        """Between one advert and the next."""
        times = self.of(vrid, since_ns)
        return [(later - earlier) / 1e6 for earlier, later in pairwise(times)]

    def _listen(self) -> None:
        while not self._closing.is_set():
            try:
                frame, ancillary, _, _ = self._socket.recvmsg(2048, 64)
            except TimeoutError:
                continue
            # The VRID is the message's second byte, with or without an authentication header in front.
            at = {112: 35, 51: 59}.get(frame[23]) if frame[12:14] == b"\x08\x00" else None
            if at is None:
                continue
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
                    seconds, nanoseconds = struct.unpack("=qq", data)
                    self._seen.append((seconds * 1_000_000_000 + nanoseconds, frame[at]))
