"""What instances track, as values. Planned: haxlb reads it, explains it and does not act on it yet."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class TrackKind(Enum):
    """Kinds of tracked things, by the name of keepalived's block in an instance."""

    INTERFACE = "track_interface"
    SCRIPT = "track_script"
    FILE = "track_file"
    PROCESS = "track_process"
    BFD = "track_bfd"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackScript:
    """One `vrrp_script` block."""

    name: str
    command: tuple[str, ...]
    """Argument vector; exit code 0 = well."""
    interval_us: int = 1_000_000
    timeout_us: int = 1_000_000
    """Default: the interval."""
    weight: int = 0
    reverse: bool = False
    rise: int = 1
    fall: int = 1
    init_fail: bool = False
    """Counts as failed until it has succeeded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """One `track_file`, `vrrp_track_process` or `bfd_instance` block."""

    kind: TrackKind
    name: str
    target: tuple[str, ...]
    """The file, the process and its arguments, or the neighbour's address."""
    weight: int = 0
    reverse: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Track:
    """One line of a track block of an instance, with the weight that counts."""

    kind: TrackKind
    name: str
    weight: int = 0
    """Added to the priority: a positive one while the thing is well, a negative one while it is not; 0 = FAULT when it
    is not. A track_file's is multiplied by the number in the file."""
    reverse: bool = False
    """Well and not well change places."""

    def __str__(self) -> str:
        return f"{self.name} weight {self.weight}{' reverse' if self.reverse else ''}"
