"""What a state is told as: the operator's commands, the FIFOs' lines, the mails. Pure functions.

The lines and subjects are those that readers and mail filters written for keepalived expect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from haxlb.model.commands import NO_COMMAND, Command
from haxlb.model.facts import BackendChanged, QuorumChanged
from haxlb.model.notification import NotifyDue, NotifyScripts
from haxlb.model.virtual_server import RealServer, VirtualServer

STATES = ("MASTER", "BACKUP", "FAULT", "STOP", "DELETED")
"""What an instance or a sync group can be in. All else that is told is an event, which changes no state."""
PRIORITY_EVENTS = ("MASTER_PRIORITY", "BACKUP_PRIORITY")
GROUP = "GROUP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """One mail, without its addresses."""

    subject: str
    """One line."""
    body: str


def commands_for(due: NotifyDue, scripts: NotifyScripts) -> tuple[Command, ...]:
    """What is to be run, in order: the state's own command, then `notify` with its four arguments (keepalived).

    `notify` hears of states only; a lower advert has its own command, a changed priority has none.
    """
    own = {
        "MASTER": scripts.master,
        "BACKUP": scripts.backup,
        "FAULT": scripts.fault,
        "STOP": scripts.stop,
        "DELETED": scripts.deleted,
        "MASTER_RX_LOWER_PRI": scripts.master_rx_lower_pri,
    }.get(due.state, NO_COMMAND)
    every = scripts.any if due.state in STATES else NO_COMMAND
    if every:
        every = replace(every, argv=(*every.argv, due.subject, due.name, due.state, str(due.priority)))
    return tuple(command for command in (own, every) if command)


def vrrp_line(due: NotifyDue) -> str:
    """The FIFOs' line, newline included: `INSTANCE "VI_1" MASTER 150`, `GROUP "VG_1" BACKUP 0`."""
    return f'{due.subject} "{one_line(due.name)}" {due.state} {due.priority}\n'


def quorum_line(fact: QuorumChanged, server: VirtualServer | None) -> str:
    """The FIFOs' line: `VS [10.0.0.1]:tcp:80 UP`, of a group `VS [web]:0 UP`, of a mark `VS FWM 5 UP`.

    keepalived's ends with a NUL byte behind the newline; readers that split at newlines find it before the next
    line. haxlb writes none.
    """
    return f"VS {_service(fact.virtual_server, server)} {_up(fact.up)}\n"


def backend_line(fact: BackendChanged, server: VirtualServer | None) -> str:
    """The FIFOs' line: `RS [10.0.0.9]:tcp:80 [10.0.0.1]:tcp:80 DOWN`."""
    return f"RS {_real_server(fact, server)} {_service(fact.virtual_server, server)} {_up(fact.up)}\n"


def vrrp_mail(due: NotifyDue, node: str) -> Mail | None:
    """The mail about a state; None for what nobody is mailed about."""
    if due.state not in STATES or due.state == "DELETED":
        return None
    kind = "Group" if due.subject == GROUP else "Instance"
    what = "Stopping" if due.state == "STOP" else f"Entering {due.state} state"
    subject = one_line(f"[{node}] VRRP {kind} {due.name} - {what}")
    facts = {
        "director": node,
        "sync group" if due.subject == GROUP else "instance": due.name,
        "state": due.state,
    }
    if due.subject != GROUP:
        facts["priority"] = str(due.priority)
        facts["virtual addresses"] = "held by this director" if due.state == "MASTER" else "not held by this director"
    return Mail(subject=subject, body=_body(facts))


def backend_mail(fact: BackendChanged, server: VirtualServer | None, node: str) -> Mail:
    """The mail about a real server."""
    name = _real_server(fact, server)
    subject = one_line(f"[{node}] Realserver {name} of virtual server {fact.virtual_server} - {_up(fact.up)}")
    return Mail(
        subject=subject,
        body=_body(
            {
                "director": node,
                "virtual server": fact.virtual_server,
                "real server": name,
                "state": _up(fact.up),
                "reason": fact.reason,
            }
        ),
    )


def quorum_mail(fact: QuorumChanged, node: str) -> Mail:
    """The mail about a quorum."""
    subject = one_line(f"[{node}] Virtualserver {fact.virtual_server} - {_up(fact.up)}")
    facts = {
        "director": node,
        "virtual server": fact.virtual_server,
        "quorum": "gained" if fact.up else "lost",
        "reason": fact.reason,
    }
    return Mail(subject=subject, body=_body(facts))


def real_server_of(fact: BackendChanged, server: VirtualServer | None) -> RealServer | None:
    """The configuration of the server that the fact is about, None when it is gone."""
    return next((each for each in server.real_servers if each.key == fact.real_server), None) if server else None


def one_line(text: str) -> str:
    """Without line breaks and other control characters: a name must not begin a line or a header of its own."""
    return "".join(character if character.isprintable() else "?" for character in text)


def _service(name: str, server: VirtualServer | None) -> str:
    """The virtual server as keepalived writes it into FIFOs. Its groups have the port of the first entry's place, 0."""
    if server is not None and server.fwmark:
        return f"FWM {server.fwmark}"
    return one_line(f"[{server.group}]:0" if server is not None and server.group else name)


def _real_server(fact: BackendChanged, server: VirtualServer | None) -> str:
    """`[10.0.0.9]:tcp:80`; the fact has `10.0.0.9:80`, the protocol is the virtual server's."""
    address, _, port = fact.real_server.rpartition(":")
    protocol = server.endpoint.protocol.value.lower() if server else "tcp"
    return one_line(f"[{address.strip('[]')}]:{protocol}:{port}")


def _up(up: bool) -> str:  # noqa: FBT001 - the word for it
    return "UP" if up else "DOWN"


def _body(facts: dict[str, str]) -> str:
    return "".join(f"{name}: {one_line(value)}\n" for name, value in facts.items())
