from __future__ import annotations

from collections.abc import Container
from typing import Any

import pytest

from haxlb.model.tracking import TrackProcess
from haxlb.vrrp.track_process import QuorumWatch

S = 1_000_000


def watch(known: int | None = None, **settings: Any) -> QuorumWatch:
    return QuorumWatch(TrackProcess(name="x", process="x", **settings), known=known)


@pytest.mark.parametrize(
    ("settings", "well"),
    [
        ({}, range(1, 10)),
        ({"quorum": 2}, range(2, 10)),
        ({"quorum": 2, "quorum_max": 3}, [2, 3]),
        ({"quorum": 0, "quorum_max": 0}, [0]),
        ({"quorum": 1, "quorum_max": 1}, [1]),
    ],
)
def test_quorum(settings: dict[str, int], well: Container[int]) -> None:
    for count in range(10):
        first = watch(**settings)
        assert first.handle(count, 0)
        assert first.value == int(count in well), count


def test_nothing_is_known_before_the_first_count() -> None:
    assert watch().value is None
    assert watch(known=1).value == 1
    assert watch().next_deadline() is None


def test_the_first_count_is_not_delayed() -> None:
    slow = watch(known=1, terminate_delay_us=5 * S)
    assert slow.handle(0, 0)
    assert slow.value == 0


def test_without_delays_a_change_counts_at_once() -> None:
    quick = watch()
    assert [quick.handle(count, 0) for count in (1, 2, 1, 0, 0, 1)] == [True, False, False, True, False, True]


def test_a_process_that_ends_has_time_to_be_replaced() -> None:
    slow = watch(terminate_delay_us=2 * S)
    slow.handle(1, 0)
    assert not slow.handle(0, 10 * S)
    assert slow.next_deadline() == 12 * S
    assert not slow.handle(1, 11 * S)
    assert slow.next_deadline() is None
    slow.handle(0, 20 * S)
    assert not slow.handle_timer(22 * S - 1)
    assert slow.handle_timer(22 * S)
    assert slow.value == 0
    assert slow.handle(1, 23 * S)  # no fork_delay


def test_a_process_that_starts_must_stay() -> None:
    slow = watch(fork_delay_us=2 * S)
    slow.handle(0, 0)
    assert not slow.handle(1, S)
    assert not slow.handle(0, 2 * S)
    assert not slow.handle(1, 3 * S)
    assert slow.handle_timer(5 * S)
    assert slow.value == 1
    assert slow.handle(0, 6 * S)


def test_too_many_are_too_many_after_fork_delay() -> None:
    slow = watch(quorum_max=2, fork_delay_us=S, terminate_delay_us=3 * S)
    slow.handle(2, 0)
    slow.handle(3, 0)
    assert slow.next_deadline() == S
    assert slow.handle_timer(S)
    slow.handle(2, 10 * S)
    assert slow.next_deadline() == 13 * S


def test_a_change_that_has_begun_is_not_put_off() -> None:
    slow = watch(quorum=3, terminate_delay_us=2 * S)
    slow.handle(3, 0)
    slow.handle(2, 10 * S)
    slow.handle(1, 11 * S)
    slow.handle(1, 11 * S)
    assert slow.next_deadline() == 12 * S


def test_a_late_count_that_disagrees_still_settles_what_is_overdue() -> None:
    slow = watch(quorum=3, terminate_delay_us=2 * S)
    slow.handle(3, 0)
    slow.handle(2, 10 * S)
    assert slow.handle(1, 15 * S)
    assert slow.value == 0
