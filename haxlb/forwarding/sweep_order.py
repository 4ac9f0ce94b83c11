"""What the sweep (bpf/sweep.c) is told to do and what it tells: struct sweep_order of bpf/abi.h."""

from __future__ import annotations

import struct
from enum import IntFlag
from typing import Final

_ORDER: Final = struct.Struct("=14xIiiI16s")
"""Behind an Ethernet header: the kernel runs a program on nothing less than a frame."""
_LIFETIMES: Final = struct.Struct("=8H")


class SweepOrder(IntFlag):
    """SWEEP_… of abi.h."""

    COUNTING = 1
    RESTART = 2
    TELL = 4


NOTHING_ELSE: Final = SweepOrder(0)


def pack_sweep_order(*, what: SweepOrder = NOTHING_ELSE, backend: int = 0, active: int = 0, inactive: int = 0) -> bytes:
    """The frame that the sweep is run on; with a `backend` its load is corrected by so many flows."""
    return _ORDER.pack(backend, active, inactive, what, bytes(_LIFETIMES.size))


def told_lifetimes(frame: bytes) -> tuple[int, ...]:
    """Of the frame that TELL gives back: seconds without a packet after which a flow is no more, by its state."""
    return _LIFETIMES.unpack(_ORDER.unpack(frame)[-1])
