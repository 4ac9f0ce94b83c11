"""Evidence: who was seen acting as MASTER beside us, since when, how often."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Source = TypeVar("Source", bound=Hashable)

MOST_SOURCES = 64
"""A flood of spoofed sources must not cost memory."""


@dataclass(slots=True)
class Sightings:
    """An unbroken series of sightings of one source; times are the node's monotonic µs."""

    first_us: int
    last_us: int
    count: int = 1
    detail: str = ""
    """What the last one said, in words: `priority 100`."""

    @property
    def length_us(self) -> int:
        """From the first to the last."""
        return self.last_us - self.first_us


@dataclass(slots=True)
class Series(Generic[Source]):
    """All sightings of one kind, by source. The three times say when they count."""

    gap_us: int
    """A longer silence begins a new series."""
    window_us: int
    """A series counts from this length on."""
    silence_us: int
    """A series is over after this."""
    by_source: dict[Source, Sightings] = field(default_factory=dict)

    def see(self, source: Source, now: int, detail: str = "") -> None:
        """One sighting."""
        seen = self.by_source.get(source)
        if seen is None or now - seen.last_us > self.gap_us:
            if seen is None and not self._has_room(now):
                return
            self.by_source[source] = Sightings(now, now, detail=detail)
            return
        seen.last_us = now
        seen.count += 1
        seen.detail = detail

    def standing(self, now: int) -> Iterator[Source]:
        """Sources whose series is long enough and not over."""
        for source, seen in self.by_source.items():
            if seen.length_us >= self.window_us and now - seen.last_us < self.silence_us:
                yield source

    def recent(self, now: int) -> Iterator[Source]:
        """Sources whose series is not over, however short."""
        for source, seen in self.by_source.items():
            if now - seen.last_us < self.silence_us:
                yield source

    def over_at(self, source: Source) -> int:
        """When the series of this source will be over if nothing more is seen."""
        return self.by_source[source].last_us + self.silence_us

    def _has_room(self, now: int) -> bool:
        if len(self.by_source) >= MOST_SOURCES:
            self.by_source = {
                source: seen for source, seen in self.by_source.items() if now - seen.last_us < self.silence_us
            }
        return len(self.by_source) < MOST_SOURCES


@dataclass(slots=True, kw_only=True)
class StandingClaim:
    """Another node's claim to be MASTER, not withdrawn so far."""

    since_us: int
    """First heard."""
    fresh_since_us: int | None = None
    """First repeated while we are MASTER: only then do we know that its author still lives."""
    last_us: int = 0

    def repeat(self, now: int) -> None:
        """Heard again while we are MASTER."""
        if self.fresh_since_us is None:
            self.fresh_since_us = now
        self.last_us = now

    @property
    def length_us(self) -> int:
        """From the first fresh repetition to the last."""
        return 0 if self.fresh_since_us is None else self.last_us - self.fresh_since_us


def seconds(span_us: int) -> str:
    """A span for people: `4.61 s`."""
    return f"{span_us / 1_000_000:.2f} s"
