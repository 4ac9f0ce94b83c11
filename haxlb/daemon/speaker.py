"""The speaker: every VRRP instance of a node, driven through ports.

Loop-agnostic and synchronous. `haxlb.linux` drives it from asyncio and a timerfd, `haxlb.sim` from a virtual clock.
Whoever drives it calls `on_datagram` for what arrives, `on_link` for what changes and `on_wake` when the time asked
for through the wake port has come; every call ends with the wake port knowing the next time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from haxlb.daemon.ports import (
    AddressPort,
    AdvertPort,
    AnnouncePort,
    ClockPort,
    Datagram,
    Link,
    LinkPort,
    NotifyPort,
    ReportPort,
    WakePort,
)
from haxlb.daemon.speaker_member import Member, datagrams, key_of, resignation, vrid_of
from haxlb.daemon.speaker_throttle import Throttle
from haxlb.daemon.speaker_vips import VipKeeper
from haxlb.model.errors import Bug, HostError, PeerError
from haxlb.model.facts import AdvertRejected
from haxlb.model.node import SECOND_US, Role, VrrpInstance
from haxlb.model.status import InstanceStatus
from haxlb.vrrp.inputs import (
    AddVips,
    Announce,
    Effect,
    HandOver,
    Input,
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

__all__ = ["Speaker", "datagrams", "resignation"]

_TIMER_EXPIRED = TimerExpired()
_ODDITY_PAUSE_US = 3600 * SECOND_US
"""For what harms nobody and goes on for as long as it is configured so."""


class Speaker:
    """All instances of one node."""

    def __init__(
        self,
        *,
        clock: ClockPort,
        wake: WakePort,
        adverts: AdvertPort,
        addresses: AddressPort,
        announcer: AnnouncePort,
        links: LinkPort,
        notify: NotifyPort,
        reports: ReportPort,
        epoch_offset_us: int = 0,
    ) -> None:
        """`epoch_offset_us`: the wall clock less `clock`, for the sequence numbers of authentication headers only."""
        self._clock = clock
        self._epoch_offset_us = epoch_offset_us
        self._wake = wake
        self._adverts = adverts
        self._announcer = announcer
        self._links = links
        self._notify = notify
        self._reports = reports
        self._members: dict[tuple[str, int], Member] = {}
        self._vips = VipKeeper(addresses=addresses, announcer=announcer, reports=reports)
        self._timetable: list[tuple[int, int, Member]] = []
        self._woken_at: int | None = None
        self._serial = 0
        self._rejections = Throttle(SECOND_US)
        self._oddities = Throttle(_ODDITY_PAUSE_US)

    # -- orders

    def configure(self, instances: Iterable[VrrpInstance]) -> None:
        """Run exactly these; one that is as before (same interface, VRID and settings) is not touched at all."""
        wanted = _by_key(instances)
        now = self._clock.now()
        former = self._members
        new: list[Member] = []
        self._members = {}
        for key, instance in wanted.items():
            member = former.get(key)
            if member is None:
                self._serial += 1
                member = Member(instance, self._serial, self._epoch)
                new.append(member)
            self._members[key] = member
        todo = self._withdraw([each for key, each in former.items() if key not in wanted], now)
        for key, member in self._members.items():
            if member.instance != wanted[key]:
                member.retune(wanted[key])
                what = Reconfigure(instance=wanted[key])
                todo.append((member, member.router.handle(what, now)))
        # An address that moves from one instance to another stays on: claimed by the one before the other lets it go.
        for member, effects in todo:
            for effect in effects:
                if isinstance(effect, AddVips):
                    self._vips.claim(member.instance, effect.vips)
        for member, effects in todo:
            self._execute(member, effects, now)
            self._enlist(member)
        for member in new:
            self._start(member, now)
        self._arm()

    def hand_over(self, names: Iterable[str], reason: str) -> tuple[str, ...]:
        """Give up MASTER of these instances (none named = of all) and do not preempt; the names it was done for."""
        return self._order(names, HandOver(reason=reason))

    def resume(self, names: Iterable[str] = ()) -> tuple[str, ...]:
        """End what `hand_over` has begun; the names it was done for."""
        return self._order(names, Resume())

    def stop(self, reason: str) -> None:
        """Resign everywhere: addresses off, then priority 0, then the scripts. Nothing is done afterwards."""
        now = self._clock.now()
        for member in self._members.values():
            self._tell(member, Shutdown(reason=reason), now)
        self._members = {}
        self._timetable = []
        self._vips.stop()
        self._arm()

    def reannounce(self, interface: str) -> None:
        """Announce at once what is held on this interface: its link-layer address has changed."""
        for member in self._members.values():
            vips = tuple(vip for vip in member.instance.vips if vip.interface == interface)
            if vips and member.router.role is Role.MASTER:
                self._announcer.announce(vips)

    # -- what the world says

    def on_datagram(self, datagram: Datagram) -> None:
        """A VRRP message has arrived."""
        self._take(datagram, self._clock.now())
        self._arm()

    def on_link(self, link: Link) -> None:
        """An interface has changed."""
        now = self._clock.now()
        for member in self._members.values():
            if member.instance.interface == link.interface:
                self._tell(member, member.link_input(link), now)
        self._arm()

    def on_wake(self) -> None:
        """The time asked for has come, or the driver thinks so.

        What has arrived meanwhile is taken first: a process that was stalled must find the advert that was waiting
        before it promotes itself.
        """
        self._woken_at = None
        for datagram in self._adverts.receive():
            self._take(datagram, self._clock.now())
        now = self._clock.now()
        timetable = self._timetable
        while timetable and timetable[0][0] <= now:
            at, _, member = heapq.heappop(timetable)
            if member.armed != at:
                continue
            member.armed = None
            deadline = member.router.next_deadline()
            if deadline is not None and deadline <= now:
                self._tell(member, _TIMER_EXPIRED, now)
            else:
                self._enlist(member)
        self._vips.retry(now)
        self._arm()

    # -- answers

    def status(self, epoch_us: int) -> tuple[InstanceStatus, ...]:
        """Every instance, in configuration order; `epoch_us` is the wall clock's now."""
        offset = epoch_us - self._clock.now()
        return tuple(member.status(offset) for member in self._members.values())

    # -- inside

    def _epoch(self) -> int:
        return self._clock.now() + self._epoch_offset_us

    def _withdraw(self, members: list[Member], now: int) -> list[tuple[Member, list[Effect]]]:
        gone = Shutdown(reason="removed from the configuration", removed=True)
        return [(each, each.router.handle(gone, now)) for each in members]

    def _start(self, member: Member, now: int) -> None:
        # What a former process has left behind goes first: it would answer ARP although we are not MASTER.
        self._vips.remove(member.instance, member.instance.vips, now)
        try:
            link = self._links.link(member.instance.interface)
        except HostError:
            link = None  # FAULT, until on_link says that it is there
        self._tell(member, member.link_input(link), now)
        self._tell(member, Start(), now)

    def _order(self, names: Iterable[str], what: HandOver | Resume) -> tuple[str, ...]:
        now = self._clock.now()
        chosen = set(names)
        done = [each for each in self._members.values() if not chosen or each.instance.name in chosen]
        for member in done:
            self._tell(member, what, now)
        self._arm()
        return tuple(member.instance.name for member in done)

    def _take(self, datagram: Datagram, now: int) -> None:
        member: Member | None = None
        try:
            member = self._members.get(key_of(datagram))
            if member is None:
                detail = f"no instance on {datagram.interface} has virtual_router_id {vrid_of(datagram)}"
                self._reject(None, datagram, PeerError("unknown_vrid", detail), self._oddities, now)
                return
            heard = member.hear(datagram)
        except PeerError as problem:
            self._reject(member, datagram, problem, self._rejections, now)
            return
        if heard is None:
            return
        for oddity in heard.oddities:
            self._reject(member, datagram, oddity, self._oddities, now)
        self._tell(member, heard.what, now)

    def _tell(self, member: Member, what: Input, now: int) -> None:
        effects = member.router.handle(what, now)
        if effects:
            self._execute(member, effects, now)
        self._enlist(member)

    def _execute(self, member: Member, effects: list[Effect], now: int) -> None:
        for effect in effects:
            if isinstance(effect, SendAdvert):
                for datagram in member.frames(effect.priority):
                    self._adverts.send(datagram)
            elif isinstance(effect, AddVips):
                self._vips.add(member.instance, effect.vips, now)
            elif isinstance(effect, RemoveVips):
                self._vips.remove(member.instance, effect.vips, now)
            elif isinstance(effect, Announce):
                for _ in range(effect.rounds):
                    self._announcer.announce(effect.vips)
            elif isinstance(effect, Notify):
                self._notify.notify(effect.due)
            elif isinstance(effect, Report):
                self._reports.report(effect.fact)

    def _reject(
        self, member: Member | None, datagram: Datagram, problem: PeerError, throttle: Throttle, now: int
    ) -> None:
        name = None
        if member is not None:
            member.reject(problem.reason)
            name = member.instance.name
        if throttle.passes((name, problem.reason, datagram.source), now):
            fact = AdvertRejected(
                instance=name, address=datagram.source, reason=problem.reason, detail=problem.message, at_us=now
            )
            self._reports.report(fact)

    def _enlist(self, member: Member) -> None:
        """Keep the timetable no later than the router's deadline; a later one is found when the earlier has passed."""
        deadline = member.router.next_deadline()
        if deadline is not None and (member.armed is None or deadline < member.armed):
            member.armed = deadline
            heapq.heappush(self._timetable, (deadline, member.serial, member))

    def _arm(self) -> None:
        timetable = self._timetable
        while timetable and timetable[0][2].armed != timetable[0][0]:
            heapq.heappop(timetable)
        at = timetable[0][0] if timetable else None
        retry_at = self._vips.retry_at
        if retry_at is not None and (at is None or retry_at < at):
            at = retry_at
        if at != self._woken_at:
            self._woken_at = at
            self._wake.wake_at(at)


def _by_key(instances: Iterable[VrrpInstance]) -> dict[tuple[str, int], VrrpInstance]:
    out: dict[tuple[str, int], VrrpInstance] = {}
    for each in instances:
        if each.key in out:
            raise Bug(f"two instances with virtual_router_id {each.vrid} on {each.interface}")
        out[each.key] = each
    return out
