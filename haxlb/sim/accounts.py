"""Law L5: every change of a role is told once, in order, to the operator, to MQTT and to the history.

The speaker says "notify" and "it has changed" side by side; at the end of each moment neither may be without the
other. What the real notifier makes of it (a state that was told already is not told again) is compared with the role.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

from haxlb.daemon.notifications import STATES
from haxlb.model.facts import RoleChanged
from haxlb.model.instance import Role
from haxlb.model.notification import NotifyDue

if TYPE_CHECKING:
    from haxlb.sim.supervisor import Records

_NAMES: dict[Role, tuple[str, ...]] = {
    Role.MASTER: ("MASTER",),
    Role.BACKUP: ("BACKUP",),
    Role.FAULT: ("FAULT",),
    # keepalived tells FAULT of an instance that has left the configuration, unless notify_deleted is there.
    Role.INIT: ("STOP", "FAULT", "DELETED"),
}


class Accounts:
    """What one speaker has said."""

    def __init__(self, accuse: Callable[[str, str], None]) -> None:
        """`accuse` takes the law's name and a sentence."""
        self._accuse = accuse
        self._due: dict[str, list[str]] = {}
        self._roles: dict[str, Role] = {}

    def begin(self) -> None:
        """A new speaker: all its instances are in INIT."""
        self._due = {}
        self._roles = {}

    def resumed(self, name: str) -> None:
        """A new speaker goes on as MASTER where a dead one was it."""
        self._roles[name] = Role.MASTER

    def renamed(self, names: dict[str, str]) -> None:
        """Instances by their former names."""
        self._roles = {names.get(name, name): role for name, role in self._roles.items()}

    def notified(self, due: NotifyDue) -> None:
        """The operator is to be told."""
        if due.subject == "INSTANCE" and due.state in STATES:
            self._due.setdefault(due.name, []).append(due.state)

    def changed(self, fact: RoleChanged) -> None:
        """A role has changed."""
        name = fact.instance
        before = self._roles.get(name, Role.INIT)
        self._roles[name] = fact.after
        if before is not fact.before or fact.before is fact.after:
            change = f"{fact.before.value} -> {fact.after.value}"
            self._accuse("L5", f"{name} was {before.value} and reports a change {change}")
        said = self._due.pop(name, [])
        if len(said) != 1 or said[0] not in _NAMES[fact.after]:
            told = ", ".join(said) or "nothing"
            self._accuse("L5", f"{name} has become {fact.after.value}, and the operator is told: {told}")

    def recorded(self, fact: RoleChanged, before: Records, after: Records) -> None:
        """What the supervisor has made of it."""
        change = f"{fact.instance} has become {fact.after.value}"
        if (rows := after.rows - before.rows) != 1:
            self._accuse("L5", f"{change}: {rows} rows in the history")
        published = after.states - before.states
        if after.states >= 0 and (published != 1 or after.state is not fact.after):
            self._accuse("L5", f"{change}: {published} states on MQTT, {after.state} is retained")

    def close_moment(self) -> None:
        """All that belongs together has been said."""
        if self._due:
            due, self._due = self._due, {}
            for name, said in due.items():
                self._accuse("L5", f"{name}: the operator is told {', '.join(said)}, and no role has changed")

    def compare(self, lines: list[str], role: Role, names: list[str]) -> None:
        """What the operator was told last of an instance against what it is: the lines of all, newest last.

        `names` are all that it has had, the present one last.
        """
        name = names[-1]
        begins = {f'INSTANCE "{each}"' for each in names}
        split = (line.rsplit(" ", 2) for line in lines)
        said = [state for begin, state, _ in split if begin in begins and state in STATES]
        if any(one == other for one, other in pairwise(said)):
            self._accuse("L5", f"{name}: the operator was told the same state twice: {', '.join(said[-4:])}")
        if role is not Role.INIT and (not said or said[-1] not in _NAMES[role]):
            self._accuse("L5", f"{name} is {role.value}, and the operator was last told {(said or ['nothing'])[-1]}")
