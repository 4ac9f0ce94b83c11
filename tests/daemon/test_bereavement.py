"""The death of the speaker while a spare stands by: what is resumed, what is given up, what is told."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from haxlb.daemon.control import Failover, Reload
from haxlb.daemon.messages import ConfigureChecker, ConfigureSpeaker, HandOver, Ready, StandBy
from haxlb.daemon.supervisor_ports import Loaded
from haxlb.model.errors import HostError
from haxlb.model.facts import AlarmRaised, RoleChanged
from haxlb.model.groups import SyncGroup
from haxlb.model.instance import Role
from haxlb.model.settings import SpeakerSettings

KILLED = -9


def silent(_):
    """Steps are of no interest here."""


async def spare_ready(world):
    """Long enough for the spare, and for the speaker to count as steady."""
    await asyncio.sleep(20)
    assert [name for _, name in world.started][-1] == "spare"


def die(world, *, silence_us=50_000, adverts=None, returncode=KILLED):
    """The speaker dies this long after its last adverts."""
    count = len(world.supervisor._standing.config.instances)
    world.adverts = (world.now() - silence_us,) * count if adverts is None else adverts
    world.exit("speaker", returncode)


def roles_told(world):
    return [(fact.instance, fact.before, fact.after) for fact in world.published if isinstance(fact, RoleChanged)]


def orders(world):
    """Those to speakers, whichever name they had."""
    return [message for _, _, message in world.sent if isinstance(message, ConfigureSpeaker)]


def test_a_spare_is_started_after_the_speaker_and_told_to_stand_by(play, kit):
    settings = SpeakerSettings(realtime_priority=7)
    world = play(lambda _: asyncio.sleep(5), kit.node(speaker=settings))
    assert [name for _, name in world.started] == ["speaker", "spare"]
    assert world.started[1][0] == pytest.approx(2)
    assert world.messages("spare") == [StandBy(settings=settings)]
    assert world.killed == ["spare"]  # it has nothing to put in order
    assert world.order.index("kill spare") > world.order.index("stop speaker")  # whose leaving it must not disturb


def test_no_spare_where_none_is_wanted(play, kit):
    world = play(lambda _: asyncio.sleep(30), kit.node(speaker=SpeakerSettings(spare=False)))
    assert [name for _, name in world.started] == ["speaker"]


def test_the_spare_resumes_what_the_dead_speaker_was_master_of_and_nobody_is_told(play, kit):
    async def scene(world):
        world.speaker.change("VI_1", Role.MASTER, "no advert for 3.414 s")
        await spare_ready(world)
        before = roles_told(world), list(world.outlets.told)
        died_us = world.now()
        die(world)
        await asyncio.sleep(0.01)
        assert (roles_told(world), world.outlets.told) == before
        status = await world.supervisor.status()
        assert status.instances[0].role is Role.MASTER
        assert [(each.name, each.restarts) for each in status.processes] == [("speaker", 1)]
        assert any("was killed by signal 9; its spare takes its place" in line for line in status.history)
        assert [alarm.key for alarm in status.alarms] == ["process/speaker"]
        (succession,) = orders(world)[-1].successions
        assert (succession.instance, succession.reason) == ("VI_1", "no advert for 3.414 s")
        assert succession.since_us == pytest.approx(died_us - 20_000_000, abs=20_000)
        await asyncio.sleep(11)
        status = await world.supervisor.status()
        assert status.alarms == ()
        assert [each.name for each in status.processes] == ["speaker", "spare"]

    world = play(scene, kit.node())
    assert world.executed == []
    assert "spare becomes speaker" in world.order
    assert [name for _, name in world.started] == ["speaker", "spare", "spare"]
    assert orders(world)[0].successions == ()


def test_the_form_of_checksum_that_a_peer_was_found_to_want_is_handed_on(play, kit):
    async def scene(world):
        world.speaker.change("VI_1", Role.MASTER, "no advert for 3.414 s")
        world.speaker.instances["VI_1"] = replace(world.speaker.instances["VI_1"], old_checksum=True)
        world.speaker.say_status()
        await spare_ready(world)
        assert [each.old_unicast_checksum for each in world.bequeathed[-1]] == ["always"]
        said = len(world.bequeathed)
        world.speaker.say_status()
        assert len(world.bequeathed) == said, "only a change is prepared for"
        die(world)
        await asyncio.sleep(0.01)
        assert orders(world)[-1].successions[0].old_checksum
        assert [each.old_unicast_checksum for each in orders(world)[-1].instances] == ["auto"]
        # One that begins anew has to find out again.
        world.speaker.instances["VI_1"] = replace(world.speaker.instances["VI_1"], old_checksum=False)
        world.speaker.say_status()
        assert [each.old_unicast_checksum for each in world.bequeathed[-1]] == ["auto"]

    play(scene, kit.node())


def test_how_long_the_spare_may_take_is_what_the_peer_waits_at_least(play, kit):
    async def scene(world):
        world.speaker.change("VI_1", Role.MASTER, "no advert")
        await spare_ready(world)
        last = world.now() - 50_000
        die(world)
        await asyncio.sleep(0.01)
        (succession,) = orders(world)[-1].successions
        assert succession.until_us == last + 5 * 100_000 - 1_000

    play(scene, kit.node(kit.instance(advert_interval_us=100_000, down_timer_adverts=5)))


@pytest.mark.parametrize(
    ("interval_us", "silence_us", "resumed"),
    [
        (10_000, 5_000, True),
        (10_000, 25_000, False),
        (100_000, 250_000, True),
        (100_000, 295_000, False),
        (1_000_000, 1_900_000, True),
        (1_000_000, 1_995_000, False),  # late by half the life of an address, although the peer waits three seconds
        (5_000_000, 5_900_000, True),
        (5_000_000, 6_100_000, False),
    ],
)
def test_a_speaker_that_was_silent_before_it_died_is_not_succeeded(play, kit, interval_us, silence_us, resumed):
    async def scene(world):
        world.speaker.change("VI_1", Role.MASTER, "no advert")
        await spare_ready(world)
        die(world, silence_us=silence_us)
        await asyncio.sleep(0.01)
        assert (("VI_1", Role.MASTER, Role.INIT) in roles_told(world)) is not resumed

    world = play(scene, kit.node(kit.instance(advert_interval_us=interval_us)))
    assert world.executed == ([] if resumed else [frozenset({"VI_1"})])
    assert bool(orders(world)[1].successions) is resumed
    assert "spare becomes speaker" in world.order  # it is the faster start all the same


def test_one_that_had_left_master_before_it_said_so_is_given_up(play, kit):
    async def scene(world):
        world.speaker.change("VI_1", Role.MASTER, "no advert")
        world.speaker.change("VI_2", Role.MASTER, "no advert")
        await spare_ready(world)
        die(world, adverts=(0, world.now()))
        await asyncio.sleep(0.01)

    world = play(scene, kit.node(kit.instance(), kit.instance("VI_2", vrid=52)))
    assert world.executed == [frozenset({"VI_1"})]
    assert world.kept == [frozenset({"VI_2"})]
    assert [each.instance for each in orders(world)[1].successions] == ["VI_2"]


def test_a_sync_group_is_resumed_as_a_whole_or_given_up_as_a_whole(play, kit):
    instances = (kit.instance(), kit.instance("VI_2", vrid=52), kit.instance("VI_3", vrid=53))
    group = SyncGroup(name="G", members=("VI_1", "VI_2"))

    async def scene(world):
        for name in ("VI_1", "VI_2", "VI_3"):
            world.speaker.change(name, Role.MASTER, "no advert")
        await spare_ready(world)
        die(world, adverts=(world.now(), 0, world.now()))
        await asyncio.sleep(0.01)

    world = play(scene, kit.node(*instances, sync_groups=(group,)))
    assert world.executed == [frozenset({"VI_1", "VI_2"})]
    assert world.kept == [frozenset({"VI_3"})]


def test_nothing_is_given_up_for_a_backup_but_it_begins_at_once(play, kit):
    async def scene(world):
        await spare_ready(world)
        die(world, adverts=(0,))
        await asyncio.sleep(0.01)

    world = play(scene, kit.node())
    assert world.executed == [frozenset()]
    assert orders(world)[1].successions == ()
    assert "spare becomes speaker" in world.order


def test_a_speaker_that_dies_again_soon_is_given_up(play, kit):
    async def scene(world):
        world.speaker.change("VI_1", Role.MASTER, "no advert")
        await spare_ready(world)
        die(world)
        await asyncio.sleep(5)
        die(world)
        await asyncio.sleep(0.01)
        assert not world.supervisor._processes.running("speaker")
        status = await world.supervisor.status()
        assert any("started again in 1 s" in line for line in status.history)
        assert [alarm.key for alarm in status.alarms] == ["process/speaker"]

    world = play(scene, kit.node())
    assert world.executed == [frozenset({"VI_1"})]


def test_nothing_is_resumed_while_a_configuration_is_not_confirmed(play, kit):
    async def scene(world):
        world.speaker.change("VI_1", Role.MASTER, "no advert")
        await spare_ready(world)
        world.loaded = Loaded(config=kit.node(kit.instance(priority=90)))
        world.speaker.say = lambda _: None  # it dies of this reload
        asking = asyncio.ensure_future(world.supervisor.command(Reload(), silent))
        await asyncio.sleep(0.01)
        die(world)
        assert "has died" in (await asking).message

    world = play(scene, kit.node())
    assert world.executed == [frozenset({"VI_1"})]
    assert orders(world)[-1].instances[0].priority == 90


def test_nothing_is_resumed_when_nothing_is_known(play, kit):
    async def scene(world):
        world.speaker.change("VI_1", Role.MASTER, "no advert")
        await spare_ready(world)
        die(world, adverts=())
        await asyncio.sleep(0.01)

    assert play(scene, kit.node()).executed == [frozenset({"VI_1"})]


def test_a_spare_that_does_not_stand_by_yet_is_not_used(play, kit):
    async def scene(world):
        world.speaker.change("VI_1", Role.MASTER, "no advert")
        await asyncio.sleep(20)
        assert [each.problem for each in (await world.supervisor.status()).processes] == ["", "does not stand by yet"]
        die(world)
        await asyncio.sleep(0.01)

    world = play(scene, kit.node(), spare_stands_by=False)
    assert world.executed == [frozenset({"VI_1"})]
    assert [name for _, name in world.started] == ["speaker", "spare", "speaker"]


def test_what_was_handed_over_stays_so(play, kit):
    async def scene(world):
        world.speaker.hand_over("VI_1")
        world.speaker.say_status()
        await spare_ready(world)
        die(world, adverts=(0,))
        await asyncio.sleep(0.01)

    world = play(scene, kit.node())
    assert [message.instances for message in world.messages("speaker", HandOver)] == [("VI_1",)]


def test_a_dead_spare_is_replaced_and_costs_nothing(play, kit):
    async def scene(world):
        world.speaker.change("VI_1", Role.MASTER, "no advert")
        await spare_ready(world)
        world.exit("spare", KILLED)
        await asyncio.sleep(3)
        status = await world.supervisor.status()
        assert [(each.name, each.restarts) for each in status.processes] == [("speaker", 0), ("spare", 1)]
        assert any("the spare speaker was killed by signal 9" in line for line in status.history)
        assert status.alarms == ()

    world = play(scene, kit.node())
    assert world.executed == []
    assert [name for _, name in world.started] == ["speaker", "spare", "spare"]


def test_a_spare_that_cannot_be_started_is_tried_again(play, kit):
    async def scene(world):
        await asyncio.sleep(3)
        assert "no_spare" in world.events()
        world.spare_problem = None
        await asyncio.sleep(10)
        status = await world.supervisor.status()
        assert [each.name for each in status.processes] == ["speaker", "spare"]

    play(scene, kit.node(), spare_problem=HostError("no memory", remedy="add some"))


def test_a_reload_starts_and_ends_the_spare_and_tells_it_other_settings(play, kit):
    async def reload(world, settings):
        world.loaded = Loaded(config=kit.node(speaker=settings))
        assert (await world.supervisor.command(Reload(), silent)).ok
        await asyncio.sleep(3)

    async def scene(world):
        await asyncio.sleep(3)
        await reload(world, SpeakerSettings(nice=-3))
        assert world.messages("spare")[-1] == StandBy(settings=SpeakerSettings(nice=-3))
        await reload(world, SpeakerSettings(spare=False))
        assert world.killed == ["spare"]
        assert [each.name for each in (await world.supervisor.status()).processes] == ["speaker"]
        await reload(world, SpeakerSettings())
        assert [each.name for each in (await world.supervisor.status()).processes] == ["speaker", "spare"]

    world = play(scene, kit.node())
    assert [name for _, name in world.started] == ["speaker", "spare", "spare"]


def test_alarms_of_the_dead_speaker_are_cleared_although_its_role_goes_on(play, kit):
    async def scene(world):
        world.speaker.change("VI_1", Role.MASTER, "no advert")
        await spare_ready(world)
        alarm = AlarmRaised(key="vip/VI_1", severity="critical", summary="no VIP", evidence=(), at_us=world.now())
        world.supervisor._take(alarm, "speaker")
        die(world)
        await asyncio.sleep(0.01)
        assert [each.key for each in (await world.supervisor.status()).alarms] == ["process/speaker"]

    play(scene, kit.node())


def test_a_hand_over_that_had_not_begun_did_not_happen_and_its_operator_is_told(play, kit):
    async def scene(world):
        world.speaker.change("VI_1", Role.MASTER, "no advert")
        world.speaker.hear("VI_1")
        world.speaker.say_status()
        await spare_ready(world)
        world.speaker.hand_over = lambda _: None  # it dies before it gets to it
        asking = asyncio.ensure_future(world.supervisor.command(Failover(), silent))
        while not world.messages("speaker", HandOver):  # noqa: ASYNC110 - it asks others first
            await asyncio.sleep(0.1)
        die(world)
        answer = await asking
        assert not answer.ok
        status = await world.supervisor.status()
        assert [(each.role, each.yielded) for each in status.instances] == [(Role.MASTER, False)]

    world = play(scene, kit.node())
    assert world.executed == []


def test_a_checker_that_dies_of_a_reload_fails_it_and_gets_the_new_configuration(play, kit):
    async def scene(world):
        await asyncio.sleep(20)
        world.forwarding_after_s = None  # it is busy with it
        world.loaded = Loaded(config=kit.node(servers=(kit.virtual_server(80), kit.virtual_server(443))))
        asking = asyncio.ensure_future(world.supervisor.command(Reload(), silent))
        await asyncio.sleep(0.01)
        world.exit("checker", KILLED)
        answer = await asking
        assert not answer.ok
        assert "the checker has died: was killed by signal 9" in answer.message
        await asyncio.sleep(0.01)
        assert len(world.messages("checker", ConfigureChecker)[-1].config.virtual_servers) == 2

    world = play(scene, kit.node(servers=(kit.virtual_server(80),)))
    assert world.executed == []
    assert [name for _, name in world.started] == ["checker", "speaker", "spare", "checker"]


def test_a_spare_that_cannot_be_built_does_not_stand_by(play, kit):
    async def scene(world):
        await asyncio.sleep(3)
        world.spare.say(Ready(of="ConfigureSpeaker", problem="CAP_NET_RAW is missing"))
        assert [each.problem for each in (await world.supervisor.status()).processes] == ["", "does not stand by yet"]
        die(world)
        await asyncio.sleep(0.01)

    world = play(scene, kit.node(), spare_stands_by=False)
    assert world.executed == [frozenset()]
    assert [name for _, name in world.started] == ["speaker", "spare", "speaker"]
