"""What becomes of one thing at a reload."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Fate(Enum):
    """What becomes of something."""

    KEPT = "kept"
    """Not touched: no packet, no probe, no script."""
    RETUNED = "retuned"
    """Stays what it is, with other settings."""
    RECREATED = "recreated"
    """Ends, and something new of its name begins."""
    ADDED = "added"
    REMOVED = "removed"
    REFUSED = "refused"
    """The reload as a whole is refused, and nothing changes."""
    DEFERRED = "deferred"
    """Takes effect at the next start only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consequence:
    """The fate of one thing."""

    kind: str
    """vrrp_instance, vrrp_sync_group, what is tracked, virtual_server, real_server or settings."""
    name: str
    fate: Fate
    reason: str = ""
    """What differs: `priority 100 -> 150`; empty when nothing does."""
    effects: tuple[str, ...] = ()
    """What happens, in order."""
