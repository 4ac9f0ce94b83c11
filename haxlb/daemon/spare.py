"""The spare speaker: a second one, imported, wired and scheduled like the first, that waits without a configuration.

A new Python process needs half a second before it can send an advert; a spare needs a few milliseconds. It is started
some time after the speaker, so that a director that starts, or has just lost its speaker, spends its CPU on the one
that counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from haxlb.daemon.chronicle import Chronicle
from haxlb.daemon.messages import Ready, StandBy
from haxlb.daemon.respawn import Respawn
from haxlb.daemon.supervisor_ports import World
from haxlb.model.errors import HostError
from haxlb.model.settings import SpeakerSettings
from haxlb.model.status import ProcessStatus
from haxlb.model.units import SECOND_US

NAME = "spare"
DELAY_S = 2.0
"""From the start of a speaker to that of its spare."""


class Spare:
    """The process that waits. It stands by for the speaker, and becomes it by `promote`."""

    def __init__(self, world: World, chronicle: Chronicle, settings: Callable[[], SpeakerSettings]) -> None:
        """`settings` are those in force."""
        self._world = world
        self._chronicle = chronicle
        self._settings = settings
        self._respawn = Respawn()
        self._pid: int | None = None
        self._since_us = 0
        self._told: SpeakerSettings | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._ended = False
        self.ready = False
        """It stands by."""

    def provide(self) -> None:
        """A speaker has been started, or other settings are in force: have one soon, if one is wanted."""
        if self._ended:
            return
        settings = self._settings()
        if not settings.spare:
            self._cancel()
            if self._pid is not None:
                self._world.children.kill(NAME)
        elif self._pid is None:
            self._start_in(DELAY_S)
        elif settings != self._told:
            self._tell(settings)

    def promote(self) -> int:
        """It is the speaker from now on; its pid. Only where `ready`."""
        pid = self._pid
        if pid is None:
            raise RuntimeError("no spare stands by")
        self._pid, self.ready, self._told = None, False, None
        self._world.children.rename(NAME, "speaker")
        self._world.log.log("info", "spare_promoted", pid=pid)
        return pid

    def take_ready(self, ready: Ready) -> None:
        """It has said that it stands by, or why it cannot; then it ends."""
        self.ready = self._pid is not None and ready.of == StandBy.__name__ and not ready.problem

    def on_exit(self, returncode: int) -> None:
        """It is gone; it has held nothing."""
        self._pid, self.ready, self._told = None, False, None
        if self._ended or not self._settings().spare:
            return
        how = f"was killed by signal {-returncode}" if returncode < 0 else f"exited with code {returncode}"
        delay_us = self._respawn.delay_us(self._world.clock.now() - self._since_us)
        self._chronicle.note("warning", "spare_died", f"the spare speaker {how}", how=how)
        self._start_in(DELAY_S + delay_us / SECOND_US)

    def end(self) -> None:
        """None is started any more."""
        self._ended = True
        self._cancel()

    def dismiss(self) -> None:
        """None is wanted any more. It holds nothing that it would have to put in order.

        Its end takes milliseconds of a CPU in the real-time class, for its locked memory: not while the speaker leaves.
        """
        self.end()
        if self._pid is not None:
            self._world.children.kill(NAME)

    def status(self) -> tuple[ProcessStatus, ...]:
        """As a process among the others; empty when there is none."""
        if self._pid is None:
            return ()
        return (
            ProcessStatus(
                name=NAME,
                pid=self._pid,
                restarts=self._respawn.restarts,
                since_at=self._chronicle.wall_of(self._since_us),
                problem="" if self.ready else "does not stand by yet",
            ),
        )

    def _start_in(self, delay_s: float) -> None:
        self._cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._start)

    def _start(self) -> None:
        self._timer = None
        self._since_us = self._world.clock.now()
        try:
            self._pid = self._world.children.start(NAME)
        except HostError as problem:
            self._chronicle.note("warning", "no_spare", f"no spare speaker: {problem}", reason=str(problem))
            self._start_in(self._respawn.delay_us(0) / SECOND_US + DELAY_S)
            return
        self._world.log.log("info", "process_started", process=NAME, pid=self._pid)
        self._tell(self._settings())

    def _tell(self, settings: SpeakerSettings) -> None:
        self._told = settings
        self._world.children.send(NAME, StandBy(settings=settings))

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
