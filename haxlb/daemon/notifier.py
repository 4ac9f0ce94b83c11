"""Tells the operator what has become of instances, sync groups and services: scripts, FIFOs, mail.

The supervisor does it and not the speaker (ADR 10): nothing that an operator's script, reader or mail server does can
cost an advert. What is to be told comes in the order in which it happened; what it means is looked up in the
configuration in force. Each state of an instance or a group is told once, and none is left out: a speaker that dies
has its MASTERs told FAULT in its stead, and who has not heard STOP when haxlb ends hears it then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from haxlb.daemon.notifications import (
    GROUP,
    PRIORITY_EVENTS,
    STATES,
    Mail,
    backend_line,
    backend_mail,
    commands_for,
    quorum_line,
    quorum_mail,
    real_server_of,
    vrrp_line,
    vrrp_mail,
)
from haxlb.daemon.standing import Standing
from haxlb.daemon.supervisor_ports import World
from haxlb.model.commands import Command
from haxlb.model.facts import BackendChanged, GroupChanged, QuorumChanged
from haxlb.model.groups import SyncGroup
from haxlb.model.instance import VrrpInstance
from haxlb.model.node import NodeConfig
from haxlb.model.notification import NotifyDue
from haxlb.model.units import SECOND_US
from haxlb.model.virtual_server import VirtualServer

INSTANCE = "INSTANCE"
MOST_DEPARTED = 256
"""Removed instances and groups that have still to be told so."""
SCRIPTS_TIMEOUT_S = 3.0
"""How long the scripts, and beside them the mails, of a stop may take; keepalived gives scripts about one second."""
_FINAL = ("STOP", "DELETED")

_Key = tuple[str, ...]
"""INSTANCE or GROUP, and the name; of mails also VS or RS and their names."""


@dataclass(slots=True)
class _Told:
    """What was last told of an instance or a group."""

    state: str
    priority: int


class Notifier:
    """Everything that is told, in order. Never waits for anybody."""

    def __init__(self, world: World, standing: Standing, report: Callable[[GroupChanged], None]) -> None:
        """`report` takes the facts that follow from what is told."""
        self._standing = standing
        self._outlets = world.outlets
        self._log = world.log
        self._clock = world.clock
        self._report = report
        self._config: NodeConfig | None = None
        self._known: dict[_Key, VrrpInstance | SyncGroup] = {}
        self._departed: dict[_Key, VrrpInstance | SyncGroup] = {}
        self._told: dict[_Key, _Told] = {}
        self._mailed: dict[_Key, str] = {}
        self._renamed: dict[str, str] = {}

    async def begin(self) -> None:
        """Run the startup script, then open the FIFOs: the script may have made their directory."""
        scripts = self._standing.config.notification.scripts
        self._outlets.scripts.configure(scripts, self._standing.config_directory)
        await self._complete("startup_script", scripts.startup, scripts.startup_timeout_us)
        self.refresh()

    async def leave(self) -> None:
        """Tell STOP where no speaker has done so, let everything that is told arrive, run the shutdown script."""
        began = self._config is not None
        for key, told in list(self._told.items()):
            if told.state not in _FINAL:
                self.take(_due(key, "STOP", told.priority))
        outlets = self._outlets
        await asyncio.gather(outlets.scripts.finish(SCRIPTS_TIMEOUT_S), outlets.mail.finish(SCRIPTS_TIMEOUT_S))
        await outlets.fifos.close()
        if began:
            scripts = self._standing.config.notification.scripts
            await self._complete("shutdown_script", scripts.shutdown, scripts.shutdown_timeout_us)

    async def _complete(self, what: str, command: Command, limit_us: int) -> None:
        if not command:
            return
        status = await self._outlets.scripts.complete(what, command, limit_us / SECOND_US)
        level, outcome = ("info", "done") if status == 0 else ("warning", "failed")
        self._log.log(level, f"{what}_{outcome}", command=str(command), status=status)

    def refresh(self, *, reloaded: bool = False) -> None:
        """Follow the configuration in force; `reloaded`: tell the FIFOs all states, where that is configured."""
        config = self._standing.config
        if config is not self._config:
            self._adopt(config)
        if reloaded and config.notification.fifo_states_on_reload:
            for key in self._known:
                if told := self._told.get(key):
                    self._outlets.fifos.write(vrrp_line(_due(key, told.state, told.priority)))

    def take(self, due: NotifyDue) -> None:
        """The speaker says what has happened; a state that was told already is not told again."""
        self.refresh()
        key = (due.subject, due.name)
        if due.subject == INSTANCE and key not in self._known and due.name in self._renamed:
            due = replace(due, name=self._renamed[due.name])  # said before the speaker knew the new name
            key = (due.subject, due.name)
        told = self._told.get(key)
        if due.state in STATES:
            if told and told.state == due.state:
                self._forget(key, due.state)
                return
            self._told[key] = _Told(due.state, due.priority)
            if due.subject == GROUP:
                before = told.state if told else ""
                now = self._clock.now()
                self._report(GroupChanged(group=due.name, before=before, after=due.state, at_us=now))
        elif told:
            told.priority = due.priority
        who = self._known.get(key) or self._departed.get(key)
        if due.state in PRIORITY_EVENTS and not (who and who.notify_priority_changes):
            return
        self._outlets.fifos.write(vrrp_line(due))
        if who is None:
            self._log.log("warning", "notify_unknown", subject=due.subject, name=due.name, state=due.state)
            return
        for command in commands_for(due, who.notify):
            self._outlets.scripts.run(_queue(key), command)
        if who.smtp_alert and self._is_mailed(due.state) and (mail := vrrp_mail(due, self._standing.config.node)):
            self._send(key, due.state, mail)
        self._forget(key, due.state)

    def take_fact(self, fact: BackendChanged | QuorumChanged) -> None:
        """The checker says what has happened; its scripts it runs itself."""
        self.refresh()
        config = self._standing.config
        server = _server(config, fact.virtual_server)
        state = "UP" if fact.up else "DOWN"
        if isinstance(fact, QuorumChanged):
            self._outlets.fifos.write(quorum_line(fact, server), lvs=True)
            if server and server.smtp_alert:
                self._send(("VS", fact.virtual_server), state, quorum_mail(fact, config.node))
            return
        self._outlets.fifos.write(backend_line(fact, server), lvs=True)
        real = real_server_of(fact, server)
        if real and real.smtp_alert:
            key = ("RS", fact.virtual_server, fact.real_server)
            self._send(key, state, backend_mail(fact, server, config.node))

    def speaker_died(self, kept: Collection[str] = ()) -> None:
        """Tell FAULT, in the stead of a dead speaker, of all that it was MASTER of, but for the kept instances.

        FAULT, not BACKUP: until there is a speaker again this director takes part in no election. The new one
        begins with BACKUP. Of those that another speaker goes on with there is nothing to tell.
        """
        groups = () if self._config is None else self._config.sync_groups
        whole = [each.name for each in groups if set(each.members) <= set(kept)]
        quiet = {*((INSTANCE, name) for name in kept), *(("GROUP", name) for name in whole)}
        for key, told in list(self._told.items()):
            if told.state == "MASTER" and key not in quiet:
                self.take(_due(key, "FAULT", told.priority))

    def _adopt(self, config: NodeConfig) -> None:
        former, self._config = self._config, config
        self._rename(former, config)
        known: dict[_Key, VrrpInstance | SyncGroup] = {}
        known.update({(INSTANCE, each.name): each for each in config.instances})
        known.update({(GROUP, each.name): each for each in config.sync_groups})
        for key, gone in self._known.items():
            if key not in known and key in self._told:
                self._departed[key] = gone
        self._departed = {key: who for key, who in self._departed.items() if key not in known}
        while len(self._departed) > MOST_DEPARTED:
            oldest = next(iter(self._departed))
            del self._departed[oldest]
            self._told.pop(oldest, None)
        self._known = known
        services = {each.name for each in config.virtual_servers}
        self._mailed = {key: state for key, state in self._mailed.items() if key in known or key[1] in services}
        what = config.notification
        self._outlets.scripts.configure(what.scripts, self._standing.config_directory)
        self._outlets.fifos.configure(what.fifos, what.scripts, self._standing.config_directory)
        self._outlets.mail.configure(what.mail)

    def _forget(self, key: _Key, state: str) -> None:
        """A removed one has heard its last: DELETED, or FAULT where nobody wants to know the difference."""
        if state in (*_FINAL, "FAULT") and self._departed.pop(key, None) is not None:
            del self._told[key]

    def _rename(self, former: NodeConfig | None, config: NodeConfig) -> None:
        """What was told of an instance follows its interface and VRID, not its name, like its state."""
        if former is None:
            return
        names = {each.key: each.name for each in former.instances}
        moved = {names[each.key]: each.name for each in config.instances if names.get(each.key, each.name) != each.name}
        if not moved:
            return
        self._renamed = moved
        self._told = {_moved(key, moved): told for key, told in self._told.items()}
        self._mailed = {_moved(key, moved): state for key, state in self._mailed.items()}
        self._known = {_moved(key, moved): who for key, who in self._known.items()}

    def _is_mailed(self, state: str) -> bool:
        settings = self._standing.config.notification.mail
        return state != "FAULT" or settings is None or settings.faults

    def _send(self, key: _Key, state: str, mail: Mail) -> None:
        """Mail a state that is not the one that was mailed last."""
        if self._mailed.get(key) != state:
            self._mailed[key] = state
            self._outlets.mail.send(mail)


def _due(key: _Key, state: str, priority: int) -> NotifyDue:
    return NotifyDue(subject=key[0], name=key[1], state=state, priority=priority)


def _queue(key: _Key) -> str:
    """Instances under their own name; a group may have the name of an instance."""
    return f"group {key[1]}" if key[0] == GROUP else key[1]


def _moved(key: _Key, names: dict[str, str]) -> _Key:
    return (INSTANCE, names.get(key[1], key[1])) if key[0] == INSTANCE else key


def _server(config: NodeConfig, name: str) -> VirtualServer | None:
    return next((each for each in config.virtual_servers if each.name == name), None)
