from __future__ import annotations

import asyncio
from dataclasses import replace
from ipaddress import IPv4Address
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.daemon.control import Reload
from haxlb.daemon.messages import ConfigureChecker, ConfigureSpeaker, Happened, Notify
from haxlb.daemon.notifications import (
    STATES,
    backend_line,
    commands_for,
    one_line,
    quorum_line,
    quorum_mail,
    vrrp_line,
    vrrp_mail,
)
from haxlb.daemon.notifier import MOST_DEPARTED, Notifier
from haxlb.daemon.standing import Standing
from haxlb.daemon.supervisor_ports import Loaded
from haxlb.model.commands import Command
from haxlb.model.facts import BackendChanged, GroupChanged, QuorumChanged
from haxlb.model.groups import SyncGroup
from haxlb.model.notification import (
    MailSettings,
    NotificationSettings,
    NotifyDue,
    NotifyFifo,
    NotifyScripts,
    ScriptSettings,
)
from haxlb.model.status import MailStatus
from haxlb.model.virtual_server import RealServer


def command(text: str, **whom: str) -> Command:
    return Command(argv=tuple(text.split()), **whom)


SCRIPTS = NotifyScripts(
    master=command("/m"),
    backup=command("/b"),
    fault=command("/f"),
    stop=command("/s"),
    deleted=command("/d"),
    master_rx_lower_pri=command("/low"),
    any=command("/any x", user="nobody"),
)


def due(state: str, name: str = "VI_1", priority: int = 150, subject: str = "INSTANCE") -> NotifyDue:
    return NotifyDue(subject=subject, name=name, state=state, priority=priority)


def group_due(state: str, name: str = "VG_1") -> NotifyDue:
    return due(state, name, 0, "GROUP")


# -- what is told, in words


@pytest.mark.parametrize(
    ("state", "own", "any_too"),
    [
        ("MASTER", "/m", True),
        ("BACKUP", "/b", True),
        ("FAULT", "/f", True),
        ("STOP", "/s", True),
        ("DELETED", "/d", True),
        ("MASTER_RX_LOWER_PRI", "/low", False),
        ("MASTER_PRIORITY", "", False),
        ("BACKUP_PRIORITY", "", False),
    ],
)
def test_a_state_has_its_own_command_and_then_the_general_one(state: str, own: str, any_too: Any) -> None:
    expected = [command(own)] if own else []
    if any_too:
        expected.append(command(f"/any x INSTANCE VI_1 {state} 150", user="nobody"))
    assert list(commands_for(due(state), SCRIPTS)) == expected
    assert commands_for(due(state), NotifyScripts()) == ()


def test_a_group_is_told_as_such() -> None:
    (*_, general) = commands_for(group_due("BACKUP"), SCRIPTS)
    assert general.argv == ("/any", "x", "GROUP", "VG_1", "BACKUP", "0")


def test_the_lines_are_those_of_keepalived(kit: Any) -> None:
    assert vrrp_line(due("MASTER")) == 'INSTANCE "VI_1" MASTER 150\n'
    assert vrrp_line(group_due("BACKUP", "VG")) == 'GROUP "VG" BACKUP 0\n'
    fact = BackendChanged(
        virtual_server="[10.0.0.1]:tcp:80", real_server="10.0.0.9:8080", up=False, reason="refused", at_us=1
    )
    assert backend_line(fact, kit.virtual_server()) == "RS [10.0.0.9]:tcp:8080 [10.0.0.1]:tcp:80 DOWN\n"


def test_groups_and_marks_have_their_names_in_the_fifos(kit: Any) -> None:
    group, mark = replace(kit.virtual_server(), group="web"), replace(kit.virtual_server(), fwmark=5)
    assert (group.name, mark.name) == ("group web tcp", "fwmark 5 tcp")
    gained = QuorumChanged(virtual_server=group.name, up=True, reason="", at_us=1)
    assert quorum_line(gained, group) == "VS [web]:0 UP\n"
    assert quorum_line(replace(gained, virtual_server=mark.name), mark) == "VS FWM 5 UP\n"
    assert quorum_line(gained, None) == "VS group web tcp UP\n"
    fact = BackendChanged(
        virtual_server=group.name, real_server="[2001:db8::9]:80", up=False, reason="refused", at_us=1
    )
    assert backend_line(fact, group) == "RS [2001:db8::9]:tcp:80 [web]:0 DOWN\n"


def test_a_name_cannot_begin_a_line_or_a_header_of_its_own() -> None:
    evil = due("MASTER", 'x" MASTER 1\nINSTANCE "VI_2')
    assert vrrp_line(evil).count("\n") == 1
    mail = vrrp_mail(replace(evil, name="x\r\nBcc: a@example.com\r\n\r\n"), "lb1\n")
    assert mail is not None
    assert mail.subject == "[lb1?] VRRP Instance x??Bcc: a@example.com???? - Entering MASTER state"
    assert [line.partition(":")[0] for line in mail.body.splitlines()] == [
        "director",
        "instance",
        "state",
        "priority",
        "virtual addresses",
    ]
    assert one_line("a\0b\x85\u2028c") == "a?b??c"


@pytest.mark.parametrize(
    ("what", "subject"),
    [
        (due("MASTER"), "[lb1] VRRP Instance VI_1 - Entering MASTER state"),
        (due("STOP"), "[lb1] VRRP Instance VI_1 - Stopping"),
        (group_due("FAULT"), "[lb1] VRRP Group VG_1 - Entering FAULT state"),
        (due("DELETED"), None),
        (due("MASTER_RX_LOWER_PRI"), None),
        (due("BACKUP_PRIORITY"), None),
    ],
)
def test_the_subjects_are_those_that_filters_know(what: NotifyDue, subject: str | None) -> None:
    mail = vrrp_mail(what, "lb1")
    assert (mail.subject if mail else None) == subject


def test_a_quorum_is_mailed_with_its_reason() -> None:
    mail = quorum_mail(QuorumChanged(virtual_server="[10.0.0.1]:tcp:80", up=False, reason="0 of 1", at_us=1), "lb1")
    assert mail.subject == "[lb1] Virtualserver [10.0.0.1]:tcp:80 - DOWN"
    assert "quorum: lost\nreason: 0 of 1\n" in mail.body


# -- the notifier


class Stage:
    """A notifier and the ways to the operator."""

    def __init__(self, kit: Any, config: Any) -> None:
        self.outlets = kit.FakeOutlets()
        world = kit.FakeWorld(loaded=Loaded(config=config))
        world.outlets = self.outlets
        world.now = lambda: 1
        self.logged = world.logged
        self.facts: list[GroupChanged] = []
        self.standing = Standing(config=config, bpf_directory="", config_directory="/etc/keepalived")
        self.notifier = Notifier(world.ports(), self.standing, self.facts.append)

    def tell(self, *dues: NotifyDue) -> list[tuple[str, str]]:
        before = len(self.outlets.told)
        for each in dues:
            self.notifier.take(each)
        return self.outlets.told[before:]

    def lines(self) -> list[str]:
        return [line.strip() for line in self.outlets.of("fifo")]


def watched(kit: Any, **changes: Any) -> Any:
    return kit.instance(notify=SCRIPTS, smtp_alert=True, **changes)


def test_a_state_goes_to_fifo_scripts_and_mail_and_a_repeated_one_to_nobody(kit: Any) -> None:
    stage = Stage(kit, kit.node(watched(kit)))
    assert stage.tell(due("MASTER"), due("MASTER")) == [
        ("fifo", 'INSTANCE "VI_1" MASTER 150\n'),
        ("script", "VI_1: /m"),
        ("script", "VI_1: /any x INSTANCE VI_1 MASTER 150"),
        ("mail", "[lb1] VRRP Instance VI_1 - Entering MASTER state"),
    ]


def test_without_scripts_and_smtp_alert_only_the_fifos_hear(kit: Any) -> None:
    stage = Stage(kit, kit.node())
    assert stage.tell(due("MASTER")) == [("fifo", 'INSTANCE "VI_1" MASTER 150\n')]


def test_an_event_is_no_state(kit: Any) -> None:
    stage = Stage(kit, kit.node(watched(kit)))
    stage.tell(due("MASTER"))
    low = ("script", "VI_1: /low")
    assert [each for each in stage.tell(*[due("MASTER_RX_LOWER_PRI")] * 2) if each[0] != "fifo"] == [low, low]
    assert stage.tell(due("MASTER")) == []


@pytest.mark.parametrize("wanted", [True, False])
def test_changes_of_priority_are_told_where_that_is_configured(kit: Any, wanted: Any) -> None:
    stage = Stage(kit, kit.node(watched(kit, notify_priority_changes=wanted)))
    line = ("fifo", 'INSTANCE "VI_1" BACKUP_PRIORITY 120\n')
    assert stage.tell(due("BACKUP_PRIORITY", priority=120)) == ([line] if wanted else [])


def test_an_instance_and_a_group_of_one_name_have_queues_of_their_own(kit: Any) -> None:
    group = SyncGroup(name="VI_1", members=("VI_1",), notify=SCRIPTS, smtp_alert=True)
    stage = Stage(kit, kit.node(watched(kit), sync_groups=(group,)))
    stage.tell(due("MASTER"), group_due("MASTER", "VI_1"))
    assert {each.partition(":")[0] for each in stage.outlets.of("script")} == {"VI_1", "group VI_1"}
    assert stage.outlets.of("mail")[1] == "[lb1] VRRP Group VI_1 - Entering MASTER state"


def test_what_a_group_goes_through_is_a_fact(kit: Any) -> None:
    stage = Stage(kit, kit.node(watched(kit), sync_groups=(SyncGroup(name="VG_1", members=("VI_1",)),)))
    stage.tell(group_due("BACKUP"), group_due("BACKUP"), group_due("MASTER"))
    assert stage.facts == [
        GroupChanged(group="VG_1", before="", after="BACKUP", at_us=1),
        GroupChanged(group="VG_1", before="BACKUP", after="MASTER", at_us=1),
    ]


def test_mail_only_when_the_state_is_not_the_last_mailed_one(kit: Any) -> None:
    quiet, loud = watched(kit), replace(watched(kit), smtp_alert=False)
    stage = Stage(kit, kit.node(quiet))
    stage.tell(due("MASTER"))
    stage.standing.config = kit.node(loud)  # for a while no mail is wanted
    stage.tell(due("BACKUP"))
    stage.standing.config = kit.node(quiet)
    stage.tell(due("MASTER"))
    assert len(stage.outlets.mails) == 1
    stage.tell(due("BACKUP"))
    assert len(stage.outlets.mails) == 2


def test_with_no_email_faults_there_is_no_mail_about_them_and_none_about_the_way_back(kit: Any) -> None:
    quiet = NotificationSettings(mail=MailSettings(server="mx", faults=False))
    group = SyncGroup(name="VG_1", members=("VI_1",), smtp_alert=True)
    stage = Stage(kit, kit.node(watched(kit), sync_groups=(group,), notification=quiet))
    stage.tell(due("MASTER"), group_due("MASTER"))
    stage.tell(due("FAULT"), group_due("FAULT"), due("MASTER"), group_due("BACKUP"))
    assert [each.partition(" - ")[2] for each in stage.outlets.of("mail")] == [
        "Entering MASTER state",
        "Entering MASTER state",
        "Entering BACKUP state",
    ]


def test_a_name_that_nobody_knows_is_logged_and_told_to_the_fifos(kit: Any) -> None:
    stage = Stage(kit, kit.node())
    assert stage.tell(due("MASTER", "VI_9")) == [("fifo", 'INSTANCE "VI_9" MASTER 150\n')]
    assert [event for _, event, _ in stage.logged] == ["notify_unknown"]


# -- a speaker that dies


def test_a_dead_speakers_masters_are_told_fault_and_then_what_the_next_one_says(kit: Any) -> None:
    other = watched(kit, name="VI_2", vrid=52)
    group = SyncGroup(name="VG_1", members=("VI_1",))
    stage = Stage(kit, kit.node(watched(kit), other, sync_groups=(group,)))
    stage.tell(due("BACKUP"), due("BACKUP", "VI_2"), due("MASTER"), group_due("MASTER"))
    stage.notifier.speaker_died()
    stage.tell(due("BACKUP"), due("BACKUP", "VI_2"), group_due("BACKUP"), due("MASTER"))
    assert stage.lines() == [
        'INSTANCE "VI_1" BACKUP 150',
        'INSTANCE "VI_2" BACKUP 150',
        'INSTANCE "VI_1" MASTER 150',
        'GROUP "VG_1" MASTER 0',
        'INSTANCE "VI_1" FAULT 150',
        'GROUP "VG_1" FAULT 0',
        'INSTANCE "VI_1" BACKUP 150',
        'GROUP "VG_1" BACKUP 0',
        'INSTANCE "VI_1" MASTER 150',
    ]


def test_never_two_masters_in_a_row_whatever_the_speakers_do(kit: Any) -> None:
    stage = Stage(kit, kit.node(watched(kit)))
    stage.tell(due("MASTER"))
    stage.notifier.speaker_died()
    stage.tell(due("MASTER"))  # the next one was MASTER before it said anything else
    stage.notifier.speaker_died()
    stage.notifier.speaker_died()
    assert [line.split()[2] for line in stage.lines()] == ["MASTER", "FAULT", "MASTER", "FAULT"]


EVENTS = ("MASTER_RX_LOWER_PRI", "MASTER_PRIORITY", "BACKUP_PRIORITY")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("tell"), st.sampled_from(("VI_1", "VI_2")), st.sampled_from((*STATES, *EVENTS))),
        st.tuples(st.just("die")),
        st.tuples(st.just("reload"), st.sampled_from((("VI_1",), ("VI_2",), ("VI_1", "VI_2")))),
    ),
    max_size=30,
)


def test_whatever_happens_no_state_is_told_twice_in_a_row_and_the_last_one_is_final(kit: Any) -> None:
    both = {"VI_1": watched(kit), "VI_2": watched(kit, name="VI_2", vrid=52)}

    @settings(derandomize=True, deadline=None, max_examples=200)
    @given(steps=STEPS)
    def laws(steps: list[Any]) -> None:
        stage = Stage(kit, kit.node(*both.values()))
        for step in steps:
            match step:
                case ("tell", name, state):
                    configured = {each.name for each in stage.standing.config.instances}
                    stage.tell(due(state if name in configured else "DELETED", name))
                case ("reload", names):
                    stage.standing.config = kit.node(*(both[name] for name in names))
                case _:
                    stage.notifier.speaker_died()
        asyncio.run(stage.notifier.leave())
        for name in both:
            said = [line.split()[2] for line in stage.lines() if f'"{name}"' in line]
            states = [state for state in said if state in STATES]
            # One that was removed has heard its last; what is told of it afterwards begins anew.
            assert not [one for one, two in pairwise(states) if one == two and one in ("MASTER", "BACKUP")]
            assert states[-1:] not in (["MASTER"], ["BACKUP"])

    laws()


# -- the configuration changes


def test_a_removed_instance_hears_its_last_by_the_scripts_it_had(kit: Any) -> None:
    stage = Stage(kit, kit.node(watched(kit), kit.instance(name="VI_2", vrid=52)))
    stage.tell(due("MASTER"))
    stage.standing.config = kit.node(kit.instance(name="VI_2", vrid=52))
    assert stage.tell(due("DELETED"))[1] == ("script", "VI_1: /d")
    # That was all: who comes back under this name is a new one.
    assert stage.tell(due("DELETED")) == [("fifo", 'INSTANCE "VI_1" DELETED 150\n')]
    stage.standing.config = kit.node(watched(kit))
    assert stage.tell(due("BACKUP"))[1] == ("script", "VI_1: /b")


def test_what_was_told_follows_an_instance_to_its_new_name(kit: Any) -> None:
    stage = Stage(kit, kit.node(watched(kit)))
    stage.tell(due("MASTER"))
    stage.standing.config = kit.node(watched(kit, name="VI_NEW"))
    assert stage.tell(due("MASTER", "VI_NEW")) == []
    # Said by the speaker before it knew the new name.
    assert stage.tell(due("BACKUP"))[:2] == [("fifo", 'INSTANCE "VI_NEW" BACKUP 150\n'), ("script", "VI_NEW: /b")]


def test_removed_instances_that_are_never_told_so_do_not_pile_up(kit: Any) -> None:
    many = tuple(kit.instance(name=f"VI_{n}", vrid=n % 255 + 1, interface=f"e{n}") for n in range(MOST_DEPARTED + 9))
    stage = Stage(kit, kit.node(*many))
    stage.tell(*(due("BACKUP", each.name) for each in many))
    stage.standing.config = kit.node(kit.instance(name="VI_NEW", interface="other"))
    stage.notifier.refresh()
    assert len(stage.notifier._departed) == MOST_DEPARTED
    assert len(stage.notifier._told) == MOST_DEPARTED


def test_states_are_written_on_reload_where_that_is_configured(kit: Any) -> None:
    group = SyncGroup(name="VG_1", members=("VI_1",))
    settings = NotificationSettings(fifo_states_on_reload=True)
    config = kit.node(watched(kit), kit.instance(name="VI_2", vrid=52), sync_groups=(group,), notification=settings)
    stage = Stage(kit, config)
    stage.tell(group_due("MASTER"), due("MASTER"))
    stage.notifier.refresh()
    stage.notifier.refresh(reloaded=True)
    assert stage.lines()[2:] == ['INSTANCE "VI_1" MASTER 150', 'GROUP "VG_1" MASTER 0']
    assert len(stage.outlets.of("script")) == 2  # of the first time
    stage.standing.config = replace(config, notification=NotificationSettings())
    stage.notifier.refresh(reloaded=True)
    assert len(stage.lines()) == 4


def test_the_ways_are_configured_once_for_each_configuration(kit: Any) -> None:
    what = NotificationSettings(
        fifos=(NotifyFifo(path="/run/f"),), mail=MailSettings(server="mx"), scripts=ScriptSettings(user="nobody")
    )
    stage = Stage(kit, kit.node(notification=what))
    stage.tell(due("BACKUP"), due("MASTER"))
    assert stage.outlets.settings == [
        ("scripts", what.scripts, "/etc/keepalived"),
        ("fifos", what.fifos, what.scripts, "/etc/keepalived"),
        ("mail", what.mail),
    ]


# -- services


def backend(up: bool, reason: str = "refused") -> BackendChanged:  # noqa: FBT001
    return BackendChanged(
        virtual_server="[192.168.10.100]:tcp:80", real_server="192.168.10.21:80", up=up, reason=reason, at_us=1
    )


def quorum(up: bool) -> QuorumChanged:  # noqa: FBT001
    return QuorumChanged(virtual_server="[192.168.10.100]:tcp:80", up=up, reason="0 of 1", at_us=1)


def test_servers_and_quorums_are_told_to_the_lvs_fifos_and_by_mail(kit: Any) -> None:
    server = RealServer(address=IPv4Address("192.168.10.21"), port=80, smtp_alert=True)
    service = replace(kit.virtual_server(80, server), smtp_alert=True)
    stage = Stage(kit, kit.node(servers=(service,)))
    for fact in (backend(up=False), quorum(up=False), backend(up=False), backend(up=True), quorum(up=True)):
        stage.notifier.take_fact(fact)
    rs, vs = "RS [192.168.10.21]:tcp:80 [192.168.10.100]:tcp:80", "VS [192.168.10.100]:tcp:80"
    assert stage.outlets.of("lvs") == [f"{rs} DOWN\n", f"{vs} DOWN\n", f"{rs} DOWN\n", f"{rs} UP\n", f"{vs} UP\n"]
    name = "[lb1] Realserver [192.168.10.21]:tcp:80 of virtual server [192.168.10.100]:tcp:80"
    assert stage.outlets.of("mail") == [
        f"{name} - DOWN",
        "[lb1] Virtualserver [192.168.10.100]:tcp:80 - DOWN",
        f"{name} - UP",
        "[lb1] Virtualserver [192.168.10.100]:tcp:80 - UP",
    ]
    assert stage.outlets.of("fifo") == []


def test_a_service_that_is_gone_is_told_as_it_was_called(kit: Any) -> None:
    stage = Stage(kit, kit.node())
    stage.notifier.take_fact(backend(up=False))
    assert stage.outlets.told == [("lvs", "RS [192.168.10.21]:tcp:80 [192.168.10.100]:tcp:80 DOWN\n")]


# -- in the supervisor


def test_the_supervisor_tells_what_the_speaker_and_the_checker_say(play: Any, kit: Any) -> None:
    async def scene(world: Any) -> None:
        world.supervisor.on_message("speaker", Notify(due=due("MASTER")))
        world.supervisor.on_message("checker", Happened(fact=backend(up=False)))

    world = play(scene, kit.node(watched(kit), servers=(kit.virtual_server(),)))
    assert world.outlets.of("fifo")[0] == 'INSTANCE "VI_1" MASTER 150\n'
    assert world.outlets.of("lvs") == ["RS [192.168.10.21]:tcp:80 [192.168.10.100]:tcp:80 DOWN\n"]


def test_a_stop_that_no_speaker_has_told_is_told_before_all_ends(play: Any, kit: Any) -> None:
    async def scene(world: Any) -> None:
        world.supervisor.on_message("speaker", Notify(due=due("MASTER")))
        world.exit("speaker", -9)  # the fake's successor says nothing, not even at the end
        await asyncio.sleep(0.01)

    world = play(scene, kit.node(watched(kit)))
    assert [line.split()[2] for line in world.outlets.of("fifo")] == ["MASTER", "FAULT", "STOP"]
    assert world.outlets.told[-3:] == [("end", "scripts"), ("end", "mail"), ("end", "fifos")]
    assert ("script", "VI_1: /s") in world.outlets.told


def test_startup_and_shutdown_scripts_frame_everything(play: Any, kit: Any) -> None:
    scripts = ScriptSettings(
        startup=command("/up"), startup_timeout_us=7_000_000, shutdown=command("/down"), shutdown_timeout_us=1_500_000
    )

    async def scene(world: Any) -> None:
        assert world.started == []  # the script has not ended yet
        await asyncio.sleep(1)
        assert [name for _, name in world.started] == ["speaker"]

    world = play(scene, kit.node(notification=NotificationSettings(scripts=scripts)))
    assert world.outlets.of("waited") == ["startup_script: /up within 7 s", "shutdown_script: /down within 1.5 s"]
    assert world.outlets.told[-1][0] == "waited"
    assert [event for event in world.events() if "_script_" in event] == ["startup_script_done", "shutdown_script_done"]


def test_a_startup_script_that_fails_is_logged_and_the_start_goes_on(play: Any, kit: Any) -> None:
    outlets = kit.FakeOutlets()
    outlets.scripts.status = 1
    scripts = ScriptSettings(startup=command("/up"))
    world = play(
        lambda _: asyncio.sleep(1), kit.node(notification=NotificationSettings(scripts=scripts)), outlets=outlets
    )
    assert "startup_script_failed" in world.events()
    assert [name for _, name in world.started] == ["speaker"]


def test_a_stop_during_the_startup_script_starts_nothing(play: Any, kit: Any) -> None:
    async def nothing(_: Any) -> None:
        """Stop at once."""

    scripts = ScriptSettings(startup=command("/up"), shutdown=command("/down"))
    world = play(nothing, kit.node(notification=NotificationSettings(scripts=scripts)))
    assert world.started == []
    assert world.outlets.of("waited") == ["startup_script: /up within 10 s"]


def test_a_reload_writes_the_states_after_the_new_configuration_is_in_force(play: Any, kit: Any) -> None:
    async def scene(world: Any) -> None:
        world.supervisor.on_message("speaker", Notify(due=due("BACKUP")))
        settings = NotificationSettings(fifo_states_on_reload=True, fifos=(NotifyFifo(path="/run/new"),))
        world.loaded = Loaded(config=kit.node(watched(kit), notification=settings))
        await world.supervisor.command(Reload(), lambda _: None)
        assert [what[1] for what in world.outlets.settings if what[0] == "fifos"] == [(), settings.fifos]
        assert world.outlets.of("fifo") == ['INSTANCE "VI_1" BACKUP 150\n'] * 2

    play(scene, kit.node(watched(kit)))


def test_another_user_of_scripts_is_told_to_whoever_runs_some(play: Any, kit: Any) -> None:
    async def scene(world: Any) -> None:
        changed = NotificationSettings(scripts=ScriptSettings(user="nobody"))
        world.loaded = Loaded(config=kit.node(servers=(kit.virtual_server(),), notification=changed))
        await world.supervisor.command(Reload(), lambda _: None)

    world = play(scene, kit.node(servers=(kit.virtual_server(),)))
    speaker, checker = world.messages("speaker", ConfigureSpeaker), world.messages("checker", ConfigureChecker)
    assert [each.script_settings.user for each in speaker] == ["", "nobody"]
    assert [each.config.notification.scripts.user for each in checker] == ["", "nobody"]
    assert {each.config_directory for each in (*speaker, *checker)} == {"/etc/keepalived"}


def test_what_did_not_reach_the_operator_is_in_the_status(play: Any, kit: Any) -> None:
    async def scene(world: Any) -> None:
        world.outlets.fifos.lost = {"/run/told": 2}
        world.outlets.mail.status = MailStatus(dropped=1, problem="refused")
        status = await world.supervisor.status()
        assert status.fifo_lines_lost == {"/run/told": 2}
        assert status.mail == MailStatus(dropped=1, problem="refused")

    play(scene, kit.node())
