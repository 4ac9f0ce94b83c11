"""What instances track, as values, and what comes of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from haxlb.model.commands import NO_COMMAND, Command


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
    run: Command = NO_COMMAND
    """Exit code 0 = well."""
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
class TrackFile:
    """One `track_file` block: a number in a file."""

    name: str
    path: str
    weight: int = 1
    reverse: bool = False
    init_value: int | None = None
    """The file is made with this number at start where it is missing; None = it is not made."""
    init_overwrite: bool = False
    """It is written even where there is a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackProcess:
    """One `vrrp_track_process` block: how many processes of that name (and those arguments) there are."""

    name: str
    process: str
    parameters: tuple[str, ...] = ()
    match: str = ""
    """`exact`, `initial` or `partial` match of the parameters; empty = they do not count."""
    full_command: bool = False
    """The whole path of the command is compared."""
    weight: int = 0
    reverse: bool = False
    quorum: int = 1
    quorum_max: int | None = None
    delay_us: int = 0
    """Both of the following where they are not named."""
    terminate_delay_us: int = 0
    fork_delay_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BfdSession:
    """One `bfd_instance` block (RFC 5880 asynchronous mode, RFC 5881 single hop, RFC 5883 multihop)."""

    name: str
    neighbor: str
    """Address of either family."""
    source: str = ""
    min_rx_us: int = 10_000
    min_tx_us: int = 10_000
    idle_tx_us: int = 1_000_000
    """Interval while the session is down."""
    multiplier: int = 5
    passive: bool = False
    ttl: int = 255
    max_hops: int = 0
    """TTLs from 255 - this count; -1 = all. RFC 5881 section 5 has 0 for a single hop."""
    multihop: bool = False
    weight: int = 0
    reverse: bool = False
    vrrp: bool = True
    """Instances may track it."""
    checker: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackResult:
    """How a tracked thing is now."""

    kind: TrackKind
    name: str
    value: int | None
    """A file: its number. All others: 1 well, 0 not. None = not known yet."""
    counts: bool = True
    """False: it cannot be found out (a script that cannot be run), and neither adds to a priority nor is a fault."""


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
