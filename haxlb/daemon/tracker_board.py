"""What is known of every tracked thing, and who hears of it when that changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from haxlb.model.status import TrackedStatus
from haxlb.model.tracking import TrackKind, TrackResult
from haxlb.model.units import SECOND_US

Key = tuple[TrackKind, str]


@dataclass(slots=True)
class _Entry:
    value: int | None = None
    counts: bool = True
    since_us: int = 0
    detail: str = ""


class Board:
    """One entry for each tracked thing, in the order of the configuration."""

    def __init__(self, tell: Callable[[tuple[TrackResult, ...]], None]) -> None:
        """`tell` hears of each change."""
        self._tell = tell
        self._entries: dict[Key, _Entry] = {}

    def arrange(self, keys: Iterable[Key], now: int) -> None:
        """Exactly these things are tracked from now on; what is known of those that stay is kept. Nobody is told."""
        self._entries = {key: self._entries.get(key) or _Entry(since_us=now) for key in keys}

    def value(self, key: Key) -> int | None:
        """What is known of it, None when nothing is, or when it is not tracked."""
        entry = self._entries.get(key)
        return entry.value if entry is not None else None

    def restore(self, key: Key, value: int | None, *, detail: str = "", counts: bool = True) -> None:
        """It was so all the time: for what is told soon, all at once. Nobody is told now."""
        entry = self._entries[key]
        entry.value, entry.counts, entry.detail = value, counts, detail

    def put(self, key: Key, value: int | None, now: int, *, detail: str, counts: bool = True) -> None:
        """It is so now; things that are not tracked any more are passed over."""
        entry = self._entries.get(key)
        if entry is None:
            return
        entry.detail = detail
        if (entry.value, entry.counts) == (value, counts):
            return
        entry.value, entry.counts, entry.since_us = value, counts, now
        self._tell((_result(key, entry),))

    def results(self) -> tuple[TrackResult, ...]:
        """Everything that is known."""
        return tuple(_result(key, entry) for key, entry in self._entries.items())

    def status(self, offset_us: int) -> tuple[TrackedStatus, ...]:
        """For people; `offset_us` added to the monotonic clock is the time of day."""
        return tuple(
            TrackedStatus(
                kind=kind.value,
                name=name,
                value=entry.value,
                since_at=(entry.since_us + offset_us) / SECOND_US,
                detail=entry.detail,
            )
            for (kind, name), entry in self._entries.items()
        )


def _result(key: Key, entry: _Entry) -> TrackResult:
    return TrackResult(kind=key[0], name=key[1], value=entry.value, counts=entry.counts)
