from __future__ import annotations

import asyncio
from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from haxlb.daemon.control import Failover
from haxlb.daemon.messages import HandOver, Resume
from haxlb.model.instance import Role
from haxlb.model.status import PeerStatus


async def fail_over(world, *names, force=False):
    steps = []
    answer = await world.supervisor.command(Failover(instances=names, force=force), steps.append)
    return answer, [(step.step, step.ok) for step in steps], steps


async def become_master(world, name="VI_1"):
    world.speaker.change(name, Role.MASTER, "no advert for 3.414 s")


def test_a_master_hands_over_to_a_peer_that_takes_over(play, kit):
    async def scene(world):
        await become_master(world)
        answer, steps, told = await fail_over(world)
        assert answer.ok
        assert steps == [("check", True), ("peer", True), ("hand_over", True), ("take_over", True)]
        assert told[1].reason == "192.168.10.12 answers"
        assert told[3].reason == "192.168.10.12 is MASTER now"
        assert any("failover VI_1: 192.168.10.12 is MASTER now" in line for line in world.supervisor._chronicle.lines())

    world = play(scene, kit.node())
    assert world.messages("speaker", Resume) == []


def test_nothing_is_sent_when_no_peer_is_heard(play, kit):
    async def scene(world):
        await become_master(world)
        answer, steps, _ = await fail_over(world)
        assert (answer.ok, answer.exit_code) == (False, 1)
        assert "--force" in answer.remedy
        assert steps == [("check", True), ("peer", False), ("refused", False)]

    world = play(scene, kit.node(), probe_evidence="")
    assert world.messages("speaker", HandOver) == []


def test_force_goes_without_evidence_and_takes_the_role_back_when_nobody_comes(play, kit):
    async def scene(world):
        await become_master(world)
        before = asyncio.get_running_loop().time()
        answer, steps, _ = await fail_over(world, force=True)
        assert (answer.ok, answer.exit_code) == (False, 1)
        assert steps[2:] == [("hand_over", True), ("take_over", False), ("take_back", True)]
        assert world.speaker.instances["VI_1"].role is Role.MASTER
        assert asyncio.get_running_loop().time() - before < 3.6

    world = play(scene, kit.node(), probe_evidence="", peer=kit.Peer(takes_over_after_s=None))
    assert world.messages("speaker", Resume) == [Resume(instances=("VI_1",))]


def test_mqtt_is_evidence_and_spares_the_probe(play, kit):
    async def scene(world):
        await become_master(world)
        _, _, told = await fail_over(world)
        assert told[1].reason == "lb2 is online on MQTT"

    world = play(scene, kit.node(), mqtt_evidence="lb2 is online on MQTT", probe_evidence="")
    assert world.probed == []


def test_a_recent_advert_is_evidence_but_not_the_proof_of_the_takeover(play, kit):
    async def scene(world):
        await become_master(world)
        heard = PeerStatus(address=IPv4Address("192.168.10.12"), priority=100, heard_at=world.wall() - 1)
        world.speaker.instances["VI_1"] = replace(world.speaker.instances["VI_1"], peers=(heard,))
        answer, steps, told = await fail_over(world)
        assert told[1].reason == "192.168.10.12 sent an advert 1.0 s ago"
        assert not answer.ok
        assert ("take_over", False) in steps

    play(scene, kit.node(), probe_evidence="", peer=kit.Peer(takes_over_after_s=None))


def test_an_old_advert_is_no_evidence(play, kit):
    async def scene(world):
        await become_master(world)
        heard = PeerStatus(address=IPv4Address("192.168.10.12"), priority=100, heard_at=world.wall() - 60)
        world.speaker.instances["VI_1"] = replace(world.speaker.instances["VI_1"], peers=(heard,))
        _, steps, _ = await fail_over(world)
        assert steps[-2:] == [("peer", False), ("refused", False)]

    play(scene, kit.node(), probe_evidence="")


@pytest.mark.parametrize(("last_priority", "evidence"), [(100, "192.168.10.12 answers ARP"), (0, "")])
def test_a_host_that_answers_is_no_evidence_when_its_last_word_was_a_farewell(play, kit, last_priority, evidence):
    async def scene(world):
        await become_master(world)
        heard = PeerStatus(address=IPv4Address("192.168.10.12"), priority=last_priority, heard_at=world.wall() - 60)
        world.speaker.instances["VI_1"] = replace(world.speaker.instances["VI_1"], peers=(heard,))
        _, steps, told = await fail_over(world)
        assert ("peer", bool(evidence)) in steps
        assert told[1].reason == (evidence or "no sign of a living peer; 192.168.10.12 has resigned")

    play(scene, kit.node(), probe_evidence="", hosts_up=("192.168.10.12",))


@pytest.mark.parametrize(
    ("host_up", "evidence"), [("192.168.10.13", "192.168.10.13 answers ARP"), ("192.168.10.12", "")]
)
def test_a_farewell_of_a_unicast_peer_makes_its_host_no_evidence_but_another_peers(play, kit, host_up, evidence):
    peers = (IPv4Address("192.168.10.12"), IPv4Address("192.168.10.13"))

    async def scene(world):
        await become_master(world)
        resigned = PeerStatus(address=peers[0], priority=0, heard_at=world.wall() - 60)
        world.speaker.instances["VI_1"] = replace(world.speaker.instances["VI_1"], peers=(resigned,))
        _, steps, told = await fail_over(world)
        assert ("peer", bool(evidence)) in steps
        assert told[1].reason == (evidence or "no sign of a living peer; 192.168.10.12 has resigned")

    play(scene, kit.node(kit.instance(peers=peers)), probe_evidence="", hosts_up=(host_up,))


def test_a_farewell_is_not_a_takeover(play, kit):
    async def scene(world):
        await become_master(world)
        answer, steps, _ = await fail_over(world)
        assert not answer.ok
        assert ("take_over", False) in steps

    play(scene, kit.node(), peer=kit.Peer(priority=0))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ((), "no instance is MASTER here"),
        (("VI_1",), "VI_1 is BACKUP here"),
        (("VI_9",), "no instance is called VI_9"),
    ],
)
def test_only_a_master_of_ours_can_hand_over(play, kit, names, message):
    async def scene(world):
        answer, steps, _ = await fail_over(world, *names, force=True)
        assert (answer.ok, answer.exit_code) == (False, 1)
        assert message in answer.message
        assert steps == [("refused", False)]

    world = play(scene, kit.node())
    assert world.messages("speaker", HandOver) == []


@pytest.mark.parametrize(
    ("names", "ago", "remedy"),
    [
        ((), 1, "192.168.10.12 is MASTER of VI_1: hand over there"),
        (("VI_1",), 1, "192.168.10.12 is MASTER of VI_1: hand over there"),
        ((), 60, ""),
    ],
)
def test_who_is_master_instead_is_named(play, kit, names, ago, remedy):
    async def scene(world):
        heard = PeerStatus(address=IPv4Address("192.168.10.12"), priority=100, heard_at=world.wall() - ago)
        resigned = PeerStatus(address=IPv4Address("192.168.10.13"), priority=0, heard_at=world.wall() - ago)
        world.speaker.instances["VI_1"] = replace(world.speaker.instances["VI_1"], peers=(resigned, heard))
        answer, _, _ = await fail_over(world, *names)
        assert (answer.ok, answer.remedy) == (False, remedy)

    play(scene, kit.node())


def test_only_the_masters_of_several_are_handed_over(play, kit):
    two = (kit.instance("VI_1"), kit.instance("VI_2", vrid=52, vips=(kit.vip("192.168.10.101"),)))

    async def scene(world):
        await become_master(world, "VI_2")
        answer, _, _ = await fail_over(world)
        assert answer.message == "handed over: VI_2"

    world = play(scene, kit.node(*two))
    assert [message.instances for message in world.messages("speaker", HandOver)] == [("VI_2",)]


def test_a_speaker_that_does_not_let_go_is_said_so(play, kit):
    async def scene(world):
        await become_master(world)
        world.speaker.hand_over = lambda name: None
        answer, steps, _ = await fail_over(world)
        assert (answer.ok, steps[-1]) == (False, ("hand_over", False))

    world = play(scene, kit.node())
    assert world.messages("speaker", Resume) == [Resume(instances=("VI_1",))]


def test_an_advert_interval_of_version_3_bounds_the_wait(play, kit):
    """A peer with an interval of 4 s may have a skew of almost 4 s: its takeover must not be missed."""

    async def scene(world):
        await become_master(world)
        answer, _, _ = await fail_over(world)
        assert answer.ok

    slow = kit.instance(version=3, advert_interval_us=4_000_000)
    play(scene, kit.node(slow), peer=kit.Peer(takes_over_after_s=3.9))
