from __future__ import annotations

from haxlb.daemon.speaker_retries import MOST_RETRIES, RETRY_US, SOON_US, try_again


class Kernel:
    """Refuses everything but `willing`, and counts."""

    def __init__(self) -> None:
        self.willing: set[int] = set()
        self.asked: list[int] = []

    def __call__(self, entry: int) -> bool:
        self.asked.append(entry)
        return entry in self.willing


def test_of_many_a_few_are_tried_at_a_time_and_all_of_them_in_turn() -> None:
    kernel, refused = Kernel(), dict.fromkeys(range(100), "VI_1")
    for _ in range(7):
        before = len(kernel.asked)
        assert try_again({}, refused, remove=kernel, add=kernel) == RETRY_US
        assert len(kernel.asked) - before == MOST_RETRIES
    assert kernel.asked == [each % 100 for each in range(7 * MOST_RETRIES)]
    assert set(refused.values()) == {"VI_1"}


def test_what_is_still_on_and_what_is_not_do_not_keep_each_other_waiting() -> None:
    removing, adding = Kernel(), Kernel()
    left, refused = dict.fromkeys(range(100), ""), dict.fromkeys(range(100), "")
    try_again(left, refused, remove=removing, add=adding)
    assert (len(removing.asked), len(adding.asked)) == (MOST_RETRIES // 2, MOST_RETRIES // 2)
    few = dict.fromkeys(range(3), "")
    removing.asked.clear()
    try_again(left, few, remove=removing, add=adding)
    assert len(removing.asked) == MOST_RETRIES - 3


def test_while_some_succeed_those_that_have_not_had_their_turn_come_soon() -> None:
    kernel, refused = Kernel(), dict.fromkeys(range(MOST_RETRIES + 1), "")
    kernel.willing = {0, MOST_RETRIES}
    assert try_again({}, refused, remove=kernel, add=kernel) == SOON_US
    assert 0 not in refused
    assert try_again({}, refused, remove=kernel, add=kernel) == RETRY_US
    kernel.willing = set(refused)
    assert try_again({}, refused, remove=kernel, add=kernel) is None
    assert not refused
