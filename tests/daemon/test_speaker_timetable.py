from __future__ import annotations

from typing import cast

from haxlb.daemon.speaker_member import Member
from haxlb.daemon.speaker_timetable import Timetable


class Router:
    def __init__(self, deadline: int | None) -> None:
        self.deadline = deadline

    def next_deadline(self) -> int | None:
        return self.deadline


class Stub:
    """Of a member, what the timetable sees."""

    def __init__(self, serial: int, deadline: int | None) -> None:
        self.serial = serial
        self.router = Router(deadline)
        self.armed: int | None = None


def members(*deadlines: int | None) -> list[Member]:
    return [cast("Member", Stub(serial, deadline)) for serial, deadline in enumerate(deadlines)]


def move(member: Member, deadline: int | None) -> None:
    cast("Stub", member).router.deadline = deadline


def test_they_come_in_the_order_of_their_deadlines_and_once() -> None:
    table, (late, early, never) = Timetable(), members(20, 10, None)
    for each in (late, early, never):
        table.enlist(each)
    assert table.next_at == 10
    assert table.pop_due(9) is None
    assert [table.pop_due(20), table.pop_due(20), table.pop_due(20)] == [early, late, None]
    assert table.next_at is None


def test_a_deadline_that_has_moved_on_is_found_when_the_earlier_one_has_passed() -> None:
    table, (member,) = Timetable(), members(10)
    table.enlist(member)
    move(member, 30)
    table.enlist(member)
    assert table.next_at == 10  # too early, never too late
    assert table.pop_due(10) is None
    assert table.next_at == 30
    assert table.pop_due(30) is member


def test_a_deadline_that_comes_nearer_counts_at_once_and_the_former_no_more() -> None:
    table, (member,) = Timetable(), members(30)
    table.enlist(member)
    move(member, 10)
    table.enlist(member)
    assert table.next_at == 10
    assert table.pop_due(10) is member
    assert table.next_at is None  # that of 30 is no member's
    move(member, 40)
    table.enlist(member)
    assert table.pop_due(39) is None
    assert table.next_at == 40


def test_who_wants_nothing_any_more_is_dropped() -> None:
    table, (member, other) = Timetable(), members(10, 20)
    table.enlist(member)
    table.enlist(other)
    move(member, None)
    assert table.pop_due(10) is None
    assert table.next_at == 20
    table.clear()
    assert table.pop_due(20) is None
