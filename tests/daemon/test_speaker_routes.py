from __future__ import annotations

from collections.abc import Iterable

from haxlb.daemon.speaker_routes import Entry, RouteKeeper
from haxlb.model.errors import HostError
from haxlb.model.facts import AlarmCleared, AlarmRaised, Fact
from haxlb.model.instance import VrrpInstance
from haxlb.model.routes import Route, Rule
from haxlb.model.units import SECOND_US

FIRST = VrrpInstance(name="VI_1", interface="eth0", vrid=51)
SECOND = VrrpInstance(name="VI_2", interface="eth0", vrid=52)
ROUTE = Route(destination="192.0.2.0/24", via="10.0.0.1")
OTHER = Route(destination="198.51.100.0/24", via="10.0.0.1")
RULE = Rule(family=4, selectors=(("from", "10.0.0.9/32"),), action=("table", "100"))


class Kernel:
    """A RoutePort that has what it was given, and refuses what it is told to."""

    def __init__(self) -> None:
        self.present: set[Entry] = set()
        self.refused: set[Entry] = set()
        self.sticky: set[Entry] = set()

    def add(self, routes: Iterable[Route], rules: Iterable[Rule]) -> None:
        wanted: set[Entry] = {*routes, *rules}
        self.present |= wanted - self.refused
        if wanted & self.refused:
            raise HostError("Network is unreachable", remedy="see the gateway")

    def remove(self, routes: Iterable[Route], rules: Iterable[Rule]) -> None:
        wanted: set[Entry] = {*routes, *rules}
        self.present -= wanted - self.sticky
        if wanted & self.sticky:
            raise HostError("Operation not permitted", remedy="be root")


class Stage:
    def __init__(self) -> None:
        self.kernel = Kernel()
        self.facts: list[Fact] = []
        self.keeper = RouteKeeper(routes=self.kernel, reports=self)

    def report(self, fact: Fact) -> None:
        self.facts.append(fact)


def test_on_and_off() -> None:
    stage = Stage()
    stage.keeper.add(FIRST, (ROUTE,), (RULE,), 0)
    assert stage.kernel.present == {ROUTE, RULE}
    stage.keeper.remove(FIRST, (ROUTE,), (RULE,), 1)
    assert stage.kernel.present == set()
    assert stage.facts == []
    assert stage.keeper.retry_at is None


def test_what_two_instances_hold_goes_with_the_last_one() -> None:
    stage = Stage()
    for instance in (FIRST, SECOND):
        stage.keeper.add(instance, (ROUTE,), (RULE,), 0)
    stage.keeper.remove(FIRST, (ROUTE,), (RULE,), 1)
    assert stage.kernel.present == {ROUTE, RULE}
    stage.keeper.remove(SECOND, (ROUTE,), (RULE,), 2)
    assert stage.kernel.present == set()


def test_a_route_that_moves_to_another_instance_stays_on() -> None:
    stage = Stage()
    stage.keeper.add(FIRST, (ROUTE,), (), 0)
    stage.keeper.claim(SECOND, (ROUTE,), ())
    stage.keeper.remove(FIRST, (ROUTE,), (), 1)
    assert stage.kernel.present == {ROUTE}


def test_a_refusal_is_an_alarm_and_is_tried_again_each_second() -> None:
    stage = Stage()
    stage.kernel.refused = {ROUTE}
    stage.keeper.add(FIRST, (ROUTE, OTHER), (), 0)
    assert stage.kernel.present == {OTHER}
    (alarm,) = stage.facts
    assert isinstance(alarm, AlarmRaised)
    assert (alarm.key, alarm.evidence) == ("route/VI_1", ("Network is unreachable (see the gateway)",))
    assert stage.keeper.retry_at == SECOND_US
    stage.keeper.retry(SECOND_US - 1)
    stage.keeper.retry(SECOND_US)
    assert stage.keeper.retry_at == 2 * SECOND_US
    stage.kernel.refused = set()
    stage.keeper.retry(2 * SECOND_US)
    assert stage.kernel.present == {ROUTE, OTHER}
    assert isinstance(stage.facts[-1], AlarmCleared)
    assert len(stage.facts) == 2
    assert stage.keeper.retry_at is None


def test_a_refusal_is_forgotten_when_the_route_is_no_longer_wanted() -> None:
    stage = Stage()
    stage.kernel.refused = {ROUTE}
    stage.keeper.add(FIRST, (ROUTE,), (), 0)
    stage.keeper.remove(FIRST, (ROUTE,), (), 1)
    stage.kernel.refused = set()
    stage.keeper.retry(SECOND_US)
    assert stage.kernel.present == set()
    assert isinstance(stage.facts[-1], AlarmCleared)


def test_what_the_kernel_does_not_let_go_is_tried_until_it_does() -> None:
    stage = Stage()
    stage.keeper.add(FIRST, (ROUTE,), (), 0)
    stage.kernel.sticky = {ROUTE}
    stage.keeper.remove(FIRST, (ROUTE,), (), 1)
    assert isinstance(stage.facts[-1], AlarmRaised)
    stage.kernel.sticky = set()
    stage.keeper.retry(1 + SECOND_US)
    assert stage.kernel.present == set()
    assert isinstance(stage.facts[-1], AlarmCleared)


def test_a_route_that_is_wanted_again_is_not_taken_off_late() -> None:
    stage = Stage()
    stage.keeper.add(FIRST, (ROUTE,), (), 0)
    stage.kernel.sticky = {ROUTE}
    stage.keeper.remove(FIRST, (ROUTE,), (), 1)
    stage.keeper.add(FIRST, (ROUTE,), (), 2)
    stage.kernel.sticky = set()
    stage.keeper.retry(2 * SECOND_US)
    assert stage.kernel.present == {ROUTE}


def test_a_stopped_keeper_tries_nothing() -> None:
    stage = Stage()
    stage.kernel.refused = {ROUTE}
    stage.keeper.add(FIRST, (ROUTE,), (), 0)
    stage.keeper.stop()
    stage.kernel.refused = set()
    stage.keeper.retry(10 * SECOND_US)
    assert stage.kernel.present == set()
