"""ScriptPort: the operator's scripts, one after the other per instance, without waiting for them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import deque
from dataclasses import dataclass, field

from haxlb.linux.log import Log
from haxlb.model.commands import Command

TIME_LIMIT_S = 30.0
"""After this the script's process group gets SIGTERM, and SIGKILL after GRACE_S."""
GRACE_S = 2.0
QUEUE_LIMIT = 64
"""Commands waiting per instance: a flapping instance with a slow script loses its oldest news, not memory."""
# What keepalived leaves out of a script's environment, too: they would change how it is loaded or read.
_WITHHELD = ("LD_PRELOAD", "LD_LIBRARY_PATH", "IFS")


@dataclass(slots=True)
class _Queue:
    """The commands of one instance."""

    waiting: deque[Command] = field(default_factory=deque)
    running: _Run | None = None


@dataclass(slots=True)
class _Run:
    """One running script."""

    process: subprocess.Popen[bytes]
    pidfd: int
    limit: asyncio.TimerHandle
    ending: bool = False


class ScriptRunner:
    """Runs scripts on the running loop, watched by pidfd: asyncio's own watcher starts a thread for each.

    A script is executed directly, without a shell, leads a process group of its own, and reads and writes /dev/null.
    It starts in the normal scheduling class, since the speaker's is reset on fork.
    """

    def __init__(self, log: Log, *, time_limit_s: float = TIME_LIMIT_S) -> None:
        self._log = log
        self._time_limit_s = time_limit_s
        self._loop = asyncio.get_running_loop()
        self._queues: dict[str, _Queue] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def run(self, queue: str, command: Command) -> None:
        """Start the command when the earlier ones of this instance have ended."""
        if not command:
            return
        entry = self._queues.setdefault(queue, _Queue())
        if len(entry.waiting) >= QUEUE_LIMIT:
            lost = entry.waiting.popleft()
            self._log("error", "notify_dropped", instance=queue, command=str(lost), waiting=QUEUE_LIMIT)
        entry.waiting.append(command)
        self._idle.clear()
        self._next(queue, entry)

    async def finish(self, timeout_s: float) -> None:
        """Let what is queued run to its end, at most this long; then end it, at the latest after GRACE_S."""
        if await self._becomes_idle(timeout_s):
            return
        for instance, queue in self._queues.items():
            for command in queue.waiting:
                self._log("warning", "notify_dropped", instance=instance, command=str(command))
            queue.waiting.clear()
            if queue.running:
                self._end(instance, queue.running)
        await self._becomes_idle(2 * GRACE_S)

    async def _becomes_idle(self, timeout_s: float) -> bool:
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def _next(self, instance: str, queue: _Queue) -> None:
        while queue.running is None and queue.waiting:
            command = queue.waiting.popleft()
            try:
                process = subprocess.Popen(  # noqa: S603 - the operator's own command, as an argument vector
                    command.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                    env={name: value for name, value in os.environ.items() if name not in _WITHHELD},
                )
            except OSError as problem:
                self._log(
                    "error",
                    "notify_failed",
                    instance=instance,
                    command=str(command),
                    reason=problem.strerror,
                    remedy="check the path and that it may be executed",
                )
                continue
            pidfd = os.pidfd_open(process.pid)
            limit = self._loop.call_later(self._time_limit_s, self._overdue, instance, process)
            queue.running = _Run(process, pidfd, limit)
            self._loop.add_reader(pidfd, self._ended, instance, queue)
        if all(each.running is None for each in self._queues.values()):
            self._idle.set()

    def _ended(self, instance: str, queue: _Queue) -> None:
        run = queue.running
        assert run is not None
        self._loop.remove_reader(run.pidfd)
        os.close(run.pidfd)
        run.limit.cancel()
        queue.running = None
        if run.ending:
            _signal_group(run.process.pid, signal.SIGKILL)  # what the leader left behind
        status = run.process.wait()
        if status:
            command = " ".join(str(word) for word in run.process.args)  # type: ignore[union-attr]
            self._log("warning", "notify_failed", instance=instance, command=command, status=status)
        self._next(instance, queue)

    def _overdue(self, instance: str, process: subprocess.Popen[bytes]) -> None:
        queue = self._queues[instance]
        if queue.running and queue.running.process is process:
            self._log("error", "notify_overdue", instance=instance, limit_s=self._time_limit_s)
            self._end(instance, queue.running)

    def _end(self, instance: str, run: _Run) -> None:
        """SIGTERM to the group, SIGKILL when that did not help."""
        run.ending = True
        _signal_group(run.process.pid, signal.SIGTERM)
        run.limit.cancel()
        run.limit = self._loop.call_later(GRACE_S, _signal_group, run.process.pid, signal.SIGKILL)
        self._log("info", "notify_ended", instance=instance, pid=run.process.pid)


def _signal_group(pid: int, number: signal.Signals) -> None:
    # The leader is not reaped before `_ended`, so the group's number cannot have been given to others.
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return
