"""What waits for what: a hand-over is for the moment, a reload may take its time, nobody waits for the crafter."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from haxlb.daemon.control import Failover, Reload, Resume
from haxlb.daemon.messages import ConfigureSpeaker, GarpFrames, HandOver, LinkAltered, Ready
from haxlb.daemon.supervisor_ports import Loaded
from haxlb.model.errors import HostError
from haxlb.model.instance import Role


async def timed(world, request):
    """Answer, steps, and how long it took."""
    steps, begun = [], asyncio.get_running_loop().time()
    answer = await world.supervisor.command(request, steps.append)
    return answer, steps, asyncio.get_running_loop().time() - begun


def vips(message):
    return [str(frame.vip) for frame in message.frames]


def test_neither_a_reload_nor_a_hand_over_waits_for_the_crafter(play, kit):
    async def scene(world):
        world.speaker.change("VI_1", Role.MASTER, "no advert")
        world.loaded = Loaded(config=kit.node(kit.instance(vips=(kit.vip("192.168.10.101"),))))
        answer, steps, took = await timed(world, Reload())
        assert (answer.ok, steps) == (True, [])
        assert took < 1
        answer, steps, took = await timed(world, Failover())
        assert answer.ok
        assert steps[0].step == "check"
        assert took < 1
        assert world.messages("speaker", GarpFrames) == []
        await asyncio.sleep(61)
        assert list(map(vips, world.messages("speaker", GarpFrames))) == [["192.168.10.101"]], "no old configuration's"

    play(scene, kit.node(), craft_s=30.0)


def test_a_link_that_changes_while_frames_are_crafted_has_them_crafted_once_more(play, kit):
    async def scene(world):
        for _ in range(3):
            world.supervisor.on_message("speaker", LinkAltered(interface="eth0", mac="02:00:00:00:00:02"))
        await asyncio.sleep(5)

    assert play(scene, kit.node(), craft_s=1.0).crafted == 2


def test_a_crafter_that_fails_does_not_refuse_a_reload(play, kit):
    async def scene(world):
        world.craft_problem = HostError("scapy is missing", remedy="install it")
        world.loaded = Loaded(config=kit.node(kit.instance(vips=(kit.vip("192.168.10.101"),))))
        assert (await timed(world, Reload()))[0].ok
        await asyncio.sleep(0.1)
        assert any("scapy is missing" in line for line in (await world.supervisor.status()).history)

    play(scene, kit.node())


def test_a_hand_over_does_not_wait_for_a_reload_that_compiles(play, kit):
    async def scene(world):
        world.speaker.change("VI_1", Role.MASTER, "no advert")
        world.loaded = Loaded(config=kit.node(servers=(kit.virtual_server(),)))
        reloading = asyncio.ensure_future(timed(world, Reload()))
        await asyncio.sleep(0.1)
        answer, steps, took = await timed(world, Failover())
        assert answer.ok
        assert steps[0].step == "check"
        assert took < 1
        assert not reloading.done()
        answer, steps, took = await reloading
        assert answer.ok
        assert [(each.step, each.reason) for each in steps] == [
            ("compile", "the forwarder is being compiled, traffic flows on")
        ]
        assert took >= 20

    play(scene, kit.node(), compile_s=20.0)


def test_a_hand_over_waits_until_orders_are_given_and_says_so(play, kit):
    async def scene(world):
        await asyncio.sleep(6)  # the start has waited five seconds for the checker
        world.speaker.change("VI_1", Role.MASTER, "no advert")
        world.loaded = Loaded(config=kit.node(servers=(kit.virtual_server(), kit.virtual_server(443))))
        reloading = asyncio.ensure_future(timed(world, Reload()))
        await asyncio.sleep(0.1)
        answer, steps, took = await timed(world, Failover())
        assert answer.ok
        assert (steps[0].step, steps[0].ok) == ("wait", True)
        assert "being put in force" in steps[0].reason
        assert 4 < took < 6
        assert not (await reloading)[0].ok, "the checker has never confirmed it"

    play(scene, kit.node(servers=(kit.virtual_server(),)), forwarding_after_s=None)


@pytest.mark.parametrize("request_", [Failover(), Resume()], ids=["failover", "resume"])
def test_before_everything_is_started_there_is_nothing_to_hand_over(play, kit, request_):
    async def scene(world):
        answer, _, took = await timed(world, request_)
        assert (answer.ok, answer.message, took) == (False, "haxlb is still starting", 0)

    world = play(scene, kit.node(servers=(kit.virtual_server(),)), forwarding_after_s=None)
    assert world.messages("speaker", HandOver) == []


def test_a_reload_at_the_start_says_what_it_waits_for(play, kit):
    async def scene(world):
        answer, steps, _ = await timed(world, Reload())
        assert answer.ok
        assert [each.reason for each in steps] == ["haxlb is starting"]

    play(scene, kit.node(servers=(kit.virtual_server(),)), forwarding_after_s=3.0)


# -- what no other haxlb may run


def kept(world):
    return [each.removeprefix("keep ") for each in world.order if each.startswith("keep ")]


def test_a_checker_that_answers_nothing_keeps_no_virtual_router_claimed(play, kit):
    async def scene(world):
        await asyncio.sleep(6)
        world.loaded = Loaded(config=kit.node(kit.instance(), servers=(kit.virtual_server(443),)))
        assert not (await timed(world, Reload()))[0].ok
        assert kept(world)[-1] == "VI_1"

    both = kit.node(kit.instance(), kit.instance("VI_2", vrid=52), servers=(kit.virtual_server(),))
    play(scene, both, forwarding_after_s=None)


def test_an_answer_with_a_problem_is_an_answer(play, kit):
    async def scene(world):
        world.loaded = Loaded(config=kit.node(kit.instance()))
        take = world.speaker.take

        def refuse(message):
            if isinstance(message, ConfigureSpeaker):
                world.supervisor.on_message("speaker", Ready(of="ConfigureSpeaker", problem="no link eth7"))
            else:
                take(message)

        world.speaker.take = refuse
        assert "no link eth7" in (await timed(world, Reload()))[0].message
        assert kept(world)[-1] == "VI_1"

    play(scene, kit.node(kit.instance(), kit.instance("VI_2", vrid=52)))


def test_a_speaker_that_is_late_keeps_them_claimed_until_it_answers(play, kit):
    async def scene(world):
        world.loaded = Loaded(config=kit.node(kit.instance()))
        take, late = world.speaker.take, []

        def hesitate(message):
            if isinstance(message, ConfigureSpeaker):
                late.append(message)
            else:
                take(message)

        world.speaker.take = hesitate
        before = len(kept(world))
        assert "has not confirmed" in (await timed(world, Reload()))[0].message
        assert len(kept(world)) == before
        world.loaded = Loaded(config=kit.node(kit.instance(priority=7)))
        again = asyncio.ensure_future(timed(world, Reload()))
        await asyncio.sleep(1)
        take(late[0])
        await asyncio.sleep(1)
        assert len(kept(world)) == before, "this was the answer to the former order"
        take(late[1])
        assert (await again)[0].ok
        assert kept(world)[before:] == ["VI_1"]

    play(scene, kit.node(kit.instance(), kit.instance("VI_2", vrid=52)))


def test_a_speaker_that_dies_before_it_answers_gives_them_up_by_its_successor(play, kit):
    async def scene(world):
        config = kit.node(kit.instance())
        world.loaded = Loaded(config=replace(config, speaker=replace(config.speaker, spare=False)))
        world.speaker.take = lambda _: world.exit("speaker", -9)
        assert not (await timed(world, Reload()))[0].ok
        await asyncio.sleep(15)
        assert kept(world)[-1] == "VI_1"

    play(scene, kit.node(kit.instance(), kit.instance("VI_2", vrid=52)))
