"""Evidence: who was seen acting as MASTER beside us, since when, how often."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Sightings:
    """An unbroken series of sightings of one source; times are the node's monotonic µs."""

    first_us: int
    last_us: int
    count: int = 1
    detail: str = ""
    """What the last one said, in words: `priority 100`."""

    def see(self, now: int, *, gap_us: int, detail: str) -> None:
        """Another sighting; after a silence of more than `gap_us` the series begins anew."""
        if now - self.last_us > gap_us:
            self.first_us, self.count = now, 0
        self.last_us = max(self.last_us, now)
        self.count += 1
        self.detail = detail

    @property
    def length_us(self) -> int:
        """From the first to the last."""
        return self.last_us - self.first_us


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
