"""Starts an operator's command: without a shell, as its user, in a process group and a working directory of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from haxlb.linux.script_security import unfit
from haxlb.linux.users import Users, popen_arguments
from haxlb.model.commands import Command
from haxlb.model.errors import HostError
from haxlb.model.notification import ScriptSettings

# What keepalived leaves out of a script's environment, too: they would change how it is loaded or read.
_WITHHELD = ("LD_PRELOAD", "LD_LIBRARY_PATH", "IFS")


class Launcher:
    """Starts commands as the settings say."""

    def __init__(self, settings: ScriptSettings | None = None, directory: str = "") -> None:
        """`directory` is the commands' working directory; empty = ours."""
        self.settings = settings or ScriptSettings()
        self.directory = directory
        self.users = Users(self.settings)

    def launch(self, command: Command) -> subprocess.Popen[bytes]:
        """Start it. Raises HostError, in words for the log.

        It reads and writes /dev/null and leads a session: what it starts is ended with it. The scheduling class is
        the normal one, since the speaker's is reset on fork.
        """
        who = self.users.of(command)
        directory = self.directory if Path(self.directory).is_dir() else "/"
        argv = self._absolute(command.argv)
        # Each time: a path that was safe when the configuration was read may lead elsewhere now.
        if why := unfit(argv, who, security=self.settings.security):
            raise HostError(why, remedy="see its path, its mode and the owners of its directories")
        try:
            return subprocess.Popen(  # noqa: S603 - the operator's own command, as an argument vector
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd=directory if self.directory else None,
                env={name: value for name, value in os.environ.items() if name not in _WITHHELD},
                **popen_arguments(who),
            )
        except OSError as problem:
            raise HostError(str(problem.strerror), remedy=_remedy(problem)) from problem
        except ValueError as problem:  # a NUL byte in an argument
            raise HostError(str(problem), remedy="take it out of the configuration") from problem

    def _absolute(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """A path that is relative counts from the commands' directory, not from ours."""
        if "/" in argv[0] and not argv[0].startswith("/") and self.directory:
            return (f"{self.directory}/{argv[0]}", *argv[1:])
        return argv


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal the process group that the command leads; one that is gone is no error.

    The leader must not have been reaped: then the group's number cannot have been given to others.
    """
    try:
        os.killpg(pid, number)
    except ProcessLookupError:
        return


def _remedy(problem: OSError) -> str:
    if isinstance(problem, PermissionError) and os.geteuid() != 0:
        return "only root runs scripts as other users; also check the path and that it may be executed"
    return "check the path and that it may be executed"
