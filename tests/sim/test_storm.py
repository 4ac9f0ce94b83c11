"""Random faults on random clusters: a fixed sample of what `make sim` plays, and what a storm must contain."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from random import Random

import pytest

from haxlb.model.instance import Role
from haxlb.sim import Run, plan
from haxlb.sim.lottery import draw
from tests.sim import marathon
from tests.sim.clusters import PAIR, node, pair

SAMPLE = range(10_031, 10_181)


@pytest.fixture(scope="module")
def sample() -> list[Run]:
    """Every twentieth seed is played twice, for L10."""
    return [marathon.run(seed) for seed in SAMPLE]


def test_the_laws_hold_in_a_sample_of_storms(sample: list[Run]) -> None:
    for result in sample:
        assert result.laws_broken == (), marathon.story(result)


def test_every_kind_of_fault_and_of_cluster_is_drawn(sample: list[Run]) -> None:
    """A storm that never does what it is for would find nothing."""
    said = {re.sub(r"[^a-z ]", "", each.what.lower()).strip() for result in sample for each in result.timeline}
    told = "\n".join(said)
    for what in (
        "power off",
        "all processes of haxlb are killed",
        "the speaker is killed",
        "the supervisor is killed",
        "haxlb stops in order",
        "all processes of haxlb are frozen",
        "the host is suspended",
        "its clock has stood",
        "eth lost",
        "no longer reaches",
        "is bad",
        "asked to hand over",
        "the time of day jumps",
        "reload another priority",
        "reload another name",
        "reload other addresses",
        "reload other interval",
        "is hanging",
        "is failing",
        "is missing",
        "trackfile file",
        "trackprocess proc",
    ):
        assert what in told, what


def test_clusters_differ_in_all_that_can_be_configured() -> None:
    drawn = [draw(Random(seed)) for seed in range(300)]
    instances = [each for stations in drawn for each in stations[0].config.instances]
    assert {len(stations) for stations in drawn} == {2, 3}
    assert {(each.version, each.family) for each in instances} == {(2, 4), (3, 4), (3, 6)}
    for what in (
        "nopreempt",
        "preempt_delay_us",
        "auth_ah",
        "peers",
        "excluded_vips",
        "routes",
        "tracks",
        "virtual_mac",
    ):
        having = sum(bool(getattr(each, what)) for each in instances)
        assert 0 < having < len(instances), what
    assert any(stations[0].config.sync_groups for stations in drawn)
    equal = [stations for stations in drawn if len({each.config.instances[0].priority for each in stations}) == 1]
    assert equal
    assert {each.advert_interval_us for each in instances} >= {10_000, 100_000, 1_000_000}


def test_the_marathon_prints_what_it_has_done_and_repeats_one_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["marathon", "1", "3"])
    assert marathon.main() == 0
    assert re.fullmatch(r"1 seeds, \d+ events, \d+ s: 0 broke a law\n", capsys.readouterr().out)


def test_the_marathon_tells_a_broken_law_with_its_trace_and_how_to_repeat_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = replace(PAIR, auth_pass="another", initial_role=Role.BACKUP, priority=100)
    strangers = plan(node(PAIR), (node(other, name="lb2"),))
    monkeypatch.setattr(marathon, "cluster", lambda seed: strangers if seed == 4 else pair())
    monkeypatch.setattr("sys.argv", ["marathon", "1", "4"])
    assert marathon.main() == 1
    told = capsys.readouterr().out
    assert told.startswith("seed 4 breaks a law\n  L1: lb1 (VI_1) and lb2 (VI_1) hear each other")
    assert "power on, haxlb starts" in told
    assert f"again: {sys.executable} -m tests.sim.marathon 1 4\n" in told
    assert told.endswith("1 broke a law\n")


def test_no_seed_at_all_is_wrong_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["marathon", "0"])
    with pytest.raises(SystemExit) as stopped:
        marathon.main()
    assert stopped.value.code == 2
