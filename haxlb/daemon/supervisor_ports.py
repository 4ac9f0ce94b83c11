"""What the supervisor may ask of the outside world; `haxlb.linux` holds the adapters.

Synchronous calls return at once and raise nothing but HostError; coroutines may take their time and can be cancelled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from haxlb.daemon.messages import GarpFrame, Message, PeersKnown
from haxlb.daemon.notifications import Mail
from haxlb.daemon.ports import ClockPort, ScriptPort
from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.commands import Command
from haxlb.model.errors import ConfigError
from haxlb.model.facts import Fact
from haxlb.model.instance import VrrpInstance
from haxlb.model.node import NodeConfig
from haxlb.model.notification import MailSettings, NotifyFifo, ScriptSettings
from haxlb.model.settings import MqttSettings
from haxlb.model.status import MailStatus, NodeStatus
from haxlb.splitbrain.claimant import PublishClaim

Findings = tuple[dict[str, Any], ...]
"""Diagnostics as in `haxlb check --json`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A configuration file that can be used, with what was said about it."""

    config: NodeConfig
    report: str = ""
    """Warnings and notes, rendered as `haxlb check` does."""
    findings: Findings = ()
    """The same for programs."""


class RefusedConfig(ConfigError):
    """A configuration file that cannot be used: nothing of it was taken."""

    def __init__(self, message: str, *, remedy: str = "", report: str = "", findings: Findings = ()) -> None:
        super().__init__(message, remedy=remedy)
        self.report = report
        """Every complaint, rendered as `haxlb check` does."""
        self.findings = findings
        """The same for programs."""


class WallClockPort(Protocol):
    """The time of day, for what people read; decisions are made by the monotonic clock."""

    def wall(self) -> float:
        """Seconds since the epoch."""
        ...


class ConfigPort(Protocol):
    """The configuration file."""

    @property
    def path(self) -> str:
        """Where it is."""
        ...

    async def load(self) -> Loaded:
        """Read it again, check it against this host. Raises RefusedConfig."""
        ...


class ChildrenPort(Protocol):
    """The other processes; what they say comes in through the supervisor's `on_message` and `on_exit`."""

    def start(self, name: str) -> int:
        """Start `speaker`, `spare` (another speaker), `checker` or `tracker`; its pid. Raises HostError."""
        ...

    def rename(self, name: str, other: str) -> None:
        """The running process is called otherwise from now on, also where it has something to say."""
        ...

    def recorded(self, name: str) -> tuple[int, ...]:
        """Of a speaker that is dead: when it sent its last advert as MASTER of each instance, monotonic µs.

        In the order of its last ConfigureSpeaker; 0 where it was not MASTER, empty when nothing is known.
        """
        ...

    def send(self, name: str, message: Message) -> None:
        """Send to a running process; nothing happens when there is none."""
        ...

    def kill(self, name: str) -> None:
        """SIGKILL; `on_exit` follows."""
        ...


class BuilderPort(Protocol):
    """Short-lived processes that build what the daemons use."""

    async def craft(self, instances: Iterable[VrrpInstance]) -> tuple[GarpFrame, ...]:
        """Gratuitous ARP frames for all VIPs. Raises HostError."""
        ...

    async def compile(self, config: NodeConfig) -> str:
        """Compile, verify and pin the forwarder; the path of the pinned program. Raises HostError."""
        ...

    async def extend(self, config: NodeConfig) -> str:
        """The same with all that the last program can do: it takes over before the tables change. Raises HostError."""
        ...

    def outdated(self, config: NodeConfig) -> bool:
        """Whether the program that was built last cannot do what `config` needs."""
        ...

    def attached(self, config: NodeConfig) -> bool:
        """Whether a forwarder of an earlier run is still attached for this configuration."""
        ...

    def abandon(self) -> tuple[str, ...]:
        """Take off what is left of the data plane of an earlier run; what was removed, in words. Raises HostError."""
        ...

    def excess(self, config: NodeConfig) -> str:
        """What of `config` the tables that were built have no room for; empty when all fits."""
        ...


class BequestPort(Protocol):
    """What is left to do for a speaker that has died."""

    def prepare(self, instances: Iterable[VrrpInstance]) -> None:
        """Build the datagrams beforehand: on the day there must be nothing left to import or compute."""
        ...

    def execute(self, masters: frozenset[str], kept: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """Send priority 0 for the instances of these names, then take the VIPs of all instances off but the kept.

        Returns what went wrong, one sentence each.
        """
        ...


class LogPort(Protocol):
    """The log."""

    def log(self, level: str, event: str, /, **fields: object) -> None:
        """Write one line: debug, info, warning or error; `event` is a stable snake_case name."""
        ...


class BrokerPort(Protocol):
    """MQTT. What others say there comes in through the supervisor's `on_fact`."""

    def configure(self, settings: MqttSettings | None, node: str) -> None:
        """Use this broker under this name, or none."""
        ...

    def publish(self, fact: Fact) -> None:
        """An event, and the retained topics that follow from it. Never blocks; the oldest waiting event is lost."""
        ...

    def claim(self, claim: PublishClaim) -> None:
        """The retained claim of a VRID; also repeated ones are published. Never blocks."""
        ...

    def publish_status(self, status: NodeStatus) -> None:
        """The retained snapshot. Never blocks."""
        ...

    def evidence(self, vrid: int) -> str:
        """A sentence that names a living peer for this VRID, empty when MQTT knows of none."""
        ...

    @property
    def state(self) -> str:
        """`off`, `connected`, or why not."""
        ...

    async def close(self) -> None:
        """Say offline and leave; gives up after a second."""
        ...


class PeerProbePort(Protocol):
    """Looks for another director that does not speak: a VRRP backup is silent."""

    async def probe(self, instance: VrrpInstance, asked: tuple[str, ...]) -> str:
        """A sentence that says how a peer showed that it lives, empty when none did; takes at most a second.

        `asked` holds the addresses whose answer to ARP counts: peers that have not resigned.
        """
        ...

    async def is_up(self, interface: str, address: IPAddress) -> bool:
        """Whether the host of this address answers on its link; takes at most a quarter of a second."""
        ...


class VipWatchPort(Protocol):
    """Asks the network for others that answer ARP for our VIPs; comes in as ForeignMacHeard."""

    def watch(self, vips: Iterable[Vip], peers: Iterable[PeersKnown]) -> None:
        """Watch exactly these VIPs from now on; a MAC that belongs to one of the peers is a director's."""
        ...


class RouterClaimPort(Protocol):
    """What no other haxlb of this host may run: two of them do not hear each other, and would both be MASTER."""

    def claim(self, instances: Iterable[VrrpInstance]) -> None:
        """Hold those of these, too. Raises HostError when another haxlb runs one; then nothing more is held."""
        ...

    def keep(self, instances: Iterable[VrrpInstance]) -> None:
        """Give up all but those of these."""
        ...


class OperatorScriptPort(ScriptPort, Protocol):
    """Runs the operator's scripts, as `ScriptPort`, and waits for those that something depends on."""

    def configure(self, settings: ScriptSettings, directory: str) -> None:
        """Run the following ones as these settings say, in this directory."""
        ...

    async def complete(self, queue: str, command: Command, limit_s: float) -> int | None:
        """Run the command to its end, ended after `limit_s`; its exit status, None when it did not start."""
        ...

    async def finish(self, timeout_s: float) -> None:
        """Let what is queued run, at most this long; then end it."""
        ...


class FifoPort(Protocol):
    """The operator's FIFOs and their readers."""

    def configure(self, fifos: Iterable[NotifyFifo], settings: ScriptSettings, directory: str) -> None:
        """Have exactly these; one that is as before is not touched. One that cannot be had is logged."""
        ...

    def write(self, line: str, *, lvs: bool = False) -> None:
        """Write a line about VRRP, or about services. Never blocks; a full pipe loses it."""
        ...

    @property
    def lost(self) -> dict[str, int]:
        """Lines that were lost since a FIFO was opened, by path; only those that have lost some."""
        ...

    async def close(self) -> None:
        """Close all, and let the readers leave."""
        ...


class MailPort(Protocol):
    """The operator's mailbox."""

    def configure(self, settings: MailSettings | None) -> None:
        """Send by this server to these recipients from now on, or not at all."""
        ...

    def send(self, mail: Mail) -> None:
        """In order. Never blocks; what no server takes is dropped and logged."""
        ...

    @property
    def status(self) -> MailStatus:
        """What has become of the mails."""
        ...

    async def finish(self, timeout_s: float) -> None:
        """Send what waits, at most this long."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlets:
    """The ways to the operator."""

    scripts: OperatorScriptPort
    fifos: FifoPort
    mail: MailPort


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """All ports of a supervisor."""

    clock: ClockPort
    wall: WallClockPort
    config: ConfigPort
    children: ChildrenPort
    builder: BuilderPort
    bequest: BequestPort
    log: LogPort
    broker: BrokerPort
    probe: PeerProbePort
    vip_watch: VipWatchPort
    routers: RouterClaimPort
    outlets: Outlets
    bpf_directory: str = field(default="")
    """Where the data plane is pinned."""
    firewall_table: str = "haxlb"
    """As in `ConfigureSpeaker`."""
