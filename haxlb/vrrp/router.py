"""One VRRP instance: the virtual router of RFC 3768 and RFC 9568, with keepalived's FAULT.

Theory of operation. `handle` takes one input and the time and answers with effects, to be executed in list order;
`next_deadline` says when it wants a TimerExpired. Every change of role goes through `states.step`, so what the table
does not have cannot happen. What the table does not say:

* entering MASTER sends the advert first, then puts the addresses on, then announces them: other routers must be
  silenced before two of them answer ARP;
* leaving MASTER takes the addresses off before anything else, and only then resigns (priority 0);
* a BACKUP ignores adverts of lower priority, so preemption is its timer running out: no special path;
* `nopreempt`, a pending `preempt_delay` and a hand-over ("yielded") make it treat them like the MASTER's instead;
* adverts follow an absolute schedule: the next one is due one interval after the last was due, not after it was sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Any

from haxlb.model.addresses import Vip
from haxlb.model.facts import AdvertRejected, ForeignAdvertHeard, PeerHeard, RoleChanged
from haxlb.model.node import SECOND_US, Role, VrrpInstance
from haxlb.model.status import InstanceStatus, PeerStatus
from haxlb.vrrp.announcements import Announcements
from haxlb.vrrp.inputs import (
    AddVips,
    AdvertReceived,
    Effect,
    HandOver,
    Input,
    LinkChanged,
    Reconfigure,
    RemoveVips,
    Report,
    Resume,
    RunNotify,
    SendAdvert,
    Shutdown,
    Start,
    TimerExpired,
)
from haxlb.vrrp.states import Event, step
from haxlb.vrrp.timers import master_down_interval, skew_time

OWNER_PRIORITY = 255
_MAX_PEERS = 16
"""Sources remembered per instance: a flood of spoofed adverts must not cost memory."""


@dataclass(slots=True)
class _Peer:
    priority: int
    heard_at: int
    reported_at: int | None = None
    """Last ForeignAdvertHeard."""


class Router:
    """The machine of one instance. Starts in INIT; tell it the link, then Start."""

    def __init__(self, instance: VrrpInstance) -> None:
        self.instance = instance
        self.role = Role.INIT
        self.yielded = False
        self._link = LinkChanged(up=False, address=None, present=False)
        self._announcements = Announcements(instance.garp)
        self._learned_interval: int | None = None
        self._down_at: int | None = None
        self._silent_since = 0
        self._why_down = ""
        self._preempt_at: int | None = None
        self._advert_at: int | None = None
        self._peers: dict[IPv4Address, _Peer] = {}
        self._since = 0
        self._reason = "not started"
        self._sent = 0
        self._received = 0
        self._transitions = 0
        self._duplicate_reported_at: int | None = None
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
    def source(self) -> IPv4Address | None:
        """The address that adverts come from."""
        return self.instance.source or self._link.address

    @property
    def master_down_interval_us(self) -> int:
        """How long a BACKUP waits, with the interval in force."""
        return master_down_interval(self.instance.version, self.instance.priority, self._master_interval)

    def next_deadline(self) -> int | None:
        """When a TimerExpired is wanted, µs; None = never."""
        if self.role is Role.BACKUP:
            return self._down_at
        if self._advert_at is None:
            return None
        other = self._announcements.next_deadline()
        return self._advert_at if other is None or other > self._advert_at else other

    def status(self, epoch_offset_us: int = 0) -> InstanceStatus:
        """What `haxlb show` prints; the offset turns monotonic µs into µs since the epoch."""

        def seconds(at: int) -> float:
            return (at + epoch_offset_us) / SECOND_US

        instance = self.instance
        return InstanceStatus(
            name=instance.name,
            interface=instance.interface,
            vrid=instance.vrid,
            version=instance.version,
            role=self.role,
            since_at=seconds(self._since),
            reason=self._reason,
            priority=instance.priority,
            yielded=self.yielded,
            vips=tuple(str(vip) for vip in instance.vips),
            peers=tuple(
                PeerStatus(address=address, priority=peer.priority, heard_at=seconds(peer.heard_at))
                for address, peer in self._peers.items()
            ),
            master_down_interval_us=self.master_down_interval_us,
            adverts_sent=self._sent,
            adverts_received=self._received,
            transitions=self._transitions,
        )

    def handle(self, what: Input, now: int) -> list[Effect]:
        """Take one input at this time (monotonic µs, never less than before). Effects are to be executed in order."""
        return self._handlers[type(what)](what, now)

    # -- what happens to it

    def _on_start(self, _what: Start, now: int) -> list[Effect]:
        trouble = self._link_trouble()
        if trouble:
            return self._become_idle(Event.START_UNUSABLE, trouble, now)
        if self.instance.priority == OWNER_PRIORITY:
            return self._become_master(Event.START_OWNER, "started with priority 255, the addresses' owner", now)
        effects = self._become_backup(Event.START, "started", now)
        if self.instance.initial_role is Role.MASTER:
            # keepalived: one interval and the least skew instead of three, so that a pair that boots settles quickly.
            wait = self._own_interval + skew_time(self.instance.version, OWNER_PRIORITY, self._own_interval)
            self._down_at = now + wait
            self._why_down = f"state MASTER, and no higher priority heard for {_seconds(wait)} after the start"
        return effects

    def _on_timer(self, _what: TimerExpired, now: int) -> list[Effect]:
        if self.role is Role.BACKUP:
            if self._down_at is None or now < self._down_at:
                return []
            reason = self._why_down or f"no advert for {_seconds(now - self._silent_since)}"
            return self._become_master(Event.MASTER_DOWN, reason, now)
        if self.role is not Role.MASTER or self._advert_at is None:
            return []
        effects: list[Effect] = []
        if self._advert_at <= now:
            self.role = step(self.role, Event.ADVERT_DUE)
            effects.append(self._advert())
            # Absolute: a late wake-up must not shift the schedule; what a stall has missed is not made up for.
            interval = self._own_interval
            self._advert_at += ((now - self._advert_at) // interval + 1) * interval
        effects += self._announcements.due(self.instance.vips, now)
        return effects

    def _on_advert(self, what: AdvertReceived, now: int) -> list[Effect]:
        role = self.role
        if role is not Role.BACKUP and role is not Role.MASTER:
            return []
        self._received += 1
        peer, effects = self._note_peer(what, now)
        if role is Role.BACKUP:
            self._backup_hears(what, now)
            return effects
        return self._master_hears(what, peer, effects, now)

    def _backup_hears(self, what: AdvertReceived, now: int) -> None:
        advert = what.advert
        priority = self.instance.priority
        if advert.priority == 0:
            self.role = step(self.role, Event.ADVERT_RESIGNED)
            self._down_at = now + skew_time(self.instance.version, priority, self._master_interval)
            self._why_down = f"{what.source} resigned (priority 0)"
            return
        if advert.priority < priority and self._may_preempt(now):
            self.role = step(self.role, Event.ADVERT_LOWER)
            self._why_down = f"our priority {priority} is higher than {advert.priority} of {what.source}"
            return
        if advert.priority >= priority:
            self._preempt_at = None
        self.role = step(self.role, Event.ADVERT_ACCEPTED)
        if self.instance.version != 2:  # noqa: PLR2004 - version 2 does not learn
            self._learned_interval = advert.interval_us
        self._rest(now)

    def _may_preempt(self, now: int) -> bool:
        """Whether an advert of lower priority is ignored, so that the timer runs out."""
        instance = self.instance
        if self.yielded:
            return False
        # keepalived: neither option has force with `state MASTER`, nopreempt none with priority 255.
        if instance.initial_role is Role.MASTER:
            return True
        if instance.nopreempt and instance.priority != OWNER_PRIORITY:
            return False
        if not instance.preempt_delay_us:
            return True
        if self._preempt_at is None:
            self._preempt_at = now + instance.preempt_delay_us
        return now >= self._preempt_at

    def _master_hears(self, what: AdvertReceived, peer: _Peer, effects: list[Effect], now: int) -> list[Effect]:
        theirs, ours = what.advert.priority, self.instance.priority
        if theirs == 0:
            self.role = step(self.role, Event.ADVERT_RESIGNED)
            return [self._advert_now(now), *effects]
        effects += self._foreign(what, peer, now)
        source = self.source
        if theirs == ours and what.source == source:
            return effects + self._duplicate_address(what, now)
        if theirs > ours or (theirs == ours and source is not None and what.source > source):
            if theirs > ours:
                reason = f"priority {theirs} of {what.source} is higher than our {ours}"
            else:
                reason = f"equal priority {ours}, but {what.source} is higher than our {source}"
            interval = what.advert.interval_us if self.instance.version != 2 else None  # noqa: PLR2004
            return self._become_backup(Event.ADVERT_HIGHER, reason, now, learned=interval, told=effects)
        self.role = step(self.role, Event.ADVERT_LOWER)
        announced = self._announcements.lower_priority(self.instance.vips, now)
        return [self._advert_now(now), *announced, *effects]

    def _on_hand_over(self, what: HandOver, now: int) -> list[Effect]:
        if self.role is Role.INIT:
            return []
        self.yielded = True
        if self.role is Role.MASTER:
            return self._become_backup(Event.HAND_OVER, f"handed over: {what.reason}", now, resign=True)
        self.role = step(self.role, Event.HAND_OVER)
        return []

    def _on_shutdown(self, what: Shutdown, now: int) -> list[Effect]:
        if self.role is Role.INIT:
            return []
        return self._become_idle(Event.SHUTDOWN, what.reason, now, notify="FAULT" if what.removed else "STOP")

    def _on_link(self, what: LinkChanged, now: int) -> list[Effect]:
        self._link = what
        return self._follow_link(now)

    def _on_resume(self, _what: Resume, _now: int) -> list[Effect]:
        self.yielded = False
        return []

    def _follow_link(self, now: int) -> list[Effect]:
        trouble = self._link_trouble()
        if trouble and self.role in (Role.BACKUP, Role.MASTER):
            return self._become_idle(Event.LINK_LOST, trouble, now)
        if not trouble and self.role is Role.FAULT:
            effects = self._become_backup(Event.LINK_RECOVERED, f"{self.instance.interface} is usable again", now)
            if self.instance.priority == OWNER_PRIORITY:
                self._down_at = now + self._own_interval + self._skew
            return effects
        return []

    def _on_reconfigure(self, what: Reconfigure, now: int) -> list[Effect]:
        old, new, before = self.instance, what.instance, self.master_down_interval_us
        self.instance = new
        if new.version != old.version:
            self._learned_interval = None
        effects: list[Effect] = []
        if self.role is Role.MASTER:
            self._announcements.reconfigure(new.garp, now)
            effects += self._swap_vips(old.vips, new.vips, now)
            if _on_the_wire(old) != _on_the_wire(new):
                effects.append(self._advert_now(now))
        else:
            self._announcements = Announcements(new.garp)
        if self.role is Role.BACKUP and self._down_at is not None:
            # keepalived: a change of priority shifts the running timer by the difference.
            self._down_at = max(now, self._down_at + self.master_down_interval_us - before)
        return effects + self._follow_link(now)

    def _swap_vips(self, old: tuple[Vip, ...], new: tuple[Vip, ...], now: int) -> list[Effect]:
        """Add before removing, but where the kernel would take the new address for the old one."""
        added = tuple(vip for vip in new if vip not in old)
        slots = {_slot(vip) for vip in added}
        in_the_way = tuple(vip for vip in old if vip not in new and _slot(vip) in slots)
        gone = tuple(vip for vip in old if vip not in new and _slot(vip) not in slots)
        effects: list[Effect] = []
        if in_the_way:
            effects.append(RemoveVips(vips=in_the_way))
        if added:
            effects.append(AddVips(vips=added))
            effects += self._announcements.added(added, now)
        if gone:
            effects.append(RemoveVips(vips=gone))
        return effects

    # -- roles

    def _become_master(self, event: Event, reason: str, now: int) -> list[Effect]:
        before, self.role = self.role, step(self.role, event)
        vips = self.instance.vips
        self._forget_election()
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
        learned: int | None = None,
        resign: bool = False,
        told: list[Effect] | None = None,
    ) -> list[Effect]:
        before, self.role = self.role, step(self.role, event)
        effects = self._let_go(before, resign=resign)
        self._learned_interval = learned
        self._rest(now)
        return [*effects, *(told or []), *self._tell(before, reason, self.role.value, now)]

    def _become_idle(self, event: Event, reason: str, now: int, notify: str = "FAULT") -> list[Effect]:
        before, self.role = self.role, step(self.role, event)
        return self._let_go(before, resign=True) + self._tell(before, reason, notify, now)

    def _let_go(self, before: Role, *, resign: bool) -> list[Effect]:
        self._forget_election()
        self._advert_at = None
        self._announcements.end()
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
        return [RunNotify(state=notify), Report(fact=fact)]

    # -- small parts

    @property
    def _own_interval(self) -> int:
        return self.instance.advert_interval_us

    @property
    def _master_interval(self) -> int:
        return self._learned_interval or self.instance.advert_interval_us

    @property
    def _skew(self) -> int:
        return skew_time(self.instance.version, self.instance.priority, self._master_interval)

    def _forget_election(self) -> None:
        self._down_at = self._preempt_at = self._learned_interval = None
        self._why_down = ""

    def _rest(self, now: int) -> None:
        """The full wait of a BACKUP begins."""
        self._down_at = now + self.master_down_interval_us
        self._silent_since = now
        self._why_down = ""

    def _advert(self, priority: int | None = None) -> SendAdvert:
        self._sent += 1
        return SendAdvert(priority=self.instance.priority if priority is None else priority)

    def _advert_now(self, now: int) -> SendAdvert:
        """Out of turn: the schedule starts anew from here."""
        self._advert_at = now + self._own_interval
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

    def _note_peer(self, what: AdvertReceived, now: int) -> tuple[_Peer, list[Effect]]:
        priority = what.advert.priority
        peer = self._peers.get(what.source)
        if peer is not None and peer.priority == priority:
            peer.heard_at = now
            return peer, []
        if peer is None:
            if len(self._peers) >= _MAX_PEERS:
                del self._peers[min(self._peers, key=lambda each: self._peers[each].heard_at)]
            peer = self._peers[what.source] = _Peer(priority=priority, heard_at=now)
        peer.priority, peer.heard_at = priority, now
        fact = PeerHeard(
            instance=self.instance.name, vrid=self.instance.vrid, address=what.source, priority=priority, at_us=now
        )
        return peer, [Report(fact=fact)]

    def _foreign(self, what: AdvertReceived, peer: _Peer, now: int) -> list[Effect]:
        # Once per interval and source; a quarter of it is allowed for jitter, or every other advert would be missed.
        if peer.reported_at is not None and now - peer.reported_at < self._own_interval * 3 // 4:
            return []
        peer.reported_at = now
        fact = ForeignAdvertHeard(
            instance=self.instance.name,
            vrid=self.instance.vrid,
            address=what.source,
            priority=what.advert.priority,
            master_down_interval_us=self.master_down_interval_us,
            at_us=now,
        )
        return [Report(fact=fact)]

    def _duplicate_address(self, what: AdvertReceived, now: int) -> list[Effect]:
        if self._duplicate_reported_at is not None and now - self._duplicate_reported_at < SECOND_US:
            return []
        self._duplicate_reported_at = now
        fact = AdvertRejected(
            instance=self.instance.name,
            address=what.source,
            reason="duplicate_address",
            detail="an advert that we did not send came from our own address",
            at_us=now,
        )
        return [Report(fact=fact)]


def _slot(vip: Vip) -> tuple[IPv4Address, int, str]:
    """What the kernel takes for the same address."""
    return (vip.address, vip.prefix_length, vip.interface)


def _on_the_wire(instance: VrrpInstance) -> tuple[object, ...]:
    """All of a configuration that an advert shows."""
    return (
        instance.version,
        instance.priority,
        instance.advert_interval_us,
        instance.auth_pass,
        instance.source,
        instance.peers,
        tuple(vip.address for vip in instance.vips),
    )


def _seconds(us: int) -> str:
    return f"{us / SECOND_US:.3f} s"
