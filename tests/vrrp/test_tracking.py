"""What is tracked: priority, FAULT and waiting, as a router makes them of results."""

from __future__ import annotations

import dataclasses
from ipaddress import IPv4Address

import pytest

from haxlb.model.instance import Role
from haxlb.model.tracking import Track, TrackKind, TrackResult
from haxlb.vrrp.inputs import LinkChanged, Reconfigure, Start, Tracked

SECOND = 1_000_000
UP = LinkChanged(up=True, address=IPv4Address("192.0.2.5"))
DOWN = LinkChanged(up=False, address=IPv4Address("192.0.2.5"))
MINUS, PLUS = (Track(kind=TrackKind.SCRIPT, name="chk", weight=weight) for weight in (-60, 20))
HARD = Track(kind=TrackKind.SCRIPT, name="chk")


def _result(value: int | None, name: str = "chk") -> Tracked:
    return Tracked(results=(TrackResult(kind=TrackKind.SCRIPT, name=name, value=value),))


def test_a_weight_moves_the_timer_of_a_backup(bench):
    it = bench(priority=150, tracks=(MINUS,))
    it.hear(200)
    assert it.router.next_deadline() == 3_414_062
    it.now = SECOND
    assert it.say(_result(0)) == []
    assert it.router.priority == 90
    assert it.router.next_deadline() == 3_648_437
    it.say(_result(1))
    assert it.router.next_deadline() == 3_414_062


def test_a_weight_shows_in_the_next_advert_of_a_master_and_not_before(bench, quiet):
    it = bench(priority=150, tracks=(MINUS,), garp=quiet).as_master()
    due = it.router.next_deadline()
    assert it.say(_result(0)) == []
    assert (it.role, it.router.next_deadline()) == (Role.MASTER, due)
    assert it.at(due) == ["advert 90"]


def test_a_master_yields_to_what_is_higher_than_its_sum(bench):
    it = bench(priority=150, tracks=(MINUS,)).as_master()
    it.say(_result(0))
    it.hear(100)
    assert (it.role, it.reason) == (Role.BACKUP, "priority 100 of 192.0.2.1 is higher than our 90")
    it.say(_result(1))
    it.hear(100)
    it.at(it.now + 4 * SECOND)
    assert it.reason == "our priority 150 is higher than 100 of 192.0.2.1"


def test_changes_of_the_priority_are_told_where_that_is_asked_for(bench):
    it = bench(tracks=(PLUS,), notify_priority_changes=True)
    assert it.say(_result(1)) == ["notify BACKUP_PRIORITY"]
    assert it.say(_result(1)) == []
    it.as_master()
    assert it.say(_result(0)) == ["notify MASTER_PRIORITY"]
    it.say(DOWN)
    assert it.say(_result(1)) == []


def test_a_failure_without_weight_is_a_fault_and_its_end_is_backup(bench):
    it = bench(tracks=(HARD,), start=False)
    it.say(_result(1))
    it.say(Start())
    it.as_master()
    assert it.say(_result(0)) == ["advert 0", "advert 0", "remove 192.0.2.100/24", "notify FAULT", "RoleChanged"]
    assert it.reason == "script chk fails"
    it.now += 60 * SECOND
    assert it.say(_result(1)) == ["notify BACKUP", "RoleChanged"]
    assert it.reason == "over: script chk fails"
    assert it.router.next_deadline() == it.now + 3_609_375


def test_no_role_before_the_first_result(bench):
    it = bench(tracks=(HARD,))
    assert (it.role, it.reason) == (Role.INIT, "waits for the first result of chk")
    assert it.hear(200) == []
    assert it.router.next_deadline() is None
    assert it.say(_result(1)) == ["notify BACKUP", "RoleChanged"]
    assert it.reason == "started"


def test_a_first_result_that_is_a_failure(bench):
    it = bench(tracks=(HARD,))
    assert it.say(_result(0)) == ["notify FAULT", "RoleChanged"]
    assert it.reason == "script chk fails"


def test_a_broken_link_comes_before_the_waiting(bench):
    it = bench(start=False, tracks=(HARD,))
    it.say(DOWN)
    it.say(Start())
    assert (it.role, it.reason) == (Role.FAULT, "eth0 is down")
    assert it.say(UP) == []
    assert (it.role, it.reason) == (Role.FAULT, "waits for the first result of chk")
    it.say(_result(1))
    assert it.role is Role.BACKUP


def test_the_owner_waits_and_fails_like_anybody(bench):
    it = bench(priority=255, tracks=(HARD,))
    assert it.role is Role.INIT
    it.say(_result(1))
    assert it.role is Role.MASTER
    it.say(_result(0))
    assert it.role is Role.FAULT


def test_what_a_reload_adds_does_not_cost_the_role(bench):
    it = bench().as_master()
    assert it.say(Reconfigure(instance=dataclasses.replace(it.instance, tracks=(HARD,)))) == []
    assert it.role is Role.MASTER
    it.say(_result(0))
    assert it.role is Role.FAULT


def test_what_a_reload_takes_away_ends_its_fault(bench):
    it = bench(tracks=(HARD,))
    it.say(_result(0))
    it.say(Reconfigure(instance=dataclasses.replace(it.instance, tracks=())))
    assert it.role is Role.BACKUP


def test_two_causes_and_both_must_end(bench):
    it = bench(tracks=(HARD,))
    it.say(_result(0))
    it.say(DOWN)
    assert it.reason == "eth0 is down"
    assert it.say(_result(1)) == []
    assert it.role is Role.FAULT
    it.say(UP)
    assert it.role is Role.BACKUP


def test_strangers_results_are_none_of_ours(bench):
    it = bench(tracks=(MINUS,))
    assert it.say(_result(0, "other")) == []
    assert it.router.priority == 100


def test_the_sum_in_the_status(bench):
    it = bench(priority=150, tracks=(MINUS,))
    it.say(_result(0))
    status = it.router.status()
    assert (status.base_priority, status.priority) == (150, 90)
    assert [(each.kind, each.name, each.well, each.change) for each in status.contributions] == [
        ("track_script", "chk", False, -60)
    ]


@pytest.mark.parametrize("version", [2, 3])
def test_a_shift_is_the_difference_of_the_skews(bench, version):
    it = bench(version=version, advert_interval_us=SECOND, tracks=(PLUS,))
    before = it.router.next_deadline()
    it.say(_result(1))
    assert before - it.router.next_deadline() == 609_375 - 531_250
