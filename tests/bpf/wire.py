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
from haxlb.linux.maps import possible_cpus
from tests.bpf.assembly import sink, source
from tests.netns.standin import eventually

T = TypeVar("T")


class Wire:
    """`near` carries the forwarder, `far` is where clients and servers are."""

    def __init__(self) -> None:
        self.name = f"hxb-{os.getpid()}"
        self.path = Path("/run/netns") / self.name

    def __enter__(self) -> Self:
        self._ip("netns", "add", self.name)
        try:
            self._furnish()
        except BaseException:
            self._ip("netns", "delete", self.name)
            raise
        return self

    def _furnish(self) -> None:
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


def counter(name: str) -> int:
    """A map in which programs count, per CPU."""
    return bpf.map_create(bpf.MAP_TYPE_PERCPU_ARRAY, 4, 8, 1, name=name)


def counted(fd: int, cpus: int) -> int:
    """What they have counted."""
    raw = bpf.map_lookup(fd, bytes(4), 8 * cpus)
    assert raw is not None
    return sum(struct.unpack(f"={cpus}Q", raw))


class Traffic:
    """Frames from the far end, and a count of those that come back there."""

    def __init__(self, wire: Wire, frame: bytes, mac: str, *, ports: int = 0, left: int = 0) -> None:
        self._wire = wire
        self._frame = frame
        self._far = wire.index("far")
        self._back = counter("came_back")
        self._sink = bpf.prog_load(sink(self._back), name="sink")
        code = source(self._far, bytes.fromhex(mac.replace(":", "")), ports=ports, counter=left)
        self._source = bpf.prog_load(code, name="source")
        self._link = wire.inside(lambda: bpf.link_create(self._sink, self._far, flags=xdp.FLAGS_DRV_MODE))

    def send(self, count: int) -> None:
        """Returns when the last one has been handled."""
        self._wire.inside(lambda: self._run(count))

    def _run(self, count: int) -> None:
        bpf.prog_test_run(
            self._source,
            self._frame,
            repeat=count,
            flags=bpf.F_TEST_XDP_LIVE_FRAMES,
            batch_size=64,
            interface_index=self._far,
        )

    def came_back(self, cpus: int) -> int:
        return counted(self._back, cpus)

    def close(self) -> None:
        for fd in (self._link, self._source, self._sink, self._back):
            with contextlib.suppress(OSError):
                os.close(fd)


class Witnessed(Traffic):
    """The same, and a count of those that left.

    Those are more than were to be sent where a signal interrupts that (also one that cannot be caught): the kernel
    breaks off the run, and it begins anew.
    """

    def __init__(self, wire: Wire, frame: bytes, mac: str) -> None:
        self._left = counter("left")
        self._cpu = min(os.sched_getaffinity(0))
        super().__init__(wire, frame, mac, left=self._left)

    def _run(self, count: int) -> None:
        # A batch would overtake the one before if that were left to another CPU, and fill the queue of the veth.
        os.sched_setaffinity(0, {self._cpu})
        super()._run(count)

    @property
    def sent(self) -> int:
        return counted(self._left, possible_cpus())

    def expect_all_back(self) -> None:
        """Whatever has left comes back, soon: the kernel may leave the last ones to a thread of its own."""
        sent = self.sent
        with contextlib.suppress(AssertionError):
            eventually(lambda: self.came_back(possible_cpus()) >= sent, "the last ones")
        assert self.came_back(possible_cpus()) == sent

    def close(self) -> None:
        super().close()
        with contextlib.suppress(OSError):
            os.close(self._left)
