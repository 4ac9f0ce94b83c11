"""What the processes of a daemon say to each other: one JSON object a line, tagged with its class name.

The pipe is a UNIX stream socket pair that the supervisor makes before it starts a child; the child finds its end at
the file descriptor that `--fd` names. A child whose pipe closes has lost its supervisor: the speaker hands over and
exits, the checker exits and leaves the data plane as it is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from haxlb.model.addresses import IPAddress, StaticAddress
from haxlb.model.errors import PeerError
from haxlb.model.facts import Fact
from haxlb.model.groups import SyncGroup
from haxlb.model.instance import VrrpInstance
from haxlb.model.node import NodeConfig
from haxlb.model.notification import NotifyDue, ScriptSettings
from haxlb.model.routes import Route, Rule
from haxlb.model.settings import SpeakerSettings
from haxlb.model.status import DataPlaneStatus, InstanceStatus, LoopLag, TrackedStatus, VirtualServerStatus
from haxlb.model.succession import Succession
from haxlb.model.tracking import BfdSession, TrackFile, TrackProcess, TrackResult, TrackScript
from haxlb.model.wire import from_json, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class GarpFrame:
    """One gratuitous ARP request or unsolicited neighbour advertisement, crafted by scapy in a short-lived process."""

    interface: str
    mac: str
    """The interface's MAC that the frame was crafted for: stale once that changes."""
    vip: IPAddress
    frame_hex: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigureSpeaker:
    """Supervisor to speaker: run exactly these instances; what differs from now is the speaker's to find."""

    instances: tuple[VrrpInstance, ...]
    garp_frames: tuple[GarpFrame, ...]
    settings: SpeakerSettings = field(default_factory=SpeakerSettings)
    sync_groups: tuple[SyncGroup, ...] = ()
    static_addresses: tuple[StaticAddress, ...] = ()
    static_routes: tuple[Route, ...] = ()
    static_rules: tuple[Rule, ...] = ()
    script_settings: ScriptSettings = field(default_factory=ScriptSettings)
    """For the last scripts, which it runs itself when the supervisor is gone."""
    config_directory: str = ""
    """Where scripts run; empty = in our own working directory."""
    results: tuple[TrackResult, ...] = ()
    """What tracked things were found to be already, for instances that are new."""
    firewall_table: str = "haxlb"
    """The nftables table of this haxlb: two of them in one network namespace have one each."""
    successions: tuple[Succession, ...] = ()
    """To a spare that takes the place of a dead speaker: what it is MASTER of from now on."""
    bpf_directory: str = ""
    """Where the data plane is pinned, which must know the virtual MACs of MASTERs; empty = nowhere."""
    reserve: str = ""
    """Why instances that are started now leave a MASTER alone whatever its priority, until `DataPlaneReady`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GarpFrames:
    """Supervisor to speaker: these have been crafted; others of its frames stay as they are. There is no answer."""

    frames: tuple[GarpFrame, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlaneReady:
    """Supervisor to speaker: the data plane is in force. There is no answer.

    It may be a new one, which knows no virtual MAC yet; and whoever has left a MASTER alone for want of it may preempt.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class StandBy:
    """Supervisor to a spare speaker: run like this, and wait for a configuration; `Ready` says that it does."""

    settings: SpeakerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigureTracker:
    """Supervisor to tracker: run these scripts, watch these files and processes, hold these sessions."""

    scripts: tuple[TrackScript, ...] = ()
    files: tuple[TrackFile, ...] = ()
    processes: tuple[TrackProcess, ...] = ()
    bfd_sessions: tuple[BfdSession, ...] = ()
    script_settings: ScriptSettings = field(default_factory=ScriptSettings)
    known: tuple[TrackResult, ...] = ()
    """What the tracker before this one has found out: it stays in force until something else is found out."""
    config_directory: str = ""
    """Where the configuration file is, and scripts run; empty = where the tracker is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """Tracker to supervisor to speaker: these are so now; after a Configure all of them, later those that changed."""

    results: tuple[TrackResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """Speaker to supervisor: tell the operator."""

    due: NotifyDue


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Supervisor to speaker: give up MASTER (priority 0, VIPs off) and do not preempt until `Resume`."""

    instances: tuple[str, ...]
    """Names; empty = all."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resume:
    """Supervisor to speaker: preempt again as the configuration says."""

    instances: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigureChecker:
    """Supervisor to checker: check and forward this; the data plane lives under `bpf_directory`."""

    config: NodeConfig
    bpf_directory: str
    program: str
    """Path of the pinned program to attach; empty = none could be built, keep what is attached."""
    config_directory: str = ""
    """Where scripts run; empty = in our own working directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapProgram:
    """Supervisor to checker: replace the attached program by this pinned one, without a gap."""

    program: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PeersKnown:
    """Supervisor to checker: the other directors; unknown flows of stateful schedulers are handed to them (ADR 3)."""

    interface: str
    peers: tuple[IPAddress, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Supervisor to a child: leave in order. The speaker hands over first."""

    reason: str = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class AskStatus:
    """Supervisor to a child: send your status now, quoting `ticket`."""

    ticket: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Child to supervisor: the last Configure or Swap is in force, or (`problem`) why not."""

    of: str
    """Class name of the message that it answers."""
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """Child to supervisor: a fact."""

    fact: Fact


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """Child to supervisor: a line for the log; only the supervisor writes one."""

    level: str
    """debug, info, warning, error."""
    event: str
    fields: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkAltered:
    """Speaker to supervisor: an interface's MAC is not the one the frames were crafted for; craft anew."""

    interface: str
    mac: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakerStatus:
    """Speaker to supervisor: sent at every change of a role, and when asked."""

    ticket: int
    """0 when unasked."""
    instances: tuple[InstanceStatus, ...]
    lag: LoopLag = field(default_factory=LoopLag)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckerStatus:
    """Checker to supervisor, when asked."""

    ticket: int
    virtual_servers: tuple[VirtualServerStatus, ...]
    data_plane: DataPlaneStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerStatus:
    """Tracker to supervisor, when asked."""

    ticket: int
    tracked: tuple[TrackedStatus, ...]


Message = (
    ConfigureSpeaker
    | GarpFrames
    | DataPlaneReady
    | StandBy
    | ConfigureTracker
    | Tracked
    | TrackerStatus
    | Notify
    | HandOver
    | Resume
    | ConfigureChecker
    | SwapProgram
    | PeersKnown
    | Stop
    | AskStatus
    | Ready
    | Happened
    | Logged
    | LinkAltered
    | SpeakerStatus
    | CheckerStatus
)


def encode(message: Message) -> bytes:
    """One line, newline included."""
    return json.dumps(to_json(message, tag=True, lean=True), separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> Message:
    """The message of one line. Raises PeerError (`malformed_message`) for anything else."""
    try:
        data: Any = json.loads(line)
    except ValueError as problem:
        raise PeerError("malformed_message", f"not JSON: {problem}") from problem
    message: Message = from_json(Message, data)
    return message
