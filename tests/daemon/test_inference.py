from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from haxlb.daemon.inference import Inference
from haxlb.daemon.messages import SpeakerStatus, Tracked
from haxlb.model.facts import PriorityChanged, TrackChanged
from haxlb.model.instance import Role
from haxlb.model.status import Contribution, InstanceStatus
from haxlb.model.tracking import TrackKind, TrackResult

BASE = InstanceStatus(
    name="VI_1",
    interface="eth0",
    vrid=51,
    version=2,
    role=Role.BACKUP,
    since_at=0,
    reason="",
    priority=150,
    base_priority=150,
)


def statuses(*instances: InstanceStatus) -> SpeakerStatus:
    return SpeakerStatus(ticket=0, instances=instances)


def test_a_changed_priority_is_told_with_its_sum() -> None:
    inference = Inference()
    parts = (
        Contribution(kind="track_script", name="chk", well=False, change=-20),
        Contribution(kind="track_interface", name="eth1", well=True, change=0),
        Contribution(kind="track_file", name="load", well=True, change=3),
    )
    assert inference.of_status(statuses(BASE), 1) == []
    assert inference.of_status(statuses(BASE), 2) == []
    (fact,) = inference.of_status(statuses(replace(BASE, priority=133, contributions=parts)), 3)
    assert fact == PriorityChanged(
        instance="VI_1",
        vrid=51,
        before=150,
        after=133,
        reason="150 - 20 (track_script chk) + 3 (track_file load)",
        at_us=3,
    )
    (fact,) = inference.of_status(statuses(BASE), 4)
    assert (fact.after, fact.reason) == (150, "as configured")


def test_a_new_instance_has_no_changed_priority() -> None:
    inference = Inference()
    inference.of_status(statuses(BASE), 1)
    assert inference.of_status(statuses(replace(BASE, name="VI_2", priority=1)), 2) == []


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ((1, 1), []),
        ((None, 1), []),
        ((0, 0), [(None, 0)]),
        ((None, 0, 1), [(None, 0), (0, 1)]),
        ((1, 0, 1), [(1, 0), (0, 1)]),
        ((1, None), [(1, None)]),
    ],
)
def test_results_that_differ_are_told_and_a_good_beginning_is_not(values: tuple[Any, ...], told: list[Any]) -> None:
    inference = Inference()
    facts: list[TrackChanged] = []
    for value in values:
        result = TrackResult(kind=TrackKind.SCRIPT, name="chk", value=value)
        facts += inference.of_results(Tracked(results=(result,)), 1)
    assert [(fact.before, fact.after) for fact in facts] == told
    assert {(fact.kind, fact.name) for fact in facts} <= {("track_script", "chk")}


def test_the_supervisor_makes_facts_of_them(play: Any, kit: Any) -> None:
    async def scene(world: Any) -> None:
        told = world.supervisor.on_message
        told("speaker", statuses(BASE))
        told("speaker", statuses(replace(BASE, priority=130)))
        told("tracker", Tracked(results=(TrackResult(kind=TrackKind.SCRIPT, name="chk", value=0),)))

    world = play(scene, kit.node())
    assert [type(each) for each in world.published if isinstance(each, PriorityChanged | TrackChanged)] == [
        PriorityChanged,
        TrackChanged,
    ]
