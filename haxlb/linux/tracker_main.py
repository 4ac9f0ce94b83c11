"""The tracker process: `python -m haxlb.linux.tracker_main --fd N`, where something is tracked.

Started by the supervisor. Gives the loop-agnostic `Tracker` its real adapters and drives it from asyncio. It is a
process of its own because what it does may take long: starting scripts, reading files, counting processes (ADR 9). It
runs in the normal scheduling class, with BFD sessions in the real-time class below the speaker, and ends on `Stop`, on
SIGTERM and when the pipe closes; scripts that run then are ended with it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import replace

from haxlb.daemon.messages import AskStatus, ConfigureTracker, Happened, Message, Ready, Tracked, TrackerStatus
from haxlb.daemon.tracker import Tracker
from haxlb.linux import child
from haxlb.linux.bfd_runner import BfdRunner
from haxlb.linux.child import FLUSH_TIMEOUT_S
from haxlb.linux.pipe import Pipe
from haxlb.linux.realtime import BFD_PRIORITY, enter_realtime_class, freeze_collector, leave_realtime_class, lock_memory
from haxlb.linux.timerfd import MonotonicClock, TimerfdWake
from haxlb.linux.track_files import TrackFiles
from haxlb.linux.track_processes import TrackProcesses
from haxlb.linux.track_scripts import TrackScripts
from haxlb.model.facts import Fact
from haxlb.model.status import TrackedStatus
from haxlb.model.tracking import BfdSession, TrackKind, TrackResult

STACK = 256 * 1024
"""Of a thread, in bytes: the usual 8 MiB would all be there where memory is locked."""
SCRIPTS_TIMEOUT_S = 0.5
"""How long scripts that run may take to heed SIGTERM when we leave; nobody waits for what they say."""


class TrackerProcess:
    """The wiring."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        threading.stack_size(STACK)
        self._wake = TimerfdWake(self._on_wake)
        self._scripts = TrackScripts(self._on_script_ended, self._on_script_refused, pipe.log)
        self._files = TrackFiles(self._on_file, pipe.log)
        self._processes = TrackProcesses(self._on_count, pipe.log)
        self._bfd = BfdRunner(MonotonicClock(), self._on_bfd, pipe.log)
        self._frozen = False
        self._realtime = False
        self._problem = ""
        self._tracker = Tracker(
            clock=MonotonicClock(),
            wake=self._wake,
            scripts=self._scripts,
            files=self._files,
            processes=self._processes,
            reports=self,
        )

    # -- orders of the supervisor

    def handle(self, message: Message) -> None:
        """Carry out one message."""
        match message:
            case ConfigureTracker():
                self._go_to(message.config_directory)
                self._schedule(realtime=bool(message.bfd_sessions))
                self._tracker.configure(message)
                problems = (self._problem, self._hold(message.bfd_sessions))
                self._pipe.send(Ready(of=ConfigureTracker.__name__, problem="; ".join(filter(None, problems))))
                if not self._frozen:
                    freeze_collector()
                    self._frozen = True
            case AskStatus(ticket=ticket):
                self._pipe.send(TrackerStatus(ticket=ticket, tracked=self._status()))
            case _:
                self._pipe.log("warning", "message_not_for_the_tracker", message=type(message).__name__)

    async def leave(self, reason: str) -> None:
        """End the scripts that run, deliver what is still to be said."""
        del reason
        self._bfd.close()
        self._tracker.stop()
        self._files.close()
        self._processes.close()
        await self._scripts.finish(SCRIPTS_TIMEOUT_S)
        self._wake.close()
        await self._pipe.drained(FLUSH_TIMEOUT_S)
        self._pipe.close()

    def _go_to(self, directory: str) -> None:
        """Scripts run where the configuration is, as keepalived's do; posix_spawn starts them where we are."""
        try:
            os.chdir(directory or ".")
        except OSError as problem:
            self._pipe.log("warning", "directory_not_entered", directory=directory, reason=problem.strerror)

    # -- the tracker's reports

    def tracked(self, results: tuple[TrackResult, ...]) -> None:
        """Results go to the supervisor, which knows who wants them."""
        self._pipe.send(Tracked(results=results))

    def report(self, fact: Fact) -> None:
        """So do facts."""
        self._pipe.send(Happened(fact=fact))

    def log(self, level: str, event: str, **fields: object) -> None:
        """And lines for the log."""
        self._pipe.log(level, event, **fields)

    def ready(self, of: str, problem: str) -> None:
        """And the answer to Configure, once the sessions are held, too."""
        del of
        self._problem = problem

    # -- BFD

    def _schedule(self, *, realtime: bool) -> None:
        if realtime and not self._realtime:
            enter_realtime_class(self._pipe.log, BFD_PRIORITY)
            lock_memory(self._pipe.log)
        elif self._realtime and not realtime:
            leave_realtime_class()
        self._realtime = realtime

    def _hold(self, sessions: tuple[BfdSession, ...]) -> str:
        """Hold exactly these sessions; what is wrong with any, empty when nothing is."""
        return "; ".join(str(each) for each in self._bfd.configure(sessions).values())

    def _on_bfd(self, results: tuple[TrackResult, ...]) -> None:
        details = {each.name: each.detail for each in self._bfd.status(0)}
        for each in results:
            # Not known yet: what was known before (a reload, a tracker before this one) stays in force.
            if each.value is not None:
                self._tracker.on_result(TrackKind.BFD, each.name, each.value, details[each.name])

    def _status(self) -> tuple[TrackedStatus, ...]:
        now = time.time_ns() // 1000
        details = {each.name: each.detail for each in self._bfd.status(now)}
        return tuple(
            replace(each, detail=details[each.name])
            if each.kind == TrackKind.BFD.value and each.name in details
            else each
            for each in self._tracker.status(now)
        )

    # -- what the world says

    def _on_wake(self) -> None:
        self._tracker.on_wake()

    def _on_script_ended(self, ticket: int, well: bool, how: str) -> None:  # noqa: FBT001 - a callback
        self._tracker.on_script_ended(ticket, well=well, how=how)

    def _on_script_refused(self, ticket: int, problem: str) -> None:
        self._tracker.on_script_refused(ticket, problem)

    def _on_file(self, name: str, value: int, detail: str) -> None:
        self._tracker.on_file(name, value, detail)

    def _on_count(self, name: str, count: int) -> None:
        self._tracker.on_count(name, count)


if __name__ == "__main__":
    about = (__doc__ or "").partition("\n")[0]
    sys.exit(child.main("tracker", "haxlb.linux.tracker_main", ConfigureTracker, TrackerProcess, about))
