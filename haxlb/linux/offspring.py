"""A child process as it is started: its end of the pipe, its flight recorder, its interpreter.

Imports next to nothing of ours: `haxlb run` starts the speaker before it imports the rest, and both do so side by side.
The speaker has nothing to do before it gets its orders, and ends by itself when our end of the pipe is closed.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import Self

from haxlb.linux.flight_recorder import Recording
from haxlb.linux.lacks import REMEDY, remedy_for
from haxlb.model.errors import HostError

MODULES = {
    "speaker": "haxlb.linux.speaker_main",
    "checker": "haxlb.linux.checker_main",
    "tracker": "haxlb.linux.tracker_main",
    "spare": "haxlb.linux.speaker_main",
}
_RECORDED = ("speaker", "spare")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offspring:
    """A child that nobody listens to yet."""

    process: subprocess.Popen[bytes]
    end: socket.socket
    """Ours."""
    recording: Recording | None

    @property
    def alive(self) -> bool:
        """Whether it still runs; reaps it if it does not."""
        return self.process.poll() is None

    def dismiss(self) -> None:
        """End it: it has had no orders, and holds nothing that it would have to put in order."""
        self.end.close()
        if self.recording is not None:
            self.recording.close()
        self.process.kill()
        self.process.wait()


class Cradle:
    """Where the speaker waits until it is wanted. A context, at the end of which one that was not is ended."""

    def __init__(self, speaker: Offspring) -> None:
        self._speaker: Offspring | None = speaker

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.empty()

    def take(self) -> Offspring | None:
        """The speaker, once; None where it has ended by itself."""
        taken, self._speaker = self._speaker, None
        if taken is not None and not taken.alive:
            taken.dismiss()
            return None
        return taken

    def empty(self) -> None:
        """It is not wanted."""
        taken = self.take()
        if taken is not None:
            taken.dismiss()


def start(name: str, module: str | None = None) -> Offspring:
    """Start `python -m <module> --fd N`, by default the module of that name. Raises HostError."""
    recording = Recording() if name in _RECORDED else None
    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as problem:
        if recording is not None:
            recording.close()
        raise HostError(f"cannot start the {name}: {problem.strerror}", remedy=REMEDY) from problem
    # -P: the working directory is no place to import a daemon's code from.
    command = [sys.executable, "-P", "-m", module or MODULES[name], "--fd", str(theirs.fileno())]
    inherited = [theirs.fileno()]
    if recording is not None:
        command += ["--recorder", str(recording.fd)]
        inherited.append(recording.fd)
    try:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
            command, pass_fds=inherited, stdin=subprocess.DEVNULL
        )
    except OSError as problem:
        ours.close()
        if recording is not None:
            recording.close()
        raise HostError(
            f"cannot start the {name}: {problem.strerror}", remedy=remedy_for(problem, "see that Python is still there")
        ) from problem
    finally:
        theirs.close()
    return Offspring(process=process, end=ours, recording=recording)
