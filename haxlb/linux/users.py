"""As whom the operator's commands run: looked up once each, and what a child process is to be given for it."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from haxlb.linux.script_security import Identity, identity
from haxlb.model.commands import Command
from haxlb.model.notification import ScriptSettings


class Users:
    """Remembers who was looked up: a name service that hangs must not be asked at every script."""

    def __init__(self, settings: ScriptSettings) -> None:
        self._settings = settings
        self._known: dict[tuple[str, str], Identity] = {}

    def of(self, command: Command) -> Identity:
        """As whom this command runs. Raises HostError where there is no such user or group."""
        return self.named(command.user, command.group)

    def named(self, user: str, group: str) -> Identity:
        """This user and group; empty = `script_user`'s, or the user's own group. Raises HostError."""
        known = self._known.get((user, group))
        if known is None:
            known = self._known[user, group] = self._find(user, group)
        return known

    def _find(self, user: str, group: str) -> Identity:
        if not user:
            user, group = self._settings.user, group or self._settings.group
        if not user and not group and os.geteuid() != 0:
            return ourselves()  # nobody else can be had, and nobody else was asked for
        found = identity(user, group)
        if self._settings.supplementary_groups:
            return replace(found, groups=tuple(sorted({*os.getgrouplist(found.name, found.gid)} - {found.gid})))
        return found


def ourselves() -> Identity:
    """The user that this process runs as."""
    return Identity(uid=os.geteuid(), gid=os.getegid())


def refusal(who: Identity) -> str:
    """Why we cannot start anything as this user, empty where we can: only root can be somebody else."""
    if os.geteuid() == 0 or not popen_arguments(who):
        return ""
    return f"only root runs scripts as another user, and it is to run as {who.name or f'uid {who.uid}'}"


def popen_arguments(who: Identity) -> dict[str, Any]:
    """Arguments of `subprocess.Popen` that make the child this user, with these supplementary groups only.

    Empty where we are that already: then no privilege is needed. Groups stay where only root could give them up.
    """
    us = (who.uid, who.gid) == (os.geteuid(), os.getegid())
    if us and (os.geteuid() != 0 or {*os.getgroups(), who.gid} == {*who.groups, who.gid}):
        return {}
    return {"user": who.uid, "group": who.gid, "extra_groups": who.groups}


def setpriv_options(who: Identity) -> tuple[str, ...]:
    """The same for setpriv(1), and the signal that the child gets when we die."""
    tied = ("--pdeathsig", "TERM")
    if not popen_arguments(who):
        return tied
    return (*tied, "--reuid", str(who.uid), "--regid", str(who.gid), *group_options(who))


def group_options(who: Identity) -> tuple[str, ...]:
    """What of them says which supplementary groups the child has."""
    return ("--groups", ",".join(map(str, who.groups))) if who.groups else ("--clear-groups",)
