"""The role of an instance, and all that comes with a change of it.

The half of the machine that acts; `haxlb.vrrp.router` is the half that decides. Effects are in the order in which they
are to be executed: entering MASTER the advert, then what follows the master, then its announcement; leaving it the
resignation, then what follows the master, or, outranked, that first and then the last word.
"""

from __future__ import annotations

from haxlb.model.addresses import IPAddress
from haxlb.model.facts import RoleChanged
from haxlb.model.instance import Role, VrrpInstance
from haxlb.model.notification import NotifyDue
from haxlb.model.status import InstanceStatus
from haxlb.model.succession import Succession
from haxlb.model.units import SECOND_US
from haxlb.vrrp.announcements import Announcements
from haxlb.vrrp.condition import Condition
from haxlb.vrrp.election import Election
from haxlb.vrrp.farewell import Farewell
from haxlb.vrrp.holdings import addresses, put_on, take_off
from haxlb.vrrp.inputs import Effect, Grouped, Notify, Report, SendAdvert, Start
from haxlb.vrrp.peers import Peers
from haxlb.vrrp.schedule import Schedule
from haxlb.vrrp.states import Event, step
from haxlb.vrrp.transitions import Transitions

_FAULT_ADVERTS = 2
"""Priority 0 is said twice on the way into FAULT (keepalived): a lost one costs the others two intervals."""


class Roles:
    """What one instance is, and how it becomes something else."""

    def __init__(self, instance: VrrpInstance) -> None:
        self.instance = instance
        self.role = Role.INIT
        self.priority = instance.priority
        """The effective one: what adverts say."""
        self.yielded = False
        """Since a hand-over, until it is MASTER again or told to resume."""
        self.reserve = ""
        """Since its start why it must not preempt, until that is over; empty = it may."""
        self.wish: Role | None = None
        """Of a BACKUP: MASTER since its timer ran out, BACKUP since it has accepted an advert, else None."""
        self._start: Start | None = None
        self._condition = Condition(instance)
        self._fault_event = Event.START_UNUSABLE
        """The last cause of FAULT."""
        self._election = Election(instance)
        self._announcements = Announcements(instance)
        self._farewell = Farewell()
        self._peers = Peers()
        self._transitions = Transitions()
        self._schedule = Schedule()
        self._sent = 0
        self._received = 0

    @property
    def source(self) -> IPAddress | None:
        """The address that adverts come from."""
        return self._condition.source

    @property
    def trouble(self) -> str:
        """Why it must be in FAULT for reasons of its own; empty = there is none."""
        return self._condition.trouble

    @property
    def grouped(self) -> Grouped:
        """What it was told last of its sync group."""
        return self._condition.grouped

    @property
    def master_down_interval_us(self) -> int:
        """How long a BACKUP waits, with the interval in force."""
        return self._election.master_down_interval_us

    def next_deadline(self) -> int | None:
        """When a TimerExpired is wanted, µs; None = never."""
        if self.role is Role.BACKUP:
            return self._election.deadline
        advert_at = self._schedule.at
        if advert_at is None:
            return None
        other = self._announcements.next_deadline()
        return advert_at if other is None or other > advert_at else other

    def status(self, epoch_offset_us: int = 0) -> InstanceStatus:
        """What `haxlb show` prints; the offset turns monotonic µs into µs since the epoch."""
        instance, deadline = self.instance, self.next_deadline()
        return InstanceStatus(
            name=instance.name,
            interface=instance.interface,
            vrid=instance.vrid,
            version=instance.version,
            role=self.role,
            since_at=(self._transitions.since + epoch_offset_us) / SECOND_US,
            reason=self._transitions.reason,
            priority=self.priority,
            yielded=self.yielded,
            vips=tuple(str(vip) for vip in instance.vips),
            peers=self._peers.statuses(epoch_offset_us),
            master_down_interval_us=self.master_down_interval_us,
            adverts_sent=self._sent,
            adverts_received=self._received,
            transitions=self._transitions.count,
            family=instance.family,
            base_priority=instance.priority,
            contributions=self._condition.contributions(),
            sync_group=self.grouped.group,
            source=str(self.source or ""),
            excluded_vips=tuple(str(vip) for vip in instance.excluded_vips),
            virtual_mac="" if instance.virtual_mac is None else instance.virtual_mac.interface,
            address_macs=tuple(f"{each.interface} on {each.base}" for each in instance.address_macs),
            next_at=None if deadline is None else (deadline + epoch_offset_us) / SECOND_US,
            next_what=self._next_what(deadline),
            latest=self._transitions.statuses(epoch_offset_us),
        )

    def _reprioritise(self, now: int) -> list[Effect]:
        before, self.priority = self.priority, self._condition.priority
        if before == self.priority:
            return []
        self._election.reprioritise(self.priority, now)
        if self.instance.notify_priority_changes and self.role in (Role.BACKUP, Role.MASTER):
            return [self._notify(f"{self.role.value}_PRIORITY")]
        return []

    def _become_master(self, event: Event, reason: str, now: int) -> list[Effect]:
        before, self.role = self.role, step(self.role, event)
        self._farewell.end()
        self._election.forget()
        self._condition.rival.forget()
        self._reprioritise(now)
        self.yielded, self.wish = False, None
        effects: list[Effect] = [self._advert_now(now), *put_on(self.instance)]
        effects += self._announcements.begin(now)
        return effects + self._tell(before, reason, self.role.value, now)

    def _resume_master(self, succession: Succession, now: int) -> list[Effect]:
        """MASTER in the place of a process that has died: nobody is told of a change, since there is none.

        One announcement all the same: the dead one may have been in the middle of its own.
        """
        self.role = step(self.role, Event.START_RESUMED)
        self._transitions.resume(succession.since_us, succession.reason)
        return [self._advert_now(now), *put_on(self.instance), *self._announcements.resume(now)]

    def _become_backup(
        self,
        event: Event,
        reason: str,
        now: int,
        *,
        learned_interval_us: int | None = None,
        resign: bool = False,
        farewell: bool = False,
        told: list[Effect] | None = None,
    ) -> list[Effect]:
        before, self.role = self.role, step(self.role, event)
        # To a rival that is MASTER already a resignation that is lost will not be said again by anybody.
        rival = self._announcements.has_rival(self.master_down_interval_us, now)
        effects = self._let_go(before, resignations=1 if resign else 0)
        if before is Role.MASTER and (rival or not resign) and self._has_last_word():
            if farewell:
                self._farewell.begin(now)
                effects.append(self._advert())
            else:
                self._farewell.owe()
        start = self._start
        self._election.rest(now if start is None else max(now, start.quiet_until), learned_interval_us)
        return [*effects, *(told or []), *self._tell(before, reason, self.role.value, now)]

    def _become_idle(self, event: Event, reason: str, now: int, notify: str = "FAULT") -> list[Effect]:
        before, self.role = self.role, step(self.role, event)
        resignations = 1 if event is Event.SHUTDOWN else _FAULT_ADVERTS
        effects = self._let_go(before, resignations=resignations)
        if before is Role.MASTER and event is Event.LINK_LOST and self._has_last_word():
            self._farewell.owe()  # the resignation goes nowhere
        return effects + self._tell(before, reason, notify, now)

    def _has_last_word(self) -> bool:
        """RFC 9568 knows none; without addresses there is nothing that anybody could believe."""
        return not self.instance.strict and bool(addresses(self.instance))

    def _let_go(self, before: Role, *, resignations: int) -> list[Effect]:
        self._election.forget()
        self._announcements.end()
        self._schedule.stop()
        self.wish = None
        if before is not Role.MASTER:
            return []
        self._farewell.end()
        return [*(self._advert(priority=0) for _ in range(resignations)), *take_off(self.instance)]

    def _tell(self, before: Role, reason: str, notify: str, now: int) -> list[Effect]:
        self._transitions.note(before, self.role, reason, now)
        fact = RoleChanged(
            instance=self.instance.name,
            vrid=self.instance.vrid,
            before=before,
            after=self.role,
            reason=reason,
            priority=self.priority,
            at_us=now,
        )
        return [self._notify(notify), Report(fact=fact)]

    def _notify(self, state: str) -> Notify:
        due = NotifyDue(subject="INSTANCE", name=self.instance.name, state=state, priority=self.priority)
        return Notify(due=due)

    def _advert(self, priority: int | None = None) -> SendAdvert:
        self._sent += 1
        return SendAdvert(priority=self.priority if priority is None else priority)

    def _advert_now(self, now: int) -> SendAdvert:
        """Out of turn: the schedule starts anew from here."""
        self._schedule.start(self.instance.advert_interval_us, now)
        return self._advert()

    def _next_what(self, deadline: int | None) -> str:
        if deadline is None:
            return ""
        if self.role is Role.MASTER:
            return "advert" if deadline == self._schedule.at else "announcement"
        return "wants MASTER" if self.grouped.group else "becomes MASTER"
