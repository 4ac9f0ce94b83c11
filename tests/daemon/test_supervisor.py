from __future__ import annotations

import asyncio
from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from haxlb.daemon.control import Reload, Resume, Show, Swap
from haxlb.daemon.crafting import FRAMES_AT_ONCE
from haxlb.daemon.messages import (
    ConfigureChecker,
    ConfigureSpeaker,
    DataPlaneReady,
    GarpFrames,
    HandOver,
    Happened,
    LinkAltered,
    PeersKnown,
    Ready,
    Stop,
    SwapProgram,
)
from haxlb.daemon.messages import Resume as ResumeSpeaker
from haxlb.daemon.supervisor_ports import Loaded, RefusedConfig
from haxlb.model.errors import HostError
from haxlb.model.facts import AlarmCleared, AlarmRaised, PeerHeard, RoleChanged
from haxlb.model.instance import Role
from haxlb.model.settings import ForwardingSettings, MqttSettings, SpeakerSettings
from haxlb.model.status import PeerStatus


def silent(_):
    """Steps are of no interest here."""


async def nothing(_world):
    """Start and stop is all."""


# -- start order


def configured_at(world):
    return [at for at, _, message in world.sent if isinstance(message, ConfigureSpeaker)]


def test_the_speaker_is_configured_when_the_data_plane_is_in_force(play, kit):
    world = play(lambda _: asyncio.sleep(3), kit.node(servers=(kit.virtual_server(),)), forwarding_after_s=1.5)
    assert [(name, at) for at, name in world.started if name != "spare"] == [("checker", 0), ("speaker", 0)]
    assert configured_at(world) == [pytest.approx(1.5)]


def test_the_speaker_waits_no_longer_than_five_seconds_for_the_data_plane(play, kit):
    world = play(lambda _: asyncio.sleep(6), kit.node(servers=(kit.virtual_server(),)), forwarding_after_s=None)
    assert configured_at(world) == [pytest.approx(5)]
    assert "forwarding_late" in world.events()


def reserves(world):
    return [bool(each.reserve) for each in world.messages("speaker", ConfigureSpeaker)]


def test_nobody_is_preempted_before_the_data_plane_is_in_force(play, kit):
    config = kit.node(servers=(kit.virtual_server(),))
    in_time = play(lambda _: asyncio.sleep(3), config, forwarding_after_s=1.5)
    assert reserves(in_time) == [False]
    late = play(lambda _: asyncio.sleep(8), config, forwarding_after_s=7)
    assert reserves(late) == [True]
    assert 7 in [at for at, _, message in late.sent if isinstance(message, DataPlaneReady)]
    never = play(lambda _: asyncio.sleep(60), config, forwarding_after_s=None)
    assert never.messages("speaker", DataPlaneReady) == []


def test_a_speaker_that_is_started_again_preempts_nobody_either(play, kit):
    async def scene(world):
        await asyncio.sleep(6)
        world.exit("speaker", -9)
        await asyncio.sleep(0.1)
        world.supervisor.on_message("checker", Ready(of="ConfigureChecker"))
        world.exit("speaker", -9)
        await asyncio.sleep(2)

    world = play(scene, kit.node(servers=(kit.virtual_server(),)), forwarding_after_s=None)
    assert reserves(world) == [True, True, False]


def test_a_data_plane_that_was_refused_ends_the_reserve_when_it_is_in_force(play, kit):
    cleared = AlarmCleared(key="forwarder/problem", reason="the forwarder is as wanted", at_us=0)

    async def scene(world):
        await asyncio.sleep(1)
        world.supervisor.on_message("checker", Ready(of="ConfigureChecker", problem="no such interface"))
        await asyncio.sleep(1)
        assert world.messages("speaker", DataPlaneReady) == []
        world.supervisor.on_message("checker", Happened(fact=cleared))

    world = play(scene, kit.node(servers=(kit.virtual_server(),)), forwarding_after_s=None)
    assert reserves(world) == [True]
    assert len(world.messages("speaker", DataPlaneReady)) == 1


def test_without_virtual_servers_any_more_there_is_nothing_to_wait_for(play, kit):
    async def scene(world):
        await asyncio.sleep(6)
        world.loaded = Loaded(config=kit.node())
        await world.supervisor.command(Reload(), silent)

    world = play(scene, kit.node(servers=(kit.virtual_server(),)), forwarding_after_s=None)
    assert reserves(world) == [True]
    assert len(world.messages("speaker", DataPlaneReady)) == 1


def test_a_speaker_that_dies_before_it_has_orders_is_not_mourned(play, kit):
    async def scene(world):
        world.exit("speaker", 77)
        await asyncio.sleep(3)

    world = play(scene, kit.node(servers=(kit.virtual_server(),)), forwarding_after_s=1.5)
    assert [(name, at) for at, name in world.started if name == "speaker"] == [
        ("speaker", 0),
        ("speaker", pytest.approx(1.5)),
    ]
    assert world.executed == []
    assert configured_at(world) == [pytest.approx(1.5)]


def test_frames_are_crafted_when_the_speaker_is_at_work(play, kit):
    world = play(lambda _: asyncio.sleep(0.1), kit.node())
    kinds = [type(each) for each in world.messages("speaker")]
    assert kinds.index(ConfigureSpeaker) < kinds.index(GarpFrames)
    assert world.crafted == 1
    (orders,), (said,) = world.messages("speaker", ConfigureSpeaker), world.messages("speaker", GarpFrames)
    assert orders.garp_frames == ()
    assert [frame.vip for frame in said.frames] == [kit.vip().address]


def test_many_frames_come_in_portions(play, kit):
    many = tuple(kit.vip(f"192.168.10.{number}") for number in range(100, 100 + FRAMES_AT_ONCE + 1))

    world = play(lambda _: asyncio.sleep(0.1), kit.node(kit.instance(vips=many)))
    assert [len(each.frames) for each in world.messages("speaker", GarpFrames)] == [FRAMES_AT_ONCE, 1]


def test_where_nothing_can_be_crafted_the_speaker_works_all_the_same(kit):
    problem = HostError("scapy is missing", remedy="install it")
    world = kit.FakeWorld(loaded=Loaded(config=kit.node()), craft_problem=problem)

    async def scene():
        running = asyncio.ensure_future(world.raise_up().run())
        await asyncio.sleep(0.1)
        history = (await world.supervisor.status()).history
        world.supervisor.stop("test")
        await running
        return history

    history = kit.run(scene())
    assert any("scapy is missing" in line for line in history)
    assert len(world.messages("speaker", ConfigureSpeaker)) == 1
    assert world.messages("speaker", GarpFrames) == []


def test_without_virtual_servers_there_is_no_checker_and_nothing_is_compiled(play, kit):
    world = play(nothing, kit.node())
    assert [name for _, name in world.started] == ["speaker"]
    assert world.compiled == 0


def test_without_virtual_servers_what_an_earlier_run_forwarded_ends(play, kit):
    world = play(nothing, kit.node(), old_forwarder=True)
    assert "abandon" in world.order
    assert "data_plane_removed" in world.events()
    served = play(nothing, kit.node(servers=(kit.virtual_server(),)), old_forwarder=True)
    assert "abandon" not in served.order


def test_children_are_told_the_configuration_frames_and_program(play, kit):
    world = play(lambda _: asyncio.sleep(0.1), kit.node(servers=(kit.virtual_server(),)))
    (speaker,) = world.messages("speaker", ConfigureSpeaker)
    (checker,) = world.messages("checker", ConfigureChecker)
    assert speaker.instances == (kit.instance(),)
    assert speaker.firewall_table == "haxlb_1"
    (said,) = world.messages("speaker", GarpFrames)
    assert [frame.vip for frame in said.frames] == [kit.vip().address]
    assert (checker.program, checker.bpf_directory) == ("/run/haxlb/bpf/1/program-1", "/run/haxlb/bpf")


def test_a_stop_amid_the_start_waits_for_the_end_of_the_compiler(kit):
    world = kit.FakeWorld(loaded=Loaded(config=kit.node(servers=(kit.virtual_server(),))))
    ended = []

    async def compiling(_config):
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.5)  # it is killed, and waited for
            ended.append("compiler")

    async def scene():
        world.compile = compiling
        running = asyncio.ensure_future(world.raise_up().run())
        await asyncio.sleep(0.1)
        world.supervisor.stop("SIGTERM")
        await running
        return list(ended)

    assert kit.run(scene()) == ["compiler"]


def test_without_a_compiler_the_start_fails(play, kit):
    problem = HostError("BCC is missing", remedy="apt install python3-bpfcc")
    with pytest.raises(HostError, match="BCC is missing"):
        play(nothing, kit.node(servers=(kit.virtual_server(),)), compile_problem=problem)


def test_without_a_compiler_an_attached_forwarder_is_kept_with_an_alarm(play, kit):
    problem = HostError("BCC is missing", remedy="apt install python3-bpfcc")

    async def scene(world):
        status = (await world.supervisor.command(Show(), silent)).status
        assert [alarm.key for alarm in status.alarms] == ["forwarder/not-built"]

    world = play(scene, kit.node(servers=(kit.virtual_server(),)), compile_problem=problem, old_forwarder=True)
    (checker,) = world.messages("checker", ConfigureChecker)
    assert checker.program == ""
    assert [name for _, name in world.started] == ["checker", "speaker"]


def test_a_stop_during_the_start_ends_it(play, kit):
    world = play(nothing, kit.node(servers=(kit.virtual_server(),)), forwarding_after_s=None)
    assert configured_at(world) == []
    assert world.messages("checker", Stop)
    assert world.messages("speaker", Stop)


def test_a_reload_during_the_start_comes_after_it(play, kit):
    async def scene(world):
        world.loaded = Loaded(config=kit.node(kit.instance(priority=90), servers=(kit.virtual_server(),)))
        assert (await reload(world)).ok
        assert asyncio.get_running_loop().time() == pytest.approx(1.5, abs=0.1)
        assert [each.instances[0].priority for each in world.messages("speaker", ConfigureSpeaker)] == [150, 90]

    play(scene, kit.node(servers=(kit.virtual_server(),)), forwarding_after_s=1.5)


# -- death


def test_a_dead_speaker_is_buried_before_it_is_started_again(play, kit):
    async def scene(world):
        world.speaker.change("VI_1", Role.MASTER, "no advert")
        world.exit("speaker", -9)
        await asyncio.sleep(0.001)
        status = await world.supervisor.status()
        assert [(each.name, each.restarts) for each in status.processes] == [("speaker", 1)]
        assert any("killed by signal 9" in line and "MASTER -> INIT" in line for line in status.history)

    world = play(scene, kit.node())
    assert world.executed == [frozenset({"VI_1"})]
    assert world.order.index("bequest") < len(world.order) - 1 - world.order[::-1].index("start speaker")
    assert len(world.messages("speaker", ConfigureSpeaker)) == 2
    assert [(fact.before, fact.after) for fact in world.published if isinstance(fact, RoleChanged)][:2] == [
        (Role.BACKUP, Role.MASTER),
        (Role.MASTER, Role.INIT),
    ]


def test_priority_zero_is_not_sent_for_an_instance_that_was_backup(play, kit):
    async def scene(world):
        world.exit("speaker", 1)
        await asyncio.sleep(0.1)

    world = play(scene, kit.node())
    assert world.executed == [frozenset()]


def test_a_speaker_that_keeps_dying_is_restarted_later_and_later_and_raises_an_alarm(play, kit):
    async def scene(world):
        for _ in range(4):
            world.exit("speaker", 70)
            await asyncio.sleep(5)
        status = await world.supervisor.status()
        assert [alarm.key for alarm in status.alarms] == ["process/speaker"]
        await asyncio.sleep(11)
        assert (await world.supervisor.status()).alarms == ()

    world = play(scene, kit.node(speaker=SpeakerSettings(spare=False)))
    waited = [at - died for (at, _), died in zip(world.started[1:], (0.01, 5.01, 10.01, 15.01), strict=True)]
    assert waited == pytest.approx([0, 1, 2, 4])


def test_a_dead_checker_is_only_started_again(play, kit):
    async def scene(world):
        world.supervisor.on_message(
            "speaker",
            Happened(
                fact=PeerHeard(
                    instance="VI_1", vrid=51, address=IPv4Address("192.168.10.12"), priority=100, at_us=world.now()
                )
            ),
        )
        world.exit("checker", -11)
        await asyncio.sleep(0.1)

    world = play(scene, kit.node(servers=(kit.virtual_server(),)))
    assert [name for _, name in world.started] == ["checker", "speaker", "checker"]
    assert world.executed == []
    known = PeersKnown(interface="eth0", peers=(IPv4Address("192.168.10.12"),))
    assert world.messages("checker", PeersKnown)[-1] == known
    assert world.compiled == 1


def test_alarms_of_a_dead_child_are_cleared(play, kit):
    async def scene(world):
        alarm = AlarmRaised(key="vip/VI_1", severity="critical", summary="no VIP", evidence=(), at_us=world.now())
        world.supervisor.on_message("speaker", Happened(fact=alarm))
        assert [each.key for each in (await world.supervisor.status()).alarms] == ["vip/VI_1"]
        world.exit("speaker", -9)
        await asyncio.sleep(0.1)
        assert (await world.supervisor.status()).alarms == ()

    play(scene, kit.node())


def test_an_instance_that_was_handed_over_stays_so_across_a_restart_of_the_speaker(play, kit):
    async def scene(world):
        world.speaker.hand_over("VI_1")
        world.speaker.say_status()
        world.exit("speaker", -9)
        await asyncio.sleep(0.1)

    world = play(scene, kit.node())
    assert [message.instances for message in world.messages("speaker", HandOver)] == [("VI_1",)]


# -- stop


def test_the_speaker_leaves_before_the_checker(play, kit):
    world = play(lambda _: asyncio.sleep(1), kit.node(servers=(kit.virtual_server(),)))
    assert [(name, type(message)) for _, name, message in world.sent[-2:]] == [("speaker", Stop), ("checker", Stop)]
    assert world.executed == []
    assert world.order[-1] == "broker closed"


def test_a_child_that_leaves_by_itself_while_all_stop_is_not_started_again(play, kit):
    """SIGTERM to a whole process group."""

    async def scene(world):
        world.supervisor.stop("SIGTERM")
        world.exit("checker", 0)

    world = play(scene, kit.node(servers=(kit.virtual_server(),)))
    assert [name for _, name in world.started] == ["checker", "speaker"]
    assert "process_died" not in world.events()


def test_a_speaker_that_does_not_leave_is_killed_and_buried(play, kit):
    async def scene(world):
        world.speaker.change("VI_1", Role.MASTER, "no advert")
        world.leaves = False
        world.stopped_at = asyncio.get_running_loop().time()

    world = play(scene, kit.node())
    assert world.killed == ["speaker"]
    assert world.executed == [frozenset({"VI_1"})]
    assert [name for _, name in world.started] == ["speaker"]


# -- reload


def reload(world):
    return world.supervisor.command(Reload(), silent)


def test_reload_of_the_same_configuration_tells_nobody_anything(play, kit):
    async def scene(world):
        before = len(world.sent), world.crafted, world.compiled, list(world.brokers), len(world.watched)
        answer = await reload(world)
        assert answer.ok
        assert "nothing has changed" in answer.message
        assert (len(world.sent), world.crafted, world.compiled, world.brokers, len(world.watched)) == before

    play(scene, kit.node(servers=(kit.virtual_server(),)))


def test_a_refused_file_changes_nothing_and_is_shown(play, kit):
    async def scene(world):
        sent = len(world.sent)
        world.loaded = RefusedConfig("1 fatal", report="x.conf:1:1: fatal[syntax]: no", findings=({"code": "syntax"},))
        answer = await reload(world)
        assert (answer.ok, answer.exit_code) == (False, 4)
        assert answer.report.startswith("x.conf:1:1")
        assert answer.diagnostics == ({"code": "syntax"},)
        assert len(world.sent) == sent
        assert (await world.supervisor.status()).config_problem == "1 fatal"
        world.loaded = Loaded(config=kit.node())
        assert (await reload(world)).ok
        assert (await world.supervisor.status()).config_problem == ""

    play(scene, kit.node())


def complaints(severity, *lines):
    return tuple(
        {"code": "bad-value", "severity": severity, "file": "x.conf", "line": line, "message": "no number"}
        for line in lines
    )


def test_errors_of_a_file_that_is_taken_are_logged_and_shown_until_they_are_gone(play, kit):
    async def scene(world):
        changed = kit.node(kit.instance(priority=90))
        world.loaded = Loaded(config=changed, findings=complaints("error", 12) + complaints("note", 13))
        answer = await reload(world)
        assert (answer.ok, answer.exit_code) == (True, 5)
        assert answer.message.endswith("; 1 error: what it names is left out")
        said = [(level, fields["line"]) for level, event, fields in world.logged if event == "config_complaint"]
        assert said == [("error", 12), ("info", 13)]
        assert world.events().index("config_complaint") < world.events().index("reloaded")
        status = await world.supervisor.status()
        assert (status.config_problem, status.config_errors) == ("", ("x.conf:12: no number",))
        world.loaded = RefusedConfig("1 fatal", findings=complaints("fatal", 99))
        await reload(world)
        status = await world.supervisor.status()
        assert (status.config_refused, status.config_errors) == (True, ("x.conf:12: no number",))
        assert status.config_problem == "1 fatal: x.conf:99: no number"
        world.loaded = Loaded(config=changed, findings=complaints("warning", 12))
        assert (await reload(world)).exit_code == 0
        status = await world.supervisor.status()
        assert (status.config_refused, status.config_errors) == (False, ())
        reloads = [fields for _, event, fields in world.logged if event == "reloaded"]
        assert [sorted(each) for each in reloads] == [["changes"], ["changes"]]

    play(scene, kit.node(kit.instance()))


def test_a_status_does_not_grow_with_the_errors_of_a_file(play, kit):
    async def scene(world):
        world.loaded = Loaded(config=kit.node(), findings=complaints("error", *range(1, 5001)))
        assert "5000 errors" in (await reload(world)).message
        assert (await world.supervisor.status()).config_errors[-2:] == ("x.conf:10: no number", "and 4990 more")

    play(scene, kit.node())


def test_a_virtual_router_that_another_haxlb_of_this_host_runs_refuses_the_reload(play, kit):
    async def scene(world):
        world.loaded = Loaded(config=kit.node(kit.instance(priority=90), kit.instance("VI_2", vrid=52)))
        world.foreign_router = ("eth0", 52)
        sent = len(world.sent)
        answer = await reload(world)
        assert (answer.ok, answer.message) == (
            False,
            "reload refused, the old configuration stays in force: another haxlb runs it",
        )
        assert len(world.sent) == sent
        assert (await world.supervisor.status()).config_problem
        world.foreign_router = None
        assert (await reload(world)).ok
        assert isinstance(world.sent[sent + 1][2], ConfigureSpeaker)  # after the question for the status

    play(scene, kit.node(kit.instance()))


def test_a_virtual_router_that_leaves_is_given_up_once_the_speaker_has_left_it(play, kit):
    async def scene(world):
        world.loaded = Loaded(config=kit.node(kit.instance()))
        prepared = len(world.order)
        assert (await reload(world)).ok
        assert [each for each in world.order[prepared:] if each[:4] in ("clai", "prep", "keep")] == [
            "claim",
            "prepare VI_1",  # the last thing before the speaker is told, and waited for
            "keep VI_1",
        ]

    play(scene, kit.node(kit.instance(), kit.instance("VI_2", vrid=52)))


ERROR = {"severity": "error", "file": "x.conf", "line": 7, "message": "`wrrr` is not known here"}


def test_an_error_takes_no_service_away_unless_it_is_meant_so(play, kit):
    async def scene(world):
        sent = len(world.sent)
        world.loaded = Loaded(config=kit.node(servers=(kit.virtual_server(443),)), findings=(ERROR,))
        answer = await reload(world)
        assert (answer.ok, answer.exit_code) == (False, 4)
        assert "virtual_server [192.168.10.100]:tcp:80 would be removed" in answer.message
        assert "x.conf:7: `wrrr` is not known here" in answer.message
        assert "--force" in answer.remedy
        assert len(world.sent) == sent
        answer = await world.supervisor.command(Reload(force=True), silent)
        assert answer.ok
        assert "removed" in answer.message

    play(scene, kit.node(servers=(kit.virtual_server(), kit.virtual_server(443))))


def test_a_file_that_leaves_nothing_is_one_that_is_being_written_unless_it_is_meant_so(play, kit):
    """`keepalived.conf` is empty between its truncation and its first byte, and SIGHUP does not wait."""

    async def scene(world):
        sent = len(world.sent)
        world.loaded = Loaded(config=replace(kit.node(), instances=()))
        answer = await reload(world)
        assert (answer.ok, answer.exit_code) == (False, 4)
        assert "vrrp_instance VI_1 would be removed, and there would be nothing left" in answer.message
        assert "--force" in answer.remedy
        assert len(world.sent) == sent
        assert (await world.supervisor.command(Reload(force=True), silent)).ok
        # Where nothing is served, nothing is lost.
        assert (await reload(world)).ok

    play(scene, kit.node())


def test_an_error_that_removes_nothing_and_a_removal_without_errors_are_reloaded(play, kit):
    async def scene(world):
        both = (kit.virtual_server(), kit.virtual_server(443))
        world.loaded = Loaded(config=kit.node(servers=both), findings=(ERROR,))
        assert (await reload(world)).ok
        world.loaded = Loaded(config=kit.node(servers=both[:1]), findings=({**ERROR, "severity": "warning"},))
        assert (await reload(world)).ok
        world.loaded = Loaded(config=replace(kit.node(servers=both[:1]), instances=()), findings=(ERROR,))
        assert "vrrp_instance VI_1 would be removed" in (await reload(world)).message

    play(scene, kit.node(servers=(kit.virtual_server(),)))


def test_the_node_keeps_its_name_until_it_is_restarted(play, kit):
    """MQTT topics, claims and the last will are under the old one."""

    async def scene(world):
        world.loaded = Loaded(config=replace(kit.node(servers=(kit.virtual_server(443),)), node="lb9"))
        answer = await reload(world)
        assert answer.ok
        assert "the node is called lb1 until haxlb is restarted" in answer.message
        assert (await world.supervisor.status()).node == "lb1"
        assert world.messages("checker", ConfigureChecker)[-1].config.node == "lb1"

    play(scene, kit.node(servers=(kit.virtual_server(),)))


def test_a_size_that_waits_for_new_tables_is_part_of_the_answer(play, kit):
    async def scene(world):
        larger = ForwardingSettings(max_services=100)
        world.loaded = Loaded(config=kit.node(servers=(kit.virtual_server(),), forwarding=larger))
        answer = await reload(world)
        assert answer.ok
        assert answer.message.endswith(
            "; max_services counts where the tables are made anew: stop haxlb, `haxlb detach`, start it"
        )

    play(scene, kit.node(servers=(kit.virtual_server(),)))


def test_a_change_of_servers_does_not_wake_the_speaker(play, kit):
    async def scene(world):
        spoken = len(world.messages("speaker"))
        world.loaded = Loaded(config=kit.node(servers=(kit.virtual_server(), kit.virtual_server(443))))
        answer = await reload(world)
        assert answer.ok
        assert "virtual_server [192.168.10.100]:tcp:443 added" in answer.message
        assert len(world.messages("speaker")) == spoken
        assert len(world.messages("checker", ConfigureChecker)) == 2
        assert world.crafted == 1
        assert world.compiled == 1

    play(scene, kit.node(servers=(kit.virtual_server(),)))


def test_a_new_address_is_crafted_once_the_speaker_has_it(play, kit):
    async def scene(world):
        changed = kit.instance(vips=(kit.vip(), kit.vip("192.168.10.101")))
        world.loaded = Loaded(config=kit.node(changed))
        assert (await reload(world)).ok
        await asyncio.sleep(0.1)
        frames = world.messages("speaker", GarpFrames)[-1].frames
        assert {str(frame.vip) for frame in frames} == {"192.168.10.100", "192.168.10.101"}

    play(scene, kit.node())


def test_a_configuration_beyond_the_tables_is_refused_whole(play, kit):
    async def scene(world):
        sent = len(world.sent)
        world.too_much = "65 virtual servers, room for 64"
        world.loaded = Loaded(config=kit.node(kit.instance(priority=1), servers=(kit.virtual_server(443),)))
        answer = await reload(world)
        assert not answer.ok
        assert "haxlb detach" in answer.remedy
        assert len(world.sent) == sent

    play(scene, kit.node(servers=(kit.virtual_server(),)))


def test_the_first_virtual_server_starts_a_checker(play, kit):
    async def scene(world):
        world.loaded = Loaded(config=kit.node(servers=(kit.virtual_server(),)))
        assert (await reload(world)).ok
        assert [name for _, name in world.started] == ["speaker", "checker"]
        assert world.compiled == 1

    play(scene, kit.node())


def test_a_renamed_master_is_still_buried_as_master(play, kit):
    async def scene(world):
        world.speaker.change("VI_1", Role.MASTER, "no advert")
        world.mute = True
        world.loaded = Loaded(config=kit.node(kit.instance("WEB")))
        assert (await reload(world)).ok
        world.exit("speaker", -9)
        await asyncio.sleep(0.1)
        world.mute = False

    world = play(scene, kit.node())
    assert world.executed == [frozenset({"WEB"})]


def test_new_broker_settings_reach_the_broker_and_nobody_else(play, kit):
    async def scene(world):
        sent = len(world.sent)
        world.loaded = Loaded(config=kit.node(mqtt=MqttSettings(host="127.0.0.1")))
        assert (await reload(world)).ok
        assert world.brokers == [None, MqttSettings(host="127.0.0.1")]
        assert len(world.sent) == sent

    play(scene, kit.node())


# -- other commands


def test_swap_compiles_anew_and_a_restarted_checker_keeps_the_new_program(play, kit):
    async def scene(world):
        assert (await world.supervisor.command(Swap(), silent)).ok
        world.exit("checker", -9)
        await asyncio.sleep(0.1)

    world = play(scene, kit.node(servers=(kit.virtual_server(),)))
    assert [message.program for message in world.messages("checker", SwapProgram)] == ["/run/haxlb/bpf/1/program-2"]
    assert world.messages("checker", ConfigureChecker)[-1].program == "/run/haxlb/bpf/1/program-2"


def test_the_speaker_hears_of_a_data_plane_that_may_know_no_virtual_mac_yet(play, kit):
    async def scene(world):
        before = len(world.messages("speaker", DataPlaneReady))
        assert (await world.supervisor.command(Swap(), silent)).ok
        assert len(world.messages("speaker", DataPlaneReady)) == before + 1
        world.exit("checker", -9)
        await asyncio.sleep(3)
        assert len(world.messages("checker", ConfigureChecker)) == 2
        assert len(world.messages("speaker", DataPlaneReady)) == before + 1, "the next one took over what is pinned"

    world = play(scene, kit.node(servers=(kit.virtual_server(),)))
    (orders, *_), (checks, *_) = (
        world.messages("speaker", ConfigureSpeaker),
        world.messages("checker", ConfigureChecker),
    )
    assert orders.bpf_directory == checks.bpf_directory


def test_a_failed_swap_keeps_the_old_program(play, kit):
    async def scene(world):
        answer = await world.supervisor.command(Swap(), silent)
        assert (answer.ok, answer.exit_code) == (False, 1)
        assert "verifier" in answer.message
        world.exit("checker", -9)
        await asyncio.sleep(0.1)

    world = play(scene, kit.node(servers=(kit.virtual_server(),)), swap_problem="the verifier said no")
    assert world.messages("checker", ConfigureChecker)[-1].program == "/run/haxlb/bpf/1/program-1"


def test_a_swap_that_comes_late_is_remembered_and_not_undone_by_the_next_reload(play, kit):
    async def scene(world):
        world.checker_stands_still = True
        answer = await world.supervisor.command(Swap(), silent)
        assert (answer.ok, answer.exit_code) == (False, 1)
        assert answer.message.startswith("not swapped yet: ")
        assert answer.remedy
        assert "program_swapped" not in world.events()
        world.checker_stands_still = False
        world.supervisor.on_message("checker", Ready(of="SwapProgram"))
        world.loaded = Loaded(config=kit.node(servers=(kit.virtual_server(8080),)))
        assert (await world.supervisor.command(Reload(), silent)).ok

    world = play(scene, kit.node(servers=(kit.virtual_server(),)))
    (swap,) = world.messages("checker", SwapProgram)
    assert world.messages("checker", ConfigureChecker)[-1].program == swap.program
    assert world.events().count("program_swapped") == 1


def test_a_late_swap_that_fails_is_none(play, kit):
    async def scene(world):
        world.checker_stands_still = True
        await world.supervisor.command(Swap(), silent)
        world.supervisor.on_message("checker", Ready(of="SwapProgram", problem="the verifier said no"))
        world.checker_stands_still = False
        world.exit("checker", -9)
        await asyncio.sleep(0.1)

    world = play(scene, kit.node(servers=(kit.virtual_server(),)))
    assert world.messages("checker", ConfigureChecker)[-1].program == "/run/haxlb/bpf/1/program-1"
    assert "program_swapped" not in world.events()


def test_a_reload_that_is_confirmed_late_is_no_problem_any_more(play, kit):
    async def scene(world):
        world.checker_stands_still = True
        world.loaded = Loaded(config=kit.node(servers=(kit.virtual_server(8080),)))
        answer = await world.supervisor.command(Reload(), silent)
        assert (answer.ok, answer.exit_code) == (False, 1)
        assert answer.remedy
        assert (await world.supervisor.status()).config_problem == "the checker has not confirmed it within 5 s"
        world.supervisor.on_message("checker", Ready(of="ConfigureChecker"))
        status = await world.supervisor.status()
        assert status.config_problem == ""
        assert any("the checker has put the last reload in force" in line for line in status.history)

    play(scene, kit.node(servers=(kit.virtual_server(),)))


def test_a_compiler_that_fails_at_swap_is_an_answer_and_not_an_end(play, kit):
    async def scene(world):
        world.compile_problem = HostError("BCC is missing", remedy="apt install python3-bpfcc")
        answer = await world.supervisor.command(Swap(), silent)
        assert (answer.ok, answer.exit_code, answer.remedy) == (False, 71, "apt install python3-bpfcc")
        (told,) = [each for each in world.logged if each[1].startswith("command_")]
        assert (told[:2], told[2]["command"]) == (("error", "command_failed"), "swap")

    play(scene, kit.node(servers=(kit.virtual_server(),)))


def test_resume_only_where_something_was_handed_over(play, kit):
    async def scene(world):
        assert "nothing to resume" in (await world.supervisor.command(Resume(), silent)).message
        assert not (await world.supervisor.command(Resume(instances=("VI_9",)), silent)).ok
        world.speaker.hand_over("VI_1")
        world.speaker.say_status()
        assert (await world.supervisor.command(Resume(), silent)).message == "resumed: VI_1"

    world = play(scene, kit.node())
    assert len(world.messages("speaker", ResumeSpeaker)) == 1


def test_a_mute_speaker_costs_one_second_and_is_named(play, kit):
    async def scene(world):
        world.mute = True
        before = asyncio.get_running_loop().time()
        status = await world.supervisor.status()
        assert asyncio.get_running_loop().time() - before == pytest.approx(1)
        assert [each.problem for each in status.processes] == ["did not answer"]
        assert [each.name for each in status.instances] == ["VI_1"]

    play(scene, kit.node())


def test_many_questions_at_once_cost_the_children_one(play, kit):
    async def scene(world):
        sent = len(world.sent)
        await asyncio.gather(*(world.supervisor.status() for _ in range(50)))
        assert len(world.sent) - sent == 1

    play(scene, kit.node())


# -- what else it watches


def test_vips_are_watched_while_master(play, kit):
    async def scene(world):
        world.speaker.change("VI_1", Role.MASTER, "no advert")
        assert world.watched[-1] == (kit.vip(),)
        world.speaker.change("VI_1", Role.BACKUP, "higher priority")
        assert world.watched[-1] == ()

    play(scene, kit.node())


def test_unicast_peers_are_told_to_the_checker_at_once(play, kit):
    peers = (IPv4Address("192.168.10.12"), IPv4Address("192.168.10.13"))
    world = play(nothing, kit.node(kit.instance(peers=peers), servers=(kit.virtual_server(),)))
    assert world.messages("checker", PeersKnown)[0] == PeersKnown(interface="eth0", peers=peers)


def peers_told(world):
    return [message.peers for message in world.messages("checker", PeersKnown)]


@pytest.mark.parametrize(
    ("priority", "silent_for", "asked"),
    [(100, 0.9, True), (200, 3.4, False), (0, 3.4, True)],
    ids=["it lost the election", "it fell silent", "it resigned"],
)
def test_a_peer_whose_silence_made_us_master_is_not_asked_for_flows(play, kit, priority, silent_for, asked):
    peer = IPv4Address("192.168.10.12")

    async def scene(world):
        heard = PeerStatus(address=peer, priority=priority, heard_at=world.wall() - silent_for)
        world.speaker.instances["VI_1"] = replace(world.speaker.instances["VI_1"], peers=(heard,))
        world.speaker.change("VI_1", Role.MASTER, "no advert")
        await asyncio.sleep(0.001)
        assert (peer in peers_told(world)[-1]) is asked
        # Heard again: its flows may be asked for again.
        again = PeerStatus(address=peer, priority=200, heard_at=world.wall() + 1)
        world.speaker.instances["VI_1"] = replace(world.speaker.instances["VI_1"], peers=(again,))
        world.speaker.change("VI_1", Role.BACKUP, "higher priority")
        assert peer in peers_told(world)[-1]

    play(scene, kit.node(kit.instance(peers=(peer,)), servers=(kit.virtual_server(),)))


def falls_silent(world, peer):
    """Its silence makes us MASTER."""
    heard = PeerStatus(address=peer, priority=200, heard_at=world.wall() - 3.4)
    world.speaker.instances["VI_1"] = replace(world.speaker.instances["VI_1"], peers=(heard,))
    world.speaker.change("VI_1", Role.MASTER, "no advert")


def test_a_silent_peer_whose_host_answers_is_asked_until_it_does_not(play, kit):
    peer = IPv4Address("192.168.10.12")

    async def scene(world):
        world.hosts_up = (str(peer),)
        falls_silent(world, peer)
        await asyncio.sleep(2.5)
        assert peer in peers_told(world)[-1]
        world.hosts_up = ()
        await asyncio.sleep(1)
        assert peer not in peers_told(world)[-1]
        world.hosts_up = (str(peer),)
        await asyncio.sleep(1)
        assert peer in peers_told(world)[-1]

    world = play(scene, kit.node(kit.instance(peers=(peer,)), servers=(kit.virtual_server(),)))
    assert len(world.looked_up) == 5
    assert {what for _, what in world.looked_up} == {"192.168.10.12 on eth0"}


def test_a_peer_is_looked_after_for_as_long_as_it_is_silent(play, kit):
    peer = IPv4Address("192.168.10.12")

    async def scene(world):
        falls_silent(world, peer)
        falls_silent(world, peer)  # another status: nobody looks twice
        await asyncio.sleep(0.5)
        assert len(world.looked_up) == 1
        again = PeerStatus(address=peer, priority=200, heard_at=world.wall() + 1)
        world.speaker.instances["VI_1"] = replace(world.speaker.instances["VI_1"], peers=(again,))
        world.speaker.change("VI_1", Role.BACKUP, "higher priority")
        assert peer in peers_told(world)[-1]
        await asyncio.sleep(5)
        assert len(world.looked_up) == 1

    play(scene, kit.node(kit.instance(peers=(peer,)), servers=(kit.virtual_server(),)))


def test_a_peer_that_is_master_of_another_instance_is_alive(play, kit):
    peer = IPv4Address("192.168.10.12")
    two = (
        kit.instance("VI_1", peers=(peer,)),
        kit.instance("VI_2", vrid=52, peers=(peer,), vips=(kit.vip("192.168.10.101"),)),
    )

    async def scene(world):
        for name, ago in (("VI_1", 0.5), ("VI_2", 5)):
            heard = PeerStatus(address=peer, priority=200, heard_at=world.wall() - ago)
            world.speaker.instances[name] = replace(world.speaker.instances[name], peers=(heard,))
        world.speaker.change("VI_2", Role.MASTER, "no advert")
        assert peer in peers_told(world)[-1]

    play(scene, kit.node(*two, servers=(kit.virtual_server(),)))


def test_an_order_that_failed_is_in_the_history(play, kit):
    async def scene(world):
        world.supervisor.on_message("speaker", Ready(of="ConfigureSpeaker", problem="cannot listen on eth0"))
        assert any("cannot listen on eth0" in line for line in (await world.supervisor.status()).history)

    play(scene, kit.node())


def test_a_changed_mac_has_the_frames_crafted_anew(play, kit):
    async def scene(world):
        world.supervisor.on_message("speaker", LinkAltered(interface="eth0", mac="02:00:00:00:00:02"))
        await asyncio.sleep(0.1)

    world = play(scene, kit.node())
    assert world.crafted == 2
    assert len(world.messages("speaker", GarpFrames)) == 2
    assert len(world.messages("speaker", ConfigureSpeaker)) == 1


def test_frames_that_are_on_their_way_are_not_crafted_again(play, kit):
    async def scene(world):
        world.supervisor.on_message("speaker", LinkAltered(interface="eth0", mac="02:00:00:00:00:01"))
        await asyncio.sleep(0.1)

    assert play(scene, kit.node()).crafted == 1


def test_the_snapshot_follows_a_change_and_is_renewed(play, kit):
    async def scene(world):
        world.speaker.change("VI_1", Role.MASTER, "no advert")
        await asyncio.sleep(1)
        assert len(world.snapshots) == 1
        assert world.snapshots[0].instances[0].role is Role.MASTER
        await asyncio.sleep(60)
        assert len(world.snapshots) == 3

    play(scene, kit.node(mqtt=MqttSettings(host="127.0.0.1")))


def test_a_master_claims_its_vrid_again_and_again(play, kit):
    async def scene(world):
        world.speaker.change("VI_1", Role.MASTER, "no advert")
        await asyncio.sleep(3.5)
        world.speaker.change("VI_1", Role.BACKUP, "handed over")

    world = play(scene, kit.node())
    assert [claim.master for claim in world.claims] == [True, True, True, True, False]
