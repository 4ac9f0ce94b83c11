"""Which commands of the operator a state calls for."""

from __future__ import annotations

from dataclasses import replace

from haxlb.model.commands import NO_COMMAND, Command
from haxlb.model.notification import NotifyDue, NotifyScripts


def commands_for(due: NotifyDue, scripts: NotifyScripts) -> tuple[Command, ...]:
    """What is to be run, in order: the state's own command, then `notify` with its four arguments (keepalived)."""
    own = {
        "MASTER": scripts.master,
        "BACKUP": scripts.backup,
        "FAULT": scripts.fault,
        "STOP": scripts.stop,
        "DELETED": scripts.deleted,
        "MASTER_RX_LOWER_PRI": scripts.master_rx_lower_pri,
    }.get(due.state, NO_COMMAND)
    every = scripts.any
    if every:
        every = replace(every, argv=(*every.argv, due.subject, due.name, due.state, str(due.priority)))
    return tuple(command for command in (own, every) if command)
