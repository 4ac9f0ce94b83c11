"""For tests: stories that are lived side by side, since most of the time is waiting for VRRP's seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab import Lab


@dataclass(frozen=True, slots=True)
class Story:
    """Something that happens in a lab of its own; it raises when it does not happen as it should."""

    name: str
    live: Callable[[Lab, Path], None]

    def __str__(self) -> str:
        return self.name
