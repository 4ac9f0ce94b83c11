"""Which speakers of a virtual router take turns: two masters that do not hear each other."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

ENOUGH = 4
"""Turns. A take-over has one, and three when the old master's last advert crosses the new one's first."""


@dataclass(slots=True)
class _Pair:
    last: int
    """Who has spoken last."""
    turns: deque[int] = field(default_factory=lambda: deque(maxlen=ENOUGH))
    """When the word went from one to the other."""
    both: bool = False


class Turns:
    """Of one virtual router; its speakers are numbers."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[int, int], _Pair] = {}

    def note(self, who: int, others: Iterable[int], at_us: int, window_us: int) -> bool:
        """One has spoken while the others were speaking, too; True when that makes two masters of some of them.

        Turns count together when all are within `window_us`; two masters remain that until one is forgotten.
        """
        news = False
        for other in others:
            pair = self._pairs.setdefault((min(who, other), max(who, other)), _Pair(last=other))
            if pair.last == who:
                continue
            pair.last = who
            pair.turns.append(at_us)
            if not pair.both and len(pair.turns) == ENOUGH and at_us - pair.turns[0] <= window_us:
                pair.both = news = True
        return news

    def forget(self, who: int) -> None:
        """It has resigned or fallen silent."""
        for key in [key for key in self._pairs if who in key]:
            del self._pairs[key]

    @property
    def masters(self) -> tuple[int, ...]:
        """All that are master beside another one."""
        return tuple(sorted({who for key, pair in self._pairs.items() if pair.both for who in key}))
