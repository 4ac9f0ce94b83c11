"""What a VRRP socket does not even receive: a classic BPF program per socket (SO_ATTACH_FILTER).

A segment may be full of other routers, and a flood of adverts must not fill the receive buffer in which the peer's own
advert has to find room, nor keep a real-time process busy. Always dropped by the kernel: messages for VRIDs that no
instance of the socket has. A flood that goes on in spite of one stage leads to the next:

* FIXED_BYTES: also what has the VRID of an instance but would fail a check that is made of fixed bytes: TTL, version
  and type, and in version 2 the kind of authentication, the interval and the password;
* KNOWN_SENDERS: also what comes from an address that was not heard before the flood;
* THINNED: of what is left, all but one in THIN at random.

What is dropped cannot be counted by a classic program. So one in SAMPLE of it, at random, is let through: user space
counts it, reports it, and multiplies.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from haxlb.model.addresses import IPAddress
from haxlb.model.instance import VrrpInstance
from haxlb.model.units import SECOND_US
from haxlb.vrrp.advert import AUTH_PASS, PROTOCOL_NUMBER, advert_of

SAMPLE = 1024
"""One in so many of the unwanted is let through; a power of two."""
THIN = 64
"""Likewise."""
CALM, FIXED_BYTES, KNOWN_SENDERS, THINNED = range(4)
"""Stages."""
MAX_INSTRUCTIONS = 4096
"""BPF_MAXINSNS of <linux/bpf_common.h>."""

_SO_ATTACH_FILTER = 26
_INSTRUCTION = struct.Struct("=HBBI")
# <linux/filter.h>: class | size | mode, and so on.
_LOAD_BYTE = 0x50
_LOAD_BYTE_ABSOLUTE = 0x30
_LOAD_WORD = 0x40
_LOAD_WORD_ABSOLUTE = 0x20
_LOAD_X = 0x01
_LOAD_X_HEADER_LENGTH = 0xB1
_ADD, _ADD_X, _SHIFT_LEFT, _AND = 0x04, 0x0C, 0x64, 0x54
_TO_X = 0x07
_JUMP, _JUMP_IF_EQUAL = 0x05, 0x15
_RETURN = 0x06
_RANDOM = 0xFFFFF000 + 56
"""SKF_AD_OFF + SKF_AD_RANDOM."""
_NETWORK_HEADER = 0xFFF00000
"""SKF_NET_OFF: a raw socket of IPv6 sees the message only, its filter also what is in front of it."""
_WHOLE = 0x40000
_MULTICAST6_PREFIX = 0xFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The bytes that every good advert for one VRID has."""

    first: int
    """Version and type."""
    auth_type: int | None = None
    interval_s: int | None = None
    """Both version 2 only."""
    password: bytes | None = field(default=None, repr=False)
    """Eight bytes behind the addresses."""

    @classmethod
    def of(cls, instance: VrrpInstance) -> Signature:
        """What an instance expects."""
        advert = advert_of(instance, 0)
        first = instance.version << 4 | 1
        if instance.version != 2:  # noqa: PLR2004 - the version's number
            return cls(first=first)
        return cls(
            first=first,
            auth_type=advert.auth_type if instance.family == 4 else None,  # noqa: PLR2004
            interval_s=instance.advert_interval_us // SECOND_US,
            password=advert.auth_data if advert.auth_type == AUTH_PASS else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What kind of socket a program is for."""

    family: int = 4
    ah: bool = False
    """Of protocol 51: the message is behind an authentication header."""
    unicast: bool = False


class _Assembler:
    """Collects instructions; a jump names its label, and is forward always (classic BPF has no other)."""

    def __init__(self) -> None:
        self._code: list[tuple[int, int, int, int | str]] = []
        self._labels: dict[str, int] = {}

    def add(self, code: int, operand: int | str = 0, if_true: int = 0, if_false: int = 0) -> None:
        self._code.append((code, if_true, if_false, operand))

    def demand(self, value: int, otherwise: str) -> None:
        """Go on if the accumulator is this."""
        # By an unconditional jump: the offsets of conditional ones have eight bits.
        self.add(_JUMP_IF_EQUAL, value, 1, 0)
        self.add(_JUMP, otherwise)

    def label(self, name: str) -> None:
        self._labels[name] = len(self._code)

    def finish(self) -> list[tuple[int, int, int, int]]:
        return [
            (code, yes, no, self._labels[operand] - at - 1 if isinstance(operand, str) else operand)
            for at, (code, yes, no, operand) in enumerate(self._code)
        ]


def program(
    kind: Kind,
    wanted: Mapping[int, Signature],
    *,
    stage: int = CALM,
    known: Iterable[IPAddress] = (),
    strangers: bool = False,
) -> list[tuple[int, int, int, int]]:
    """The instructions (code, jump if true, jump if false, operand) for a socket whose instances have these VRIDs.

    `known`: who may send from stage KNOWN_SENDERS on. `strangers`: let messages for other VRIDs through, too, while
    there is no flood.
    """
    if not wanted and not strangers:
        return [(_RETURN, 0, 0, 0)]
    known = tuple(known)
    made = _assemble(kind, wanted, stage, known, strangers=strangers)
    if len(made) > MAX_INSTRUCTIONS:  # hundreds of instances with as many passwords: those are left to user space
        coarse = {vrid: Signature(first=each.first) for vrid, each in wanted.items()}
        made = _assemble(kind, coarse, stage, known, strangers=strangers)
    return made


def attach(to: socket.socket, instructions: list[tuple[int, int, int, int]]) -> None:
    """Put the program in force; it replaces the former one at once. Raises OSError."""
    code = b"".join(_INSTRUCTION.pack(*each) for each in instructions)
    buffer = ctypes.create_string_buffer(code)
    fprog = struct.pack("HP", len(instructions), ctypes.addressof(buffer))
    to.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, fprog)


def _assemble(
    kind: Kind, wanted: Mapping[int, Signature], stage: int, known: tuple[IPAddress, ...], *, strangers: bool
) -> list[tuple[int, int, int, int]]:
    made = _Assembler()
    if stage >= KNOWN_SENDERS:
        _demand_sender(made, kind, known)
    _find_message(made, kind, tight=stage >= FIXED_BYTES)
    made.add(_LOAD_BYTE, 1)
    signatures = {each: f"signature {number}" for number, each in enumerate(dict.fromkeys(wanted.values()))}
    if strangers and stage == CALM:
        made.add(_JUMP, "accept")
    for vrid, signature in wanted.items():
        made.add(_JUMP_IF_EQUAL, vrid, 0, 1)
        made.add(_JUMP, "accept" if stage == CALM else signatures[signature])
    made.add(_JUMP, "doubt")
    if stage >= FIXED_BYTES:
        for signature, name in signatures.items():
            made.label(name)
            _demand(made, signature)
    made.label("doubt")
    _thin_out(made, SAMPLE)
    made.add(_RETURN, _WHOLE)
    made.label("accept")
    if stage >= THINNED:
        _thin_out(made, THIN)
    made.add(_RETURN, _WHOLE)
    made.label("drop")
    made.add(_RETURN, 0)
    return made.finish()


def _thin_out(made: _Assembler, one_in: int) -> None:
    """Go on with one in so many, at random."""
    made.add(_LOAD_WORD_ABSOLUTE, _RANDOM)
    made.add(_AND, one_in - 1)
    made.demand(0, "drop")


def _demand_sender(made: _Assembler, kind: Kind, known: tuple[IPAddress, ...]) -> None:
    """Of IPv6 by the last four bytes of the address: this is to shed load, not to authenticate."""
    made.add(_LOAD_WORD_ABSOLUTE, 12 if kind.family == 4 else _NETWORK_HEADER + 20)  # noqa: PLR2004 - the family
    for each in known:
        made.add(_JUMP_IF_EQUAL, int.from_bytes(each.packed[-4:]), 0, 1)
        made.add(_JUMP, "known")
    made.add(_JUMP, "doubt")
    made.label("known")


def _find_message(made: _Assembler, kind: Kind, *, tight: bool) -> None:
    """Let X be the offset of the VRRP message."""
    if kind.family != 4:  # noqa: PLR2004 - the family
        if kind.unicast:
            # A raw socket of IPv6 that is bound to no address hears all multicast of the host (raw_v6_match).
            made.add(_LOAD_BYTE_ABSOLUTE, _NETWORK_HEADER + 24)
            made.add(_JUMP_IF_EQUAL, _MULTICAST6_PREFIX, 0, 1)
            made.add(_JUMP, "drop")
        made.add(_LOAD_X, 0)
        return
    if tight and not kind.unicast:
        made.add(_LOAD_BYTE_ABSOLUTE, 8)
        made.demand(255, "doubt")
    made.add(_LOAD_X_HEADER_LENGTH, 0)
    if kind.ah:
        made.add(_LOAD_BYTE, 0)
        made.demand(PROTOCOL_NUMBER, "drop")
        made.add(_LOAD_BYTE, 1)
        made.add(_ADD, 2)
        made.add(_SHIFT_LEFT, 2)
        made.add(_ADD_X)
        made.add(_TO_X)


def _demand(made: _Assembler, signature: Signature) -> None:
    """Accept what has these bytes; X is the offset of the message."""
    bytes_at = {0: signature.first, 4: signature.auth_type, 5: signature.interval_s}
    for offset, value in bytes_at.items():
        if value is not None:
            made.add(_LOAD_BYTE, offset)
            made.demand(value, "doubt")
    if signature.password is not None:
        made.add(_LOAD_BYTE, 3)
        made.add(_SHIFT_LEFT, 2)
        made.add(_ADD_X)
        made.add(_TO_X)
        for offset in (0, 4):
            made.add(_LOAD_WORD, 8 + offset)
            made.demand(int.from_bytes(signature.password[offset : offset + 4]), "doubt")
    made.add(_JUMP, "accept")
