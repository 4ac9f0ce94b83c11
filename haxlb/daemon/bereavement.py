"""What a dead speaker has left undone: its roles are resumed by a successor, or given up in its stead.

Resuming is right where nobody can have noticed yet. The speaker's flight recorder says to the microsecond when each
instance sent its last advert as MASTER; a peer waits at least `down_timer_adverts` intervals from there. In that time
the successor goes on: the addresses stay, the peer hears the next advert. Whatever is older, or not known for certain,
is given up at once: priority 0, addresses off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from haxlb.daemon.chronicle import Chronicle
from haxlb.daemon.messages import ConfigureSpeaker
from haxlb.daemon.notifier import Notifier
from haxlb.daemon.standing import Standing
from haxlb.daemon.supervisor_ports import World
from haxlb.model.facts import RoleChanged
from haxlb.model.instance import Role, VrrpInstance
from haxlb.model.status import InstanceStatus
from haxlb.model.succession import Succession
from haxlb.model.units import SECOND_US

PROMOTION_US = 8_000
"""What a spare needs from its orders to its first advert, on a busy host; measured: docs/explanation/processes.md."""
MARGIN_US = 1_000
"""From an advert to the wire, and the coarseness of a peer's timer."""
LONGEST_US = SECOND_US
"""Of being late with an advert, where intervals are long: who was stuck for longer has let its addresses expire."""


class Bereavement:
    """Decides, and does what is to be done at once."""

    def __init__(
        self, world: World, standing: Standing, chronicle: Chronicle, notifier: Notifier, take: Callable[..., None]
    ) -> None:
        """`take` hears of the facts that follow."""
        self._world = world
        self._standing = standing
        self._chronicle = chronicle
        self._notifier = notifier
        self._take = take
        self._successions: tuple[Succession, ...] = ()

    def speaker_died(
        self, how: str, in_force: ConfigureSpeaker | None, statuses: tuple[InstanceStatus, ...], *, successor: bool
    ) -> None:
        """The speaker is dead.

        `in_force` is what it was told last and has confirmed, None while it was being told something else; `successor`
        says whether there is a spare that may take its place.
        """
        standing = self._standing
        masters = standing.masters
        inherited: dict[str, Succession] = {}
        if successor and in_force is not None and in_force.instances == standing.config.instances:
            inherited = self._inheritable(masters, statuses)
        self._successions = tuple(inherited.values())
        given_up = [each for each in masters if each.name not in inherited]
        lost_names = frozenset(each.name for each in given_up)
        # A successor clears up after its BACKUPs by itself, once the MASTERs have spoken.
        others = frozenset(each.name for each in standing.config.instances) - lost_names if inherited else frozenset()
        if lost_names or not inherited:
            for problem in self._world.bequest.execute(lost_names, others):
                self._chronicle.note("error", "bequest_failed", problem, reason=problem)
        for each in given_up:
            lost = RoleChanged(
                instance=each.name,
                vrid=each.vrid,
                before=Role.MASTER,
                after=Role.INIT,
                reason=f"the speaker {how}: priority 0 sent and addresses taken off in its stead",
                priority=each.priority,
                at_us=self._world.clock.now(),
            )
            self._take(lost, "speaker")
        standing.roles = {name: role for name, role in standing.roles.items() if name in inherited}
        self._notifier.speaker_died(frozenset(inherited))

    def successions(self) -> tuple[Succession, ...]:
        """What the speaker that is started now goes on with; told only once."""
        out, self._successions = self._successions, ()
        return out

    def _inheritable(
        self, masters: tuple[VrrpInstance, ...], statuses: Iterable[InstanceStatus]
    ) -> dict[str, Succession]:
        """By name; a sync group as a whole or not at all."""
        now, wall = self._world.clock.now(), self._world.wall.wall()
        adverts = self._world.children.recorded("speaker")
        numbers = {each.name: number for number, each in enumerate(self._standing.config.instances)}
        known = {each.name: each for each in statuses}
        found: dict[str, Succession] = {}
        for each in masters:
            last = adverts[numbers[each.name]] if numbers[each.name] < len(adverts) else 0
            status = known.get(each.name)
            interval = each.advert_interval_us
            until = last + min(each.down_timer_adverts * interval, interval + LONGEST_US) - MARGIN_US
            if last and status is not None and now + PROMOTION_US < until:
                since = now - round((wall - status.since_at) * SECOND_US)
                found[each.name] = Succession(
                    instance=each.name,
                    until_us=until,
                    since_us=since,
                    reason=status.reason,
                    old_checksum=status.old_checksum,
                )
        for group in self._standing.config.sync_groups:
            if not all(name in found for name in group.members if name in numbers):
                for name in group.members:
                    found.pop(name, None)
        return found
