"""As whom an operator's command runs, and whether it may.

A daemon that runs as root executes what a configuration names. Whoever can change that file, or any directory on the
way to it, is root. keepalived looks at this once, when it reads its configuration; here it is looked at before each
start, since a path that was safe then may lead elsewhere now. Access control lists are not looked at.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from haxlb.model.commands import Command
from haxlb.model.errors import HostError

DEFAULT_USER = "keepalived_script"
"""Runs scripts where none is configured and the host has this user, as in keepalived; else root does."""
_MOST_LINKS = 40
"""As many as the kernel follows (path_resolution(7))."""
_SEARCHED = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A user and a group of this host."""

    uid: int
    gid: int
    name: str = ""
    groups: tuple[int, ...] = ()
    """Supplementary groups."""


def identity(user: str = "", group: str = "") -> Identity:
    """The user of a command, by name; empty = the default user, and the user's own group.

    Raises HostError where there is no such user or group. May ask the network (nsswitch.conf): not for each start.
    """
    name = user or _default_user()
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise HostError(f"there is no user {name}", remedy="create it, or name another one in the script") from None
    if not group:
        return Identity(uid=entry.pw_uid, gid=entry.pw_gid, name=name)
    try:
        return Identity(uid=entry.pw_uid, gid=grp.getgrnam(group).gr_gid, name=name)
    except KeyError:
        raise HostError(f"there is no group {group}", remedy="create it, or name another one in the script") from None


def judge(argv: Sequence[str], user: str, group: str, security: bool) -> str:  # noqa: FBT001 - as in the configuration
    """Why this command must not be run, empty when it may: no such user or file, not executable, or not secure.

    `security` is `enable_script_security`.
    """
    try:
        runner = identity(user, group)
    except HostError as problem:
        return problem.message
    return unfit(argv, runner, security=security)


def unfit(argv: Sequence[str], runner: Identity, *, security: bool) -> str:
    """As `judge`, for a user who has been looked up; a few microseconds."""
    lacking = missing_program(argv)
    return lacking or (insecurity(argv, runner) if security else "")


def missing_program(argv: Sequence[str], directory: str = "") -> str:
    """Why nobody can run this command: there is no such file, or it is not executable; empty when somebody can.

    `directory` is where it will be started, empty = the present one.
    """
    path = locate(argv[0])
    if not path:
        return f"{argv[0]} is not found in the search path"
    try:
        status = Path(directory, path).stat()
    except (OSError, ValueError) as problem:  # ValueError: a null byte
        return f"{path}: {getattr(problem, 'strerror', problem)}"
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is not a file"
    return "" if status.st_mode & 0o111 else f"{path} is not executable"


def insecure_program(command: Command, directory: str = "") -> str:
    """As `insecurity`, for a user by name; empty as well where there is no such user or file: others say so."""
    if missing_program(command.argv, directory):
        return ""
    try:
        runner = identity(command.user, command.group)
    except HostError:
        return ""
    return insecurity(command.argv, runner, directory)


def insecurity(argv: Sequence[str], runner: Identity, directory: str = "") -> str:
    """Which part of the path others than root can change, where the command runs as root; empty when there is none.

    `directory` is where it will be started, empty = the present one. Without `enable_script_security` it is a
    reason for a warning.
    """
    if runner.uid != 0:
        return ""
    path = locate(argv[0])
    try:
        for part in _parts(Path.cwd() / directory / path):
            why = _changeable(part)
            if why:
                return f"{path} would run as root, but {part} {why}"
    except OSError as problem:
        return f"{path}: {problem.strerror}"
    return ""


def locate(command: str) -> str:
    """The path of a command; one without a slash is searched for in PATH, empty when it is not there."""
    if "/" in command:
        return command
    candidates = (Path(directory) / command for directory in os.environ.get("PATH", _SEARCHED).split(":"))
    return next((str(each) for each in candidates if each.is_file()), "")


def _default_user() -> str:
    try:
        pwd.getpwnam(DEFAULT_USER)
    except KeyError:
        return "root"
    return DEFAULT_USER


def _parts(path: Path) -> Iterator[Path]:
    """Every directory on the way and the file itself, also those that symbolic links lead through."""
    done, links = Path("/"), 0
    yield done
    todo = list(path.parts[1:])
    while todo:
        name = todo.pop(0)
        if name == "..":
            done = done.parent
            continue
        here = done / name
        if not here.is_symlink():
            yield here
            done = here
            continue
        # The link itself cannot be changed, only replaced: that is the directory's matter.
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = here.readlink()
        if target.is_absolute():
            done = Path("/")
        todo = [*(each for each in target.parts if each != "/"), *todo]


def _changeable(path: Path) -> str:
    status = path.lstat()
    if status.st_uid:
        return f"belongs to {_user_name(status.st_uid)}"
    if status.st_mode & stat.S_IWGRP and status.st_gid:
        return "can be written by its group"
    if status.st_mode & stat.S_IWOTH:
        return "can be written by everybody"
    return ""


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
