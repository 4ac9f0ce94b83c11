"""Groups of instances and of services, as values."""

from __future__ import annotations

from dataclasses import dataclass, field

from haxlb.model.notification import NotifyScripts
from haxlb.model.tracking import Track


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup:
    """One `vrrp_sync_group` block: its instances are MASTER together or not at all."""

    name: str
    members: tuple[str, ...]
    """Names of instances, in the order of the file."""
    tracks: tuple[Track, ...] = ()
    """What all members track."""
    tracking_weight: bool = False
    """sync_group_tracking_weight: weighted tracks of members count; else only those without weight do."""
    notify: NotifyScripts = field(default_factory=NotifyScripts)
    notify_priority_changes: bool = False
    smtp_alert: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackGroup:
    """One `track_group` block: its instances track the interfaces of the static entries that name it."""

    name: str
    members: tuple[str, ...]
    """Names of instances, in the order of the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressRange:
    """Consecutive addresses of a group; text in canonical form, of either family."""

    first: str
    last: str
    """Inclusive; the same as `first` for one address."""
    port: int | None = None
    """None = every port."""

    def __str__(self) -> str:
        span = self.first if self.first == self.last else f"{self.first}-{self.last}"
        return span if self.port is None else f"{span} port {self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirewallMark:
    """Packets to which the packet filter has given a mark."""

    mark: int
    family: int = 0
    """4, 6, or 0 where none is named: that of the real servers."""

    def __str__(self) -> str:
        return f"fwmark {self.mark}{_FAMILY[self.family]}"


_FAMILY = {0: "", 4: " inet", 6: " inet6"}


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualServerGroup:
    """One `virtual_server_group` block: what a `virtual_server group NAME` serves."""

    name: str
    ranges: tuple[AddressRange, ...] = ()
    marks: tuple[FirewallMark, ...] = ()
