"""A veth pair in a namespace of its own; the forwarder at one end, a source and a sink of frames at the other."""

from __future__ import annotations

import contextlib
import os
import struct
import subprocess
import types
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

from haxlb.linux import bpf, xdp

T = TypeVar("T")

FIRST_SOURCE_PORT = 34
"""Offset of the source port in a frame without IP options."""


def instruction(code: int, to: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("=BBhi", code, source << 4 | to, offset, value)


def sink(counter: int) -> bytes:
    """Count in element 0 of a per-CPU array of u64, XDP_DROP."""
    return b"".join(
        [
            instruction(0x62, 10, 0, -4, 0),  # *(u32 *)(r10 - 4) = 0
            instruction(0xBF, 2, 10),  # r2 = r10
            instruction(0x07, 2, 0, 0, -4),  # r2 += -4
            instruction(0x18, 1, 1, 0, counter),  # r1 = the map
            instruction(0),
            instruction(0x85, 0, 0, 0, 1),  # bpf_map_lookup_elem
            instruction(0x15, 0, 0, 3, 0),  # if r0 == 0 goto the end
            instruction(0x79, 1, 0),  # r1 = *(u64 *)r0
            instruction(0x07, 1, 0, 0, 1),  # r1 += 1
            instruction(0x7B, 0, 1),  # *(u64 *)r0 = r1
            instruction(0xB7, 0, 0, 0, bpf.XDP_DROP),
            instruction(0x95),
        ]
    )


def source(index: int, mac: bytes) -> bytes:
    """Address the frame to `mac`, give it a source port by chance, send it out of the interface."""
    high, low = struct.unpack("<I", mac[:4])[0], struct.unpack("<H", mac[4:])[0]
    return b"".join(
        [
            instruction(0xBF, 6, 1),  # r6 = context
            instruction(0x85, 0, 0, 0, 7),  # bpf_get_prandom_u32
            instruction(0x61, 2, 6, 0),  # r2 = data
            instruction(0x61, 3, 6, 4),  # r3 = data_end
            instruction(0xBF, 4, 2),  # r4 = r2
            instruction(0x07, 4, 0, 0, FIRST_SOURCE_PORT + 2),
            instruction(0x2D, 4, 3, 6),  # if r4 > r3 goto drop
            instruction(0x6B, 2, 0, FIRST_SOURCE_PORT),  # source port = r0
            instruction(0x62, 2, 0, 0, high - (1 << 32) if high >> 31 else high),
            instruction(0x6A, 2, 0, 4, low),
            instruction(0xB7, 1, 0, 0, index),  # bpf_redirect(index, 0)
            instruction(0xB7, 2, 0, 0, 0),
            instruction(0x05, 0, 0, 2),  # goto redirect
            instruction(0xB7, 0, 0, 0, bpf.XDP_DROP),
            instruction(0x95),
            instruction(0x85, 0, 0, 0, 23),
            instruction(0x95),
        ]
    )


class Wire:
    """`near` carries the forwarder, `far` is where clients and servers are."""

    def __init__(self) -> None:
        self.name = f"hxb-{os.getpid()}"
        self.path = Path("/run/netns") / self.name

    def __enter__(self) -> Self:
        self._ip("netns", "add", self.name)
        # The kernel would mix its own neighbour discovery with the frames that are counted.
        for which in ("all", "default"):
            switch = Path(f"/proc/sys/net/ipv6/conf/{which}/disable_ipv6")
            self.inside(lambda switch=switch: switch.write_text("1", encoding="ascii"))
        for words in (
            "link add near type veth peer name far",
            "link set near address 02:00:00:00:00:aa up",
            "link set far address 02:00:00:00:00:fa up",
            "link set lo up",
        ):
            self._ip("-n", self.name, *words.split())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self._ip("netns", "delete", self.name)

    def ip(self, words: str) -> None:
        self._ip("-n", self.name, *words.split())

    def inside(self, work: Callable[[], T]) -> T:
        return xdp.in_namespace(self.path, work)

    def index(self, interface: str) -> int:
        return self.inside(lambda: xdp.interface_index(interface))

    def attachment(self, interface: str) -> xdp.Attachment:
        return self.inside(lambda: xdp.attachment(xdp.interface_index(interface)))

    @staticmethod
    def _ip(*words: str) -> None:
        done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


class Traffic:
    """Frames from the far end, and a count of those that come back there."""

    def __init__(self, wire: Wire, frame: bytes, mac: str) -> None:
        self._wire = wire
        self._frame = frame
        self._far = wire.index("far")
        self._counter = bpf.map_create(bpf.MAP_TYPE_PERCPU_ARRAY, 4, 8, 1, name="came_back")
        self._sink = bpf.prog_load(sink(self._counter), name="sink")
        self._source = bpf.prog_load(source(self._far, bytes.fromhex(mac.replace(":", ""))), name="source")
        self._link = wire.inside(lambda: bpf.link_create(self._sink, self._far, flags=xdp.FLAGS_DRV_MODE))

    def send(self, count: int) -> None:
        """Returns when the last one has been handled."""
        self._wire.inside(
            lambda: bpf.prog_test_run(
                self._source,
                self._frame,
                repeat=count,
                flags=bpf.F_TEST_XDP_LIVE_FRAMES,
                batch_size=64,
                interface_index=self._far,
            )
        )

    def came_back(self, cpus: int) -> int:
        raw = bpf.map_lookup(self._counter, bytes(4), 8 * cpus)
        assert raw is not None
        return sum(struct.unpack(f"={cpus}Q", raw))

    def close(self) -> None:
        for fd in (self._link, self._source, self._sink, self._counter):
            with contextlib.suppress(OSError):
                os.close(fd)
