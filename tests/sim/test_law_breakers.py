"""Laws L2 (routes), L5, L8, L11 and L12 must be able to fail: a port or a speaker that breaks one is caught."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from haxlb.daemon.ports import AdvertPort, AnnouncePort, Datagram, NotifyPort, ReportPort, RoutePort
from haxlb.daemon.speaker import Speaker
from haxlb.model.addresses import Vip
from haxlb.model.commands import Command
from haxlb.model.facts import Fact, RoleChanged
from haxlb.model.instance import Role
from haxlb.model.notification import NotifyDue
from haxlb.model.routes import Route, Rule
from haxlb.model.tracking import Track, TrackKind, TrackScript
from haxlb.model.units import SECOND_US
from haxlb.sim import Nature, World
from haxlb.sim.pace import Pace
from haxlb.sim.stage import settle_us
from haxlb.sim.topology import Station, plan
from haxlb.sim.tracked import Health
from tests.sim.clusters import PAIR, drill, node, pair

FAST = replace(PAIR, version=3, auth_pass=None, advert_interval_us=100_000)
NO_MORE_THAN_ONCE = Nature(broker=True)


class Wrapped:
    """A port that passes everything on; a breaker overrides what it breaks."""

    def __init__(self, port: Any) -> None:
        self.port = port

    def __getattr__(self, name: str) -> Any:
        return getattr(self.port, name)


def laws(name: str, speaker: type[Speaker], stations: tuple[Station, ...] | None = None) -> set[str]:
    run = drill(name, 1, stations, Nature(broker=True, speaker_class=speaker))
    return {law.split(":", 1)[0] for law in run.laws_broken}


# -- L2, routes


class StickyRoutes(Wrapped):
    def remove(self, routes: Iterable[Route], rules: Iterable[Rule]) -> None:
        """Does not."""


class LeavesRoutes(Speaker):
    def __init__(self, *, routes: RoutePort, **ports: Any) -> None:
        super().__init__(routes=StickyRoutes(routes), **ports)


def test_routes_that_stay_behind_are_caught() -> None:
    instance = replace(PAIR, routes=(Route(destination="198.51.100.0/24", device="eth0"),))
    assert laws("planned-failover", Speaker, pair(instance)) == set()
    assert laws("planned-failover", LeavesRoutes, pair(instance)) == {"L2"}


# -- L5


class Mute(Wrapped):
    def notify(self, due: NotifyDue) -> None:
        """Says nothing of MASTER."""
        if due.state != "MASTER":
            self.port.notify(due)


class Stammering(Wrapped):
    def notify(self, due: NotifyDue) -> None:
        self.port.notify(due)
        self.port.notify(due)


class Gossip(Wrapped):
    def report(self, fact: Fact) -> None:
        """Keeps a change for itself."""
        if not (isinstance(fact, RoleChanged) and fact.after is Role.BACKUP and fact.before is Role.MASTER):
            self.port.report(fact)


class TellsTooLittle(Speaker):
    def __init__(self, *, notify: NotifyPort, **ports: Any) -> None:
        super().__init__(notify=Mute(notify), **ports)


class TellsTwice(Speaker):
    def __init__(self, *, notify: NotifyPort, **ports: Any) -> None:
        super().__init__(notify=Stammering(notify), **ports)


class HidesAChange(Speaker):
    def __init__(self, *, reports: ReportPort, **ports: Any) -> None:
        super().__init__(reports=Gossip(reports), **ports)


def test_a_change_that_the_operator_is_not_told_is_caught() -> None:
    assert "L5" in laws("crash", TellsTooLittle)


def test_a_change_that_the_operator_is_told_twice_is_caught() -> None:
    assert "L5" in laws("crash", TellsTwice)


def test_a_change_that_is_told_and_never_reported_is_caught() -> None:
    assert "L5" in laws("planned-failover", HidesAChange)


def test_a_supervisor_that_keeps_no_history_or_publishes_nothing_is_caught() -> None:
    for what in ("history", "state"):
        world = settled(pair())
        one = world.directors[0]
        supervisor = one._supervisor
        assert supervisor is not None
        if what == "history":
            supervisor.history.add = lambda sentence, at: None  # type: ignore[method-assign]
        else:
            assert world.broker is not None
            world.broker.publish_state = lambda node, instance, role: None  # type: ignore[method-assign]
        one.hand_over("a test")
        assert [each.law for each in world.laws.breaches] == ["L5"], what


# -- L8


class Lazy(Wrapped):
    """Loses every third advert on the way out."""

    count = 0

    def send(self, datagram: Datagram) -> None:
        self.count += 1
        if self.count % 3:
            self.port.send(datagram)


class Chatty(Wrapped):
    def send(self, datagram: Datagram) -> None:
        self.port.send(datagram)
        self.port.send(datagram)


class SkipsAdverts(Speaker):
    def __init__(self, *, adverts: AdvertPort, **ports: Any) -> None:
        super().__init__(adverts=Lazy(adverts), **ports)


class DoublesAdverts(Speaker):
    def __init__(self, *, adverts: AdvertPort, **ports: Any) -> None:
        super().__init__(adverts=Chatty(adverts), **ports)


def test_a_master_that_is_late_is_caught() -> None:
    assert "L8" in laws("one-way-cut-in", SkipsAdverts, pair(FAST))


def test_adverts_without_a_cause_are_caught() -> None:
    assert laws("one-way-cut-in", DoublesAdverts, pair(FAST)) == {"L8"}


def test_an_advert_that_comes_too_early_has_no_cause_and_one_that_answers_has() -> None:
    said: list[str] = []
    pace = Pace("x", FAST, lambda law, _: said.append(law))
    pace.changed(Role.MASTER, 1_000_000)
    pace.sent(1_000_000)
    pace.sent(1_100_000)
    pace.heard(1_120_000)
    pace.sent(1_120_000)
    pace.finish(1_120_000)
    assert said == []
    pace.sent(1_130_000)
    pace.finish(1_130_000)
    assert said == ["L8"]


# -- L11


class Loud(Wrapped):
    def announce(self, vips: Iterable[Vip]) -> None:
        listed = tuple(vips)
        for _ in range(8):
            self.port.announce(listed)


class Repetitive(Wrapped):
    """Announces again with every advert that is sent, as long as it lives."""

    latest: tuple[Vip, ...] = ()

    def announce(self, vips: Iterable[Vip]) -> None:
        self.latest = tuple(vips)
        self.port.announce(self.latest)


class EchoingAdverts(Wrapped):
    def __init__(self, port: AdvertPort, announcer: Repetitive) -> None:
        super().__init__(port)
        self.announcer = announcer

    def send(self, datagram: Datagram) -> None:
        self.port.send(datagram)
        if self.announcer.latest:
            self.announcer.announce(self.announcer.latest)


class Shouts(Speaker):
    def __init__(self, *, announcer: AnnouncePort, **ports: Any) -> None:
        super().__init__(announcer=Loud(announcer), **ports)


class Repeats(Speaker):
    def __init__(self, *, announcer: AnnouncePort, adverts: AdvertPort, **ports: Any) -> None:
        repetitive = Repetitive(announcer)
        super().__init__(announcer=repetitive, adverts=EchoingAdverts(adverts, repetitive), **ports)


def test_a_hundred_announcements_a_second_are_caught() -> None:
    assert "L11" in laws("crash", Shouts)


def test_announcements_without_a_cause_and_of_one_that_is_no_master_are_caught() -> None:
    run = drill("planned-failover", 1, None, Nature(broker=True, speaker_class=Repeats))
    assert any("after any cause" in law for law in run.laws_broken)
    said: list[str] = []
    pace = Pace("x", PAIR, lambda law, _: said.append(law))
    pace.changed(Role.BACKUP, 1_000_000)
    pace.announced(PAIR.vips[0], 2_000_000)
    pace.finish(2_000_000)
    assert said == ["L11"]


# -- L12


class Whispers(Wrapped):
    """Announces only what comes with a new role."""

    count = 0

    def announce(self, vips: Iterable[Vip]) -> None:
        self.count += 1
        if self.count <= 5:
            self.port.announce(vips)


class NeverRepairs(Speaker):
    def __init__(self, *, announcer: AnnouncePort, **ports: Any) -> None:
        super().__init__(announcer=Whispers(announcer), **ports)


def test_clients_that_are_left_with_the_loser_of_a_split_are_caught() -> None:
    """The winner was MASTER all the time and says nothing to clients that believe the loser: keepalived's gap."""
    assert "L12" in laws("link-cut", NeverRepairs, pair(FAST))
    assert laws("link-cut", Speaker, pair(FAST)) == set()


# -- what is tracked


def settled(stations: tuple[Station, ...], speaker: type[Speaker] = Speaker) -> World:
    world = World(stations, 1, Nature(broker=True, speaker_class=speaker))
    for director in world.directors:
        world.loop.at(0, director.power_on)
    world.loop.run_until(settle_us(world))
    assert world.laws.breaches == []
    return world


def test_the_real_tracker_finds_out_that_a_script_fails_hangs_or_is_missing() -> None:
    key = (TrackKind.SCRIPT, "chk")
    script = TrackScript(name="chk", run=Command(argv=("/bin/chk",)), interval_us=SECOND_US, fall=2)
    instance = replace(PAIR, tracks=(Track(kind=TrackKind.SCRIPT, name="chk"),))
    for health, within_us in ((Health.ILL, 3), (Health.HANGING, 7)):
        world = settled(plan(replace(node(instance), track_scripts=(script,))))
        one, other = world.directors
        assert one.roles["VI_1"] is Role.MASTER
        one.set_health(key, health)
        world.loop.run_until(world.loop.now_us + within_us * SECOND_US)
        assert (one.roles["VI_1"], other.roles["VI_1"]) == (Role.FAULT, Role.MASTER), health
        one.set_health(key, Health.WELL)
        world.loop.run_until(world.loop.now_us + 12 * SECOND_US)
        assert (one.roles["VI_1"], other.roles["VI_1"]) == (Role.MASTER, Role.BACKUP), health
        assert world.laws.breaches == []
