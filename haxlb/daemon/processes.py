"""The children of the supervisor: started, given orders, started again when they die, stopped in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from haxlb.daemon.chronicle import Chronicle
from haxlb.daemon.messages import Message, Ready, Stop
from haxlb.daemon.respawn import STEADY_US, Respawn
from haxlb.daemon.spare import NAME as SPARE
from haxlb.daemon.spare import Spare
from haxlb.daemon.supervisor_ports import World
from haxlb.model.errors import HostError
from haxlb.model.settings import SpeakerSettings
from haxlb.model.status import ProcessStatus
from haxlb.model.units import SECOND_US

T = TypeVar("T")
STOP_PATIENCE_S = 6.0
"""What has not left by then is killed: a second more than scripts that hang may take (speaker_main, notify)."""
KILL_PATIENCE_S = 2.0


@dataclass(slots=True)
class _Process:
    respawn: Respawn = field(default_factory=Respawn)
    pid: int | None = None
    since_us: int = 0
    stopping: bool = False
    promoted: bool = False
    """It was a spare before."""
    idle: bool = False
    """It has not been given its first orders yet."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    timer: asyncio.TimerHandle | None = None
    waiting: dict[str, list[asyncio.Future[str]]] = field(default_factory=dict)
    """Orders that wait for their Ready, by class name."""
    orders: dict[str, Message] = field(default_factory=dict)
    """The last of each class that it was told."""
    unanswered: dict[str, int] = field(default_factory=dict)
    """How many of each class it has not answered by a Ready yet."""

    def note(self, message: Message) -> None:
        """It is told this."""
        kind = type(message).__name__
        self.orders[kind] = message
        self.unanswered[kind] = self.unanswered.get(kind, 0) + 1

    def answer_all(self, problem: str) -> None:
        """Nobody is to wait for its Ready any longer."""
        for waiting in self.waiting.values():
            for answer in waiting:
                if not answer.done():
                    answer.set_result(problem)
        self.waiting.clear()


class Processes:
    """All children. `on_start` configures a fresh process; `on_death` does what a dead one left undone.

    `on_death` is told the name, how it died, and whether a spare takes its place at once.
    """

    def __init__(
        self,
        world: World,
        chronicle: Chronicle,
        *,
        on_start: Callable[[str], None],
        on_death: Callable[[str, str, bool], None],
        settings: Callable[[], SpeakerSettings],
    ) -> None:
        """`settings` are the speaker's that are in force."""
        self._world = world
        self._chronicle = chronicle
        self._on_start = on_start
        self._on_death = on_death
        self._processes: dict[str, _Process] = {}
        self._ending = False
        self.spare = Spare(world, chronicle, settings)

    def prepare(self, name: str) -> None:
        """Start a process that waits for `start`: its imports need not be waited for then. Raises HostError."""
        self._processes[name] = _Process(pid=self._world.children.start(name), idle=True)

    def start(self, name: str) -> None:
        """Start a process for the first time, or give one that was prepared its orders. Raises HostError."""
        if not (self.known(name) and self._processes[name].idle):
            self._processes[name] = _Process()
        self._launch(name)

    def known(self, name: str) -> bool:
        """Whether the process was started at all; it may be waiting for its restart."""
        return name in self._processes

    def running(self, name: str) -> bool:
        """Whether there is such a process now."""
        return name in self._processes and self._processes[name].pid is not None

    def send(self, name: str, message: Message) -> None:
        """Send a message; it is lost when the process is not running: `on_start` brings it up to date."""
        if self.running(name):
            self._processes[name].note(message)
            self._world.children.send(name, message)

    async def order(self, name: str, message: Message, patience_s: float) -> str:
        """Send an order and wait until it is in force; empty when it is, else why not."""
        if not self.running(name):
            return f"the {name} is not running"
        self.send(name, message)
        return await self.ready(name, type(message).__name__, patience_s)

    async def ready(self, name: str, of: str, patience_s: float) -> str:
        """Wait until the last order of this class is in force; empty when it is, else why not."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waiting = self._processes[name].waiting.setdefault(of, [])
        waiting.append(answer)
        try:
            return await asyncio.wait_for(answer, patience_s)
        except TimeoutError:
            return unconfirmed(name, patience_s)
        finally:
            if answer in waiting:
                waiting.remove(answer)

    def in_force(self, name: str, of: type[T]) -> T | None:
        """The last order of this class that a process was given; None while it has one that it has not answered."""
        process = self._processes.get(name)
        if process is None or process.unanswered.get(of.__name__):
            return None
        order = process.orders.get(of.__name__)
        return order if isinstance(order, of) else None

    def answered(self, name: str, of: str) -> bool:
        """Whether the process has answered every order of this class."""
        process = self._processes.get(name)
        return process is not None and not process.unanswered.get(of)

    def take_ready(self, name: str, ready: Ready) -> None:
        """The process says that an order is in force, or why not."""
        if name == SPARE:
            self.spare.take_ready(ready)
            return
        unanswered = self._processes[name].unanswered
        unanswered[ready.of] = max(0, unanswered.get(ready.of, 0) - 1)
        if ready.problem:
            said = f"the {name} could not do all of {ready.of}: {ready.problem}"
            self._chronicle.note("error", "order_failed", said, process=name, order=ready.of, reason=ready.problem)
        for answer in self._processes[name].waiting.pop(ready.of, []):
            if not answer.done():
                answer.set_result(ready.problem)

    def on_exit(self, name: str, returncode: int) -> None:
        """The process is gone; negative codes are signals."""
        if name == SPARE:
            self.spare.on_exit(returncode)
            return
        process = self._processes[name]
        how = f"was killed by signal {-returncode}" if returncode < 0 else f"exited with code {returncode}"
        if self._died_idle(name, how):
            return
        orderly = (process.stopping or self._ending) and returncode == 0
        process.pid = None
        again = not orderly and not process.stopping and not self._ending
        delay_us = process.respawn.delay_us(self._world.clock.now() - process.since_us) if again else 0
        if not orderly:
            self._on_death(name, how, again and not delay_us and name == "speaker" and self.spare.ready)
        process.orders.clear()
        process.unanswered.clear()
        if again and not delay_us:
            self._relaunch(name)  # first of all: every millisecond of a speaker counts
        process.answer_all(f"the {name} has died: {how}")
        process.gone.set()
        if orderly:
            self._world.log.log("info", "process_stopped", process=name)
        elif again:
            self._note_death(name, how, delay_us)
            if delay_us:
                self._wait(name, how, delay_us)

    def _died_idle(self, name: str, how: str) -> bool:
        """Whether it had no orders yet: nothing is left undone, and `start` starts another one."""
        process = self._processes[name]
        if not process.idle or process.stopping or self._ending:
            return False
        process.idle, process.pid = False, None
        self._world.log.log("warning", "process_died", process=name, how=how, detail="it had no orders yet")
        return True

    def end(self) -> None:
        """All are about to be stopped: one that leaves by itself now (SIGTERM reaches a whole group) stays away."""
        self._ending = True
        self.spare.end()

    async def stop(self, name: str, reason: str) -> None:
        """Tell the process to leave; kill it when it has not done so in time."""
        process = self._processes.get(name)
        if process is None:
            return
        process.stopping = True
        self._cancel(process)
        if process.pid is None:
            return
        process.gone.clear()
        self._world.children.send(name, Stop(reason=reason))
        if await _passes(process.gone, STOP_PATIENCE_S):
            return
        self._world.log.log("error", "process_killed", process=name, reason=f"did not leave within {STOP_PATIENCE_S} s")
        self._world.children.kill(name)
        await _passes(process.gone, KILL_PATIENCE_S)

    def status(self, problems: dict[str, str]) -> tuple[ProcessStatus, ...]:
        """All processes in the order of their first start; `problems` by name."""
        return (
            *(
                ProcessStatus(
                    name=name,
                    pid=process.pid or 0,
                    restarts=process.respawn.restarts,
                    since_at=self._chronicle.wall_of(process.since_us),
                    problem=problems.get(name, "") if process.pid else "waiting to be started again",
                )
                for name, process in self._processes.items()
            ),
            *self.spare.status(),
        )

    def _launch(self, name: str) -> None:
        process = self._processes[name]
        process.since_us = self._world.clock.now()
        process.gone.clear()
        self._cancel(process)
        process.promoted = name == "speaker" and self.spare.ready
        if process.promoted:
            process.pid = self.spare.promote()
        elif not process.idle:
            process.pid = self._world.children.start(name)
        process.idle = False
        self._on_start(name)
        self._world.log.log("info", "process_started", process=name, pid=process.pid)
        process.timer = asyncio.get_running_loop().call_later(STEADY_US / SECOND_US, self._steady, name)
        if name == "speaker":
            self.spare.provide()

    def _note_death(self, name: str, how: str, delay_us: int) -> None:
        replaced = self._processes[name].promoted and not delay_us
        when = f"in {delay_us // SECOND_US} s" if delay_us else "now"
        self._chronicle.note(
            "error",
            "process_died",
            f"the {name} {how}; {'its spare takes its place' if replaced else f'it is started again {when}'}",
            process=name,
            how=how,
            restart_in_s=delay_us / SECOND_US,
        )
        if replaced:
            # It may have gone unnoticed: whoever looks at alarms shall see that there was something.
            self._chronicle.raise_alarm(f"process/{name}", f"the {name} {how}: its spare has taken its place", (how,))

    def _wait(self, name: str, how: str, delay_us: int) -> None:
        process = self._processes[name]
        self._chronicle.raise_alarm(
            f"process/{name}",
            f"the {name} keeps dying",
            (how,),
            severity="critical" if name == "speaker" else "warning",
        )
        self._cancel(process)
        process.timer = asyncio.get_running_loop().call_later(delay_us / SECOND_US, self._relaunch, name)

    def _relaunch(self, name: str) -> None:
        process = self._processes[name]
        try:
            self._launch(name)
        except HostError as problem:
            delay_us = process.respawn.delay_us(self._world.clock.now() - process.since_us)
            how = f"could not be started: {problem}"
            self._note_death(name, how, delay_us)
            self._wait(name, how, delay_us)

    def _steady(self, name: str) -> None:
        self._processes[name].timer = None
        self._chronicle.clear_alarm(f"process/{name}", f"the {name} has been running for {STEADY_US // SECOND_US} s")

    def _cancel(self, process: _Process) -> None:
        if process.timer is not None:
            process.timer.cancel()
            process.timer = None


def unconfirmed(name: str, patience_s: float) -> str:
    """What is said of an order that a process has been given and has not answered: it may yet carry it out."""
    return f"the {name} has not confirmed it within {patience_s:g} s"


async def _passes(event: asyncio.Event, patience_s: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), patience_s)
    except TimeoutError:
        return False
    return True
