"""What a BFD socket does not even receive during a flood: a classic BPF program (SO_ATTACH_FILTER).

Packets of strangers, and those that came through routers, must neither fill the receive buffer in which the neighbours'
packets have to find room, nor keep a real-time process busy. Without a flood they are let through, counted and told
apart; during one only a sample is.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

from haxlb.linux.advert_filter import attach
from haxlb.model.addresses import IPAddress

SAMPLE = 1024
"""One in so many of the unwanted is let through; a power of two."""

_SO_DETACH_FILTER = 27
_LOAD_BYTE_ABSOLUTE, _LOAD_WORD_ABSOLUTE = 0x30, 0x20
_AND = 0x54
_JUMP, _JUMP_IF_EQUAL, _JUMP_IF_NOT_LESS = 0x05, 0x15, 0x35
_RETURN = 0x06
_NETWORK_HEADER = 0xFFF00000
"""SKF_NET_OFF: the filter of a UDP socket begins at the UDP header."""
_RANDOM = 0xFFFFF000 + 56
"""SKF_AD_OFF + SKF_AD_RANDOM."""
_WHOLE = 0x40000
_MOST_SENDERS = 1000
"""Twice as many instructions as senders, and BPF_MAXINSNS is 4096."""


def shield(to: socket.socket, family: int, senders: Iterable[IPAddress], lowest_ttl: int) -> None:
    """Drop what is neither of these senders nor has at least this TTL. Raises OSError."""
    attach(to, program(family, senders, lowest_ttl))


def unshield(to: socket.socket) -> None:
    """Receive everything again. Raises OSError."""
    to.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)


def program(family: int, senders: Iterable[IPAddress], lowest_ttl: int) -> list[tuple[int, int, int, int]]:
    """The instructions (code, jump if true, jump if false, operand).

    Of IPv6 the last four bytes of the sender's address count: this is to shed load, not to authenticate.
    """
    four = family == 4  # noqa: PLR2004 - the family
    wanted = sorted({int.from_bytes(each.packed[-4:]) for each in senders})[:_MOST_SENDERS]
    source, ttl = (12, 8) if four else (20, 7)
    length = 2 * len(wanted)
    made = [(_LOAD_WORD_ABSOLUTE, 0, 0, _NETWORK_HEADER + source)]
    for number, each in enumerate(wanted):
        # By unconditional jumps: the offsets of conditional ones have eight bits.
        made += [(_JUMP_IF_EQUAL, 0, 1, each), (_JUMP, 0, 0, length - 2 * number - 1)]
    return [
        *made,
        (_JUMP, 0, 0, 2),  # a stranger
        (_LOAD_BYTE_ABSOLUTE, 0, 0, _NETWORK_HEADER + ttl),
        (_JUMP_IF_NOT_LESS, 3, 0, lowest_ttl),
        (_LOAD_WORD_ABSOLUTE, 0, 0, _RANDOM),
        (_AND, 0, 0, SAMPLE - 1),
        (_JUMP_IF_EQUAL, 0, 1, 0),
        (_RETURN, 0, 0, _WHOLE),
        (_RETURN, 0, 0, 0),
    ]
