"""ScriptPort: the operator's scripts, one after the other per instance, without waiting for them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import deque
from dataclasses import dataclass, field

from haxlb.linux.launch import Launcher
from haxlb.linux.log import Log
from haxlb.linux.script_process import signal_group
from haxlb.model.commands import Command
from haxlb.model.errors import HostError
from haxlb.model.notification import ScriptSettings

TIME_LIMIT_S = 30.0
"""After this the script's process group gets SIGTERM, and SIGKILL after GRACE_S."""
GRACE_S = 2.0
QUEUE_LIMIT = 64
"""Commands waiting per instance: a flapping instance with a slow script loses its oldest news, not memory."""


@dataclass(slots=True)
class _Job:
    """A command that waits for its turn."""

    command: Command
    limit_s: float
    done: asyncio.Future[int | None] | None = None
    """Gets the exit status; None = it could not be started, or was dropped."""

    def settle(self, status: int | None) -> None:
        if self.done is not None and not self.done.done():
            self.done.set_result(status)


@dataclass(slots=True)
class _Queue:
    """The commands of one instance."""

    waiting: deque[_Job] = field(default_factory=deque)
    running: _Run | None = None
    dropped: int = 0
    """Since the queue was full; the log hears once, and of the number when it is empty again."""


@dataclass(slots=True)
class _Run:
    """One running script."""

    job: _Job
    process: subprocess.Popen[bytes]
    pidfd: int
    limit: asyncio.TimerHandle
    ending: bool = False


class ScriptRunner:
    """Runs scripts on the running loop, watched by pidfd: asyncio's own watcher starts a thread for each."""

    def __init__(self, log: Log, *, time_limit_s: float = TIME_LIMIT_S) -> None:
        self._log = log
        self._time_limit_s = time_limit_s
        self._launcher = Launcher()
        self._loop = asyncio.get_running_loop()
        self._queues: dict[str, _Queue] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def configure(self, settings: ScriptSettings, directory: str) -> None:
        """Run the following ones as these settings say, in this directory."""
        self._launcher = Launcher(settings, directory)

    def run(self, queue: str, command: Command) -> None:
        """Start the command when the earlier ones of this queue have ended."""
        if command:
            self._add(queue, _Job(command, self._time_limit_s))

    async def complete(self, queue: str, command: Command, limit_s: float) -> int | None:
        """Run the command and wait for its end; its exit status, negative for a signal, None when it did not start."""
        job = _Job(command, limit_s, self._loop.create_future())
        self._add(queue, job)
        assert job.done is not None
        try:
            return await job.done
        except asyncio.CancelledError:
            self._abandon(queue, job)
            raise

    async def finish(self, timeout_s: float) -> None:
        """Let what is queued run to its end, at most this long; then end it, at the latest after GRACE_S."""
        if await self._becomes_idle(timeout_s):
            return
        for name, queue in self._queues.items():
            for job in queue.waiting:
                self._log("warning", "notify_dropped", queue=name, command=str(job.command))
                job.settle(None)
            queue.waiting.clear()
            if queue.running:
                self._end(name, queue.running)
        await self._becomes_idle(2 * GRACE_S)

    async def _becomes_idle(self, timeout_s: float) -> bool:
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def _add(self, name: str, job: _Job) -> None:
        queue = self._queues.setdefault(name, _Queue())
        if len(queue.waiting) >= QUEUE_LIMIT:
            lost = queue.waiting.popleft()
            if not queue.dropped:
                self._log("error", "notify_dropped", queue=name, command=str(lost.command), waiting=QUEUE_LIMIT)
            queue.dropped += 1
            lost.settle(None)
        queue.waiting.append(job)
        self._idle.clear()
        self._next(name, queue)

    def _abandon(self, name: str, job: _Job) -> None:
        queue = self._queues.get(name)
        if queue is None:
            return
        if job in queue.waiting:
            queue.waiting.remove(job)
        elif queue.running and queue.running.job is job:
            self._end(name, queue.running)

    def _next(self, name: str, queue: _Queue) -> None:
        while queue.running is None and queue.waiting:
            job = queue.waiting.popleft()
            try:
                process = self._launcher.launch(job.command)
            except HostError as problem:
                self._log(
                    "error",
                    "notify_failed",
                    queue=name,
                    command=str(job.command),
                    reason=problem.message,
                    remedy=problem.remedy,
                )
                job.settle(None)
                continue
            pidfd = os.pidfd_open(process.pid)
            limit = self._loop.call_later(job.limit_s, self._overdue, name, process)
            queue.running = _Run(job, process, pidfd, limit)
            self._loop.add_reader(pidfd, self._ended, name, queue)
        if queue.running is None:
            if queue.dropped:
                self._log("warning", "notify_caught_up", queue=name, dropped=queue.dropped)
            del self._queues[name]
        if not self._queues:
            self._idle.set()

    def _ended(self, name: str, queue: _Queue) -> None:
        run = queue.running
        assert run is not None
        self._loop.remove_reader(run.pidfd)
        os.close(run.pidfd)
        run.limit.cancel()
        queue.running = None
        if run.ending:
            signal_group(run.process.pid, signal.SIGKILL)  # what the leader left behind
        status = run.process.wait()
        if status:
            self._log("warning", "notify_failed", queue=name, command=str(run.job.command), status=status)
        run.job.settle(status)
        self._next(name, queue)

    def _overdue(self, name: str, process: subprocess.Popen[bytes]) -> None:
        queue = self._queues.get(name)
        if queue and queue.running and queue.running.process is process:
            limit_s = queue.running.job.limit_s
            self._log("error", "notify_overdue", queue=name, command=str(queue.running.job.command), limit_s=limit_s)
            self._end(name, queue.running)

    def _end(self, name: str, run: _Run) -> None:
        """SIGTERM to the group, SIGKILL when that did not help."""
        run.ending = True
        signal_group(run.process.pid, signal.SIGTERM)
        run.limit.cancel()
        run.limit = self._loop.call_later(GRACE_S, signal_group, run.process.pid, signal.SIGKILL)
        self._log("info", "notify_ended", queue=name, pid=run.process.pid)
