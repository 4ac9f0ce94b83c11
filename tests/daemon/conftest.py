"""A virtual world for the supervisor: a loop that never waits, ports that remember what they were asked."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from typing import Any, TypeVar

import pytest

from haxlb.daemon.messages import (
    AskStatus,
    CheckerStatus,
    ConfigureChecker,
    ConfigureSpeaker,
    ConfigureTracker,
    GarpFrame,
    HandOver,
    Happened,
    Message,
    PeersKnown,
    Ready,
    Resume,
    SpeakerStatus,
    StandBy,
    Stop,
    SwapProgram,
    TrackerStatus,
)
from haxlb.daemon.notifications import Mail
from haxlb.daemon.supervisor import Supervisor
from haxlb.daemon.supervisor_ports import Loaded, Outlets, RefusedConfig, World
from haxlb.model.addresses import Endpoint, IPAddress, Protocol, Vip
from haxlb.model.commands import Command
from haxlb.model.errors import HostError
from haxlb.model.facts import Fact, RoleChanged
from haxlb.model.instance import Role, VrrpInstance
from haxlb.model.node import NodeConfig
from haxlb.model.settings import MqttSettings
from haxlb.model.status import DataPlaneStatus, InstanceStatus, MailStatus, NodeStatus, PeerStatus, TrackedStatus
from haxlb.model.units import SECOND_US
from haxlb.model.virtual_server import RealServer, VirtualServer
from haxlb.splitbrain.claimant import PublishClaim

T = TypeVar("T")
EPOCH = 1_800_000_000.0


class VirtualSelector(selectors.DefaultSelector):
    """Instead of waiting it moves the clock on."""

    elapsed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("everything waits and nothing is scheduled: a deadlock")
        self.elapsed += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.selector = VirtualSelector()
        super().__init__(self.selector)

    def time(self) -> float:
        return self.selector.elapsed


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(asyncio.wait_for(work, 3600))
    finally:
        loop.close()


def us() -> int:
    return round(asyncio.get_running_loop().time() * SECOND_US)


def vip(address: str = "192.168.10.100", interface: str = "eth0") -> Vip:
    return Vip(address=IPv4Address(address), prefix_length=24, interface=interface)


def instance(name: str = "VI_1", **changes: Any) -> VrrpInstance:
    base = VrrpInstance(name=name, interface="eth0", vrid=51, priority=150, vips=(vip(),))
    return replace(base, **changes)


def virtual_server(port: int = 80, *servers: RealServer) -> VirtualServer:
    endpoint = Endpoint(address=IPv4Address("192.168.10.100"), port=port, protocol=Protocol.TCP)
    real = servers or (RealServer(address=IPv4Address("192.168.10.21"), port=port),)
    return VirtualServer(endpoint=endpoint, real_servers=real)


def node(*instances: VrrpInstance, servers: tuple[VirtualServer, ...] = (), **changes: Any) -> NodeConfig:
    return NodeConfig(node="lb1", instances=instances or (instance(),), virtual_servers=servers, **changes)


@dataclass
class Peer:
    """The other director, as the fake speaker meets it."""

    address: str = "192.168.10.12"
    priority: int = 100
    takes_over_after_s: float | None = 0.61
    """After our priority 0; None = it does not."""


class FakeSpeaker:
    """Enough of a speaker for the supervisor: roles, hand-over, take-back."""

    def __init__(self, world: FakeWorld, name: str = "speaker") -> None:
        self.world = world
        self.name = name
        self.instances: dict[str, InstanceStatus] = {}
        self.back: dict[str, asyncio.TimerHandle] = {}
        self.statuses = 0

    def take(self, message: Message) -> None:
        match message:
            case ConfigureSpeaker():
                known = self.instances
                self.instances = {
                    each.name: known.get(each.name, status_of(each, self.world.wall())) for each in message.instances
                }
                for heir in message.successions:
                    self.instances[heir.instance] = replace(
                        self.instances[heir.instance], role=Role.MASTER, old_checksum=heir.old_checksum
                    )
                self.say(Ready(of="ConfigureSpeaker"))
                self.say_status()
            case StandBy():
                if self.world.spare_stands_by:
                    self.say(Ready(of="StandBy"))
            case AskStatus():
                self.say_status(message.ticket)
            case HandOver():
                for name in message.instances or tuple(self.instances):
                    self.hand_over(name)
            case Resume():
                for name in message.instances or tuple(self.instances):
                    self.instances[name] = replace(self.instances[name], yielded=False)
            case Stop():
                for name, each in self.instances.items():
                    if each.role is Role.MASTER:
                        self.change(name, Role.INIT, message.reason)
                self.world.exit("speaker", 0)

    def hand_over(self, name: str) -> None:
        self.instances[name] = replace(self.instances[name], yielded=True)
        if self.instances[name].role is not Role.MASTER:
            return
        self.change(name, Role.BACKUP, "handed over")
        peer, loop = self.world.peer, asyncio.get_running_loop()
        if peer.takes_over_after_s is not None:
            loop.call_later(peer.takes_over_after_s, self.hear, name)
        else:
            down = self.instances[name].master_down_interval_us / SECOND_US
            self.back[name] = loop.call_later(down, self.change, name, Role.MASTER, "no advert")

    def hear(self, name: str) -> None:
        peer = self.world.peer
        heard = PeerStatus(address=IPv4Address(peer.address), priority=peer.priority, heard_at=self.world.wall())
        self.instances[name] = replace(self.instances[name], peers=(heard,))

    def change(self, name: str, role: Role, reason: str) -> None:
        before = self.instances[name]
        self.instances[name] = replace(before, role=role, reason=reason, since_at=self.world.wall())
        fact = RoleChanged(
            instance=name, vrid=before.vrid, before=before.role, after=role, reason=reason, priority=150, at_us=us()
        )
        self.say(Happened(fact=fact))
        self.say_status()

    def say(self, message: Message) -> None:
        self.world.supervisor.on_message(self.name, message)

    def say_status(self, ticket: int = 0) -> None:
        if self.world.mute:
            return
        # The time of day of one advert is computed anew for each status, and never twice to the microsecond.
        self.statuses += 1
        late = self.statuses % 7 * 1e-6
        instances = tuple(
            replace(each, peers=tuple(replace(peer, heard_at=peer.heard_at - late) for peer in each.peers))
            for each in self.instances.values()
        )
        self.say(SpeakerStatus(ticket=ticket, instances=instances))


def status_of(each: VrrpInstance, at: float) -> InstanceStatus:
    return InstanceStatus(
        name=each.name,
        interface=each.interface,
        vrid=each.vrid,
        version=each.version,
        role=Role.BACKUP,
        since_at=at,
        reason="started",
        priority=each.priority,
        master_down_interval_us=3_414_062,
    )


class FakeOutlets:
    """The ways to the operator: `told` has everything in order, as (way, what)."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.settings: list[Any] = []
        self.mails: list[Mail] = []
        self.scripts, self.fifos, self.mail = _Scripts(self), _Fifos(self), _Mail(self)

    def ports(self) -> Outlets:
        return Outlets(scripts=self.scripts, fifos=self.fifos, mail=self.mail)

    def of(self, way: str) -> list[str]:
        return [what for each, what in self.told if each == way]


class _Scripts:
    def __init__(self, outlets: FakeOutlets) -> None:
        self.outlets = outlets
        self.status: int | None = 0

    def configure(self, *settings: Any) -> None:
        self.outlets.settings.append(("scripts", *settings))

    def run(self, queue: str, command: Command) -> None:
        self.outlets.told.append(("script", f"{queue}: {command}"))

    async def complete(self, queue: str, command: Command, limit_s: float) -> int | None:
        self.outlets.told.append(("waited", f"{queue}: {command} within {limit_s:g} s"))
        await asyncio.sleep(0.5)
        return self.status

    async def finish(self, timeout_s: float) -> None:
        self.outlets.told.append(("end", "scripts"))


class _Fifos:
    def __init__(self, outlets: FakeOutlets) -> None:
        self.outlets = outlets
        self.lost: dict[str, int] = {}

    def configure(self, *settings: Any) -> None:
        self.outlets.settings.append(("fifos", *settings))

    def write(self, line: str, *, lvs: bool = False) -> None:
        self.outlets.told.append(("lvs" if lvs else "fifo", line))

    async def close(self) -> None:
        self.outlets.told.append(("end", "fifos"))


class _Mail:
    def __init__(self, outlets: FakeOutlets) -> None:
        self.outlets = outlets
        self.status = MailStatus()

    def configure(self, settings: Any) -> None:
        self.outlets.settings.append(("mail", settings))

    def send(self, mail: Mail) -> None:
        self.outlets.mails.append(mail)
        self.outlets.told.append(("mail", mail.subject))

    async def finish(self, timeout_s: float) -> None:
        self.outlets.told.append(("end", "mail"))


class _Routers:
    def __init__(self, world: FakeWorld) -> None:
        self.world = world

    def claim(self, instances: Iterable[VrrpInstance]) -> None:
        if any(each.key == self.world.foreign_router for each in instances):
            raise HostError("another haxlb runs it", remedy="stop it")
        self.world.order.append("claim")

    def keep(self, instances: Iterable[VrrpInstance]) -> None:
        self.world.order.append(f"keep {','.join(each.name for each in instances)}")


@dataclass
class FakeWorld:
    """All ports of a supervisor, and what it did to them."""

    loaded: Loaded | RefusedConfig
    peer: Peer = field(default_factory=Peer)
    sent: list[tuple[float, str, Message]] = field(default_factory=list)
    started: list[tuple[float, str]] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    logged: list[tuple[str, str, dict[str, object]]] = field(default_factory=list)
    bequeathed: list[tuple[VrrpInstance, ...]] = field(default_factory=list)
    executed: list[frozenset[str]] = field(default_factory=list)
    kept: list[frozenset[str]] = field(default_factory=list)
    adverts: tuple[int, ...] = ()
    """What a dead speaker has left in its flight recorder."""
    spare_problem: HostError | None = None
    spare_stands_by: bool = True
    watched: list[tuple[Vip, ...]] = field(default_factory=list)
    published: list[Fact] = field(default_factory=list)
    snapshots: list[NodeStatus] = field(default_factory=list)
    brokers: list[MqttSettings | None] = field(default_factory=list)
    claims: list[PublishClaim] = field(default_factory=list)
    crafted: int = 0
    craft_s: float = 0.0
    """How long crafting takes."""
    compiled: int = 0
    compile_s: float = 0.0
    forwarding_after_s: float | None = 0.0
    """The checker's Ready; None = never."""
    leaves: bool = True
    """Children follow Stop."""
    mute: bool = False
    """The speaker answers no question."""
    compile_problem: HostError | None = None
    craft_problem: HostError | None = None
    old_forwarder: bool = False
    too_much: str = ""
    program_outdated: bool = False
    swap_problem: str = ""
    checker_stands_still: bool = False
    """Nothing is answered: `sent` has what waits for it."""
    probe_evidence: str = "192.168.10.12 answers"
    hosts_up: tuple[str, ...] = ()
    probed: list[str] = field(default_factory=list)
    looked_up: list[tuple[float, str]] = field(default_factory=list)
    mqtt_evidence: str = ""
    foreign_router: tuple[str, int] | None = None
    """Another haxlb of this host runs it."""
    order: list[str] = field(default_factory=list)
    """What happened in which order, where that matters."""
    outlets: FakeOutlets = field(default_factory=FakeOutlets)
    state: str = "off"
    path: str = "/etc/keepalived/keepalived.conf"
    supervisor: Supervisor = field(init=False)
    speaker: FakeSpeaker = field(init=False)
    spare: FakeSpeaker = field(init=False)
    _pids: int = 100

    def ports(self) -> World:
        port: Any = self
        return World(
            clock=port,
            wall=port,
            config=port,
            children=port,
            builder=port,
            bequest=port,
            log=port,
            broker=port,
            probe=port,
            vip_watch=port,
            routers=_Routers(self),
            outlets=self.outlets.ports(),
            bpf_directory="/run/haxlb/bpf",
            firewall_table="haxlb_1",
        )

    def raise_up(self) -> Supervisor:
        assert isinstance(self.loaded, Loaded)
        self.speaker = FakeSpeaker(self)
        self.supervisor = Supervisor(self.ports(), self.loaded)
        return self.supervisor

    # clocks
    def now(self) -> int:
        return us()

    def wall(self) -> float:
        return EPOCH + asyncio.get_running_loop().time()

    # config
    async def load(self) -> Loaded:
        if isinstance(self.loaded, RefusedConfig):
            raise self.loaded
        return self.loaded

    # children
    def start(self, name: str) -> int:
        self.started.append((asyncio.get_running_loop().time(), name))
        self.order.append(f"start {name}")
        if name == "speaker":
            self.speaker = FakeSpeaker(self)
        elif name == "spare":
            if self.spare_problem is not None:
                raise self.spare_problem
            self.spare = FakeSpeaker(self, "spare")
        self._pids += 1
        return self._pids

    def send(self, name: str, message: Message) -> None:
        loop = asyncio.get_running_loop()
        self.sent.append((loop.time(), name, message))
        if isinstance(message, Stop):
            self.order.append(f"stop {name}")
            if not self.leaves:
                return
        if name == "speaker":
            loop.call_soon(self.speaker.take, message)
        elif name == "spare":
            loop.call_soon(self.spare.take, message)
        elif name == "tracker":
            loop.call_soon(self._track, message)
        else:
            loop.call_soon(self._check, message)

    def _track(self, message: Message) -> None:
        match message:
            case ConfigureTracker():
                self.supervisor.on_message("tracker", Ready(of="ConfigureTracker"))
            case AskStatus():
                status = TrackedStatus(kind="track_script", name="chk", value=1)
                self.supervisor.on_message("tracker", TrackerStatus(ticket=message.ticket, tracked=(status,)))
            case Stop():
                self.exit("tracker", 0)

    def _check(self, message: Message) -> None:
        loop = asyncio.get_running_loop()
        match message:
            case ConfigureChecker() | SwapProgram() if self.checker_stands_still:
                pass
            case ConfigureChecker():
                if self.forwarding_after_s is not None:
                    ready = Ready(of="ConfigureChecker")
                    loop.call_later(self.forwarding_after_s, self.supervisor.on_message, "checker", ready)
            case SwapProgram():
                self.supervisor.on_message("checker", Ready(of="SwapProgram", problem=self.swap_problem))
            case AskStatus():
                status = CheckerStatus(ticket=message.ticket, virtual_servers=(), data_plane=DataPlaneStatus(abi="1"))
                self.supervisor.on_message("checker", status)
            case Stop():
                self.exit("checker", 0)

    def rename(self, name: str, other: str) -> None:
        self.order.append(f"{name} becomes {other}")
        self.speaker, self.spare.name = self.spare, other

    def recorded(self, name: str) -> tuple[int, ...]:
        assert name == "speaker"
        return self.adverts

    def kill(self, name: str) -> None:
        self.killed.append(name)
        self.order.append(f"kill {name}")
        self.exit(name, -9)

    def exit(self, name: str, returncode: int) -> None:
        asyncio.get_running_loop().call_soon(self.supervisor.on_exit, name, returncode)

    # builder
    async def craft(self, instances: Iterable[VrrpInstance]) -> tuple[GarpFrame, ...]:
        self.crafted += 1
        self.order.append("craft")
        await asyncio.sleep(self.craft_s)
        if self.craft_problem:
            raise self.craft_problem
        return tuple(
            GarpFrame(interface=v.interface, mac="02:00:00:00:00:01", vip=v.address, frame_hex="00")
            for each in instances
            for v in each.vips
        )

    async def compile(self, config: NodeConfig) -> str:
        del config
        self.compiled += 1
        await asyncio.sleep(self.compile_s)
        if self.compile_problem:
            raise self.compile_problem
        return f"/run/haxlb/bpf/1/program-{self.compiled}"

    def attached(self, config: NodeConfig) -> bool:
        del config
        return self.old_forwarder

    def abandon(self) -> tuple[str, ...]:
        self.order.append("abandon")
        return ("link of eth0",) if self.old_forwarder else ()

    def outdated(self, config: NodeConfig) -> bool:
        del config
        return self.program_outdated

    async def extend(self, config: NodeConfig) -> str:
        self.order.append("extend")
        return await self.compile(config)

    def excess(self, config: NodeConfig) -> str:
        del config
        return self.too_much

    # the rest
    def prepare(self, instances: Iterable[VrrpInstance]) -> None:
        listed = tuple(instances)
        self.bequeathed.append(listed)
        self.order.append(f"prepare {','.join(each.name for each in listed)}")

    def execute(self, masters: frozenset[str], kept: frozenset[str] = frozenset()) -> tuple[str, ...]:
        self.executed.append(masters)
        self.kept.append(kept)
        self.order.append("bequest")
        return ()

    def log(self, level: str, event: str, /, **fields: object) -> None:
        self.logged.append((level, event, fields))

    def configure(self, settings: MqttSettings | None, name: str) -> None:
        del name
        self.brokers.append(settings)
        self.state = "connected" if settings else "off"

    def publish(self, fact: Fact) -> None:
        self.published.append(fact)

    def claim(self, claim: PublishClaim) -> None:
        self.claims.append(claim)

    def publish_status(self, status: NodeStatus) -> None:
        self.snapshots.append(status)

    def evidence(self, vrid: int) -> str:
        del vrid
        return self.mqtt_evidence

    async def close(self) -> None:
        self.order.append("broker closed")

    async def probe(self, each: VrrpInstance, asked: tuple[str, ...]) -> str:
        self.probed.append(each.name)
        return self.probe_evidence or next((f"{host} answers ARP" for host in asked if host in self.hosts_up), "")

    async def is_up(self, interface: str, address: IPAddress) -> bool:
        self.looked_up.append((asyncio.get_running_loop().time(), f"{address} on {interface}"))
        return str(address) in self.hosts_up

    def watch(self, vips: Iterable[Vip], peers: Iterable[PeersKnown]) -> None:
        self.known = tuple(peers)
        self.watched.append(tuple(vips))

    # for tests
    def messages(self, name: str, kind: type[Message] | Any = object) -> list[Message]:
        return [message for _, to, message in self.sent if to == name and isinstance(message, kind)]

    def events(self) -> list[str]:
        return [event for _, event, _ in self.logged]


@pytest.fixture
def play() -> Callable[..., FakeWorld]:
    """Run a scene on a running supervisor, then stop it in order; returns the world afterwards."""

    def perform(scene: Callable[[FakeWorld], Coroutine[Any, Any, None]], config: NodeConfig, **world: Any) -> FakeWorld:
        async def whole() -> FakeWorld:
            made = FakeWorld(loaded=Loaded(config=config), **world)
            running = asyncio.ensure_future(made.raise_up().run())
            await asyncio.sleep(0.01)
            try:
                await scene(made)
            finally:
                made.supervisor.stop("SIGTERM")
                await running
            return made

        return run_virtually(whole())

    return perform


@pytest.fixture
def kit() -> Any:
    """Builders of values, and the fakes."""

    class Kit:
        pass

    made: Any = Kit()
    made.vip, made.instance, made.virtual_server, made.node = vip, instance, virtual_server, node
    made.FakeOutlets = FakeOutlets
    made.FakeWorld, made.Peer, made.run, made.EPOCH = FakeWorld, Peer, run_virtually, EPOCH
    return made
