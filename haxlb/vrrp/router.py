"""One VRRP instance: the virtual router of RFC 3768 and RFC 9568, with keepalived's FAULT.

Theory of operation. `handle` takes one input and the time and answers with effects, to be executed in list order;
`next_deadline` says when it wants a TimerExpired. Every change of role goes through `states.step`, so what the table
does not have cannot happen. What the table does not say:

* entering MASTER sends the advert first, then puts the addresses on, then announces them: other routers must be
  silenced before two of them answer ARP;
* leaving MASTER takes the addresses off before anything else, and only then resigns (priority 0);
* `nopreempt`, a pending `preempt_delay` and a hand-over ("yielded") make a BACKUP respect adverts of lower priority;
* adverts follow an absolute schedule: the next one is due one interval after the last was due, not after it was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.facts import RoleChanged
from haxlb.model.node import SECOND_US, Role, VrrpInstance
from haxlb.model.notification import NotifyDue
from haxlb.model.status import InstanceStatus
from haxlb.vrrp.announcements import Announcements
from haxlb.vrrp.changes import same_on_the_wire, vip_changes
from haxlb.vrrp.election import OWNER_PRIORITY, Election, seconds
from haxlb.vrrp.inputs import (
    AddVips,
    AdvertReceived,
    Effect,
    HandOver,
    Input,
    LinkChanged,
    Notify,
    Reconfigure,
    RemoveVips,
    Report,
    Resume,
    SendAdvert,
    Shutdown,
    Start,
    TimerExpired,
)
from haxlb.vrrp.peers import Peers
from haxlb.vrrp.states import Event, step


class Router:
    """The machine of one instance. Starts in INIT; tell it the link, then Start."""

    def __init__(self, instance: VrrpInstance) -> None:
        self.instance = instance
        self.role = Role.INIT
        self.yielded = False
        """Since a hand-over, until it is MASTER again or told to resume."""
        self._link = LinkChanged(up=False, address=None, present=False)
        self._election = Election(instance)
        self._announcements = Announcements(instance.garp)
        self._peers = Peers()
        self._advert_at: int | None = None
        self._since = 0
        self._reason = "not started"
        self._sent = 0
        self._received = 0
        self._transitions = 0
        self._handlers: dict[type, Callable[[Any, int], list[Effect]]] = {
            AdvertReceived: self._on_advert,
            TimerExpired: self._on_timer,
            LinkChanged: self._on_link,
            Start: self._on_start,
            HandOver: self._on_hand_over,
            Resume: self._on_resume,
            Reconfigure: self._on_reconfigure,
            Shutdown: self._on_shutdown,
        }

    @property
    def source(self) -> IPAddress | None:
        """The address that adverts come from."""
        return self.instance.source or self._link.address

    @property
    def master_down_interval_us(self) -> int:
        """How long a BACKUP waits, with the interval in force."""
        return self._election.master_down_interval_us

    def next_deadline(self) -> int | None:
        """When a TimerExpired is wanted, µs; None = never."""
        if self.role is Role.BACKUP:
            return self._election.deadline
        if self._advert_at is None:
            return None
        other = self._announcements.next_deadline()
        return self._advert_at if other is None or other > self._advert_at else other

    def status(self, epoch_offset_us: int = 0) -> InstanceStatus:
        """What `haxlb show` prints; the offset turns monotonic µs into µs since the epoch."""
        instance = self.instance
        return InstanceStatus(
            name=instance.name,
            interface=instance.interface,
            vrid=instance.vrid,
            version=instance.version,
            role=self.role,
            since_at=(self._since + epoch_offset_us) / SECOND_US,
            reason=self._reason,
            priority=instance.priority,
            yielded=self.yielded,
            vips=tuple(str(vip) for vip in instance.vips),
            peers=self._peers.statuses(epoch_offset_us),
            master_down_interval_us=self.master_down_interval_us,
            adverts_sent=self._sent,
            adverts_received=self._received,
            transitions=self._transitions,
        )

    def handle(self, what: Input, now: int) -> list[Effect]:
        """Take one input at this time (monotonic µs, never less than before). Effects are to be executed in order."""
        return self._handlers[type(what)](what, now)

    # Inputs

    def _on_start(self, _what: Start, now: int) -> list[Effect]:
        trouble = self._link_trouble()
        if trouble:
            return self._become_idle(Event.START_UNUSABLE, trouble, now)
        if self.instance.priority == OWNER_PRIORITY:
            return self._become_master(Event.START_OWNER, "started with priority 255, the addresses' owner", now)
        effects = self._become_backup(Event.START, "started", now)
        if self.instance.initial_role is Role.MASTER:
            self._election.hurry(now)
        return effects

    def _on_timer(self, _what: TimerExpired, now: int) -> list[Effect]:
        if self.role is Role.BACKUP and self._election.is_over(now):
            if self._election.overslept(now):
                self.role = step(self.role, Event.OVERSLEPT)
                return []
            return self._become_master(Event.MASTER_DOWN, self._election.reason(now), now)
        if self.role is not Role.MASTER or self._advert_at is None:
            return []
        late = now - self._advert_at
        if late >= self.master_down_interval_us and self._election.is_nopreempt:
            # As keepalived: after such a pause another router is MASTER, and nopreempt forbids to take it back.
            reason = f"was not scheduled for {seconds(late)}; another director may have taken over"
            return self._become_backup(Event.STALLED, reason, now)
        effects: list[Effect] = []
        if late >= 0:
            self.role = step(self.role, Event.ADVERT_DUE)
            effects.append(self._advert())
            # Absolute: a late wake-up must not shift the schedule; what a stall has missed is not made up for.
            interval = self.instance.advert_interval_us
            self._advert_at += (late // interval + 1) * interval
        effects += self._announcements.due(self.instance.vips, now)
        return effects

    def _on_advert(self, what: AdvertReceived, now: int) -> list[Effect]:
        if self.role is not Role.BACKUP and self.role is not Role.MASTER:
            return []
        self._received += 1
        told: list[Effect] = [*self._peers.hear(what, self.instance, now)]
        if self.role is Role.MASTER:
            return self._master_hears(what, told, now)
        self._backup_hears(what, now)
        return told

    def _backup_hears(self, what: AdvertReceived, now: int) -> None:
        advert, election = what.advert, self._election
        if advert.priority == 0:
            self.role = step(self.role, Event.ADVERT_RESIGNED)
            election.resigned(what.source, now)
        elif election.yields_to(advert, yielded=self.yielded, now=now):
            self.role = step(self.role, Event.ADVERT_ACCEPTED)
            election.rest(now, advert.interval_us)
        else:
            self.role = step(self.role, Event.ADVERT_LOWER)
            election.outrank(what.source, advert.priority)

    def _master_hears(self, what: AdvertReceived, told: list[Effect], now: int) -> list[Effect]:
        theirs, ours, source = what.advert.priority, self.instance.priority, self.source
        if theirs == 0:
            self.role = step(self.role, Event.ADVERT_RESIGNED)
            return [self._advert_now(now), *told]
        told += self._peers.foreign(what, self.instance, self.master_down_interval_us, now)
        if theirs == ours and what.source == source:
            return told + self._peers.duplicate(what, self.instance, now)
        if theirs > ours or (theirs == ours and source is not None and int(what.source) > int(source)):
            reason = f"priority {theirs} of {what.source} is higher than our {ours}"
            if theirs == ours:
                reason = f"equal priority {ours}, but {what.source} is higher than our {source}"
            learned = what.advert.interval_us
            return self._become_backup(Event.ADVERT_HIGHER, reason, now, learned_interval_us=learned, told=told)
        self.role = step(self.role, Event.ADVERT_LOWER)
        announced = self._announcements.lower_priority(self.instance.vips, now)
        return [self._advert_now(now), *announced, *told]

    def _on_hand_over(self, what: HandOver, now: int) -> list[Effect]:
        if self.role is Role.INIT:
            return []
        self.yielded = True
        if self.role is Role.MASTER:
            return self._become_backup(Event.HAND_OVER, f"handed over: {what.reason}", now, resign=True)
        self.role = step(self.role, Event.HAND_OVER)
        return []

    def _on_resume(self, _what: Resume, _now: int) -> list[Effect]:
        self.yielded = False
        return []

    def _on_shutdown(self, what: Shutdown, now: int) -> list[Effect]:
        if self.role is Role.INIT:
            return []
        return self._become_idle(Event.SHUTDOWN, what.reason, now, notify="FAULT" if what.removed else "STOP")

    def _on_link(self, what: LinkChanged, now: int) -> list[Effect]:
        self._link = what
        return self._follow_link(now)

    def _follow_link(self, now: int) -> list[Effect]:
        trouble = self._link_trouble()
        if trouble and self.role in (Role.BACKUP, Role.MASTER):
            return self._become_idle(Event.LINK_LOST, trouble, now)
        if self.role is not Role.FAULT:
            return []
        if trouble:
            self._reason = trouble
            return []
        effects = self._become_backup(Event.LINK_RECOVERED, f"{self.instance.interface} is usable again", now)
        if self.instance.priority == OWNER_PRIORITY:
            self._election.owner_returns(now)
        return effects

    def _on_reconfigure(self, what: Reconfigure, now: int) -> list[Effect]:
        old, new = self.instance, what.instance
        self.instance = new
        self._election.reconfigure(new, now)
        self._announcements.reconfigure(new.garp, now)
        effects: list[Effect] = []
        if self.role is Role.MASTER:
            effects += self._swap_vips(old.vips, new.vips, now)
            if not same_on_the_wire(old, new):
                effects.append(self._advert_now(now))
        return effects + self._follow_link(now)

    def _swap_vips(self, old: tuple[Vip, ...], new: tuple[Vip, ...], now: int) -> list[Effect]:
        changes = vip_changes(old, new)
        effects: list[Effect] = []
        if changes.in_the_way:
            effects.append(RemoveVips(vips=changes.in_the_way))
        if changes.added:
            effects.append(AddVips(vips=changes.added))
            effects += self._announcements.added(changes.added, now)
        if changes.gone:
            effects.append(RemoveVips(vips=changes.gone))
        return effects

    # Roles

    def _become_master(self, event: Event, reason: str, now: int) -> list[Effect]:
        before, self.role = self.role, step(self.role, event)
        vips = self.instance.vips
        self._election.forget()
        self.yielded = False
        effects: list[Effect] = [self._advert_now(now)]
        if vips:
            effects.append(AddVips(vips=vips))
        effects += self._announcements.begin(vips, now)
        return effects + self._tell(before, reason, self.role.value, now)

    def _become_backup(
        self,
        event: Event,
        reason: str,
        now: int,
        *,
        learned_interval_us: int | None = None,
        resign: bool = False,
        told: list[Effect] | None = None,
    ) -> list[Effect]:
        before, self.role = self.role, step(self.role, event)
        effects = self._let_go(before, resign=resign)
        self._election.rest(now, learned_interval_us)
        return [*effects, *(told or []), *self._tell(before, reason, self.role.value, now)]

    def _become_idle(self, event: Event, reason: str, now: int, notify: str = "FAULT") -> list[Effect]:
        before, self.role = self.role, step(self.role, event)
        return self._let_go(before, resign=True) + self._tell(before, reason, notify, now)

    def _let_go(self, before: Role, *, resign: bool) -> list[Effect]:
        self._election.forget()
        self._announcements.end()
        self._advert_at = None
        if before is not Role.MASTER:
            return []
        effects: list[Effect] = []
        if self.instance.vips:
            effects.append(RemoveVips(vips=self.instance.vips))
        if resign:
            effects.append(self._advert(priority=0))
        return effects

    def _tell(self, before: Role, reason: str, notify: str, now: int) -> list[Effect]:
        self._since, self._reason = now, reason
        self._transitions += 1
        fact = RoleChanged(
            instance=self.instance.name,
            vrid=self.instance.vrid,
            before=before,
            after=self.role,
            reason=reason,
            priority=self.instance.priority,
            at_us=now,
        )
        due = NotifyDue(subject="INSTANCE", name=self.instance.name, state=notify, priority=self.instance.priority)
        return [Notify(due=due), Report(fact=fact)]

    # Adverts and link

    def _advert(self, priority: int | None = None) -> SendAdvert:
        self._sent += 1
        return SendAdvert(priority=self.instance.priority if priority is None else priority)

    def _advert_now(self, now: int) -> SendAdvert:
        """Out of turn: the schedule starts anew from here."""
        self._advert_at = now + self.instance.advert_interval_us
        return self._advert()

    def _link_trouble(self) -> str:
        interface = self.instance.interface
        if not self._link.present:
            return f"there is no interface {interface}"
        if not self._link.up:
            return f"{interface} is down"
        if self.source is None:
            return f"{interface} has no IPv4 address"
        return ""
