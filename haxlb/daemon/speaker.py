"""The speaker: every VRRP instance of a node, driven through ports.

Loop-agnostic and synchronous. `haxlb.linux` drives it from asyncio and a timerfd, `haxlb.sim` from a virtual clock.
Whoever drives it calls `on_datagram` for what arrives, `on_link` for what changes and `on_wake` when the time asked
for through the wake port has come; every call ends with the wake port knowing the next time.
"""

from __future__ import annotations

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
    RecorderPort,
    ReportPort,
    RoutePort,
    VirtualMacPort,
    WakePort,
)
from haxlb.daemon.speaker_effects import Executor
from haxlb.daemon.speaker_groups import GroupDriver, Key, by_key, with_group_tracks
from haxlb.daemon.speaker_lag import LagMeter
from haxlb.daemon.speaker_links import LinkDelays
from haxlb.daemon.speaker_member import Member, datagrams, key_of, resignation, vrid_of
from haxlb.daemon.speaker_results import KnownResults
from haxlb.daemon.speaker_throttle import Throttle
from haxlb.daemon.speaker_timetable import Timetable
from haxlb.model.errors import HostError, PeerError
from haxlb.model.facts import AdvertRejected
from haxlb.model.groups import SyncGroup
from haxlb.model.instance import Role, VrrpInstance
from haxlb.model.settings import SpeakerSettings
from haxlb.model.status import InstanceStatus, LoopLag
from haxlb.model.succession import Succession
from haxlb.model.tracking import TrackKind, TrackResult
from haxlb.model.units import SECOND_US
from haxlb.vrrp.holdings import addresses
from haxlb.vrrp.inputs import (
    AddRoutes,
    AddVips,
    Effect,
    EndReserve,
    GroupAnnounce,
    HandOver,
    Input,
    Reconfigure,
    Resume,
    Shutdown,
    Start,
    TimerExpired,
    Tracked,
)

__all__ = ["Speaker", "datagrams", "resignation"]

_TIMER_EXPIRED = TimerExpired()
_GROUP_ANNOUNCE = GroupAnnounce()
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
        routes: RoutePort | None = None,
        announcer: AnnouncePort,
        links: LinkPort,
        notify: NotifyPort,
        reports: ReportPort,
        recorder: RecorderPort | None = None,
        macs: VirtualMacPort | None = None,
        epoch_offset_us: int = 0,
    ) -> None:
        """`epoch_offset_us`: the wall clock less `clock`, for sequence numbers of authentication headers and `lag`."""
        self._clock = clock
        self._epoch_offset_us = epoch_offset_us
        self._wake = wake
        self._adverts = adverts
        self._links = links
        self._reports = reports
        self._members: dict[Key, Member] = {}
        self._executor = Executor(
            adverts=adverts,
            vips=addresses,
            routes=routes,
            announcer=announcer,
            notify=notify,
            reports=reports,
            contested=self._contested,
            recorder=recorder,
            macs=macs,
        )
        self._groups = GroupDriver(tell=self._tell_alone, notify=notify)
        self._results = KnownResults(self._link)
        self._timetable = Timetable()
        self._woken_at: int | None = None
        self._lag = LagMeter()
        self._link_delays = LinkDelays()
        self._quiet_until: int | None = None
        self._serial = 0
        self._rejections = Throttle(SECOND_US)
        self._oddities = Throttle(_ODDITY_PAUSE_US)

    # -- orders

    def configure(
        self,
        instances: Iterable[VrrpInstance],
        groups: Iterable[SyncGroup] = (),
        settings: SpeakerSettings | None = None,
        *,
        successions: Iterable[Succession] = (),
        results: Iterable[TrackResult] = (),
        reserve: str = "",
    ) -> None:
        """Run exactly these; one that is as before (same interface, VRID, family and settings) is not touched at all.

        Of the settings only the delays of the start are the speaker's own; they count from the first call that has any.
        `successions` are for the first call of a speaker that takes the place of a dead one: what has an heir is not
        taken off. `results` are what tracked things were found to be already, for instances that are new. `reserve` is
        why those must not preempt before `end_reserve`.
        """
        now = self._clock.now()
        resumed = self._inherit(successions, results)
        if self._quiet_until is None and settings is not None:
            # The monotonic clock begins with the host.
            self._quiet_until = max(now + settings.startup_delay_us, settings.delay_after_boot_us)
        if settings is not None:
            self._link_delays.configure(settings.link_delays)
        groups = tuple(groups)
        wanted = with_group_tracks(by_key(instances), groups)
        former = self._members
        self._members = {key: former.get(key) or self._member(instance) for key, instance in wanted.items()}
        new = [member for key, member in self._members.items() if key not in former]
        self._results.follow(wanted.values())
        todo = []
        for key, member in self._members.items():
            if member.instance != wanted[key]:
                member.retune(wanted[key])
                todo.append((member, self._retuned(member, wanted[key], now)))
        gone = [(each, self._withdrawn(each, now)) for key, each in former.items() if key not in wanted]
        # An address that moves from one instance to another stays on: claimed by the one before the other lets it go.
        for member, effects in todo:
            self._executor.claim(member, effects)
        # Whoever only gives comes after those that take.
        todo.sort(key=lambda each: not any(isinstance(effect, AddVips | AddRoutes) for effect in each[1]))
        for member, effects in todo:
            self._executor.run(member, effects, now)
            self._timetable.enlist(member)
        self._groups.configure(groups, wanted, self._members, now, resumed)
        # Those that a peer waits for go first.
        for member in sorted(new, key=lambda each: each.instance.name not in resumed):
            self._start(member, resumed.get(member.instance.name), now, reserve)
        self._groups.heed_all(now)
        # Last: what they leave may be what another instance has just got.
        for member, effects in gone:
            self._executor.run(member, effects, now)
        for member in self._members.values():
            member.prepare()
        self._arm()

    def hand_over(self, names: Iterable[str], reason: str) -> tuple[str, ...]:
        """Give up MASTER of these instances (none named = of all) and do not preempt; the names it was done for."""
        return self._order(names, HandOver(reason=reason))

    def resume(self, names: Iterable[str] = ()) -> tuple[str, ...]:
        """End what `hand_over` has begun; the names it was done for."""
        return self._order(names, Resume())

    def end_reserve(self) -> None:
        """Whoever was started with a `reserve` may preempt."""
        self._order((), EndReserve())

    def stop(self, reason: str) -> None:
        """Resign everywhere: priority 0, then addresses off, then the scripts. Nothing is done afterwards."""
        now = self._clock.now()
        for member in self._members.values():
            self._tell_alone(member, Shutdown(reason=reason), now)
        self._groups.stop()
        self._members = {}
        self._timetable.clear()
        self._executor.stop()
        self._arm()

    def reannounce(self, interface: str) -> None:
        """Announce at once what is held on this interface: its link-layer address has changed."""
        now = self._clock.now()
        for member in self._members.values():
            vips = tuple(vip for vip in addresses(member.instance) if vip.interface == interface)
            if vips and member.router.role is Role.MASTER:
                self._executor.announce(vips, now)
        self._arm()

    # -- what the world says

    def on_datagram(self, datagram: Datagram) -> None:
        """A VRRP message has arrived."""
        self._take(datagram, self._clock.now())
        self._arm()

    def on_link(self, link: Link) -> None:
        """An interface has changed."""
        now = self._clock.now()
        lasting = self._link_delays.take(link, now)
        if lasting is not None:
            self._take_link(lasting, now)
        self._arm()

    def on_tracked(self, results: Iterable[TrackResult]) -> None:
        """Tracked things are so now; those that are not named are as before."""
        now = self._clock.now()
        self._take_results(tuple(results), now)
        self._arm()

    def on_wake(self) -> None:
        """The time asked for has come, or the driver thinks so.

        What has arrived meanwhile is taken first: a process that was stalled must find the advert that was waiting
        before it promotes itself.
        """
        self._lag.woken(self._woken_at, self._clock.now())
        self._woken_at = None
        for datagram in self._adverts.receive():
            self._take(datagram, self._clock.now())
        now = self._clock.now()
        for link in self._link_delays.due(now):
            self._take_link(link, now)
        while (member := self._timetable.pop_due(now)) is not None:
            self._tell(member, _TIMER_EXPIRED, now)
        self._executor.due(now)
        self._arm()

    # -- answers

    @property
    def watched_interfaces(self) -> tuple[str, ...]:
        """Whose changes `on_link` wants to hear of: of instances, of their addresses, and those that are tracked."""
        names: dict[str, None] = {}
        for member in self._members.values():
            instance = member.instance
            names[instance.interface] = None
            names.update((vip.interface, None) for vip in addresses(instance))
            names.update((each.name, None) for each in instance.tracks if each.kind is TrackKind.INTERFACE)
        return tuple(names)

    @property
    def lag(self) -> LoopLag:
        """How late `on_wake` was called."""
        return self._lag.status(self._epoch_offset_us)

    def status(self, epoch_us: int) -> tuple[InstanceStatus, ...]:
        """Every instance, in configuration order; `epoch_us` is the wall clock's now."""
        offset = epoch_us - self._clock.now()
        return tuple(member.status(offset) for member in self._members.values())

    # -- inside

    def _inherit(self, successions: Iterable[Succession], results: Iterable[TrackResult]) -> dict[str, Succession]:
        self._results.inherit(results)
        resumed = {each.instance: each for each in successions}
        if resumed:
            self._quiet_until = 0  # the start was the dead process's
        return resumed

    def _member(self, instance: VrrpInstance) -> Member:
        self._serial += 1
        return Member(instance, self._serial, self._epoch)

    def _epoch(self) -> int:
        return self._clock.now() + self._epoch_offset_us

    def _retuned(self, member: Member, instance: VrrpInstance, now: int) -> list[Effect]:
        effects = member.router.handle(Reconfigure(instance=instance), now)
        if instance.track_source:  # whether the host has the new source is told with the link
            effects += member.router.handle(member.link_input(self._link(instance.interface)), now)
        known = self._results.of(member.instance)
        return effects + member.router.handle(known, now) if known.results else effects

    def _withdrawn(self, member: Member, now: int) -> list[Effect]:
        return member.router.handle(Shutdown(reason="removed from the configuration", removed=True), now)

    def _start(self, member: Member, succession: Succession | None, now: int, reserve: str) -> None:
        if succession is not None:
            member.old_checksum = succession.old_checksum
        else:
            # What a former process has left behind goes first: it would answer ARP although we are not MASTER.
            self._executor.clear(member, now)
        self._tell_alone(member, member.link_input(self._link(member.instance.interface)), now)
        self._tell_alone(member, self._results.of(member.instance), now)
        start = Start(
            hurry=self._groups.may_hurry(member),
            quiet_until=self._quiet_until or 0,
            succession=succession,
            reserve=reserve,
        )
        # Anew: it is the later ones of many that may come too late.
        self._tell_alone(member, start, now if succession is None else self._clock.now())
        if succession is not None and member.router.role is not Role.MASTER:
            self._executor.clear(member, now)

    def _link(self, interface: str) -> Link | None:
        try:
            link = self._links.link(interface)
        except HostError:
            return None  # FAULT, until on_link says that it is there
        self._link_delays.seen(interface, link)
        return link

    def _take_link(self, link: Link, now: int) -> None:
        results = self._results.of_link(link)
        if results:
            self._take_results(results, now)
        for member in self._members.values():
            if member.instance.interface == link.interface:
                self._tell(member, member.link_input(link), now)
                member.prepare()

    def _take_results(self, results: tuple[TrackResult, ...], now: int) -> None:
        self._results.take(results)
        what = Tracked(results=results)
        for member in self._members.values():
            if member.instance.tracks:
                self._tell(member, what, now)

    def _order(self, names: Iterable[str], what: HandOver | Resume | EndReserve) -> tuple[str, ...]:
        now = self._clock.now()
        chosen = set(names)
        named = [each for each in self._members.values() if not chosen or each.instance.name in chosen]
        # A sync group as a whole, or its other members would leave without resigning.
        whole = {each.serial for member in named for each in (member, *self._groups.companions(member))}
        done = [each for each in self._members.values() if each.serial in whole]
        for member in done:
            self._tell_alone(member, what, now)
        self._groups.heed_all(now)
        self._arm()
        return tuple(member.instance.name for member in done)

    def _take(self, datagram: Datagram, now: int) -> None:
        member: Member | None = None
        try:
            member = self._members.get(key_of(datagram))
            if member is None:
                if not self._members:  # stopped: whoever takes over speaks already
                    return
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
        self._tell_alone(member, what, now)
        self._groups.heed(member, now)

    def _tell_alone(self, member: Member, what: Input, now: int) -> None:
        effects = member.router.handle(what, now)
        if effects:
            self._executor.run(member, effects, now)
        self._timetable.enlist(member)

    def _contested(self, member: Member, now: int) -> None:
        for each in self._groups.companions(member):
            self._tell_alone(each, _GROUP_ANNOUNCE, now)

    def _reject(
        self, member: Member | None, datagram: Datagram, problem: PeerError, throttle: Throttle, now: int
    ) -> None:
        name = None
        if member is not None:
            member.reject(datagram, problem, now)
            name = member.instance.name
        if throttle.passes((name, problem.reason, datagram.source), now):
            fact = AdvertRejected(
                instance=name, address=datagram.source, reason=problem.reason, detail=problem.message, at_us=now
            )
            self._reports.report(fact)

    def _arm(self) -> None:
        at = self._timetable.next_at
        for later in (self._executor.next_at, self._link_delays.next_at):
            if later is not None and (at is None or later < at):
                at = later
        if at != self._woken_at:
            self._woken_at = at
            self._wake.wake_at(at)
