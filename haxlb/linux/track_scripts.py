"""TrackScriptPort: runs tracked scripts as their users, and says how each run has ended."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from haxlb.linux.log import Log
from haxlb.linux.realtime import follow
from haxlb.linux.script_process import signal_group, starter
from haxlb.linux.script_security import Identity, insecurity, unfit
from haxlb.linux.users import Users, refusal
from haxlb.model.errors import HostError
from haxlb.model.notification import ScriptSettings
from haxlb.model.tracking import TrackScript


@dataclass(slots=True)
class _Run:
    name: str
    pid: int = 0
    """0 = it is being started."""
    pidfd: int = -1
    signalled: signal.Signals | None = None
    """The last signal that it was to get."""


class TrackScripts:
    """Every run is a process group of its own, watched by pidfd.

    One thread looks at and starts them, since on a busy host a start takes longer than a BFD session may be silent, and
    a look at a file system that hangs does not return. It lives as long as this process: the kernel ends scripts with
    the thread that has started them (PR_SET_PDEATHSIG).
    """

    def __init__(
        self, on_ended: Callable[[int, bool, str], None], on_refused: Callable[[int, str], None], log: Log
    ) -> None:
        """`on_ended` hears the ticket, whether it ended with exit code 0, and how in words.

        `on_refused` hears the ticket of a run that could not be begun, and why.
        """
        self._on_ended = on_ended
        self._on_refused = on_refused
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._runners: dict[str, Identity | str] = {}
        """By script; text says why there is none."""
        self._security = False
        self._sound: set[str] = set()
        """Scripts whose last run went well."""
        self._runs: dict[int, _Run] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scripts")
        self._owner = threading.get_native_id()
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
        """As TrackScriptPort."""
        runner = self._runners[script.name]
        if isinstance(runner, str):
            return runner
        # A script on a file system that hangs must not hold up others: what has just run well is not looked at again.
        security, sound = self._security, script.name in self._sound
        self._runs[ticket] = _Run(script.name)
        self._idle.clear()

        def work() -> int:
            follow(self._owner)
            problem = "" if sound and not security else unfit(script.run.argv, runner, security=security)
            if problem:
                raise HostError(problem, remedy="see its path, its mode and the owners of its directories")
            return starter(script.run.argv, runner)()

        def done(pid: Future[int]) -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._started, ticket, pid)

        self._thread.submit(work).add_done_callback(done)
        return ""

    def begun(self, ticket: int) -> bool:
        """As TrackScriptPort."""
        return self._runs[ticket].pid != 0

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
            run.signalled = number
            if run.pid:
                signal_group(run.pid, number)

    def _started(self, ticket: int, pid: Future[int]) -> None:
        run = self._runs[ticket]
        try:
            run.pid = pid.result()
        except HostError as problem:
            self._forget(ticket, well=False)
            self._on_refused(ticket, problem.message)
            return
        run.pidfd = os.pidfd_open(run.pid)
        self._loop.add_reader(run.pidfd, self._ended, ticket)
        if run.signalled is not None:
            signal_group(run.pid, run.signalled)

    def _ended(self, ticket: int) -> None:
        run = self._runs[ticket]
        self._loop.remove_reader(run.pidfd)
        os.close(run.pidfd)
        if run.signalled is not None:
            signal_group(run.pid, signal.SIGKILL)  # what the leader left behind
        code = os.waitstatus_to_exitcode(os.waitpid(run.pid, 0)[1])
        self._forget(ticket, well=code == 0)
        self._on_ended(ticket, code == 0, _words(code))

    def _forget(self, ticket: int, *, well: bool) -> None:
        run = self._runs.pop(ticket)
        if well:
            self._sound.add(run.name)
        else:
            self._sound.discard(run.name)
        if not self._runs:
            self._idle.set()


def _runner(script: TrackScript, users: Users) -> Identity | str:
    try:
        runner = users.of(script.run)
    except HostError as problem:
        return problem.message
    return refusal(runner) or runner


def _words(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
