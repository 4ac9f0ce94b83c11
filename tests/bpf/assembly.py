"""A few BPF programs, assembled by hand: the tests and benchmarks need no compiler for them."""

from __future__ import annotations

import struct

SOURCE_ADDRESS, SOURCE_PORT = 26, 34
"""Offsets in a frame without IP options."""

_DROP, _PASS, _TX = 1, 2, 3
_LOOKUP, _RANDOM, _TAIL_CALL, _REDIRECT, _ADJUST_HEAD = 1, 7, 12, 23, 44
"""Numbers of BPF helpers."""


def instruction(code: int, to: int = 0, source: int = 0, offset: int = 0, value: int = 0) -> bytes:
    return struct.pack("=BBhi", code, source << 4 | to, offset, value)


def _count(counter: int) -> list[bytes]:
    """One more in element 0 of a per-CPU array of u64; 0 = nowhere. The context is r6 afterwards."""
    if not counter:
        return [instruction(0xBF, 6, 1)]
    return [
        instruction(0xBF, 6, 1),  # r6 = context
        instruction(0x62, 10, 0, -4, 0),  # *(u32 *)(r10 - 4) = 0
        instruction(0xBF, 2, 10),  # r2 = r10
        instruction(0x07, 2, 0, 0, -4),  # r2 += -4
        instruction(0x18, 1, 1, 0, counter),  # r1 = the map
        instruction(0),
        instruction(0x85, 0, 0, 0, _LOOKUP),
        instruction(0x15, 0, 0, 3, 0),  # if r0 == 0 goto the end
        instruction(0x79, 1, 0),  # r1 = *(u64 *)r0
        instruction(0x07, 1, 0, 0, 1),  # r1 += 1
        instruction(0x7B, 0, 1),  # *(u64 *)r0 = r1
    ]


def sink(counter: int) -> bytes:
    """Count in element 0 of a per-CPU array of u64, XDP_DROP."""
    return b"".join([*_count(counter), instruction(0xB7, 0, 0, 0, _DROP), instruction(0x95)])


def source(index: int, mac: bytes, *, ports: int = 0, counter: int = 0) -> bytes:
    """Address the frame to `mac`, give it a source port by chance, send it out of the interface.

    With `ports` it is one of so many from 1024 on. Counted as by `sink`, if it is to be.
    """
    high, low = struct.unpack("<iH", mac)
    choose = []
    if ports:
        choose = [
            instruction(0x97, 0, 0, 0, ports),  # r0 %= ports
            instruction(0x07, 0, 0, 0, 1024),  # r0 += 1024
            instruction(0xDC, 0, 0, 0, 16),  # r0 = htons(r0)
        ]
    return b"".join(
        [
            *_count(counter),
            instruction(0x85, 0, 0, 0, _RANDOM),
            *choose,
            instruction(0x61, 2, 6, 0),  # r2 = data
            instruction(0x61, 3, 6, 4),  # r3 = data_end
            instruction(0xBF, 4, 2),  # r4 = r2
            instruction(0x07, 4, 0, 0, SOURCE_PORT + 2),
            instruction(0x2D, 4, 3, 6),  # if r4 > r3 goto drop
            instruction(0x6B, 2, 0, SOURCE_PORT),  # source port = r0
            instruction(0x62, 2, 0, 0, high),
            instruction(0x6A, 2, 0, 4, low),
            instruction(0xB7, 1, 0, 0, index),  # bpf_redirect(index, 0)
            instruction(0xB7, 2, 0, 0, 0),
            instruction(0x05, 0, 0, 2),  # goto redirect
            instruction(0xB7, 0, 0, 0, _DROP),
            instruction(0x95),
            instruction(0x85, 0, 0, 0, _REDIRECT),
            instruction(0x95),
        ]
    )


def swap() -> bytes:
    """Exchange the MACs of the frame, XDP_TX."""
    return b"".join(
        [
            instruction(0x61, 2, 1, 0),  # r2 = data
            instruction(0x61, 3, 1, 4),  # r3 = data_end
            instruction(0xB7, 0, 0, 0, _DROP),
            instruction(0xBF, 4, 2),  # r4 = r2
            instruction(0x07, 4, 0, 0, 14),
            instruction(0x2D, 4, 3, 9),  # if r4 > r3 goto the end
            instruction(0x61, 4, 2, 0),  # r4 = *(u32 *)r2
            instruction(0x69, 5, 2, 4),  # r5 = *(u16 *)(r2 + 4)
            instruction(0x61, 0, 2, 6),  # r0 = *(u32 *)(r2 + 6)
            instruction(0x69, 3, 2, 10),  # r3 = *(u16 *)(r2 + 10)
            instruction(0x63, 2, 0, 0),
            instruction(0x6B, 2, 3, 4),
            instruction(0x63, 2, 4, 6),
            instruction(0x6B, 2, 5, 10),
            instruction(0xB7, 0, 0, 0, _TX),
            instruction(0x95),
        ]
    )


def renew(jumps: int, frame: bytes, *, clients: int = 1, at: int = SOURCE_ADDRESS + 2) -> bytes:
    """As `relay`, but the whole frame is made anew, whatever its length: for programs that change more than MACs.

    It is a multiple of four bytes, at most 512. The two bytes `at` that offset are one of `clients`.
    """
    words = struct.unpack(f"<{len(frame) // 4}i", frame)
    vary = []
    if clients > 1:
        vary = [
            instruction(0x57, 7, 0, 0, clients - 1),  # r7 &= clients - 1
            instruction(0x6B, 2, 7, at),  # *(u16 *)(r2 + at) = r7
        ]
    writes = [
        *(instruction(0x62, 2, 0, 4 * number, word) for number, word in enumerate(words)),
        *vary,
        instruction(0xBF, 1, 6),  # r1 = context
        instruction(0x18, 2, 1, 0, jumps),  # r2 = the array
        instruction(0),
        instruction(0xB7, 3, 0, 0, 0),
        instruction(0x85, 0, 0, 0, _TAIL_CALL),
    ]
    return b"".join(
        [
            instruction(0xBF, 6, 1),  # r6 = context
            instruction(0x85, 0, 0, 0, _RANDOM) if clients != 1 else instruction(0xB7, 0, 0, 0, 0),
            instruction(0xBF, 7, 0),  # r7 = r0
            instruction(0x61, 3, 6, 0),  # r3 = data
            instruction(0x61, 2, 6, 4),  # r2 = data_end
            instruction(0x1F, 2, 3),  # r2 -= r3
            instruction(0x07, 2, 0, 0, -len(frame)),
            instruction(0x15, 2, 0, 2, 0),  # if r2 == 0 skip: it has its length
            instruction(0xBF, 1, 6),  # r1 = context
            instruction(0x85, 0, 0, 0, _ADJUST_HEAD),
            instruction(0x61, 2, 6, 0),  # r2 = data
            instruction(0x61, 3, 6, 4),  # r3 = data_end
            instruction(0xBF, 4, 2),  # r4 = r2
            instruction(0x07, 4, 0, 0, len(frame)),
            instruction(0x2D, 4, 3, len(writes)),  # if r4 > r3 goto the end
            *writes,
            instruction(0xB7, 0),  # XDP_ABORTED: the harness is broken
            instruction(0x95),
        ]
    )


def relay(jumps: int, macs: bytes, *, clients: int, counter: int = 0) -> bytes:
    """Make the frame a fresh one and tail-call program 0 of the array: a test run hands frames back as they left.

    `macs` are its first twelve bytes; it comes from one of `clients` source addresses (a power of two, at most
    2**16), or with 0 from any port of any address. Counted as by `sink`, if it is to be.
    """
    first, second, third = struct.unpack("<iii", macs)
    vary = []
    if clients > 1:
        vary = [
            instruction(0x57, 0, 0, 0, clients - 1),  # r0 &= clients - 1
            instruction(0x6B, 2, 0, SOURCE_ADDRESS + 2),  # the address' last two bytes = r0
        ]
    elif clients == 0:
        vary = [
            instruction(0x63, 2, 0, SOURCE_ADDRESS),  # the address = r0
            instruction(0x77, 0, 0, 0, 8),  # r0 >>= 8
            instruction(0x6B, 2, 0, SOURCE_PORT),  # the port = r0
        ]
    changes = [
        *vary,
        instruction(0x62, 2, 0, 0, first),
        instruction(0x62, 2, 0, 4, second),
        instruction(0x62, 2, 0, 8, third),
        instruction(0xBF, 1, 6),  # r1 = context
        instruction(0x18, 2, 1, 0, jumps),  # r2 = the array
        instruction(0),
        instruction(0xB7, 3, 0, 0, 0),
        instruction(0x85, 0, 0, 0, _TAIL_CALL),
    ]
    return b"".join(
        [
            *_count(counter),
            instruction(0x85, 0, 0, 0, _RANDOM) if clients != 1 else instruction(0xB7, 0, 0, 0, 0),
            instruction(0x61, 2, 6, 0),  # r2 = data
            instruction(0x61, 3, 6, 4),  # r3 = data_end
            instruction(0xBF, 4, 2),  # r4 = r2
            instruction(0x07, 4, 0, 0, SOURCE_PORT + 2),
            instruction(0x2D, 4, 3, len(changes)),  # if r4 > r3 goto the end
            *changes,
            instruction(0xB7, 0),  # XDP_ABORTED: the harness is broken
            instruction(0x95),
        ]
    )


def without_head_room(jumps: int, taken: int) -> bytes:
    """Begin the frame `taken` bytes earlier, so that they become padding behind it; tail-call program 0 of the array.

    The first 64 bytes of the frame count.
    """
    moves = [
        step
        for at in range(0, 64, 2)
        for step in (
            instruction(0x69, 5, 2, taken + at),  # r5 = *(u16 *)(r2 + taken + at)
            instruction(0x6B, 2, 5, at),  # *(u16 *)(r2 + at) = r5
        )
    ]
    jump = [
        instruction(0xBF, 1, 6),  # r1 = context
        instruction(0x18, 2, 1, 0, jumps),  # r2 = the array
        instruction(0),
        instruction(0xB7, 3, 0, 0, 0),
        instruction(0x85, 0, 0, 0, _TAIL_CALL),
    ]
    return b"".join(
        [
            instruction(0xBF, 6, 1),  # r6 = context
            instruction(0xB7, 2, 0, 0, -taken),
            instruction(0x85, 0, 0, 0, _ADJUST_HEAD),
            instruction(0x61, 2, 6, 0),  # r2 = data
            instruction(0x61, 3, 6, 4),  # r3 = data_end
            instruction(0xBF, 4, 2),  # r4 = r2
            instruction(0x07, 4, 0, 0, taken + 64),
            instruction(0x2D, 4, 3, len(moves) + len(jump)),  # if r4 > r3 goto the end
            *moves,
            *jump,
            instruction(0xB7, 0),  # XDP_ABORTED: the harness is broken
            instruction(0x95),
        ]
    )


def strip(size: int, outer: tuple[bytes, int, int], inner: bytes) -> bytes:
    """The end of a tunnel: take `size` bytes from behind the Ethernet header, XDP_PASS.

    Only of frames with the EtherType, and with the number at the offset, of `outer`; `inner` is the EtherType then.
    """
    kind, at, number = outer
    taken = [
        instruction(0x79, 7, 2, 0),  # r7 = *(u64 *)r2
        instruction(0x61, 8, 2, 8),  # r8 = *(u32 *)(r2 + 8)
        instruction(0xBF, 1, 6),  # r1 = context
        instruction(0xB7, 2, 0, 0, size),
        instruction(0x85, 0, 0, 0, _ADJUST_HEAD),
        instruction(0x61, 2, 6, 0),  # r2 = data
        instruction(0x61, 3, 6, 4),  # r3 = data_end
        instruction(0xBF, 4, 2),  # r4 = r2
        instruction(0x07, 4, 0, 0, 14),
        instruction(0x2D, 4, 3, 3),  # if r4 > r3 goto the end
        instruction(0x7B, 2, 7, 0),  # *(u64 *)r2 = r7
        instruction(0x63, 2, 8, 8),  # *(u32 *)(r2 + 8) = r8
        instruction(0x6A, 2, 0, 12, int.from_bytes(inner, "little")),
    ]
    return b"".join(
        [
            instruction(0xBF, 6, 1),  # r6 = context
            instruction(0x61, 2, 6, 0),  # r2 = data
            instruction(0x61, 3, 6, 4),  # r3 = data_end
            instruction(0xBF, 4, 2),  # r4 = r2
            instruction(0x07, 4, 0, 0, 14 + size),
            instruction(0x2D, 4, 3, len(taken) + 4),  # if r4 > r3 goto the end
            instruction(0x69, 5, 2, 12),  # r5 = *(u16 *)(r2 + 12)
            instruction(0x55, 5, 0, len(taken) + 2, int.from_bytes(kind, "little")),  # if r5 != kind goto the end
            instruction(0x71, 5, 2, at),  # r5 = *(u8 *)(r2 + at)
            instruction(0x55, 5, 0, len(taken), number),  # if r5 != number goto the end
            *taken,
            instruction(0xB7, 0, 0, 0, _PASS),
            instruction(0x95),
        ]
    )


def answer(verdict: int) -> bytes:
    """Return this verdict and nothing else."""
    return instruction(0xB7, 0, 0, 0, verdict) + instruction(0x95)
