"""Very many flows: a frame of each by one system call, without anything else."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable
from ipaddress import IPv4Address

from haxlb.linux import bpf
from haxlb.linux.bpf_call import address, buffer, call, failure
from tests.bpf.frames import client, tcp

SYN, ACK = tcp("S"), tcp("A")
SOURCE_AT, PORT_AT = 26, 34
NOWHERE = 0
_ATTRIBUTES = struct.Struct("=IIIIQQIIIIQQIII4x")
_VERDICT_AT, _SIZE_OUT_AT = 4, 12
_SENT = (bpf.XDP_TX, bpf.XDP_REDIRECT)
_SERVER_AT = 4


class Runner:
    """BPF_PROG_TEST_RUN of one frame after the other, into the same buffers (haxlb.linux.bpf makes them each time)."""

    def __init__(self, program: int, frame: bytes) -> None:
        self._frame = buffer(frame)
        self._out = ctypes.create_string_buffer(len(frame) + 256)
        self._attributes = buffer(
            _ATTRIBUTES.pack(
                program, 0, len(frame), len(self._out), address(self._frame), address(self._out),
                1, 0, 0, 0, 0, 0, 0, 0, 0,
            )
        )  # fmt: skip
        self._room = struct.pack("=I", len(self._out))

    def run(self, source: int, port: int) -> int:
        """The last two bytes of the MAC that this client's packet is sent to, NOWHERE if it is not sent."""
        attributes = self._attributes
        struct.pack_into("!I", self._frame, SOURCE_AT, source)
        struct.pack_into("!H", self._frame, PORT_AT, port)
        attributes[_SIZE_OUT_AT : _SIZE_OUT_AT + 4] = self._room
        _, number = call(10, attributes)
        if number:
            raise failure("run the BPF program on a test frame", number)
        (verdict,) = struct.unpack_from("=I", attributes, _VERDICT_AT)
        return int(struct.unpack_from("!H", self._out, _SERVER_AT)[0]) if verdict in _SENT else NOWHERE


def open_flows(program: int, numbers: Iterable[int]) -> dict[int, int]:
    """A SYN and an ACK of each client; the server that both have reached."""
    syn, ack = Runner(program, SYN), Runner(program, ACK)
    found = {}
    for number in numbers:
        of = client(number)
        found[number] = syn.run(*of)
        second = ack.run(*of)
        assert second == found[number] != NOWHERE, f"flow {number}: {found[number]:#x}, then {second:#x}"
    return found


def reached(program: int, numbers: Iterable[int], frame: bytes = ACK) -> dict[int, int]:
    """Where a packet of each of these flows goes."""
    runner = Runner(program, frame)
    return {number: runner.run(*client(number)) for number in numbers}


def flood(program: int, syns: int, *, first: int = 0) -> None:
    """Spoofed SYNs, each of another client; `first` is the number of the first one."""
    runner = Runner(program, SYN)
    base = int(IPv4Address("203.0.0.0"))
    for number in range(first, first + syns):
        runner.run(base + number * 2654435761 % 0x1000000, 1 + number * 40503 % 65535)
