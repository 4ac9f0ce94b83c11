"""Starts an operator's command as its user, without holding up who starts it.

A fork of a Python process blocks it for milliseconds, posix_spawn for a tenth of one; but posix_spawn cannot change the
user. util-linux's setpriv can, and it ties the command's life to ours. On a busy host even posix_spawn takes long: it
returns when the child has got a CPU and has reached its exec. Python's own keeps the interpreter locked meanwhile; the
C library's, called by ctypes, does not, so that a thread can wait. Figures: docs/reference/tracking.md.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from haxlb.linux.script_security import Identity, locate
from haxlb.linux.users import setpriv_options
from haxlb.model.errors import HostError

SETPRIV = "/usr/bin/setpriv"
# What keepalived leaves out of a script's environment, too: they would change how it is loaded or read.
_WITHHELD = ("LD_PRELOAD", "LD_LIBRARY_PATH", "IFS")
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_USUAL_OOM_SCORE_ADJ = 0
"""Of a process that nobody has said anything about (proc(5))."""

# <spawn.h>
_SETSIGDEF = 0x04
_SETSIGMASK = 0x08
_SETSID = 0x80
_ROOM = 1024
"""Bytes for each of the C library's own structures, the largest of which has 336."""
_libc = ctypes.CDLL(None)
_Words = Sequence[str]


def starter(argv: _Words, runner: Identity, *, setpriv: str = SETPRIV) -> Callable[[], int]:
    """What starts the command when it is called, in whatever thread, and returns its pid. It raises HostError.

    The command leads a session and process group of its own, has the supplementary groups of `runner` only, and reads
    and writes /dev/null. Where setpriv is there, the kernel sends it SIGTERM when the thread that started it ends. The
    caller reaps it.
    """
    path = locate(argv[0]) or argv[0]
    same = (runner.uid, runner.gid) == (os.geteuid(), os.getegid()) and not runner.groups
    if os.access(setpriv, os.X_OK):
        work = _spawning([setpriv, *setpriv_options(runner), "--", path, *argv[1:]])
    elif same:
        work = _spawning([path, *argv[1:]])
    else:
        work = _forking([path, *argv[1:]], runner)

    def begin() -> int:
        try:
            pid = work()
        except OSError as problem:
            raise HostError(
                f"{argv[0]}: {problem.strerror}", remedy="check the path and that it may be executed"
            ) from problem
        unprotect(pid)
        return pid

    return begin


def start(argv: _Words, runner: Identity, *, setpriv: str = SETPRIV) -> int:
    """Start the command now, as `starter` says; its pid. Raises HostError."""
    return starter(argv, runner, setpriv=setpriv)()


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal the command with all that it has started, unless that has left its process group.

    Only before it is reaped: until then its number cannot have been given to others.
    """
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):  # EPERM: only zombies of another user are left
        return


def unprotect(pid: int) -> None:
    """Let the kernel choose this command, which has just been started, when memory runs out, rather than a director.

    It has inherited our `oom_score_adj` (OOMScoreAdjust= of the unit). To raise that of another takes no capability
    but CAP_DAC_OVERRIDE (fs/proc/base.c, __set_oom_adj), and no fork, as to lower it between fork and exec would. What
    it starts within the microseconds before this keeps ours; mostly it is still setpriv that runs then.
    """
    with contextlib.suppress(OSError, ValueError):  # it has ended, or may not be written to: it is as it was
        if int(Path("/proc/self/oom_score_adj").read_text(encoding="ascii")) < _USUAL_OOM_SCORE_ADJ:
            Path(f"/proc/{pid}/oom_score_adj").write_text(str(_USUAL_OOM_SCORE_ADJ), encoding="ascii")


def environment() -> dict[str, str]:
    """Ours, without what would change how a script is loaded or read."""
    return {name: value for name, value in os.environ.items() if name not in _WITHHELD}


def _spawning(argv: _Words) -> Callable[[], int]:
    """Everything is laid out beforehand: the thread that calls it shall hold the interpreter for as short as can be."""
    words = _strings(argv)
    variables = _strings([f"{name}={value}" for name, value in environment().items()])
    attributes, actions = _attributes(), _actions()
    pid = ctypes.c_int()

    def work() -> int:
        number = _libc.posix_spawn(ctypes.byref(pid), words[0], actions, attributes, words, variables)
        _libc.posix_spawn_file_actions_destroy(actions)
        if number:
            raise OSError(number, os.strerror(number))
        return pid.value

    return work


def _strings(words: _Words) -> ctypes.Array[ctypes.c_char_p]:
    return (ctypes.c_char_p * (len(words) + 1))(*(os.fsencode(each) for each in words), None)


def _attributes() -> ctypes.Array[ctypes.c_char]:
    attributes, none, default = (ctypes.create_string_buffer(_ROOM) for _ in range(3))
    _libc.sigemptyset(none)
    _libc.sigemptyset(default)
    for each in _IGNORED_BY_PYTHON:
        _libc.sigaddset(default, each)
    _libc.posix_spawnattr_init(attributes)
    _libc.posix_spawnattr_setflags(attributes, ctypes.c_short(_SETSIGDEF | _SETSIGMASK | _SETSID))
    _libc.posix_spawnattr_setsigmask(attributes, none)
    _libc.posix_spawnattr_setsigdefault(attributes, default)
    return attributes


def _actions() -> ctypes.Array[ctypes.c_char]:
    actions = ctypes.create_string_buffer(_ROOM)
    _libc.posix_spawn_file_actions_init(actions)
    for number in range(3):
        _libc.posix_spawn_file_actions_addopen(actions, number, os.devnull.encode(), os.O_RDWR, 0)
    return actions


def _forking(argv: _Words, runner: Identity) -> Callable[[], int]:
    def work() -> int:
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
            extra_groups=runner.groups,
        )
        process.returncode = 0  # it is reaped by the caller, Popen shall not complain
        return process.pid

    return work
