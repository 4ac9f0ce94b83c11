"""Packets as people paste them: bare hex, or the dumps of tcpdump -x and -X, xxd, Wireshark."""

from __future__ import annotations

import re

from haxlb.model.errors import HaxlbError

_DUMP = re.compile(r"\s*(?:0x)?([0-9a-fA-F]{4,8})(?::\s*|\s{2,})(.*)")
"""Offset, then bytes; text behind two blanks."""
_NOISE = re.compile(r"0x|[\s:.,\-]")
_HEX = re.compile(r"[0-9a-fA-F]*")
_LARGEST = 65535


class HexError(HaxlbError):
    """The user's: text that is not hex."""

    exit_code = 2


def packets_of(text: str) -> list[bytes]:
    """One packet a paragraph; in a dump each line with offset 0 begins another one. Raises HexError."""
    packets: list[bytes] = []
    digits = ""

    def finish() -> None:
        nonlocal digits
        if digits:
            packets.append(_bytes(digits))
        digits = ""

    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            finish()
            continue
        dump = _DUMP.fullmatch(line)
        if dump is not None and int(dump[1], 16) in (0, len(digits) // 2):
            if int(dump[1], 16) == 0:
                finish()
            digits += _digits(_without_text(dump[2]), number)
        else:
            digits += _digits(line, number)
    finish()
    return packets


def _without_text(bytes_and_text: str) -> str:
    """`hexdump -C` has text between bars, and two blanks in the middle; all others have two blanks before the text."""
    if "|" in bytes_and_text:
        return bytes_and_text.partition("|")[0]
    return re.split(r"\s{2,}", bytes_and_text)[0]


def _digits(words: str, number: int) -> str:
    digits = _NOISE.sub("", words)
    if not _HEX.fullmatch(digits):
        raise HexError(f"line {number} is not hex: {words.strip()[:40]!r}")
    return digits


def _bytes(digits: str) -> bytes:
    if len(digits) % 2:
        raise HexError(f"{len(digits)} hex digits are not a whole number of bytes")
    if len(digits) // 2 > _LARGEST:
        raise HexError(f"{len(digits) // 2} bytes are more than a packet can have")
    return bytes.fromhex(digits)
