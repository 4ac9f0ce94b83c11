"""When the checker sweeps: the pace of a second, what a refusal does, and how often it counts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from haxlb.daemon.checker_sweeps import COUNT_EVERY, SWEEP_EVERY_US, Corrected, Sweeps
from haxlb.model.errors import HostError
from haxlb.model.facts import Fact


class Port:
    """A sweep of so many portions."""

    def __init__(self, portions: int = 1) -> None:
        self.portions = portions
        self.begun: list[bool] = []
        self.swept = 0
        self.answers: Iterator[Corrected | None] = iter(())
        self.refusal = ""

    def begin(self, *, counting: bool) -> int:
        if self.refusal:
            raise HostError(self.refusal)
        self.begun.append(counting)
        return self.portions

    def sweep(self) -> None:
        self.swept += 1

    def compare(self) -> Corrected | None:
        return next(self.answers)


class Reports:
    """What was said."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, object]]] = []

    def log(self, level: str, event: str, **fields: object) -> None:
        self.lines.append((level, event, fields))

    def report(self, fact: Fact) -> None:
        raise AssertionError(fact)

    def ready(self, of: str, problem: str) -> None:
        raise AssertionError(of, problem)

    @property
    def events(self) -> list[str]:
        return [event for _, event, _ in self.lines]


@pytest.fixture
def reports() -> Reports:
    return Reports()


def run_until(sweeps: Sweeps, end: int) -> list[int]:
    """Wake it whenever it asks, up to this time; when that was."""
    woken = []
    while (due := sweeps.next_deadline()) is not None and due <= end:
        woken.append(due)
        sweeps.on_time(due)
    return woken


def test_before_there_are_tables_it_asks_for_nothing(reports: Reports) -> None:
    sweeps = Sweeps(Port(), reports)
    assert sweeps.next_deadline() is None
    sweeps.on_time(5 * SWEEP_EVERY_US)
    sweeps.start(0)
    assert sweeps.next_deadline() == SWEEP_EVERY_US


def test_without_a_port_it_never_asks(reports: Reports) -> None:
    sweeps = Sweeps(None, reports)
    sweeps.start(0)
    assert sweeps.next_deadline() is None


@pytest.mark.parametrize("portions", [1, 4, 25])
def test_a_sweep_takes_a_second_whatever_its_portions(reports: Reports, portions: int) -> None:
    port = Port(portions)
    sweeps = Sweeps(port, reports)
    sweeps.start(0)
    woken = run_until(sweeps, 11 * SWEEP_EVERY_US - 1)
    assert port.swept == 10 * portions
    assert len(port.begun) == 10
    assert {later - earlier for earlier, later in pairwise(woken)} == {SWEEP_EVERY_US // portions}


def test_to_start_again_changes_nothing(reports: Reports) -> None:
    sweeps = Sweeps(Port(), reports)
    sweeps.start(0)
    sweeps.start(7)
    assert sweeps.next_deadline() == SWEEP_EVERY_US


def test_what_was_missed_is_not_made_up_for(reports: Reports) -> None:
    port = Port()
    sweeps = Sweeps(port, reports)
    sweeps.start(0)
    late = 10 * SWEEP_EVERY_US
    sweeps.on_time(late)
    assert port.swept == 1
    assert sweeps.next_deadline() == late + SWEEP_EVERY_US // 2


def test_too_early_is_not_time(reports: Reports) -> None:
    port = Port()
    sweeps = Sweeps(port, reports)
    sweeps.start(0)
    sweeps.on_time(SWEEP_EVERY_US - 1)
    assert port.swept == 0


def test_a_refusal_is_said_once_and_again_when_it_is_another(reports: Reports) -> None:
    port = Port()
    sweeps = Sweeps(port, reports)
    sweeps.start(0)
    port.refusal = "no sweep is pinned"
    run_until(sweeps, 3 * SWEEP_EVERY_US)
    assert reports.events == ["flows_not_swept"]
    assert reports.lines[0][2]["reason"] == "no sweep is pinned"
    port.refusal = "cannot look into it"
    run_until(sweeps, 5 * SWEEP_EVERY_US)
    assert reports.events == ["flows_not_swept"] * 2
    port.refusal = ""
    run_until(sweeps, 7 * SWEEP_EVERY_US)
    assert port.swept == 2
    port.refusal = "cannot look into it"
    run_until(sweeps, 8 * SWEEP_EVERY_US)
    assert reports.events == ["flows_not_swept"] * 3


def test_one_of_sixty_counts(reports: Reports) -> None:
    port = Port(2)
    port.answers = iter([Corrected(), Corrected()])
    sweeps = Sweeps(port, reports)
    sweeps.start(0)
    run_until(sweeps, (2 * COUNT_EVERY + 2) * SWEEP_EVERY_US)
    assert [at for at, counting in enumerate(port.begun, 1) if counting] == [COUNT_EVERY, 2 * COUNT_EVERY]
    assert reports.lines == []


def test_what_differs_is_counted_once_more_and_then_said(reports: Reports) -> None:
    port = Port()
    port.answers = iter([None, Corrected(servers=2, active=-5, inactive=1)])
    sweeps = Sweeps(port, reports)
    sweeps.start(0)
    run_until(sweeps, (COUNT_EVERY + 5) * SWEEP_EVERY_US)
    assert [at for at, counting in enumerate(port.begun, 1) if counting] == [COUNT_EVERY, COUNT_EVERY + 1]
    ((level, event, fields),) = reports.lines
    assert (level, event) == ("warning", "connection_counts_corrected")
    assert (fields["servers"], fields["active"], fields["inactive"]) == (2, -5, 1)
