"""Starts an operator's command: without a shell, as its user, in a process group and a working directory of its own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from haxlb.linux.script_process import SETPRIV, environment, unprotect
from haxlb.linux.script_security import locate, unfit
from haxlb.linux.users import Users, popen_arguments, refusal, setpriv_options
from haxlb.model.commands import Command
from haxlb.model.errors import HostError
from haxlb.model.notification import ScriptSettings


class Launcher:
    """Starts commands as the settings say."""

    def __init__(
        self, settings: ScriptSettings | None = None, directory: str = "", *, setpriv: str | None = SETPRIV
    ) -> None:
        """`directory` is the commands' working directory; empty = ours."""
        self.settings = settings or ScriptSettings()
        self.directory = directory
        self.users = Users(self.settings)
        self._setpriv = setpriv if setpriv and os.access(setpriv, os.X_OK) else None

    def launch(self, command: Command) -> subprocess.Popen[bytes]:
        """Start it. Raises HostError, in words for the log.

        It reads and writes /dev/null and leads a session: what it starts is ended with it. The scheduling class is
        the normal one, since the speaker's is reset on fork. Where util-linux's setpriv is there, the kernel sends it
        SIGTERM when this process dies, as keepalived's scripts get it.
        """
        who = self.users.of(command)
        if why := refusal(who):
            raise HostError(why, remedy="run haxlb as root, or name no user in script_user and behind the command")
        argv = self._found(command.argv)
        # Each time: a path that was safe when the configuration was read may lead elsewhere now.
        if why := unfit(argv, who, security=self.settings.security):
            raise HostError(why, remedy="see its path, its mode and the owners of its directories")
        directory = self.directory if Path(self.directory).is_dir() else "/"
        privileges = popen_arguments(who)
        if self._setpriv is not None:
            # setpriv and not Popen's own arguments: with those Python forks, which takes milliseconds, else it vforks.
            argv, privileges = (self._setpriv, *setpriv_options(who), "--", *argv), {}
        try:
            process = subprocess.Popen(  # noqa: S603 - the operator's own command, as an argument vector
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd=directory if self.directory else None,
                env=environment(),
                **privileges,
            )
        except OSError as problem:
            raise HostError(str(problem.strerror), remedy="check the path and that it may be executed") from problem
        except ValueError as problem:  # a NUL byte in an argument
            raise HostError(str(problem), remedy="take it out of the configuration") from problem
        unprotect(process.pid)
        return process

    def _found(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """A path that is relative counts from the commands' directory, not from ours; a bare name is searched for."""
        if "/" not in argv[0]:
            return (locate(argv[0]) or argv[0], *argv[1:])
        if not argv[0].startswith("/") and self.directory:
            return (f"{self.directory}/{argv[0]}", *argv[1:])
        return argv
