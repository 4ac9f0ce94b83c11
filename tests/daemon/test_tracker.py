from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from haxlb.daemon.control import Reload
from haxlb.daemon.messages import ConfigureSpeaker, ConfigureTracker, Happened, Tracked, TrackerStatus
from haxlb.daemon.supervisor_ports import Loaded
from haxlb.daemon.tracking import anything, same_things, tracker_orders
from haxlb.model.commands import Command
from haxlb.model.facts import AlarmRaised, TrackChanged
from haxlb.model.groups import SyncGroup
from haxlb.model.node import NodeConfig
from haxlb.model.notification import NotificationSettings, ScriptSettings
from haxlb.model.tracking import BfdSession, Track, TrackFile, TrackKind, TrackProcess, TrackResult, TrackScript

CHK = TrackScript(name="chk", run=Command(argv=("/bin/chk",)))
TRACK = Track(kind=TrackKind.SCRIPT, name="chk", weight=-20)


def result(value: int | None, name: str = "chk", kind: TrackKind = TrackKind.SCRIPT) -> TrackResult:
    return TrackResult(kind=kind, name=name, value=value)


def tracking(kit: Any, script: TrackScript = CHK, **changes: Any) -> NodeConfig:
    return kit.node(kit.instance(tracks=(TRACK,)), track_scripts=(script,), **changes)


def found(world: Any, *results: TrackResult) -> None:
    world.supervisor.on_message("tracker", Tracked(results=results))


async def reload(world: Any, config: NodeConfig) -> None:
    world.loaded = Loaded(config=config)
    assert (await world.supervisor.command(Reload(), lambda _: None)).ok


async def nothing(_: Any) -> None:
    """Start and stop is all."""


def test_where_nothing_is_tracked_there_is_no_tracker(play, kit):
    world = play(nothing, kit.node(kit.instance(), track_scripts=(CHK,)))
    assert [name for _, name in world.started] == ["speaker"]


def test_where_something_is_tracked_the_tracker_comes_before_the_speaker_and_leaves_after_it(play, kit):
    world = play(nothing, tracking(kit))
    assert [name for _, name in world.started] == ["tracker", "speaker"]
    (orders,) = world.messages("tracker", ConfigureTracker)
    assert orders == ConfigureTracker(scripts=(CHK,), config_directory="/etc/keepalived")
    stopped = [fields["process"] for _, event, fields in world.logged if event == "process_stopped"]
    assert stopped == ["speaker", "tracker"]


def test_results_reach_the_speaker_the_history_and_the_status(play, kit):
    async def scene(world):
        found(world, result(None))
        found(world, result(0))
        status = await world.supervisor.status()
        assert [each.name for each in status.tracked] == ["chk"]
        assert [each.name for each in status.processes] == ["tracker", "speaker"]
        assert any(line.endswith("track_script chk: not well") for line in status.history)

    world = play(scene, tracking(kit))
    assert world.messages("speaker", Tracked) == [Tracked(results=(result(None),)), Tracked(results=(result(0),))]
    assert [each for each in world.published if isinstance(each, TrackChanged)]


def test_a_fresh_speaker_is_told_the_last_results(play, kit):
    async def scene(world):
        found(world, result(1))
        found(world, result(0))
        world.exit("speaker", -9)
        await asyncio.sleep(0.1)

    world = play(scene, tracking(kit))
    told = [message for message in world.messages("speaker") if isinstance(message, ConfigureSpeaker | Tracked)]
    assert told[-1] == Tracked(results=(result(0),))
    assert isinstance(told[-2], ConfigureSpeaker)


def test_the_results_of_a_dead_tracker_stay_in_force_and_its_successor_knows_them(play, kit):
    async def scene(world):
        found(world, result(0))
        alarm = AlarmRaised(key="track-script/chk", severity="warning", summary="", evidence=(), at_us=world.now())
        world.supervisor.on_message("tracker", Happened(fact=alarm))
        world.exit("tracker", -9)
        await asyncio.sleep(0.1)
        assert (await world.supervisor.status()).alarms == ()  # its successor complains anew
        world.exit("speaker", -9)
        await asyncio.sleep(0.1)

    world = play(scene, tracking(kit))
    assert [name for _, name in world.started] == ["tracker", "speaker", "tracker", "speaker"]
    assert world.messages("tracker", ConfigureTracker)[-1].known == (result(0),)
    assert world.messages("speaker", Tracked)[-1] == Tracked(results=(result(0),))
    assert world.executed == [frozenset()]  # only for the speaker


def test_a_tracker_that_keeps_dying_raises_an_alarm(play, kit):
    async def scene(world):
        for _ in range(2):
            world.exit("tracker", -9)
            await asyncio.sleep(0.1)
        alarms = (await world.supervisor.status()).alarms
        assert [(each.key, each.severity) for each in alarms] == [("process/tracker", "warning")]

    play(scene, tracking(kit))


def test_a_reload_that_changes_nothing_of_it_does_not_wake_the_tracker(play, kit):
    async def scene(world):
        await reload(world, kit.node(kit.instance(tracks=(TRACK,), priority=99), track_scripts=(CHK,)))

    assert len(play(scene, tracking(kit)).messages("tracker", ConfigureTracker)) == 1


def test_a_reload_that_changes_only_a_script_does_not_wake_the_speaker(play, kit):
    async def scene(world):
        await reload(world, tracking(kit, replace(CHK, fall=3)))

    world = play(scene, tracking(kit))
    assert world.messages("tracker", ConfigureTracker)[-1].scripts[0].fall == 3
    assert len(world.messages("speaker", ConfigureSpeaker)) == 1


def test_the_first_thing_that_is_tracked_starts_a_tracker(play, kit):
    async def scene(world):
        await reload(world, tracking(kit))
        await reload(world, kit.node())

    world = play(scene, kit.node())
    assert [name for _, name in world.started] == ["speaker", "tracker"]
    assert not anything(world.messages("tracker", ConfigureTracker)[-1])


def test_what_is_known_of_another_command_is_not_known_of_this_one(play, kit):
    async def scene(world):
        found(world, result(0))
        await reload(world, tracking(kit, replace(CHK, interval_us=5)))
        assert world.messages("tracker", ConfigureTracker)[-1].known == (result(0),)
        await reload(world, tracking(kit, replace(CHK, run=Command(argv=("/bin/other",)))))
        assert world.messages("tracker", ConfigureTracker)[-1].known == ()

    play(scene, tracking(kit))


def test_a_mute_tracker_is_named(play, kit):
    async def scene(world):
        world._track = lambda _: None
        status = await world.supervisor.status()
        assert {each.name: each.problem for each in status.processes}["tracker"] == "did not answer"
        world.supervisor.on_message("tracker", TrackerStatus(ticket=0, tracked=()))
        del world._track

    play(scene, tracking(kit))


# -- what is tracked


def test_what_groups_track_is_tracked_too_and_what_nobody_tracks_is_not(kit):
    things = {
        "track_scripts": (CHK, replace(CHK, name="unused")),
        "track_files": (TrackFile(name="f", path="/f"), TrackFile(name="g", path="/g")),
        "track_processes": (TrackProcess(name="p", process="p"),),
        "bfd_sessions": (BfdSession(name="b", neighbor="192.0.2.1"),),
    }
    tracks = (
        Track(kind=TrackKind.FILE, name="g"),
        Track(kind=TrackKind.PROCESS, name="p"),
        Track(kind=TrackKind.INTERFACE, name="eth1"),
    )
    group = SyncGroup(name="G", members=("VI_1",), tracks=(TRACK, Track(kind=TrackKind.BFD, name="b")))
    settings = ScriptSettings(security=True)
    config = kit.node(
        kit.instance(tracks=tracks),
        sync_groups=(group,),
        notification=NotificationSettings(scripts=settings),
        **things,
    )
    assert tracker_orders(config) == ConfigureTracker(
        scripts=(CHK,),
        files=things["track_files"][1:],
        processes=things["track_processes"],
        bfd_sessions=things["bfd_sessions"],
        script_settings=settings,
    )


def test_interfaces_are_the_speakers_own_business(kit):
    config = kit.node(kit.instance(tracks=(Track(kind=TrackKind.INTERFACE, name="eth1"),)))
    assert not anything(tracker_orders(config))


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ({"scripts": (CHK,)}, {"scripts": (replace(CHK, fall=9, weight=5),)}, True),
        ({"scripts": (CHK,)}, {"scripts": (replace(CHK, run=Command(argv=("/bin/x",))),)}, False),
        ({"files": (TrackFile(name="chk", path="/f"),)}, {"files": (TrackFile(name="chk", path="/g"),)}, False),
        ({"scripts": (CHK,)}, {"files": (TrackFile(name="chk", path="/f"),)}, False),
        (
            {"processes": (TrackProcess(name="chk", process="a"),)},
            {"processes": (TrackProcess(name="chk", process="a", quorum=2),)},
            True,
        ),
        (
            {"processes": (TrackProcess(name="chk", process="a"),)},
            {"processes": (TrackProcess(name="chk", process="b"),)},
            False,
        ),
        (
            {"bfd_sessions": (BfdSession(name="chk", neighbor="192.0.2.1"),)},
            {"bfd_sessions": (BfdSession(name="chk", neighbor="192.0.2.2"),)},
            False,
        ),
        ({}, {"scripts": (CHK,)}, False),
    ],
)
def test_the_same_thing(*, before: dict[str, Any], after: dict[str, Any], same: bool) -> None:
    found = same_things(ConfigureTracker(**before), ConfigureTracker(**after))
    assert {name for _, name in found} == ({"chk"} if same else set())
