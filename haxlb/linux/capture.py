"""Packet captures, pcap and pcapng, as packets and what they begin with; read by scapy, which is imported on demand."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any

from haxlb.model.errors import HaxlbError
from haxlb.vrrp.envelope import Layer

LARGEST = 256 << 20
"""Bytes; it is held in memory."""
_PCAPNG = bytes.fromhex("0a0d0d0a")
_PCAPNG = bytes.fromhex("0a0d0d0a")
_MAGICS = (_PCAPNG, *(bytes.fromhex(each) for each in ("a1b2c3d4", "d4c3b2a1", "a1b23c4d", "4d3cb2a1")))
_LAYERS = {
    0: Layer.NULL,
    1: Layer.ETHERNET,
    12: Layer.IP,
    14: Layer.IP,
    101: Layer.IP,
    108: Layer.NULL,
    113: Layer.SLL,
    228: Layer.IP,
    229: Layer.IP,
    276: Layer.SLL2,
}
"""By link type (www.tcpdump.org/linktypes.html); 12 and 14 are OpenBSD's and others' raw IP."""


class CaptureError(HaxlbError):
    """The user's: a file that is no capture, or of a kind that cannot be read."""

    exit_code = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """One packet of a capture."""

    number: int
    """From 1."""
    at_s: float
    """Since the epoch."""
    data: bytes
    layer: Layer
    missing: int
    """Bytes of the packet that were not captured."""


def is_capture(data: bytes) -> bool:
    """Whether this begins as a pcap or pcapng file does."""
    return data[:4] in _MAGICS


def read_capture(data: bytes) -> Iterator[Captured]:
    """The packets of a capture file. Raises CaptureError where it makes no sense, after what could be read."""
    if len(data) > LARGEST:
        raise CaptureError(
            f"a capture of {len(data) >> 20} MiB is too large",
            remedy="take the VRRP packets out of it first: tcpdump -r FILE -w SMALLER 'ip proto 112 or ip6 proto 112'",
        )
    yield from _packets(data)


def _packets(data: bytes) -> Iterator[Captured]:
    from scapy.error import Scapy_Exception
    from scapy.utils import RawPcapReader

    complaints = _Complaints()
    number = 0
    with complaints:
        stream = BytesIO(data)
        try:
            reader = RawPcapReader(stream)
        except (Scapy_Exception, struct.error, EOFError, ValueError, IndexError) as problem:
            raise CaptureError(f"not a capture that can be read: {problem}") from problem
        while True:
            start = stream.tell()
            try:
                packet, about = reader._read_packet()  # noqa: SLF001 - the iterator hides how it ended
            except EOFError as end:
                left = _left_over(data, start, stream.tell())
                complaints.lines += [str(end)] if str(end) else [left] if left else []
                break
            except (Scapy_Exception, struct.error, ValueError, IndexError, KeyError, TypeError) as problem:
                raise CaptureError(f"the capture is damaged behind packet {number}: {problem}") from problem
            number += 1
            yield _captured(number, packet, about, reader)
    if complaints.lines:
        raise CaptureError(f"the capture is damaged behind packet {number}: {complaints.lines[-1]}")


def _left_over(data: bytes, start: int, end: int) -> str:
    """What is wrong with the last bytes, when scapy has nothing to say; `start` is where the last packet ended.

    A pcapng file may have blocks without packets there, statistics for instance; all blocks are of whole words.
    """
    if data[:4] == _PCAPNG:
        return "" if end == len(data) and len(data) % 4 == 0 else "it ends within a block"
    return "" if start == len(data) else f"{len(data) - start} bytes are too few for another packet"


def _captured(number: int, packet: bytes, about: Any, reader: Any) -> Captured:
    link_type = getattr(about, "linktype", None)
    if link_type is None:
        link_type = reader.linktype
        at_s = about.sec + about.usec / (1_000_000_000 if reader.nano else 1_000_000)
    else:
        resolution = about.tsresol or 1
        ticks = 0 if about.tshigh is None else (about.tshigh << 32) + about.tslow
        at_s = ticks / resolution
    # The upper bits say how a frame check sequence is stored.
    layer = _LAYERS.get(link_type & 0xFFFF)
    if layer is None:
        raise CaptureError(f"packet {number} is of link type {link_type}, which haxlb does not read")
    missing = max(0, (about.wirelen or 0) - len(packet))
    return Captured(number=number, at_s=at_s, data=packet, layer=layer, missing=missing)


class _Complaints(logging.Handler):
    """scapy says what is wrong with a file on its log only, and then behaves as if the file had ended."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._log = logging.getLogger("scapy.runtime")
        self._before = (self._log.handlers, self._log.filters, self._log.propagate, self._log.level)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.lines.append(record.getMessage())

    def __enter__(self) -> None:
        # Its filter swallows what was said a moment ago, of another file.
        self._log.handlers, self._log.filters, self._log.propagate = [self], [], False
        self._log.setLevel(logging.WARNING)

    def __exit__(self, *_: object) -> None:
        self._log.handlers, self._log.filters, self._log.propagate, level = self._before
        self._log.setLevel(level)
