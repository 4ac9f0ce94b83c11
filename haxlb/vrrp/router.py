"""One VRRP instance: the virtual router of RFC 3768 and RFC 9568, with keepalived's FAULT.

Theory of operation. `handle` takes one input and the time and answers with effects, to be executed in list order;
`next_deadline` says when it wants a TimerExpired. Every change of role goes through `states.step`, so what the table
does not have cannot happen. What the table does not say:

* entering MASTER sends the advert first, then puts on what follows the master, then announces it: other routers must
  be silenced before two of them answer ARP;
* leaving MASTER resigns (priority 0) and takes all that off in the very next step: the others' `skew_time` runs while
  the addresses go (RFC 9568 section 6.4.3, keepalived); outranked, it takes it off at once, and then says one last
  advert so that the winner announces once more (`haxlb.vrrp.farewell`);
* `nopreempt`, a pending `preempt_delay`, a hand-over ("yielded") and a start of who cannot serve yet ("reserve") make a
  BACKUP respect adverts of lower priority;
* a start in the place of a process that was MASTER and has only just died is no transition for anybody else: the peer
  has missed nothing, the addresses are on, the operator is told nothing;
* adverts follow an absolute schedule: the next one is due one interval after the last was due, not after it was sent;
* a member of a sync group does not become MASTER by itself: it wishes to, and the group decides
  (`haxlb.vrrp.sync_group`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.instance import Role, VrrpInstance
from haxlb.vrrp.changes import same_on_the_wire
from haxlb.vrrp.election import OWNER_PRIORITY, seconds
from haxlb.vrrp.holdings import swap
from haxlb.vrrp.inputs import (
    AdvertReceived,
    Announce,
    Effect,
    EndReserve,
    GroupAnnounce,
    GroupBackup,
    Grouped,
    GroupMaster,
    HandOver,
    Input,
    LinkChanged,
    Reconfigure,
    Resume,
    Shutdown,
    Start,
    TimerExpired,
    Tracked,
)
from haxlb.vrrp.roles import Roles
from haxlb.vrrp.states import Event, step


class Router(Roles):
    """The machine of one instance. Starts in INIT; tell it the link, what is tracked and the group, then Start."""

    def __init__(self, instance: VrrpInstance) -> None:
        super().__init__(instance)
        self._handlers: dict[type, Callable[[Any, int], list[Effect]]] = {
            AdvertReceived: self._on_advert,
            TimerExpired: self._on_timer,
            LinkChanged: self._on_link,
            Tracked: self._on_tracked,
            Start: self._on_start,
            HandOver: self._on_hand_over,
            Resume: self._on_resume,
            EndReserve: self._on_end_reserve,
            Reconfigure: self._on_reconfigure,
            Grouped: self._on_grouped,
            GroupMaster: self._on_group_master,
            GroupBackup: self._on_group_backup,
            GroupAnnounce: self._on_group_announce,
            Shutdown: self._on_shutdown,
        }

    def handle(self, what: Input, now: int) -> list[Effect]:
        """Take one input at this time (monotonic µs, never less than before). Effects are to be executed in order."""
        return self._handlers[type(what)](what, now)

    # Start and end

    def _on_start(self, what: Start, now: int) -> list[Effect]:
        self._start, self.reserve = what, what.reserve
        return self._follow(now)

    def _begin(self, start: Start, cause: tuple[Event, str] | None, now: int) -> list[Effect]:
        if cause is not None:
            return self._become_idle(Event.START_UNUSABLE, cause[1], now)
        if waits := self._condition.waits:
            self._transitions.reason = waits
            return []
        if start.succession is not None and now < start.succession.until_us:
            return self._resume_master(start.succession, now)
        quiet = now < start.quiet_until
        if self.priority == OWNER_PRIORITY and not quiet and not self.grouped.group and not self.reserve:
            return self._become_master(Event.START_OWNER, "started with priority 255, the addresses' owner", now)
        effects = self._become_backup(Event.START, "started", now)
        begin = max(now, start.quiet_until)
        if self.reserve:
            return effects  # whoever serves is to be heard first
        if self.priority == OWNER_PRIORITY:
            self._election.owner_starts(begin)
        elif self.instance.initial_role is Role.MASTER and start.hurry:
            self._election.hurry(begin)
        return effects

    def _on_shutdown(self, what: Shutdown, now: int) -> list[Effect]:
        self._start = None
        if self.role is Role.INIT:
            return []
        state = "STOP"
        if what.removed:
            state = "DELETED" if self.instance.notify.tells_deleted else "FAULT"
        return self._become_idle(Event.SHUTDOWN, what.reason, now, notify=state)

    # Timers

    def _on_timer(self, _what: TimerExpired, now: int) -> list[Effect]:
        if self.role is Role.BACKUP and self._election.is_over(now):
            return self._on_master_down(now)
        if self.role is not Role.MASTER or self._schedule.at is None:
            return []
        late = now - self._schedule.at
        if late < 0:
            return [*self._announcements.due(now)]
        if late >= self.master_down_interval_us and self._election.is_nopreempt:
            # As keepalived: after such a pause another router is MASTER, and nopreempt forbids to take it back.
            reason = f"was not scheduled for {seconds(late)}; another director may have taken over"
            return self._become_backup(Event.STALLED, reason, now)
        self.role = step(self.role, Event.ADVERT_DUE)
        self._schedule.advance(self.instance.advert_interval_us, now)
        return [self._advert(), *self._announcements.due(now)]

    def _on_master_down(self, now: int) -> list[Effect]:
        election = self._election
        if election.overslept(now):
            self.role = step(self.role, Event.OVERSLEPT)
            return []
        if self.grouped.group:
            self.role = step(self.role, Event.GROUP_WAITS)
            self.wish = Role.MASTER
            election.wait_again(now)
            self._transitions.explain(Event.GROUP_WAITS, lambda: self._waits_for_group(now))
            return []
        return self._become_master(Event.MASTER_DOWN, election.reason(now), now)

    def _waits_for_group(self, now: int) -> str:
        return f"wants MASTER ({self._election.reason(now)}), but not all of sync group {self.grouped.group} do"

    def _waits_for_timer(self, now: int) -> str:
        return f"waits to take over: {self._election.reason(now)}"

    # Adverts

    def _on_advert(self, what: AdvertReceived, now: int) -> list[Effect]:
        if self.role is not Role.BACKUP and self.role is not Role.MASTER:
            return []
        if self._start is not None and now < self._start.quiet_until:
            return []
        if self.priority == OWNER_PRIORITY and self.instance.owner_ignore_adverts:
            return []
        self._received += 1
        told: list[Effect] = [*self._peers.hear(what, self.instance, now)]
        if self.role is Role.MASTER:
            return self._master_hears(what, told, now)
        return self._backup_hears(what, now) + told

    def _backup_hears(self, what: AdvertReceived, now: int) -> list[Effect]:
        advert, election = what.advert, self._election
        if advert.priority == 0:
            self.role = step(self.role, Event.ADVERT_RESIGNED)
            election.resigned(what.source, now)
        elif election.yields_to(advert, yielded=self.yielded or bool(self.reserve), now=now):
            self.role = step(self.role, Event.ADVERT_ACCEPTED)
            election.rest(now, advert.interval_us)
            self.wish = Role.BACKUP
            source, theirs = what.source, advert.priority
            self._transitions.explain(
                (source, theirs, self.priority, self.yielded, self.reserve),
                lambda: election.respects(source, theirs, yielded=self.yielded, reserve=self.reserve),
            )
            if self._farewell.unheard(advert.interval_us, now):
                # Of our own priority only to who outranks us: anybody else would yield.
                return [self._advert(None if self._is_outranked(what) else 0)]
        else:
            self.role = step(self.role, Event.ADVERT_LOWER)
            election.outrank(what.source, advert.priority)
            if not self.grouped.group:
                self._transitions.explain(
                    (what.source, advert.priority, self.priority), lambda: self._waits_for_timer(now)
                )
        return []

    def _master_hears(self, what: AdvertReceived, told: list[Effect], now: int) -> list[Effect]:
        theirs, ours, source = what.advert.priority, self.priority, self.source
        if theirs == 0:
            self.role = step(self.role, Event.ADVERT_RESIGNED)
            answers = self._schedule.answer(self.instance.advert_interval_us, now, contested=False)
            answer: list[Effect] = [self._advert()] if answers else []
            return [*answer, *self._announcements.rival_left(now), *told]
        told += self._peers.foreign(what, self.instance, self.master_down_interval_us, now)
        if theirs == ours and what.source == source:
            return told + self._peers.duplicate(what, self.instance, now)
        reason = ""
        if theirs > ours:
            reason = f"priority {theirs} of {what.source} is higher than our {ours}"
        elif self._is_outranked(what):
            reason = f"equal priority {ours}, but {what.source} is higher than our {source}"
        elif theirs == ours == OWNER_PRIORITY and self._owner_gives_in(what, now):
            reason = f"{what.source} has priority 255, too, and goes on: we are 254 until it is gone"
        if reason:
            return self._outranked(what, reason, told, now)
        self.role = step(self.role, Event.ADVERT_LOWER)
        announced = self._announcements.lower_priority(what.advert.interval_us, now)
        interval, contested = self.instance.advert_interval_us, self._announcements.is_contested
        effects: list[Effect] = []
        if not self.instance.lower_prio_no_advert and self._schedule.answer(interval, now, contested=contested):
            effects.append(self._advert())
        if announced is not None:
            effects += announced
            effects.append(self._notify("MASTER_RX_LOWER_PRI"))
        return effects + told

    def _is_outranked(self, what: AdvertReceived) -> bool:
        """Whether of two MASTERs it would be the other that stays (RFC 9568 section 6.4.3)."""
        theirs, source = what.advert.priority, self.source
        if theirs != self.priority:
            return theirs > self.priority
        return source is not None and int(what.source) > int(source)

    def _outranked(self, what: AdvertReceived, reason: str, told: list[Effect], now: int) -> list[Effect]:
        first: list[Effect] = [self._advert()] if self.instance.higher_prio_send_advert else []
        learned = what.advert.interval_us
        left = self._become_backup(
            Event.ADVERT_HIGHER, reason, now, learned_interval_us=learned, farewell=True, told=told
        )
        self.wish = Role.BACKUP
        return first + left

    def _owner_gives_in(self, what: AdvertReceived, now: int) -> bool:
        prevails = self._condition.rival.heard(self.instance.advert_interval_us, what.advert.interval_us, now)
        if prevails:
            self._reprioritise(now)
        return prevails

    # Orders

    def _on_hand_over(self, what: HandOver, now: int) -> list[Effect]:
        if self.role is Role.INIT:
            return []
        self.yielded = True
        self.wish = None
        if self.role is Role.MASTER:
            return self._become_backup(Event.HAND_OVER, f"handed over: {what.reason}", now, resign=True)
        self.role = step(self.role, Event.HAND_OVER)
        return []

    def _on_resume(self, _what: Resume, _now: int) -> list[Effect]:
        self.yielded = False
        return []

    def _on_end_reserve(self, _what: EndReserve, _now: int) -> list[Effect]:
        self.reserve = ""
        return []

    def _on_grouped(self, what: Grouped, now: int) -> list[Effect]:
        self._condition.grouped = what
        return self._follow(now)

    def _on_group_master(self, _what: GroupMaster, now: int) -> list[Effect]:
        reason = f"{self._election.reason(now)}; all of sync group {self.grouped.group} want MASTER"
        return self._become_master(Event.GROUP_MASTER, reason, now)

    def _on_group_backup(self, what: GroupBackup, now: int) -> list[Effect]:
        return self._become_backup(Event.GROUP_BACKUP, what.reason, now)

    def _on_group_announce(self, _what: GroupAnnounce, now: int) -> list[Effect]:
        return [*self._announcements.companion(now)] if self.role is Role.MASTER else []

    def _on_reconfigure(self, what: Reconfigure, now: int) -> list[Effect]:
        old, new, priority = self.instance, what.instance, self.priority
        self.instance = new
        self._condition.reconfigure(new)
        self.priority = self._condition.priority
        self._election.reconfigure(new, self.priority, now)
        self._announcements.reconfigure(new, now)
        self._transitions.doubt()
        effects: list[Effect] = []
        if self.role is Role.MASTER:
            coming, added, going = swap(old, new)
            effects = [*coming, *self._announcements.added(added), *going]
            if priority != self.priority or not same_on_the_wire(old, new):
                effects.append(self._advert_now(now))
        return effects + self._follow(now)

    # Faults and priority

    def _on_link(self, what: LinkChanged, now: int) -> list[Effect]:
        self._condition.link = what
        return self._follow(now)

    def _on_tracked(self, what: Tracked, now: int) -> list[Effect]:
        if not self._condition.take(what.results):
            return []
        return self._reprioritise(now) + self._follow(now)

    def _follow(self, now: int) -> list[Effect]:
        """Out of INIT, into FAULT or out of it, as the causes are now."""
        cause = self._condition.cause()
        if cause is not None:
            self._fault_event = cause[0]
        if self.role is Role.INIT:
            return [] if self._start is None else self._begin(self._start, cause, now)
        if self.role is not Role.FAULT:
            return [] if cause is None else self._become_idle(*cause, now)
        waits = self._condition.waits if cause is None else cause[1]
        if waits:
            self._transitions.reason = waits
            return []
        return self._recover(now)

    def _recover(self, now: int) -> list[Effect]:
        link = self._fault_event is Event.LINK_LOST
        reason = f"{self.instance.interface} is usable again" if link else f"over: {self._transitions.reason}"
        effects = self._become_backup(Event.RECOVERED, reason, now)
        if self.priority == OWNER_PRIORITY and not self.reserve:
            self._election.owner_returns(now)
        if self.instance.peers and self.source is not None:
            # The MASTER's neighbour entry for us may have failed meanwhile: its adverts would not arrive (keepalived).
            effects.insert(0, Announce(vips=(_itself(self.instance, self.source),), rounds=1))
        return effects


def _itself(instance: VrrpInstance, source: IPAddress) -> Vip:
    return Vip(address=source, prefix_length=source.max_prefixlen, interface=instance.interface)
