"""TrackScriptPort: runs tracked scripts as their users, and says how each run has ended."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from haxlb.linux.log import Log
from haxlb.linux.script_process import signal_group, start
from haxlb.linux.script_security import Identity, insecurity, unfit
from haxlb.linux.users import Users
from haxlb.model.errors import HostError
from haxlb.model.notification import ScriptSettings
from haxlb.model.tracking import TrackScript


@dataclass(slots=True)
class _Run:
    name: str
    pid: int
    pidfd: int
    signalled: bool = False


class TrackScripts:
    """Every run is a process group of its own, watched by pidfd."""

    def __init__(self, on_ended: Callable[[int, bool, str], None], log: Log) -> None:
        """`on_ended` hears the ticket, whether it ended with exit code 0, and how in words."""
        self._on_ended = on_ended
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._runners: dict[str, Identity | str] = {}
        """By script; text says why there is none."""
        self._security = False
        self._sound: set[str] = set()
        """Scripts whose last run went well."""
        self._runs: dict[int, _Run] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def configure(self, scripts: Iterable[TrackScript], settings: ScriptSettings) -> None:
        """Find out as whom each script runs."""
        self._security = settings.security
        self._sound.clear()
        former, self._runners = self._runners, {}
        users = Users(settings)
        for each in scripts:
            runner = self._runners[each.name] = _runner(each, users)
            if not settings.security and isinstance(runner, Identity) and former.get(each.name) != runner:
                why = insecurity(each.run.argv, runner)
                if why:
                    self._log("warning", "script_insecure", script=each.name, reason=why)

    def start(self, ticket: int, script: TrackScript) -> str:
        """Begin a run; why it cannot be run, empty when it runs."""
        runner = self._runners[script.name]
        if isinstance(runner, str):
            return runner
        # A script on a file system that hangs must not hang us: what has just run well is not looked at again.
        if self._security or script.name not in self._sound:
            problem = unfit(script.run.argv, runner, security=self._security)
            if problem:
                return problem
        try:
            pid = start(script.run.argv, runner)
        except HostError as problem:
            self._sound.discard(script.name)
            return problem.message
        run = self._runs[ticket] = _Run(script.name, pid, os.pidfd_open(pid))
        self._idle.clear()
        self._loop.add_reader(run.pidfd, self._ended, ticket)
        return ""

    def terminate(self, ticket: int) -> None:
        """SIGTERM to the process group of the run."""
        self._signal(ticket, signal.SIGTERM)

    def kill(self, ticket: int) -> None:
        """SIGKILL to the process group of the run."""
        self._signal(ticket, signal.SIGKILL)

    async def finish(self, timeout_s: float) -> None:
        """Wait for the runs, which have been told to end; kill those that are left after this time."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            for ticket in list(self._runs):
                self.kill(ticket)

    def _signal(self, ticket: int, number: signal.Signals) -> None:
        run = self._runs.get(ticket)
        if run is not None:
            run.signalled = True
            signal_group(run.pid, number)

    def _ended(self, ticket: int) -> None:
        run = self._runs.pop(ticket)
        self._loop.remove_reader(run.pidfd)
        os.close(run.pidfd)
        if run.signalled:
            signal_group(run.pid, signal.SIGKILL)  # what the leader left behind
        code = os.waitstatus_to_exitcode(os.waitpid(run.pid, 0)[1])
        if code == 0:
            self._sound.add(run.name)
        else:
            self._sound.discard(run.name)
        if not self._runs:
            self._idle.set()
        self._on_ended(ticket, code == 0, _words(code))


def _runner(script: TrackScript, users: Users) -> Identity | str:
    try:
        return users.of(script.run)
    except HostError as problem:
        return problem.message


def _words(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
