"""What each drill must show, for many seeds: the outage against the theory, and who is MASTER at the end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from haxlb.model.settings import SpeakerSettings
from haxlb.model.units import SECOND_US
from haxlb.sim import SCENARIOS, Nature, Run, World, plan
from haxlb.sim.lan import Wire
from haxlb.splitbrain import protocol_window_us
from tests.sim.clusters import FAST, PAIR, drill, node, pair, story

SEEDS = range(1, 13)
THEORY_US = 3 * SECOND_US + 156 * SECOND_US // 256
SKEW_US = 156 * SECOND_US // 256
SLACK_US = 2_000
WINDOW_US = protocol_window_us(PAIR)


def masters(run: Run) -> list[str]:
    """Who became MASTER after the fault, in order."""
    return [who for _, who, what in story(run) if "-> MASTER" in what]


@pytest.mark.parametrize("name", [each.name for each in SCENARIOS])
@pytest.mark.parametrize("broker", [False, True])
def test_all_laws_hold(name: str, *, broker: bool) -> None:
    for seed in SEEDS:
        run = drill(name, seed, nature=Nature(broker=broker))
        assert run.laws_broken == (), (name, seed)


@pytest.mark.parametrize("name", [each.name for each in SCENARIOS])
def test_all_laws_hold_with_three_directors_and_two_instances(name: str) -> None:
    stations = pair(PAIR, FAST, nodes=3)
    for seed in range(1, 5):
        run = drill(name, seed, stations)
        assert run.laws_broken == (), (name, seed)


@pytest.mark.parametrize("name", [each.name for each in SCENARIOS])
def test_lost_frames_break_no_law(name: str) -> None:
    for seed in range(1, 5):
        run = drill(name, seed, nature=Nature(broker=True, wire=Wire(loss=0.1)))
        assert run.laws_broken == (), (name, seed)


def test_a_crash_costs_what_the_theory_says() -> None:
    """At most 3 * advert_int + skew; at least that without the part of the interval that was over already."""
    for seed in SEEDS:
        outage = drill("crash", seed).outages[0]
        assert outage.theory_us == THEORY_US
        assert THEORY_US - SECOND_US <= outage.unserved_us <= THEORY_US + SLACK_US
        assert abs(outage.mute_us - outage.unserved_us) <= SLACK_US


def test_a_lost_link_costs_no_more_than_a_crash_and_less_when_it_comes_back() -> None:
    outages = [drill("link-down", seed).outages[0].unserved_us for seed in SEEDS]
    assert max(outages) <= THEORY_US + SLACK_US
    assert min(outages) < THEORY_US - SECOND_US


@pytest.mark.parametrize("name", ["graceful-stop", "planned-failover"])
def test_an_orderly_leave_costs_clients_nothing_and_one_skew_without_a_master(name: str) -> None:
    for seed in SEEDS:
        outage = drill(name, seed).outages[0]
        assert outage.unserved_us == 0
        assert abs(outage.mute_us - SKEW_US) <= SLACK_US


def test_after_a_planned_failover_the_old_master_waits_until_it_resumes() -> None:
    for seed in SEEDS:
        run = drill("planned-failover", seed)
        assert masters(run) == ["lb1-peer", "lb1"]
        resumed = next(at for at, _, what in story(run) if what == "resumes")
        back = next(at for at, who, what in story(run) if who == "lb1" and "-> MASTER" in what)
        assert back > resumed


def test_the_return_of_the_master_costs_clients_nothing() -> None:
    for seed in SEEDS:
        run = drill("return-of-master", seed)
        assert masters(run) == ["lb1"]
        assert run.outages[0].unserved_us == 0
        assert run.outages[0].mute_us == 0


def test_a_frozen_master_still_forwards_and_its_addresses_expire() -> None:
    long_enough = 0
    for seed in SEEDS:
        run = drill("freeze", seed)
        assert run.outages[0].unserved_us == 0
        took_over = "lb1-peer" in masters(run)
        expired = any("takes the addresses off" in what for _, _, what in story(run))
        assert expired or not took_over
        long_enough += took_over
    assert 0 < long_enough < len(SEEDS), "the seeds show short freezes and long ones"


def test_a_killed_haxlb_leaves_no_address_behind() -> None:
    for seed in SEEDS:
        run = drill("killed", seed)
        assert run.outages[0].unserved_us == 0
        expired = next(at for at, who, what in story(run) if who == "lb1" and "takes the addresses off" in what)
        assert expired <= 2.0
        assert masters(run) == ["lb1-peer"]


def test_a_spare_speaker_goes_on_for_a_killed_one_and_nobody_notices() -> None:
    resumed = 0
    for seed in SEEDS:
        run = drill("speaker-killed", seed)
        assert run.outages[0].unserved_us == 0
        if masters(run):
            continue
        resumed += 1
        assert any("goes on as MASTER" in what for _, who, what in story(run) if who == "lb1")
        assert run.outages[0].mute_us <= 20_000
    assert resumed == len(SEEDS), "at an interval of a second there is always time"


def test_without_a_spare_the_supervisor_speaks_for_a_killed_speaker() -> None:
    alone = replace(node(PAIR), speaker=SpeakerSettings(spare=False))
    for seed in SEEDS:
        run = drill("speaker-killed", seed, plan(alone))
        assert run.laws_broken == ()
        assert run.outages[0].unserved_us == 0
        assert run.outages[0].mute_us <= SKEW_US + 50_000
        assert masters(run)[-1] == "lb1"


def test_a_cut_link_is_a_split_brain_and_the_broker_shows_it() -> None:
    shown = 0
    for seed in SEEDS:
        run = drill("link-cut", seed, nature=Nature(broker=True))
        assert run.outages[0].unserved_us == 0
        for split in run.splits:
            if split.length_us >= 2 * WINDOW_US:
                assert split.alarm_us is not None
                assert WINDOW_US <= split.alarm_us <= 2 * WINDOW_US
                shown += 1
            elif split.length_us < WINDOW_US:
                assert split.alarm_us is None
    assert shown > 3


def test_without_a_broker_nobody_can_see_a_cut_link() -> None:
    runs = [drill("link-cut", seed, nature=Nature(broker=False)) for seed in SEEDS]
    assert max(run.split_us for run in runs) > 2 * WINDOW_US
    assert all(run.alarm_us is None for run in runs)


def test_in_a_one_way_cut_the_master_hears_the_other_one() -> None:
    shown = 0
    for seed in SEEDS:
        run = drill("one-way-cut-out", seed, nature=Nature(broker=False))
        for split in run.splits:
            if split.length_us >= 2 * WINDOW_US:
                assert split.alarm_us is not None
                assert split.alarm_us <= 2 * WINDOW_US
                shown += 1
    assert shown > 3


def test_a_master_that_is_deaf_to_silent_backups_misses_nothing() -> None:
    for seed in SEEDS:
        run = drill("one-way-cut-in", seed)
        assert story(run) == [each for each in story(run) if each[1] == "LAN"]
        assert (run.outages[0].mute_us, run.splits) == (0, ())


def test_the_moment_of_a_preemption_is_an_election_and_no_split_brain() -> None:
    run = drill("return-of-master", 1)
    assert len(run.splits) == 1
    assert run.splits[0].is_election
    assert (run.split_us, run.alarm_us) == (0, None)


def test_a_nopreempt_master_that_returns_stays_backup() -> None:
    run = drill("return-of-master", 1, pair(FAST))
    assert masters(run) == []


def test_every_cut_is_healed_and_every_alarm_cleared() -> None:
    for name in ("link-cut", "one-way-cut-out"):
        for seed in SEEDS:
            run = drill(name, seed)
            raised = sum("ALARM" in what for _, _, what in story(run))
            cleared = sum(" cleared: " in what for _, _, what in story(run))
            assert raised == cleared


def test_an_idle_hour_costs_an_event_per_frame_and_little_else() -> None:
    """A day of three directors must be played in seconds: what is free today must not cost an event tomorrow."""
    world = World(pair(nodes=3), 1, Nature())
    for director in world.directors:
        world.loop.at(0, director.power_on)
    world.loop.run_until(3_600 * SECOND_US)
    adverts, questions = 3_600, 1_200
    per_advert = 1 + 3
    per_question = 1 + 3
    backup_wakes = 2 * 3_600 // 3
    assert world.loop.fired < 1.02 * (adverts * per_advert + questions * per_question + backup_wakes)
    assert world.laws.breaches == []
