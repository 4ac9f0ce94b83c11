from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haxlb.model.tracking import TrackScript
from haxlb.vrrp.track_script import ScriptCounter


def script(rise: int = 1, fall: int = 1, *, init_fail: bool = False) -> TrackScript:
    return TrackScript(name="x", rise=rise, fall=fall, init_fail=init_fail)


def values(runs: str, counter: ScriptCounter) -> list[int | None]:
    said = [counter.value]
    for each in runs:
        counter.take(well=each == "+")
        said.append(counter.value)
    return said


@pytest.mark.parametrize(
    ("rise", "fall", "runs", "expected"),
    [
        (1, 1, "+-+", [None, 1, 0, 1]),
        (3, 3, "+", [None, 1]),
        (3, 3, "-", [None, 0]),
        (1, 3, "+--", [None, 1, 1, 1]),
        (1, 3, "+---", [None, 1, 1, 1, 0]),
        (1, 3, "+--+--", [None, 1, 1, 1, 1, 1, 1]),
        (3, 1, "-++", [None, 0, 0, 0]),
        (3, 1, "-+++", [None, 0, 0, 0, 1]),
        (3, 1, "-++-++", [None, 0, 0, 0, 0, 0, 0]),
        (2, 2, "-+-++--", [None, 0, 0, 0, 0, 1, 1, 0]),
    ],
)
def test_rise_and_fall(rise: int, fall: int, runs: str, expected: list[int | None]) -> None:
    assert values(runs, ScriptCounter(script(rise, fall))) == expected


def test_init_fail_counts_as_failed_until_it_has_risen() -> None:
    assert values("++", ScriptCounter(script(2, 3, init_fail=True))) == [0, 0, 1]
    assert values("-++", ScriptCounter(script(2, 3, init_fail=True))) == [0, 0, 0, 1]


def test_what_is_known_is_carried_over() -> None:
    assert values("--", ScriptCounter(script(2, 2), known=1)) == [1, 1, 0]
    assert values("++", ScriptCounter(script(2, 2), known=0)) == [0, 0, 1]
    assert ScriptCounter(script(init_fail=True), known=1).value == 1


def test_progress_is_said() -> None:
    counter = ScriptCounter(script(3, 3))
    said = []
    for each in "+--+---++-+++":
        counter.take(well=each == "+")
        said.append(counter.progress)
    assert said == [
        *("", "1 of 3 failures", "2 of 3 failures", "", "1 of 3 failures", "2 of 3 failures", ""),
        *("1 of 3 successes", "2 of 3 successes", "", "1 of 3 successes", "2 of 3 successes", ""),
    ]
    assert ScriptCounter(script(3, 3)).progress == ""


@given(runs=st.text("+-", max_size=60), rise=st.integers(1, 5), fall=st.integers(1, 5), init_fail=st.booleans())
def test_a_verdict_changes_after_its_number_of_equal_runs(*, runs: str, rise: int, fall: int, init_fail: bool) -> None:
    """Against an oracle that looks at the whole past, not at a counter."""
    counter = ScriptCounter(script(rise, fall, init_fail=init_fail))
    expected = 0 if init_fail else None
    for number, each in enumerate(runs, start=1):
        past = runs[:number]
        if expected is None:
            expected = int(each == "+")
        elif past.endswith("+" * rise) and expected == 0:
            expected = 1
        elif past.endswith("-" * fall) and expected == 1:
            expected = 0
        before = counter.value
        assert counter.take(well=each == "+") is (expected != before)
        assert counter.value == expected
