"""The turns of Maglev, taken in the kernel: a small BPF program fills a ring that haxlb.forwarding.maglev describes.

A ring of 16,384 slots takes 170,000 looks at slots. Python needs 30 ns for each, and a thousand services with servers
of their own would be seconds of CPU; the machine code that the kernel makes of these instructions needs 1.5. It is run
by BPF_PROG_TEST_RUN, as the sweep is, and is attached to nothing. It needs no compiler, so that it is there wherever
the maps are.

The verifier walks through every loop, so that one run has a bounded number of looks at slots; the kernel repeats it,
and where the ring stands is in the map meanwhile. A run that a signal interrupts is therefore just taken up again.
"""

from __future__ import annotations

import mmap
import os
import struct
from array import array
from collections.abc import Sequence
from itertools import chain
from typing import Final

from haxlb.forwarding.layout import RING_SLOTS
from haxlb.forwarding.maglev import Preference, populate
from haxlb.linux import bpf
from haxlb.model.errors import Bug, HostError

_MASK: Final = RING_SLOTS - 1
_FREE: Final = 0xFFFF
_ROUNDS: Final = 64
"""Of one run: what the verifier walks through. With twice as many it needs twice the time, and a ring hardly less."""
_LOOKS: Final = 4
"""Of one round, which ends where a slot is taken."""
_REPEAT: Final = 64_000 // _ROUNDS
"""Nearly all rings are full by then: RING_SLOTS times the harmonic number of RING_SLOTS are looked at."""

# The map's only value: u16 of each slot, u16 of each turn, then slot and step of each server and the turn (u32).
# Slots and steps are twice what they are: offsets of bytes.
_RING_AT: Final = 0
_TURNS_AT: Final = 2 * RING_SLOTS
_SERVERS_AT: Final = 4 * RING_SLOTS
_TURN_AT: Final = 12 * RING_SLOTS
_BYTES: Final = _TURN_AT + 8
_MOST: Final = (_TURN_AT - _SERVERS_AT) // 8
"""Servers that there is room for."""

_EMPTY: Final = b"\xff" * (2 * RING_SLOTS)
_FRAME: Final = bytes(14)
"""The shortest that the kernel takes for a test run."""

_LOAD_ADDRESS, _LOAD16, _LOAD32, _STORE16, _STORE32 = 0x18, 0x69, 0x61, 0x6B, 0x63
_SET, _COPY, _ADD, _ADD_REGISTER, _AND, _LEFT, _RIGHT = 0xB7, 0xBF, 0x07, 0x0F, 0x57, 0x67, 0x77
_GO, _GO_IF_EQUAL, _GO_IF_GREATER, _EXIT = 0x05, 0x15, 0x25, 0x95
_MAP_VALUE: Final = 2
"""BPF_PSEUDO_MAP_VALUE: the address of a place in an array's only element."""

_Line = str | tuple[int, int, int, int | str, int]
"""A label, or code, destination, source, offset (that of a jump is a label), constant."""


def _address(register: int, map_fd: int, at: int) -> list[_Line]:
    return [(_LOAD_ADDRESS, register, _MAP_VALUE, 0, map_fd), (0, 0, 0, 0, at)]


def program(map_fd: int) -> bytes:
    """Go on with the ring for so many rounds; returns 1 when it is full, else 0."""
    turns, servers, server, place, at, found, ring, turn, slot, rounds = range(10)
    return _assembled(
        [
            *_address(ring, map_fd, _RING_AT),
            *_address(turns, map_fd, _TURNS_AT),
            *_address(servers, map_fd, _SERVERS_AT),
            *_address(found, map_fd, _TURN_AT),
            (_LOAD32, turn, found, 0, 0),
            (_SET, rounds, 0, 0, _ROUNDS),
            "next turn",
            (_GO_IF_GREATER, turn, 0, "end", _MASK),
            (_COPY, server, turn, 0, 0),
            (_LEFT, server, 0, 0, 1),
            (_ADD_REGISTER, server, turns, 0, 0),
            (_LOAD16, server, server, 0, 0),
            (_COPY, place, server, 0, 0),
            (_AND, place, 0, 0, _MASK),
            (_LEFT, place, 0, 0, 3),
            (_ADD_REGISTER, place, servers, 0, 0),
            (_LOAD32, slot, place, 0, 0),
            (_AND, slot, 0, 0, 2 * _MASK),
            "look",
            (_ADD, rounds, 0, 0, -1),
            (_GO_IF_EQUAL, rounds, 0, "interrupt", 0),
            *(
                (
                    (_COPY, at, ring, 0, 0),
                    (_ADD_REGISTER, at, slot, 0, 0),
                    (_LOAD16, found, at, 0, 0),
                    (_GO_IF_EQUAL, found, 0, "take", _FREE),
                    (_LOAD32, found, place, 4, 0),
                    (_ADD_REGISTER, slot, found, 0, 0),
                    (_AND, slot, 0, 0, 2 * _MASK),
                )
                * _LOOKS
            ),
            (_GO, 0, 0, "look", 0),
            "take",
            (_STORE16, at, server, 0, 0),
            (_STORE32, place, slot, 0, 0),
            (_ADD, turn, 0, 0, 1),
            # The verifier then knows of it what it knew a turn ago, and needs not look at all that follows again.
            (_AND, turn, 0, 0, 2 * RING_SLOTS - 1),
            (_GO, 0, 0, "next turn", 0),
            "interrupt",
            (_STORE32, place, slot, 0, 0),
            "end",
            *_address(found, map_fd, _TURN_AT),
            (_STORE32, found, turn, 0, 0),
            (_COPY, 0, turn, 0, 0),
            (_RIGHT, 0, 0, 0, _MASK.bit_length()),
            (_EXIT, 0, 0, 0, 0),
        ]
    )


def _assembled(lines: list[_Line]) -> bytes:
    labels: dict[str, int] = {}
    instructions: list[tuple[int, int, int, int | str, int]] = []
    for line in lines:
        if isinstance(line, str):
            labels[line] = len(instructions)
        else:
            instructions.append(line)
    return b"".join(
        struct.pack(
            "=BBhi", code, source << 4 | to, labels[offset] - at - 1 if isinstance(offset, str) else offset, value
        )
        for at, (code, to, source, offset, value) in enumerate(instructions)
    )


class Populator:
    """`haxlb.forwarding.maglev.populate` with the same result, in the kernel where that lets it."""

    def __init__(self) -> None:
        """Nothing is loaded before it is needed."""
        self._program: int | None = None
        self._map: int | None = None
        self._memory: mmap.mmap | None = None
        self._refused = False

    def __call__(self, preferences: Sequence[Preference], turns: Sequence[int], size: int) -> array[int]:
        """As haxlb.forwarding.maglev.populate."""
        if size == RING_SLOTS and len(preferences) <= _MOST and not self._refused:
            try:
                return self._populated(preferences, turns)
            except (HostError, OSError):
                # A kernel before 5.2 (addresses of map values) or 5.3 (loops), or one that lets this process load
                # nothing, or has no memory: the same rings, only later.
                self.close()
                self._refused = True
        return populate(preferences, turns, size)

    @property
    def in_kernel(self) -> bool:
        """Whether the program is loaded."""
        return self._program is not None

    def close(self) -> None:
        """Unload the program; a later ring loads it again."""
        if self._memory is not None:
            self._memory.close()
        for fd in (self._program, self._map):
            if fd is not None:
                os.close(fd)
        self._program = self._map = self._memory = None

    def _populated(self, preferences: Sequence[Preference], turns: Sequence[int]) -> array[int]:
        if self._program is None or self._memory is None:
            self._program, self._memory = self._open()
        program, memory = self._program, self._memory
        cycle = array("H", turns).tobytes()
        servers = array("I", [2 * each for each in chain.from_iterable(preferences)]).tobytes()
        memory[_RING_AT:_TURNS_AT] = _EMPTY
        memory[_TURNS_AT:_SERVERS_AT] = (cycle * -(-2 * RING_SLOTS // len(cycle)))[: 2 * RING_SLOTS]
        memory[_SERVERS_AT : _SERVERS_AT + len(servers)] = servers
        memory[_TURN_AT : _TURN_AT + 4] = bytes(4)
        # Nobody can look at more than every slot once.
        for _ in range(1 + len(preferences) * RING_SLOTS // (_REPEAT * _ROUNDS // 2)):
            if bpf.prog_test_run(program, _FRAME, repeat=_REPEAT).verdict:
                ring = array("H")
                ring.frombytes(memory[_RING_AT:_TURNS_AT])
                return ring
        raise Bug("the program that fills a ring does not come to an end")

    def _open(self) -> tuple[int, mmap.mmap]:
        self._map = bpf.map_create(bpf.MAP_TYPE_ARRAY, 4, _BYTES, 1, flags=bpf.F_MMAPABLE, name="haxlb_maglev")
        memory = mmap.mmap(self._map, -(-_BYTES // mmap.PAGESIZE) * mmap.PAGESIZE)
        # Not XDP: repeated test runs of such a program wait for an RCU grace period, tens of milliseconds
        # (bpf_prog_change_xdp of net/core/filter.c), and those of others do not.
        return bpf.prog_load(program(self._map), name="haxlb_maglev", kind=bpf.PROG_TYPE_SCHED_CLS), memory
