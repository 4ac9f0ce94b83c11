"""What happened, in order: the timeline for people, and the digest by which two runs are compared (law L10)."""

from __future__ import annotations

from dataclasses import dataclass, field
from zlib import crc32

from haxlb.sim.loop import VirtualLoop


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the timeline."""

    at_us: int
    who: str
    what: str


@dataclass(slots=True)
class Ledger:
    """Append-only."""

    _loop: VirtualLoop
    entries: list[Entry] = field(default_factory=list)
    digest: int = 0
    """Over every frame and every entry, with its time."""

    def note(self, who: str, what: str) -> None:
        """Write a line."""
        self.entries.append(Entry(at_us=self._loop.now_us, who=who, what=what))
        self.count(f"{who}\0{what}".encode())

    def count(self, data: bytes) -> None:
        """Let something that is too frequent for a line enter the digest."""
        self.digest = crc32(b"%d" % self._loop.now_us, crc32(data, self.digest))


class Spans:
    """When something was so: open since, and the closed spans of before."""

    def __init__(self) -> None:
        self.open: dict[object, int] = {}
        self.closed: list[tuple[object, int, int]] = []
        """Key, begin, end in µs."""

    def set(self, key: object, now: int, *, so: bool) -> None:
        """It is so, or not so, from now on."""
        if so:
            self.open.setdefault(key, now)
        elif (begin := self.open.pop(key, None)) is not None:
            self.closed.append((key, begin, now))

    def of(self, key: object, begin: int, end: int) -> list[tuple[int, int]]:
        """The spans of a key within these bounds, oldest first; an open one ends at `end`."""
        spans = [(start, stop) for each, start, stop in self.closed if each == key]
        if key in self.open:
            spans.append((self.open[key], end))
        return [(max(start, begin), min(stop, end)) for start, stop in spans if stop > begin and start < end]
