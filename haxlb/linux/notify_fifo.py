"""FifoPort: the named pipes that an operator's programs read, and the programs that haxlb starts to read them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import signal
import stat
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from haxlb.daemon.respawn import STEADY_US, Respawn
from haxlb.linux.launch import Launcher
from haxlb.linux.log import Log
from haxlb.linux.script_process import signal_group
from haxlb.model.commands import Command
from haxlb.model.errors import HostError
from haxlb.model.notification import NotifyFifo, ScriptSettings
from haxlb.model.units import SECOND_US

MODE = 0o644
"""keepalived's."""
READER_PATIENCE_S = 1.0
"""A reader has seen the end of the file when we close ours; this long it may take to leave, then it is told to."""


class NotifyFifos:
    """All FIFOs of a configuration. Nothing here waits for a reader."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._fifos: dict[str, _Fifo] = {}
        self._leaving: set[asyncio.Task[None]] = set()

    def configure(self, fifos: Iterable[NotifyFifo], settings: ScriptSettings, directory: str) -> None:
        """Have exactly these; one that is as before is not touched, so that its reader sees no end of file.

        One that cannot be had is logged, and tried again with the next configuration.
        """
        launcher = Launcher(settings, directory)
        wanted = _by_path(fifos)
        for path in [path for path, fifo in self._fifos.items() if path not in wanted or not fifo.in_place]:
            self._leave(self._fifos.pop(path))
        for path, what in wanted.items():
            fifo = self._fifos.get(path)
            if fifo is not None:
                fifo.retune(what, launcher)
                continue
            fifo = _Fifo(what, launcher, self._log)
            try:
                fifo.open()
            except HostError as problem:
                self._log("error", "fifo_refused", path=path, reason=problem.message, remedy=problem.remedy)
                continue
            self._fifos[path] = fifo

    def write(self, line: str, *, lvs: bool = False) -> None:
        """Write a line to the FIFOs that get lines about services (`lvs`), else to those about VRRP."""
        for fifo in self._fifos.values():
            if fifo.what.lvs if lvs else fifo.what.vrrp:
                fifo.write(line.encode(errors="replace"))

    @property
    def lost(self) -> dict[str, int]:
        """Lines that found a full pipe since its FIFO was opened, by path."""
        return {path: fifo.lost for path, fifo in self._fifos.items() if fifo.lost}

    async def close(self) -> None:
        """Close all; readers may read to the end, then they are ended."""
        for fifo in self._fifos.values():
            self._leave(fifo)
        self._fifos.clear()
        await asyncio.gather(*self._leaving)

    def _leave(self, fifo: _Fifo) -> None:
        reader = fifo.close()
        if reader is not None:
            task = asyncio.get_running_loop().create_task(reader.leave(READER_PATIENCE_S))
            self._leaving.add(task)
            task.add_done_callback(self._leaving.discard)


class _Fifo:
    """One FIFO, open for reading and writing: so it may be written to, and keeps its lines, while nobody reads."""

    def __init__(self, what: NotifyFifo, launcher: Launcher, log: Log) -> None:
        self.what = what
        self.lost = 0
        self._log = log
        self._launcher = launcher
        self._fd = -1
        self._made = False
        self._full_since = 0
        """`lost` when the pipe filled up; the log hears once of each time."""
        self._full = False
        self._reader: _Reader | None = None

    def open(self) -> None:
        """Make the FIFO where there is none, and start its reader. Raises HostError."""
        owner = self._launcher.users.named(self.what.user, self.what.group)
        self._made = _make(self.what.path)
        self._fd = _open(self.what.path)
        try:
            os.fchmod(self._fd, MODE)
            os.fchown(self._fd, owner.uid, owner.gid)
        except OSError as problem:
            self.close()
            self._fd = -1
            raise HostError(
                f"cannot give it to its user: {problem.strerror}",
                remedy="run haxlb as root, with CAP_CHOWN and CAP_FOWNER in the unit's CapabilityBoundingSet=",
            ) from problem
        self._read(self._launcher)

    @property
    def in_place(self) -> bool:
        """Whether what is at the path is still this FIFO: who opens the path must read what we write."""
        try:
            return os.path.samestat(os.lstat(self.what.path), os.fstat(self._fd))
        except OSError:
            return False

    def retune(self, what: NotifyFifo, launcher: Launcher) -> None:
        """Take over other settings of the same path; the reader is started anew only where it is another one."""
        same_reader = (
            what.script == self.what.script
            and launcher.settings == self._launcher.settings
            and launcher.directory == self._launcher.directory
        )
        self.what, self._launcher = what, launcher
        with contextlib.suppress(HostError, OSError):
            owner = launcher.users.named(what.user, what.group)
            os.fchown(self._fd, owner.uid, owner.gid)
        if not same_reader:
            self._read(launcher)

    def write(self, line: bytes) -> None:
        """Write the whole line or lose it: up to PIPE_BUF a pipe takes all or nothing (pipe(7))."""
        if len(line) > select.PIPE_BUF:
            line = line[: select.PIPE_BUF - 1] + b"\n"
        try:
            os.write(self._fd, line)
        except BlockingIOError:
            self.lost += 1
            if not self._full:
                self._full, self._full_since = True, self.lost - 1
                self._log(
                    "error",
                    "fifo_full",
                    path=self.what.path,
                    remedy="start the program that reads it; lines are lost until it does",
                )
            return
        except OSError as problem:
            self.lost += 1
            self._log("error", "fifo_not_written", path=self.what.path, reason=problem.strerror)
            return
        if self._full:
            self._full = False
            self._log("info", "fifo_read_again", path=self.what.path, lost=self.lost - self._full_since)

    def close(self) -> _Reader | None:
        """Close our end and remove the FIFO where we made it; its reader, which has still to leave."""
        mine = self._made and self.in_place
        os.close(self._fd)
        if mine:
            with contextlib.suppress(OSError):
                Path(self.what.path).unlink()
        return self._reader

    def _read(self, launcher: Launcher) -> None:
        if self._reader is not None:
            self._reader.end()
            self._reader = None
        if self.what.script:
            command = replace(self.what.script, argv=(*self.what.script.argv, self.what.path))
            self._reader = _Reader(command, launcher, self._log, self.what.path)
            self._reader.start()


@dataclass(slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    pidfd: int
    since: float


class _Reader:
    """The program that reads a FIFO: started again when it ends, later and later while it ends soon."""

    def __init__(self, command: Command, launcher: Launcher, log: Log, path: str) -> None:
        self._command = command
        self._launcher = launcher
        self._log = log
        self._path = path
        self._loop = asyncio.get_running_loop()
        self._respawn = Respawn()
        self._timer: asyncio.TimerHandle | None = None
        self._running: _Running | None = None
        self._ending = False
        self._gone = asyncio.Event()
        self._gone.set()

    def start(self) -> None:
        """Start it; where that fails it is tried again."""
        self._timer = None
        try:
            process = self._launcher.launch(self._command)
        except HostError as problem:
            self._log(
                "error",
                "fifo_script_failed",
                path=self._path,
                command=str(self._command),
                reason=problem.message,
                remedy=problem.remedy,
            )
            self._again(0)
            return
        self._gone.clear()
        self._running = _Running(process, os.pidfd_open(process.pid), self._loop.time())
        self._loop.add_reader(self._running.pidfd, self._ended)

    def end(self) -> None:
        """End it, and what it has started; it is not started again."""
        self._ending = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._running is not None:
            pid = self._running.process.pid
            signal_group(pid, signal.SIGTERM)
            self._timer = self._loop.call_later(READER_PATIENCE_S, signal_group, pid, signal.SIGKILL)

    async def leave(self, patience_s: float) -> None:
        """Let it read what is left, then end it."""
        self._ending = True
        if self._running is not None and not await self._goes(patience_s):
            self.end()
            await self._goes(2 * patience_s)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _goes(self, patience_s: float) -> bool:
        try:
            await asyncio.wait_for(self._gone.wait(), patience_s)
        except TimeoutError:
            return False
        return True

    def _ended(self) -> None:
        run = self._running
        assert run is not None
        self._running = None
        self._loop.remove_reader(run.pidfd)
        os.close(run.pidfd)
        if self._ending:
            signal_group(run.process.pid, signal.SIGKILL)  # what the leader left behind
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        status = run.process.wait()
        self._gone.set()
        if not self._ending:
            self._log("warning", "fifo_script_ended", path=self._path, command=str(self._command), status=status)
            self._again(round((self._loop.time() - run.since) * SECOND_US))

    def _again(self, lived_us: int) -> None:
        delay_us = self._respawn.delay_us(min(lived_us, STEADY_US))
        self._timer = self._loop.call_later(delay_us / SECOND_US, self.start)


def _by_path(fifos: Iterable[NotifyFifo]) -> dict[str, NotifyFifo]:
    """By path; one that is named for all and for VRRP gets each line once."""
    out: dict[str, NotifyFifo] = {}
    for each in fifos:
        former = out.get(each.path)
        if former is not None:
            each = replace(  # noqa: PLW2901 - the two are one
                former,
                vrrp=former.vrrp or each.vrrp,
                lvs=former.lvs or each.lvs,
                script=former.script or each.script,
            )
        out[each.path] = each
    return out


def _make(path: str) -> bool:
    """Make the FIFO; False where there is something already. Raises HostError."""
    try:
        os.mkfifo(path, MODE)
    except FileExistsError:
        return False
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else str(problem)
        raise HostError(
            f"cannot make the FIFO: {reason}", remedy="make its directory, or name another path"
        ) from problem
    return True


def _open(path: str) -> int:
    """Open what must be a FIFO. Raises HostError.

    It is looked at before it is opened, since to open a device may have consequences; and again afterwards, since
    it may have been replaced in between.
    """
    refusal = HostError(
        "there is something else than a FIFO", remedy="remove it, or name another path; a symbolic link will not do"
    )
    try:
        if not stat.S_ISFIFO(os.lstat(path).st_mode):
            raise refusal
        fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as problem:
        raise HostError(f"cannot open it: {problem.strerror}", remedy="check its path and owner") from problem
    if not stat.S_ISFIFO(os.fstat(fd).st_mode):
        os.close(fd)
        raise refusal
    return fd
