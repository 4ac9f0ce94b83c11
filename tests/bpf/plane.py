"""A loaded forwarder that is attached to nothing, and the oracle beside it."""

from __future__ import annotations

import contextlib
import mmap
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass

from haxlb.forwarding import layout
from haxlb.forwarding.layout import FlowEntry, pack_mac
from haxlb.forwarding.reference import Action, Reference
from haxlb.forwarding.wanted import WantedTable
from haxlb.linux import bpf
from haxlb.linux.specimen import LOOPBACK, OWN_MAC, Specimen
from tests.forwarding.tables import PEER_MAC

TICKS_PER_SECOND = round(1 / time.clock_getres(6))
ACTIONS = {
    bpf.XDP_PASS: Action.PASS,
    bpf.XDP_DROP: Action.DROP,
    bpf.XDP_TX: Action.SEND,
    bpf.XDP_REDIRECT: Action.SEND,
}


@dataclass(frozen=True)
class Answer:
    action: Action
    reason: str
    frame: bytes
    redirected: bool


class Plane:
    def __init__(self, specimen: Specimen) -> None:
        self.maps = specimen.maps
        self.program = specimen.program
        self.forwarder = specimen.forwarder
        self.oracle = Reference({LOOPBACK: OWN_MAC})
        self._aged_s = 0.0
        self._verdicts: dict[str, int] = {}
        self.reset()

    def reset(self) -> None:
        """Empty tables, as after a start."""
        for name, fd in self.maps.fds.items():
            shape = self.maps.shape(name)
            if shape.kind == layout.MapKind.HASH:
                for key in list(bpf.map_keys(fd, shape.key_size)):
                    bpf.map_delete(fd, key)
            elif shape.kind == layout.MapKind.ARRAY and not shape.mmapable:
                keys = b"".join(layout.INDEX.pack(index) for index in range(shape.entries))
                bpf.map_update_batch(fd, keys, bytes(shape.value_size * shape.entries), shape.entries)
        with self._flows() as flows:
            flows[:] = bytes(len(flows))
        self.maps.write("interfaces", layout.INDEX.pack(LOOPBACK), layout.pack_own_mac(OWN_MAC))
        self.restart()
        self.oracle = Reference({LOOPBACK: OWN_MAC})
        self._aged_s = 0.0
        self._verdicts = self.verdicts()

    def restart(self) -> None:
        """Forget all that is not in the maps."""
        self.forwarder._actual = None

    @contextlib.contextmanager
    def _flows(self) -> Iterator[mmap.mmap]:
        shape = self.maps.shape("flows")
        with mmap.mmap(self.maps.fds["flows"], shape.entries * shape.value_size) as flows:
            yield flows

    def apply(self, wanted: WantedTable) -> None:
        self.forwarder.apply(wanted)
        self.oracle.configure(wanted)

    def verdicts(self) -> dict[str, int]:
        return layout.sum_verdicts(self.maps.read("verdicts", layout.INDEX.pack(0)) or b"")

    def send(self, frame: bytes) -> Answer:
        """What the program does, and which reason it counted."""
        run = bpf.prog_test_run(self.program, frame)
        now = self.verdicts()
        counted = {name: now[name] - before for name, before in self._verdicts.items() if now[name] != before}
        self._verdicts = now
        assert list(counted.values()) == [1], f"one frame, counted as {counted}"
        return Answer(ACTIONS[run.verdict], next(iter(counted)), run.frame, run.verdict == bpf.XDP_REDIRECT)

    def expect(self, frame: bytes) -> Answer:
        """The program's answer, after comparing it with the oracle's."""
        told = self.oracle.handle(frame, LOOPBACK, time.monotonic() + self._aged_s)
        answer = self.send(frame)
        assert (answer.reason, answer.action) == (told.reason, told.action)
        assert answer.frame == told.frame
        assert answer.redirected == (told.interface not in (None, LOOPBACK))
        return answer

    def server(self, frame: bytes) -> str:
        """MAC of the server that the program sends the frame to; the reason where it does not."""
        run = bpf.prog_test_run(self.program, frame)
        return run.frame[:6].hex(":") if run.verdict in (bpf.XDP_TX, bpf.XDP_REDIRECT) else ACTIONS[run.verdict].value

    @staticmethod
    def peers(frame: bytes) -> bytes:
        """The frame addressed to the other director."""
        return pack_mac(PEER_MAC) + pack_mac(OWN_MAC) + frame[12:]

    def age(self, seconds: float) -> None:
        """Let time pass for all flows."""
        self._aged_s += seconds
        ticks = round(seconds * TICKS_PER_SECOND)
        with self._flows() as flows:
            for at in range(0, len(flows), 16):
                (value,) = struct.unpack_from("=Q", flows, at + 8)
                if value:
                    stamp = (value >> 32) - ticks & 0xFFFFFFFF
                    struct.pack_into("=I", flows, at + 12, stamp)

    def flows(self) -> list[FlowEntry]:
        with self._flows() as flows:
            return [flow for flow in layout.unpack_flows(flows[:]) if flow is not None]

    def expect_flows(self) -> None:
        """The flow table says what the oracle's says, stamps aside."""
        actual = self.forwarder._read()
        table = {
            (actual.services[flow.service].endpoint, flow.source, flow.source_port): (
                f"{actual.backends[flow.backend].address}:{actual.backends[flow.backend].port}",
                flow.state,
            )
            for flow in self.flows()
        }
        assert table == {key: (flow.server, flow.state) for key, flow in self.oracle.flows.items()}
