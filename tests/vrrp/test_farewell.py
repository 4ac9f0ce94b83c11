"""The last word: when it is said again."""

from __future__ import annotations

from haxlb.vrrp.farewell import Farewell

T = 100_000


def _said(it: Farewell, times) -> list[int]:
    return [now // T for now in times if it.unheard(T, now)]


def test_an_answer_ends_it():
    it = Farewell()
    it.begin(0)
    assert not it.unheard(T, T // 8 - 1)
    assert _said(it, range(T, 100 * T, T)) == []


def test_turns_without_an_answer_repeat_it():
    it = Farewell()
    it.begin(0)
    assert _said(it, range(T, 200 * T, T)) == [1, 3, *range(7, 63, 4)]


def test_a_turn_that_comes_early_since_the_one_before_was_late_is_no_answer():
    it = Farewell()
    it.begin(0)
    assert not it.unheard(T, T // 2 - 1)
    assert it.unheard(T, T + T // 2 - 1)


def test_what_is_owed_is_said_to_the_first():
    it = Farewell()
    it.owe()
    assert it.unheard(T, 1_000_000)
    assert not it.unheard(T, 1_000_001)


def test_nothing_was_said_or_owed():
    it = Farewell()
    assert not it.unheard(T, 0)
    it.owe()
    it.end()
    assert not it.unheard(T, 0)
