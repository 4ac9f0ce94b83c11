"""Groups of instances, as values. Planned: haxlb reads and explains them and does not act on them yet."""

from __future__ import annotations

from dataclasses import dataclass

from haxlb.model.tracking import Track


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """One `vrrp_sync_group` block: its instances are MASTER together or not at all."""

    name: str
    members: tuple[str, ...]
    """Names of instances, in the order of the file."""
    tracks: tuple[Track, ...] = ()
    """What all members track."""
