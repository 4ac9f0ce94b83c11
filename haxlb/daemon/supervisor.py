"""The supervisor: starts the speaker and the checker, keeps them in line with the configuration, answers commands.

Theory of operation. The data plane comes first: the speaker, which attracts traffic, gets its orders when the checker
says that the forwarder is in force, or after five seconds; it has been started, and has imported, before. Until the
forwarder is in force it preempts nobody: the MASTER that is there forwards. What a dead
speaker can no longer do is done here at once: priority 0 for the instances that it was MASTER of, and the addresses
off; only then it is started again. A dead checker is merely started again, since what it pinned goes on forwarding; so
is a dead tracker, whose last results stay in force meanwhile. What changes the configuration or the
program is done one by one; a hand-over waits for none of it but the moment in which a configuration is put in force.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from haxlb import __version__
from haxlb.daemon.bereavement import Bereavement
from haxlb.daemon.checker_plane import ALARM as DATA_PLANE_ALARM
from haxlb.daemon.chronicle import Chronicle
from haxlb.daemon.commands import Commands
from haxlb.daemon.control import Answer, Request, Show, Step, command_name, refusal
from haxlb.daemon.crafting import Crafting
from haxlb.daemon.inference import Inference
from haxlb.daemon.messages import (
    CheckerStatus,
    ConfigureChecker,
    ConfigureSpeaker,
    DataPlaneReady,
    HandOver,
    Happened,
    LinkAltered,
    Logged,
    Message,
    Notify,
    Ready,
    SpeakerStatus,
    SwapProgram,
    Tracked,
    TrackerStatus,
)
from haxlb.daemon.notifier import Notifier
from haxlb.daemon.processes import Processes
from haxlb.daemon.reload import ReloadProcedure
from haxlb.daemon.silence import Silence
from haxlb.daemon.snapshots import Snapshots
from haxlb.daemon.standing import Standing
from haxlb.daemon.supervisor_ports import Loaded, World
from haxlb.daemon.survey import Survey
from haxlb.daemon.tracking import anything
from haxlb.model.errors import Bug, HaxlbError, HostError
from haxlb.model.facts import (
    AlarmCleared,
    BackendChanged,
    Fact,
    ForeignAdvertHeard,
    PeerHeard,
    QuorumChanged,
    RoleChanged,
)
from haxlb.model.node import NodeConfig
from haxlb.model.status import NodeStatus

FORWARDING_PATIENCE_S = 5.0
"""How long the speaker waits for the data plane at start: a director without a forwarder is better than none."""


class Supervisor:
    """One director's supervisor. The world calls `on_message`, `on_exit`, `on_fact`; clients come by `command`."""

    def __init__(self, world: World, loaded: Loaded, *, on_started: Callable[[], None] = lambda: None) -> None:
        """`on_started` is called when every process has been started."""
        self._world = world
        self._on_started = on_started
        self._standing = Standing(
            config=loaded.config,
            bpf_directory=world.bpf_directory,
            config_directory=world.config.path.rpartition("/")[0] or "/",
            firewall_table=world.firewall_table,
        )
        self._snapshots = Snapshots(world.broker, self.status, spawn=self._spawn)
        self._chronicle = Chronicle(world, loaded.config.node, on_change=self._snapshots.changed)
        self._processes = Processes(
            world,
            self._chronicle,
            on_start=self._configure,
            on_death=self._bereaved,
            settings=lambda: self._standing.config.speaker,
        )
        self._survey = Survey(self._processes.send)
        self._notifier = Notifier(world, self._standing, self._chronicle.take)
        self._bereavement = Bereavement(world, self._standing, self._chronicle, self._notifier, self._take)
        self._inference = Inference()
        self._crafting = Crafting(world, self._standing, self._processes, self._chronicle, spawn=self._spawn)
        self._silence = Silence(world.probe, self._standing, spawn=self._spawn, on_peers=self._tell_peers)
        self._commands = Commands(
            world,
            standing=self._standing,
            processes=self._processes,
            chronicle=self._chronicle,
            survey=self._survey,
            notifier=self._notifier,
            reloader=ReloadProcedure(world, self._standing, self._processes, self._chronicle, build=self._build),
            on_peers=self._tell_peers,
            on_addresses=self._crafting.for_configuration,
            findings=loaded.findings,
        )
        self._stopping = asyncio.Event()
        self._stop_reason = ""
        self._attached = ""
        """The program that the checker has put in force last."""
        self._tasks: set[asyncio.Task[None]] = set()

    # -- life

    async def run(self) -> None:
        """Start everything, return after an orderly stop. Raises HostError when the start fails; nothing runs then."""
        start = asyncio.ensure_future(self._start())
        stop = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
            if start.done():
                await start
                await stop
        finally:
            start.cancel()
            stop.cancel()
            await self._leave()
            # A compiler that was being started is being ended: asyncio, interrupted once more, would complain of it.
            await asyncio.gather(start, stop, *self._tasks, return_exceptions=True)

    def stop(self, reason: str) -> None:
        """Leave in order: `run` returns when all is done."""
        if not self._stopping.is_set():
            self._stop_reason = reason
            self._stopping.set()
            self._processes.end()

    async def _start(self) -> None:
        async with self._commands.alone:
            await self._start_all()
            self._commands.started = True
        self._crafting.for_configuration()
        self._spawn(self._snapshots.renew())
        self._on_started()

    async def _start_all(self) -> None:
        standing, config = self._standing, self._standing.config
        # The forwarder may take seconds to compile: who has started haxlb by hand must see that something happens.
        self._world.log.log("info", "starting", version=__version__, node=config.node, config=self._world.config.path)
        await self._notifier.begin()
        self._chronicle.configure(config.instances, config.mqtt)
        self._world.broker.configure(config.mqtt, config.node)
        if anything(standing.tracker_orders()):
            self._processes.start("tracker")
        if config.instances and not config.virtual_servers:
            self._processes.prepare("speaker")
        standing.program = await self._build(config)
        self._world.bequest.prepare(config.instances)
        if not config.virtual_servers:
            self._abandon_data_plane()
        if config.virtual_servers:
            self._processes.start("checker")
            if config.instances:
                self._processes.prepare("speaker")
            problem = await self._processes.ready("checker", "ConfigureChecker", FORWARDING_PATIENCE_S)
            if problem:
                standing.reserve = "our data plane is not in force yet"
                said = f"no data plane yet, and no other MASTER is preempted until there is: {problem}"
                self._chronicle.note("warning", "forwarding_late", said, reason=problem)
        if config.instances:
            self._processes.start("speaker")
        self._chronicle.note("info", "started", f"haxlb {__version__} started", version=__version__, node=config.node)

    async def _build(self, config: NodeConfig) -> str:
        """Compile the forwarder; where that fails, what is still attached from an earlier run is kept."""
        if not config.virtual_servers:
            return ""
        try:
            return await self._world.builder.compile(config)
        except HostError as problem:
            if not self._world.builder.attached(config):
                raise
            self._chronicle.raise_alarm(
                "forwarder/not-built", f"the forwarder of an earlier run is kept: {problem.message}", (str(problem),)
            )
            return ""

    def _abandon_data_plane(self) -> None:
        """What an earlier run has pinned would go on forwarding services that are no longer configured."""
        try:
            removed = self._world.builder.abandon()
        except HostError as problem:
            self._chronicle.note(
                "error",
                "data_plane_not_removed",
                f"no virtual server is configured, but what forwarded them is still there: {problem}",
                reason=str(problem),
            )
            return
        if removed:
            said = "no virtual server is configured: the data plane of an earlier run was removed"
            self._chronicle.note("warning", "data_plane_removed", said, removed=", ".join(removed))

    async def _leave(self) -> None:
        self._world.log.log("info", "stopping", reason=self._stop_reason or "the start failed")
        self._stopping.set()
        for task in self._tasks:
            task.cancel()
        self._processes.end()
        # The speaker first: the peer must have the addresses before anything else ends here.
        await self._processes.stop("speaker", self._stop_reason)
        await asyncio.gather(*(self._processes.stop(each, self._stop_reason) for each in ("checker", "tracker")))
        await self._notifier.leave()
        self._processes.spare.dismiss()
        self._world.vip_watch.watch((), ())
        self._chronicle.close()
        self._snapshots.close()
        await self._world.broker.close()

    # -- what the world says

    def on_message(self, name: str, message: Message) -> None:
        """A child speaks."""
        match message:
            case Happened():
                self._take(message.fact, name)
            case Logged():
                self._world.log.log(message.level, message.event, **{**message.fields, "process": name})
            case Ready():
                self._take_ready(name, message)
            case Notify():
                self._notifier.take(message.due)
            case SpeakerStatus() | CheckerStatus() | TrackerStatus():
                self._take_status(name, message)
            case Tracked():
                self._standing.take_results(message)
                for fact in self._inference.of_results(message, self._world.clock.now()):
                    self._take(fact, name)
                self._processes.send("speaker", message)
            case LinkAltered():
                self._crafting.for_link(message)
            case _:
                self._world.log.log("warning", "unexpected_message", process=name, kind=type(message).__name__)

    def _take_ready(self, name: str, ready: Ready) -> None:
        self._processes.take_ready(name, ready)
        if not ready.problem and self._processes.answered(name, ready.of):
            self._commands.confirmed(name, ready.of)
        if name == "checker" and not ready.problem:
            self._tell_of_data_plane(swapped=ready.of == SwapProgram.__name__)
        # Not before: a speaker that has not answered may still run those that are to go.
        if name == "speaker" and (orders := self._processes.in_force(name, ConfigureSpeaker)):
            self._world.routers.keep(orders.instances)

    def _tell_of_data_plane(self, *, swapped: bool) -> None:
        """Whoever builds a program may have made its tables anew; a reload that builds none has not."""
        orders: SwapProgram | ConfigureChecker | None = self._processes.in_force("checker", ConfigureChecker)
        if swapped:
            orders = self._processes.in_force("checker", SwapProgram)
        if orders is not None and (swapped or orders.program != self._attached):
            self._attached = orders.program
            self._processes.send("speaker", DataPlaneReady())
        self._end_reserve()

    def _end_reserve(self) -> None:
        """The data plane is as it should be, or there is none to wait for any more."""
        if self._standing.reserve:
            self._standing.reserve = ""
            self._processes.send("speaker", DataPlaneReady())

    def _take_status(self, name: str, status: SpeakerStatus | CheckerStatus | TrackerStatus) -> None:
        match status:
            case CheckerStatus():
                self._survey.take_checker(status)
            case TrackerStatus():
                self._survey.take_tracker(status)
            case SpeakerStatus():
                self._survey.take_speaker(status)
                for fact in self._inference.of_status(status, self._world.clock.now()):
                    self._take(fact, name)
                checksums = self._standing.old_checksums
                if self._standing.take_statuses(status.instances):
                    self._tell_peers()
                if not self._stopping.is_set():
                    self._silence.look()
                if self._standing.old_checksums != checksums:
                    self._world.bequest.prepare(self._standing.bequeathed)
                self._watch_vips()

    def on_exit(self, name: str, returncode: int) -> None:
        """A child is gone, and everything that it said has been taken."""
        self._processes.on_exit(name, returncode)

    def on_fact(self, fact: Fact) -> None:
        """MQTT or the network shows something."""
        self._take(fact, "")

    def _take(self, fact: Fact, source: str) -> None:
        self._chronicle.take(fact, source)
        if isinstance(fact, RoleChanged):
            self._standing.roles[fact.instance] = fact.after
            self._watch_vips()
        elif isinstance(fact, AlarmCleared) and (fact.key, source) == (DATA_PLANE_ALARM, "checker"):
            self._end_reserve()
        elif isinstance(fact, BackendChanged | QuorumChanged):
            self._notifier.take_fact(fact)
        elif isinstance(fact, PeerHeard | ForeignAdvertHeard) and self._standing.hear(fact.instance, fact.address):
            self._tell_peers()

    def _bereaved(self, name: str, how: str, successor: bool) -> None:  # noqa: FBT001 - a callback's
        """Do at once what a dead child left undone."""
        if name == "speaker":
            in_force = self._processes.in_force("speaker", ConfigureSpeaker)
            self._bereavement.speaker_died(how, in_force, self._survey.instances, successor=successor)
        self._chronicle.clear_alarms_of(name, f"the {name} {how}")

    # -- what the children are told

    def _configure(self, name: str) -> None:
        """Bring a fresh process up to date."""
        if name == "checker":
            self._processes.send(name, self._standing.checker_orders())
            self._tell_peers()
            return
        if name == "tracker":
            self._processes.send(name, self._standing.tracker_orders())
            return
        successions = self._bereavement.successions()
        self._processes.send(name, self._standing.speaker_orders(successions))
        if self._standing.results:
            self._processes.send(name, Tracked(results=tuple(self._standing.results.values())))
        if self._standing.yielded:
            self._processes.send(
                name, HandOver(instances=self._standing.yielded, reason="handed over before the speaker's restart")
            )

    def _tell_peers(self) -> None:
        for peers in self._standing.peers():
            self._processes.send("checker", peers)
        self._watch_vips()

    def _watch_vips(self) -> None:
        self._world.vip_watch.watch(self._standing.held_vips, self._standing.peers())

    # -- commands

    async def command(self, request: Request, step: Callable[[Step], None]) -> Answer:
        """Carry out a client's request; `step` hears of the steps of a longer one."""
        if isinstance(request, Show):
            return Answer(ok=True, status=await self.status())
        async with self._commands.turn(request, step):
            if self._stopping.is_set():
                return Answer(ok=False, exit_code=1, message="haxlb is stopping")
            try:
                return await self._commands.carry_out(request, step)
            except HaxlbError as problem:
                # A name that is mistyped is a fault of nobody but of who has typed it, and that one is told.
                ours = isinstance(problem, HostError | Bug)
                level, event = ("error", "command_failed") if ours else ("info", "command_refused")
                self._world.log.log(level, event, command=command_name(request), reason=str(problem))
                return refusal(problem)
            finally:
                if not self._standing.config.virtual_servers:
                    self._end_reserve()

    async def status(self) -> NodeStatus:
        """Everything, as fresh as the children answer."""
        names = [name for name in ("speaker", "checker", "tracker") if self._processes.running(name)]
        answered = await asyncio.gather(*(self._survey.ask(name) for name in names))
        problems = {name: "" if well else "did not answer" for name, well in zip(names, answered, strict=True)}
        return NodeStatus(
            node=self._standing.config.node,
            version=__version__,
            at=self._world.wall.wall(),
            config_file=self._world.config.path,
            config_loaded_at=self._commands.loaded_at,
            config_problem=self._commands.config_problem,
            config_refused=self._commands.config_refused,
            config_errors=self._commands.config_errors,
            starting=not self._commands.started,
            instances=self._survey.instances,
            lag=self._survey.lag,
            virtual_servers=self._standing.weights.marked(self._survey.virtual_servers, self._standing.config),
            data_plane=self._survey.data_plane,
            tracked=self._survey.tracked,
            alarms=self._chronicle.alarms(),
            mqtt=self._world.broker.state,
            fifo_lines_lost=self._world.outlets.fifos.lost,
            mail=self._world.outlets.mail.status,
            processes=self._processes.status(problems),
            history=self._chronicle.lines(),
        )

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._reap)

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (problem := task.exception()) is not None:
            self._world.log.log("error", "bug", reason=repr(problem))
