"""Starts an operator's command as its user, without holding up the loop that starts it.

A fork of a Python process blocks it for milliseconds, posix_spawn for a tenth of one; but posix_spawn cannot change the
user. util-linux's setpriv can, and it ties the command's life to ours. Figures: docs/reference/tracking.md.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence

from haxlb.linux.script_security import Identity, locate
from haxlb.model.errors import HostError

SETPRIV = "/usr/bin/setpriv"
# What keepalived leaves out of a script's environment, too: they would change how it is loaded or read.
_WITHHELD = ("LD_PRELOAD", "LD_LIBRARY_PATH", "IFS")
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def start(argv: Sequence[str], runner: Identity, *, setpriv: str = SETPRIV) -> int:
    """Run the command and return its pid. Raises HostError.

    It leads a session and process group of its own, has no supplementary groups, and reads and writes /dev/null. Where
    setpriv is there, the kernel sends it SIGTERM when this process dies. The caller reaps it.
    """
    path = locate(argv[0])
    same = (runner.uid, runner.gid) == (os.geteuid(), os.getegid())
    try:
        if os.access(setpriv, os.X_OK):
            return _spawn([setpriv, *_options(runner), "--", path, *argv[1:]])
        if same:
            return _spawn([path, *argv[1:]])
        return _fork([path, *argv[1:]], runner)
    except OSError as problem:
        raise HostError(
            f"{argv[0]}: {problem.strerror}", remedy="check the path and that it may be executed"
        ) from problem


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal the command with all that it has started, unless that has left its process group.

    Only before it is reaped: until then its number cannot have been given to others.
    """
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):  # EPERM: only zombies of another user are left
        return


def environment() -> dict[str, str]:
    """Ours, without what would change how a script is loaded or read."""
    return {name: value for name, value in os.environ.items() if name not in _WITHHELD}


def _options(runner: Identity) -> list[str]:
    options = ["--pdeathsig", "TERM"]
    if os.geteuid() == 0:
        options += ["--reuid", str(runner.uid), "--regid", str(runner.gid), "--clear-groups"]
    return options


def _spawn(argv: list[str]) -> int:
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        return os.posix_spawn(
            argv[0],
            argv,
            environment(),
            file_actions=[(os.POSIX_SPAWN_DUP2, nothing, number) for number in range(3)],
            setsid=True,
            setsigmask=(),
            setsigdef=_IGNORED_BY_PYTHON,
        )
    finally:
        os.close(nothing)


def _fork(argv: Sequence[str], runner: Identity) -> int:
    nothing = subprocess.DEVNULL
    process = subprocess.Popen(  # noqa: S603 - the operator's own command, as an argument vector
        argv,
        stdin=nothing,
        stdout=nothing,
        stderr=nothing,
        start_new_session=True,
        env=environment(),
        user=runner.uid,
        group=runner.gid,
        extra_groups=[],
    )
    process.returncode = 0  # it is reaped by the caller, Popen shall not complain
    return process.pid
