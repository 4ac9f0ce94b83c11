from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from haxlb.health.timetable import AT_ONCE, GRACE_US, AbandonProbe, StartProbe, Timetable
from haxlb.model.check import Check
from tests.health.worlds import check, seconds

MANY = [check(host % 250, port=1000 + host) for host in range(400)]


def first_starts(seed: str, checks: list[Check]) -> dict[Check, int]:
    table = Timetable(seed)
    table.configure(checks, now=0)
    starts = {}
    while len(starts) < len(checks):
        now = table.next_deadline()
        assert now is not None
        for start in table.start_due(now)[0]:
            starts[start.check] = now
    return starts


def test_first_probes_are_spread_over_one_second_the_same_way_each_time() -> None:
    starts = first_starts("lb1", MANY)
    assert starts == first_starts("lb1", MANY)
    assert starts != first_starts("lb2", MANY)
    assert max(starts.values()) < seconds(1)
    tenths = [sum(seconds(n / 10) <= at < seconds((n + 1) / 10) for at in starts.values()) for n in range(10)]
    assert min(tenths) > len(MANY) / 10 / 2


def test_a_short_delay_loop_or_warmup_brings_the_first_probe_forward() -> None:
    starts = first_starts("lb1", [replace(each, delay_loop_us=seconds(0.1)) for each in MANY])
    assert max(starts.values()) < seconds(0.1)
    starts = first_starts("lb1", [replace(each, warmup_us=seconds(0.2)) for each in MANY])
    assert max(starts.values()) < seconds(0.2)
    assert first_starts("lb1", [check(warmup_us=0)]) == {check(warmup_us=0): 0}


def started(table: Timetable, now: int) -> StartProbe:
    starts, overdue = table.start_due(now)
    assert not overdue
    assert len(starts) == 1
    return starts[0]


def test_the_pause_counts_from_the_end_of_a_probe() -> None:
    table = Timetable("lb1")
    table.configure([check(warmup_us=0)], now=0)
    first = started(table, 0)
    assert first.deadline_us == seconds(1)
    assert table.start_due(seconds(0.9)) == ([], []), "never two probes of one target at once"
    assert table.ended(first.ticket) == first.check
    table.pause(first.check, seconds(10), seconds(0.9))
    assert table.next_deadline() == seconds(10.9)
    assert started(table, seconds(10.9)).ticket != first.ticket


def test_many_that_are_due_together_start_in_portions() -> None:
    table = Timetable("lb1")
    many = [replace(each, warmup_us=0) for each in MANY[: 2 * AT_ONCE + 1]]
    table.configure(many, now=0)
    portions = []
    while table.next_deadline() == 0:
        portions.append([each.check for each in table.start_due(0)[0]])
    assert [len(each) for each in portions] == [AT_ONCE, AT_ONCE, 1]
    assert {each for portion in portions for each in portion} == set(many)


def test_equal_checks_are_one_probe() -> None:
    table = Timetable("lb1")
    table.configure([check(warmup_us=0), check(warmup_us=0), check(warmup_us=0, delay_loop_us=seconds(3))], now=0)
    assert [each.check.delay_loop_us for each in table.start_due(0)[0]] == [seconds(10), seconds(3)]


def test_a_prober_that_stays_silent_is_given_up() -> None:
    table = Timetable("lb1")
    table.configure([check(warmup_us=0)], now=0)
    probe = started(table, 0)
    assert table.next_deadline() == seconds(1) + GRACE_US
    assert table.start_due(seconds(1) + GRACE_US) == ([], [(AbandonProbe(ticket=probe.ticket), probe.check)])
    assert table.ended(probe.ticket) is None, "an outcome that comes later counts for nothing"


def test_a_reload_touches_only_what_differs() -> None:
    stays, goes, comes = check(21, warmup_us=0), check(22, warmup_us=0), check(23, warmup_us=0)
    table = Timetable("lb1")
    table.configure([stays, goes], now=0)
    tickets = {each.check: each.ticket for each in table.start_due(0)[0]}
    assert table.configure([stays, comes], now=5) == [AbandonProbe(ticket=tickets[goes])]
    assert [each.check for each in table.start_due(5)[0]] == [comes]
    assert table.ended(tickets[goes]) is None
    assert table.ended(tickets[stays]) == stays
    assert table.configure([stays, comes], now=6) == []


def test_without_checks_nothing_is_due() -> None:
    table = Timetable("lb1")
    assert table.next_deadline() is None
    table.configure([check(warmup_us=0)], now=0)
    table.configure([], now=1)
    assert table.next_deadline() is None
    assert table.start_due(seconds(100)) == ([], [])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3_000_000)), max_size=50))
def test_every_check_is_either_running_or_due(steps: list[tuple[int, int]]) -> None:
    """Whatever ends when: no check is ever lost, none runs twice."""
    checks = [check(20 + n, warmup_us=0) for n in range(3)]
    table, running, now = Timetable("lb1"), {}, 0
    table.configure(checks, now)
    for kind, wait in steps:
        now += wait
        starts, overdue = table.start_due(now)
        for abandon, each in overdue:
            assert running.pop(each).ticket == abandon.ticket
            table.pause(each, seconds(1), now)
        for start in starts:
            assert start.check not in running
            running[start.check] = start
        if kind < 3 and checks[kind] in running:
            table.ended(running.pop(checks[kind]).ticket)
            table.pause(checks[kind], seconds(1), now)
        deadline = table.next_deadline()
        assert deadline is not None
    longest = now + seconds(1) + GRACE_US
    for _ in checks:
        starts, overdue = table.start_due(longest)
        for each in [each.check for each in starts] + [each for _, each in overdue]:
            running[each] = None
    assert set(running) == set(checks)
