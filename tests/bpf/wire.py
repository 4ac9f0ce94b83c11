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
from tests.bpf.assembly import sink, source

T = TypeVar("T")


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

    def __init__(self, wire: Wire, frame: bytes, mac: str, *, ports: int = 0) -> None:
        self._wire = wire
        self._frame = frame
        self._far = wire.index("far")
        self._counter = bpf.map_create(bpf.MAP_TYPE_PERCPU_ARRAY, 4, 8, 1, name="came_back")
        self._sink = bpf.prog_load(sink(self._counter), name="sink")
        code = source(self._far, bytes.fromhex(mac.replace(":", "")), ports=ports)
        self._source = bpf.prog_load(code, name="source")
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
