from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haxlb.health.quorum import Quorum
from tests.health.worlds import virtual_server

# quorum, hysteresis, the weights that are alive one after the other, up after each: keepalived's formulas
TABLE = [
    (1, 0, [0, 1, 0, 5, 0], [False, True, False, True, False]),
    (2, 0, [1, 2, 3, 2, 1, 2], [False, True, True, True, False, True]),
    (3, 1, [3, 4, 3, 2, 1, 2, 3, 4], [False, True, True, True, False, False, False, True]),
    (5, 4, [8, 9, 5, 1, 0, 8, 9], [False, True, True, True, False, False, True]),
]


@pytest.mark.parametrize(("quorum", "hysteresis", "weights", "expected"), TABLE)
def test_the_quorum_follows_the_table(quorum: int, hysteresis: int, weights: list[int], expected: list[bool]) -> None:
    machine, settings = Quorum(), virtual_server(quorum=quorum, hysteresis=hysteresis)
    seen = []
    for weight in weights:
        before = machine.up
        changed = machine.handle(settings, weight)
        assert changed is (machine.up is not before)
        seen.append(machine.up)
    assert seen == expected


def test_the_reason_names_both_sides() -> None:
    machine, settings = Quorum(), virtual_server(quorum=3, hysteresis=1)
    machine.handle(settings, 4)
    assert machine.reason == "weight 4 alive, 4 needed"
    machine.handle(settings, 1)
    assert machine.reason == "weight 1 alive, 2 needed"


@given(st.integers(1, 20), st.data())
def test_between_the_thresholds_it_never_changes(quorum: int, data: st.DataObject) -> None:
    hysteresis = data.draw(st.integers(0, quorum - 1))
    settings, machine = virtual_server(quorum=quorum, hysteresis=hysteresis), Quorum()
    for weight in data.draw(st.lists(st.integers(0, 50), max_size=40)):
        before = machine.up
        machine.handle(settings, weight)
        if quorum - hysteresis <= weight < quorum + hysteresis and weight > 0:
            assert machine.up is before
        if weight >= quorum + hysteresis:
            assert machine.up
        if weight < quorum - hysteresis or weight == 0:
            assert not machine.up
