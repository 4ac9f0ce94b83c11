"""What the routers of a speaker ask for, done through ports, in the order in which they ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from haxlb.daemon.ports import (
    AddressPort,
    AdvertPort,
    AnnouncePort,
    NotifyPort,
    RecorderPort,
    ReportPort,
    RoutePort,
    VirtualMacPort,
)
from haxlb.daemon.speaker_announcements import AnnouncementQueue
from haxlb.daemon.speaker_macs import MacKeeper
from haxlb.daemon.speaker_member import Member
from haxlb.daemon.speaker_routes import RouteKeeper
from haxlb.daemon.speaker_vips import VipKeeper
from haxlb.model.addresses import Vip
from haxlb.model.instance import GarpConfig, Role
from haxlb.vrrp.holdings import addresses
from haxlb.vrrp.inputs import (
    AddRoutes,
    AddVips,
    Announce,
    Effect,
    Notify,
    RemoveRoutes,
    RemoveVips,
    Report,
    SendAdvert,
)

_NO_PAUSE = GarpConfig()


class Executor:
    """Executes effects for all instances of a node, and what of them must be done later."""

    def __init__(
        self,
        *,
        adverts: AdvertPort,
        vips: AddressPort,
        routes: RoutePort | None,
        announcer: AnnouncePort,
        notify: NotifyPort,
        reports: ReportPort,
        contested: Callable[[Member, int], None],
        recorder: RecorderPort | None = None,
        macs: VirtualMacPort | None = None,
    ) -> None:
        """`contested` is called where an instance has announced because it heard a lower priority."""
        self._adverts = adverts
        self._notify = notify
        self._reports = reports
        self._contested = contested
        self._recorder = recorder
        self._vips = VipKeeper(addresses=vips, announcer=announcer, reports=reports)
        self._routes = None if routes is None else RouteKeeper(routes=routes, reports=reports)
        self._queue = AnnouncementQueue(announcer)
        self._macs = None if macs is None else MacKeeper(macs)
        self._methods: dict[type, Callable[[Member, Any, int], None]] = {
            SendAdvert: self._send,
            Announce: self._announce,
            Report: self._report,
            Notify: self._tell,
            AddVips: self._add_vips,
            RemoveVips: self._remove_vips,
            AddRoutes: self._add_routes,
            RemoveRoutes: self._remove_routes,
        }

    @property
    def next_at(self) -> int | None:
        """When `due` wants to be called, monotonic µs."""
        times = (self._vips.retry_at, self._queue.next_at, None if self._routes is None else self._routes.retry_at)
        if times == (None, None, None):
            return None
        return min(at for at in times if at is not None)

    def run(self, member: Member, effects: Iterable[Effect], now: int) -> None:
        """Do all of these, in order."""
        master = member.router.role is Role.MASTER
        if self._recorder is not None and effects and not master:
            self._recorder.left(member.instance.key)
        if self._macs is not None and master:
            self._macs.enter(member.instance)
        for effect in effects:
            self._methods[type(effect)](member, effect, now)
        if self._macs is not None and not master:
            self._macs.leave(member.instance.key)

    def claim(self, member: Member, effects: Iterable[Effect]) -> None:
        """These are about to be done: what they put on, no other instance takes off meanwhile."""
        for effect in effects:
            if isinstance(effect, AddVips):
                self._vips.claim(member.instance, effect.vips)
            elif isinstance(effect, AddRoutes) and self._routes is not None:
                self._routes.claim(member.instance, effect.routes, effect.rules)

    def clear(self, member: Member, now: int) -> None:
        """Take off what a former process may have left behind."""
        instance = member.instance
        self._vips.remove(instance, addresses(instance), now)
        if self._routes is not None and (instance.routes or instance.rules):
            self._routes.remove(instance, instance.routes, instance.rules, now)

    def announce(self, vips: tuple[Vip, ...], now: int) -> None:
        """Once, whatever pauses are configured."""
        self._queue.announce(vips, 1, _NO_PAUSE, now)

    def due(self, now: int) -> None:
        """What was refused or must be spread, if it is time."""
        self._vips.retry(now)
        if self._routes is not None:
            self._routes.retry(now)
        if self._queue.next_at is not None:
            self._queue.due(now)

    def stop(self) -> None:
        """Nothing is done later any more."""
        self._vips.stop()
        self._queue.stop()
        if self._routes is not None:
            self._routes.stop()

    def _send(self, member: Member, effect: SendAdvert, now: int) -> None:
        for datagram in member.frames(effect.priority):
            self._adverts.send(datagram)
        if self._recorder is not None and member.router.role is Role.MASTER:
            self._recorder.sent(member.instance.key, now)

    def _announce(self, member: Member, effect: Announce, now: int) -> None:
        self._queue.announce(effect.vips, effect.rounds, member.instance.garp, now)

    def _report(self, _member: Member, effect: Report, _now: int) -> None:
        self._reports.report(effect.fact)

    def _tell(self, member: Member, effect: Notify, now: int) -> None:
        self._notify.notify(effect.due)
        if effect.due.state == "MASTER_RX_LOWER_PRI":
            self._contested(member, now)

    def _add_vips(self, member: Member, effect: AddVips, now: int) -> None:
        self._vips.add(member.instance, effect.vips, now)

    def _remove_vips(self, member: Member, effect: RemoveVips, now: int) -> None:
        self._queue.drop(effect.vips)
        self._vips.remove(member.instance, effect.vips, now)

    def _add_routes(self, member: Member, effect: AddRoutes, now: int) -> None:
        if self._routes is not None:
            self._routes.add(member.instance, effect.routes, effect.rules, now)

    def _remove_routes(self, member: Member, effect: RemoveRoutes, now: int) -> None:
        if self._routes is not None:
            self._routes.remove(member.instance, effect.routes, effect.rules, now)
