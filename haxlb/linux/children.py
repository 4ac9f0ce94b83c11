"""ChildrenPort: speaker, checker and tracker as processes of their own, over socket pairs, watched by pidfd."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from haxlb.daemon.messages import Message
from haxlb.linux import offspring
from haxlb.linux.flight_recorder import Recording
from haxlb.linux.niceness import hurry
from haxlb.linux.offspring import MODULES, Cradle
from haxlb.linux.pipe import Pipe
from haxlb.model.errors import PeerError

_PF_EXITING = 0x4
"""<linux/sched.h>"""


@dataclass(slots=True)
class _Child:
    name: str
    process: subprocess.Popen[bytes]
    end: socket.socket
    pipe: Pipe
    pidfd: int
    recording: Recording | None
    listening: asyncio.Task[None] | None = None
    returncode: int | None = None
    buried: bool = False


class Children:
    """Starts children; hands on what they say, and after the last word of a dead one that it is dead.

    Children stay in our process group: what stops or freezes the group (a terminal, a cgroup, a power failure in a
    test) stops all of haxlb together, and never leaves a speaker without its supervisor.
    """

    def __init__(
        self,
        *,
        on_message: Callable[[str, Message], None],
        on_exit: Callable[[str, int], None],
        on_malformed: Callable[[str, PeerError], None],
        modules: dict[str, str] | None = None,
        cradle: Cradle | None = None,
    ) -> None:
        """`cradle` has the first speaker, started already."""
        self._on_message = on_message
        self._on_exit = on_exit
        self._on_malformed = on_malformed
        self._modules = modules or MODULES
        self._cradle = cradle
        self._children: dict[str, _Child] = {}
        self._recorded: dict[str, tuple[int, ...]] = {}

    def start(self, name: str) -> int:
        """Start a child, or take the one that waits; its pid. Raises HostError."""
        made = self._cradle.take() if name == "speaker" and self._cradle is not None else None
        if made is None:
            made = offspring.start(name, self._modules[name])
        process, ours = made.process, made.end
        if name == "speaker":
            hurry(process.pid)  # its imports; then it takes the class that it is told
        loop = asyncio.get_running_loop()
        child = _Child(
            name=name,
            process=process,
            end=ours,
            pipe=Pipe(ours, on_malformed=lambda problem: self._on_malformed(child.name, problem)),
            pidfd=os.pidfd_open(process.pid),
            recording=made.recording,
        )
        child.listening = loop.create_task(self._listen(child))
        child.listening.add_done_callback(lambda _: self._heard_all(child))
        self._children[name] = child
        loop.add_reader(child.pidfd, self._dead, child)
        return process.pid

    def rename(self, name: str, other: str) -> None:
        """The child is called otherwise from now on; nothing happens when there is none of that name."""
        child = self._children.pop(name, None)
        if child is not None:
            child.name = other
            self._children[other] = child

    def recorded(self, name: str) -> tuple[int, ...]:
        """What the last child of this name has left in its flight recorder; empty when it had none."""
        return self._recorded.get(name, ())

    def send(self, name: str, message: Message) -> None:
        """Send to a running child; nothing happens when there is none."""
        child = self._children.get(name)
        if child is not None:
            child.pipe.send(message)

    def kill(self, name: str) -> None:
        """SIGKILL; `on_exit` follows."""
        child = self._children.get(name)
        if child is not None and child.returncode is None:
            # Not Popen.kill: that would reap one which has just died, and `_dead` would find nobody.
            signal.pidfd_send_signal(child.pidfd, signal.SIGKILL)

    async def _listen(self, child: _Child) -> None:
        async for message in child.pipe:
            self._on_message(child.name, message)

    def _heard_all(self, child: _Child) -> None:
        """Its end of the pipe is closed. A dying process closes it some 10 ms before it counts as dead.

        The kernel waits for all CPUs before it lets go of a packet socket (packet_release); our code runs no more then.
        """
        if child.returncode is not None:
            self._bury(child, child.returncode)
        elif code := dying(child.process.pid):  # an orderly end is in no hurry, and 0 may mean that we must not know
            self._bury(child, code)

    def _dead(self, child: _Child) -> None:
        asyncio.get_running_loop().remove_reader(child.pidfd)
        os.close(child.pidfd)
        child.returncode = os.waitstatus_to_exitcode(os.waitpid(child.process.pid, 0)[1])
        # A script of an operator may still hold the other end: what was sent can be read, no more will come.
        with contextlib.suppress(OSError):
            child.end.shutdown(socket.SHUT_RDWR)
        if child.listening is None or child.listening.done():
            self._bury(child, child.returncode)

    def _bury(self, child: _Child, returncode: int) -> None:
        if child.buried:
            return
        child.buried = True
        child.process.returncode = returncode  # nobody else waits for it
        name, listening = child.name, child.listening
        if self._children.get(name) is child:
            del self._children[name]
        child.pipe.close()
        if child.recording is not None:
            self._recorded[name] = child.recording.read()
            child.recording.close()
        if listening is not None and not listening.cancelled() and (problem := listening.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler({"message": f"{name} listener", "exception": problem})
        self._on_exit(name, returncode)


def dying(pid: int) -> int | None:
    """The return code (negative: a signal) of a process that runs no code any more, be it dead or on its way.

    None where it still runs, or is not there. `flags` and `exit_code` of proc_pid_stat(5).
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    flags, code = int(fields[6]), int(fields[49])
    return os.waitstatus_to_exitcode(code) if flags & _PF_EXITING else None
