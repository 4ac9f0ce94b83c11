from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from lab import Host, Lab

from haxlb.daemon.messages import AskStatus, ConfigureSpeaker, DataPlaneReady, HandOver, Logged, Notify, Resume, Stop
from haxlb.model.commands import Command
from haxlb.model.facts import AdvertRejected, RoleChanged
from haxlb.model.instance import GarpConfig, Role, VrrpInstance
from haxlb.model.notification import NotifyScripts
from tests.netns.standin import AddressWatch, Ear, SpeakerHandle, addresses, eventually, vip
from tests.netns.standstill import Standstill

pytestmark = pytest.mark.netns

VIP = IPv4Address("10.9.0.100")
ONE, TWO = IPv4Address("10.9.0.1"), IPv4Address("10.9.0.2")
FAST = VrrpInstance(
    name="VI_1",
    interface="eth0",
    vrid=51,
    priority=150,
    version=3,
    advert_interval_us=100_000,
    vips=(vip("10.9.0.100"),),
    garp=GarpConfig(master_delay_us=300_000),
)
SECOND = replace(FAST, priority=100)


def down_ms(instance: VrrpInstance) -> float:
    """master_down_interval by the RFCs (3768: skew in fractions of a second; 9568: of the interval)."""
    unit = 1_000_000 if instance.version == 2 else instance.advert_interval_us
    return (3 * instance.advert_interval_us + (256 - instance.priority) * unit / 256) / 1000


def earliest_ns(at_us: int) -> int:
    """When that was by the ear's clock, or before it where this process stands still between the two clocks."""
    wall_ns = time.time_ns()
    return wall_ns - (time.monotonic_ns() - at_us * 1000)


class Pair:
    """Two directors and a client on one bridge, an ear at the client."""

    def __init__(self, prefix: str) -> None:
        self.lab = Lab(prefix)
        self.lab.__enter__()
        self.client = self.lab.host("cl", "10.9.0.10/24")
        self.d1 = self.lab.host("d1", "10.9.0.1/24")
        self.d2 = self.lab.host("d2", "10.9.0.2/24")
        self.ear = Ear(self.client.namespace)
        self.speakers: list[SpeakerHandle] = []

    def speaker(self, host: Host, *instances: VrrpInstance) -> SpeakerHandle:
        speaker = SpeakerHandle(host)
        self.speakers.append(speaker)
        if instances:
            assert speaker.configure(*instances) == ""
        return speaker

    def close(self) -> None:
        for speaker in self.speakers:
            speaker.__exit__()
        self.ear.close()
        self.lab.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair(f"hxsp{os.getpid()}")
    try:
        yield made
    finally:
        made.close()


def elect(pair: Pair, first: VrrpInstance = FAST, second: VrrpInstance = SECOND) -> tuple[SpeakerHandle, SpeakerHandle]:
    """Both started; the first is MASTER with the VIP, the second has heard it."""
    one, two = pair.speaker(pair.d1, first), pair.speaker(pair.d2, second)
    one.becomes(Role.MASTER)
    eventually(lambda: two.status().instances[0].peers, "the second hears the first")
    return one, two


def holders(pair: Pair) -> list[str]:
    return [host.name for host in (pair.d1, pair.d2) if VIP in addresses(host)]


MODES = {
    "v3-multicast": {},
    "v3-unicast": {"unicast": True},
    "v2-multicast": {"version": 2, "advert_interval_us": 1_000_000},
    "v2-unicast-pass": {"version": 2, "advert_interval_us": 1_000_000, "auth_pass": "s3cr3t", "unicast": True},
}


def both(mode: str) -> tuple[VrrpInstance, VrrpInstance]:
    settings = dict(MODES[mode])
    unicast = settings.pop("unicast", False)
    # `state MASTER` shortens the first election: one advert interval instead of three.
    first, second = replace(FAST, **settings, initial_role=Role.MASTER), replace(SECOND, **settings)
    if unicast:
        first, second = replace(first, peers=(TWO,), source=ONE), replace(second, peers=(ONE,))
    return first, second


@pytest.mark.parametrize("mode", MODES)
def test_the_higher_priority_is_elected_and_a_power_failure_costs_what_the_rfc_says(pair: Pair, mode: str) -> None:
    first, second = both(mode)
    _, two = elect(pair, first, second)
    assert holders(pair) == ["d1"]
    assert two.status().instances[0].role is Role.BACKUP

    # At the second director unicast adverts of the first are seen, too.
    standstill = Standstill()
    with Ear(pair.d2.namespace) as ear, standstill.watched():
        eventually(lambda: len(ear.adverts()) > 1, "adverts")
        start, since_ns = len(two.messages), time.time_ns()
        pair.d1.power_off()
        two.becomes(Role.MASTER, start=start)
        new_mac = pair.d2.mac()
        taken = eventually(
            lambda: [f for f in pair.ear.garps(VIP, since_ns) if f.source_mac == new_mac], "GARP of the new MASTER"
        )
        # It hears what its own host sends, too, and all in order.
        eventually(lambda: ear.garps(VIP, since_ns), "the same at the second director")
        last = ear.adverts_of(ONE)[-1]
    assert (last.ttl, last.tos) == (255, 0xC0)
    assert last.destination == (TWO if first.peers else IPv4Address("224.0.0.18"))
    took_ms = (taken[0].at_ns - last.at_ns) / 1e6
    assert down_ms(second) <= took_ms + 0.5
    # Where the machine stood still it was woken late; after a wake that is an interval late it listens for another one.
    assert took_ms < down_ms(second) + 1000 + 3 * standstill.longest_ms
    assert VIP in addresses(pair.d2)


def test_priority_0_on_stop_moves_the_vip_within_the_skew(pair: Pair) -> None:
    one, two = elect(pair)
    # Where it is heard: nothing that holds up the bridge comes between.
    with Ear(pair.d2.namespace) as ear:
        start = len(two.messages)
        one.send(Stop(reason="test"))
        taken_over = two.becomes(Role.MASTER, start=start)
        assert one.process.wait(timeout=60) == 0
        zero, first = (
            eventually(lambda s=source, p=priority: ear.adverts_of(s, p), f"advert {priority} of {source}")[0]
            for source, priority in ((ONE, 0), (TWO, 100))
        )
    # Then only the skew is waited for; how long that took on this machine says nothing.
    assert taken_over.reason == f"{ONE} resigned (priority 0)"
    skew_ms = (256 - 100) * 100 / 256
    assert skew_ms <= (first.at_ns - zero.at_ns) / 1e6
    eventually(lambda: pair.ear.adverts_of(TWO), "its advert at the client")
    assert pair.ear.adverts_of(ONE)[-1].priority == 0
    eventually(lambda: holders(pair) == ["d2"], "the VIP moves")


@pytest.mark.parametrize("how", ["SIGTERM", "supervisor gone"])
def test_losing_the_supervisor_or_sigterm_is_an_orderly_hand_over(pair: Pair, how: str) -> None:
    one, two = elect(pair)
    if how == "SIGTERM":
        one.process.send_signal(signal.SIGTERM)
    else:
        one.hang_up()
    two.becomes(Role.MASTER)
    assert one.process.wait(timeout=60) == 0
    eventually(lambda: pair.ear.adverts_of(ONE)[-1].priority == 0, "priority 0")
    eventually(lambda: holders(pair) == ["d2"], "the VIP moves")


def test_sigint_and_sighup_are_the_supervisors_business(pair: Pair) -> None:
    one = pair.speaker(pair.d1, FAST)
    one.becomes(Role.MASTER)
    one.process.send_signal(signal.SIGINT)
    one.process.send_signal(signal.SIGHUP)
    one.status()  # whoever answers this has taken the signals before it answers again
    assert one.status().instances[0].role is Role.MASTER


def test_a_killed_speaker_loses_its_vip_by_itself(pair: Pair) -> None:
    one = pair.speaker(pair.d1, FAST)
    one.becomes(Role.MASTER)
    since = time.monotonic()

    def has_stayed() -> bool:
        nonlocal since
        if VIP not in addresses(pair.d1):  # nobody renews anything on a machine that stands still
            since = time.monotonic()
        return time.monotonic() - since > 2.5

    eventually(has_stayed, "it stays while it is renewed: longer than its lifetime of two seconds")
    # Before the end of who renews it: afterwards there may be nothing to see any more.
    shown = json.loads(pair.d1.run("ip", "-j", "address", "show", "to", f"{VIP}/32").stdout)
    assert [each["valid_life_time"] <= 2 for link in shown for each in link.get("addr_info", ()) if each] == [True]
    one.kill()
    eventually(lambda: VIP not in addresses(pair.d1), "the kernel takes the VIP off")


def test_a_left_over_vip_is_removed_at_start_whatever_its_prefix(pair: Pair) -> None:
    for host, prefix in ((pair.d1, 32), (pair.d2, 24)):
        host.run("ip", "address", "add", f"{VIP}/{prefix}", "dev", "eth0")
    # Neither may become MASTER before it has been looked at.
    pair.speaker(pair.d2, replace(SECOND, advert_interval_us=40_000_000))
    assert VIP not in addresses(pair.d2)
    one = pair.speaker(pair.d1, replace(FAST, advert_interval_us=40_000_000))
    assert VIP not in addresses(pair.d1)
    assert one.configure(FAST) == ""
    one.becomes(Role.MASTER)
    assert holders(pair) == ["d1"]


def test_gratuitous_arp_at_once_and_again(pair: Pair) -> None:
    instance = replace(FAST, vips=(vip("10.9.0.100"), vip("10.9.0.101", 24)))
    one = pair.speaker(pair.d1, instance)
    elected = one.becomes(Role.MASTER)
    for address in (VIP, IPv4Address("10.9.0.101")):
        frames = eventually(lambda a=address: (f := pair.ear.garps(a)) and len(f) >= 10 and f, "10 announcements")
        assert len(frames) == 10
        assert {each.source_mac for each in frames} == {pair.d1.mac()}
        assert frames[4].at_ns < pair.ear.adverts_of(ONE)[1].at_ns, "five at once, before anything else is sent"
        assert frames[5].at_ns >= earliest_ns(elected.at_us) + 300_000_000


def test_preemption_and_nopreempt(pair: Pair) -> None:
    two = pair.speaker(pair.d2, SECOND)
    two.becomes(Role.MASTER)
    one = pair.speaker(pair.d1, replace(FAST, nopreempt=True))
    eventually(lambda: one.status().instances[0].adverts_received > 5, "adverts")
    assert one.status().instances[0].role is Role.BACKUP
    assert holders(pair) == ["d2"]
    start = len(two.messages)
    assert one.configure(FAST) == ""
    one.becomes(Role.MASTER)
    two.becomes(Role.BACKUP, start=start)
    eventually(lambda: holders(pair) == ["d1"], "the VIP moves")


def test_whoever_has_no_data_plane_yet_preempts_nobody_but_takes_over(pair: Pair) -> None:
    two = pair.speaker(pair.d2, SECOND)
    two.becomes(Role.MASTER)
    one = pair.speaker(pair.d1)
    one.send(ConfigureSpeaker(instances=(FAST,), garp_frames=(), reserve="our data plane is not in force yet"))
    eventually(lambda: one.status().instances[0].adverts_received > 8, "twice the time after which it would preempt")
    mine = one.status().instances[0]
    assert mine.role is Role.BACKUP
    assert mine.reason.endswith("but our data plane is not in force yet")
    two.kill()
    one.becomes(Role.MASTER)


def test_with_the_data_plane_it_preempts(pair: Pair) -> None:
    two = pair.speaker(pair.d2, SECOND)
    two.becomes(Role.MASTER)
    one = pair.speaker(pair.d1)
    one.send(ConfigureSpeaker(instances=(FAST,), garp_frames=(), reserve="our data plane is not in force yet"))
    eventually(lambda: one.status().instances[0].adverts_received > 8, "it respects them")
    assert one.facts(RoleChanged)[-1].after is Role.BACKUP
    start = len(two.messages)
    one.send(DataPlaneReady())
    one.becomes(Role.MASTER)
    two.becomes(Role.BACKUP, start=start)


def test_hand_over_and_resume(pair: Pair) -> None:
    one, two = elect(pair)
    one.send(HandOver(instances=(), reason="test"))
    two.becomes(Role.MASTER)
    # Priority 0 is the first thing that the other one does, and the kernel may take its time for the second.
    eventually(lambda: holders(pair) == ["d2"], "the VIP moves")
    before = one.status().instances[0]
    assert (before.role, before.yielded) == (Role.BACKUP, True)
    start = len(one.messages)
    eventually(lambda: one.status().instances[0].adverts_received > before.adverts_received + 5, "adverts")
    assert one.status().instances[0].role is Role.BACKUP
    one.send(Resume())
    one.becomes(Role.MASTER, start=start)
    eventually(lambda: holders(pair) == ["d1"], "the VIP moves back")


def test_reconfiguring_without_a_change_touches_nothing_and_vips_come_and_go(pair: Pair) -> None:
    one, two = elect(pair)
    extra = replace(FAST, vips=(*FAST.vips, vip("10.9.0.101")))
    assert one.configure(FAST) == ""
    assert one.configure(extra) == ""
    eventually(lambda: IPv4Address("10.9.0.101") in addresses(pair.d1), "the new VIP")
    assert one.configure(FAST) == ""
    eventually(lambda: IPv4Address("10.9.0.101") not in addresses(pair.d1), "the removed VIP is gone")
    assert holders(pair) == ["d1"]
    assert [(each.before, each.after) for each in one.facts(RoleChanged)] == [
        (Role.INIT, Role.BACKUP),
        (Role.BACKUP, Role.MASTER),
    ]
    assert two.status().instances[0].role is Role.BACKUP


@pytest.mark.parametrize("unicast", [False, True], ids=["multicast", "unicast"])
def test_an_instance_that_is_removed_from_its_interface_resigns_there(pair: Pair, unicast: bool) -> None:  # noqa: FBT001
    mine = replace(FAST, peers=(TWO,), source=ONE) if unicast else FAST
    theirs = replace(SECOND, peers=(ONE,)) if unicast else SECOND
    one, two = elect(pair, mine, theirs)
    start = len(two.messages)
    with Ear(pair.d2.namespace) as ear:
        assert one.configure() == ""
        # At once: the lifetime of the address would end it only within two seconds.
        assert holders(pair) != ["d1"]
        resigned = eventually(lambda: ear.adverts_of(ONE, 0), "priority 0")
        taken = eventually(lambda: ear.adverts_of(TWO), "the backup speaks")[0]
        assert resigned[0].at_ns < taken.at_ns
    # Within the skew, not after master_down_interval.
    assert two.becomes(Role.MASTER, start=start).reason == f"{ONE} resigned (priority 0)"
    start = len(one.messages)
    assert one.configure(mine) == ""
    one.becomes(Role.MASTER, start=start)


def test_multicast_to_unicast_while_running(pair: Pair) -> None:
    one, two = elect(pair)
    assert one.configure(replace(FAST, peers=(TWO,))) == ""
    assert two.configure(replace(SECOND, peers=(ONE,))) == ""
    before = two.status().instances[0].adverts_received
    eventually(lambda: two.status().instances[0].adverts_received > before + 5, "unicast adverts are heard")
    assert holders(pair) == ["d1"]
    assert two.facts(RoleChanged)[-1].after is Role.BACKUP


def test_a_frozen_backup_finds_the_adverts_that_were_waiting(pair: Pair) -> None:
    one, two = elect(pair)
    two.process.send_signal(signal.SIGSTOP)
    began = len(pair.ear.adverts_of(ONE))
    # Twice the time after which it would be MASTER.
    eventually(lambda: len(pair.ear.adverts_of(ONE)) > began + 8, "adverts while it is frozen")
    two.process.send_signal(signal.SIGCONT)
    received = two.status().instances[0].adverts_received
    eventually(lambda: two.status().instances[0].adverts_received > received + 4, "it hears again")
    assert pair.ear.adverts_of(TWO) == []
    assert [each.after for each in two.facts(RoleChanged)] == [Role.BACKUP]
    assert one.status().instances[0].role is Role.MASTER


def test_a_frozen_master_loses_the_vip_and_does_not_take_it_back_from_a_better_one(pair: Pair) -> None:
    # A last word that is not answered for half an interval is said again: the kernel, which takes the address off
    # before it, may be busy with others' for longer than half of 100 ms.
    calm = {"advert_interval_us": 500_000}
    one = pair.speaker(pair.d1, replace(SECOND, **calm))
    one.becomes(Role.MASTER)
    two = pair.speaker(pair.d2, replace(FAST, **calm, nopreempt=True))
    eventually(lambda: two.status().instances[0].adverts_received > 2, "adverts")
    one.process.send_signal(signal.SIGSTOP)
    two.becomes(Role.MASTER)
    eventually(lambda: holders(pair) == ["d2"], "the kernel takes the VIP off the frozen one")
    thawed_at, start = time.time_ns(), len(one.messages)
    one.process.send_signal(signal.SIGCONT)
    one.becomes(Role.BACKUP, start=start)
    assert holders(pair) == ["d2"]
    # Outranked it has one last word, so that the better one announces the address again (docs/adr/0007).
    eventually(lambda: pair.ear.adverts_of(ONE, since_ns=thawed_at), "its last word")
    received = one.status().instances[0].adverts_received
    eventually(lambda: one.status().instances[0].adverts_received > received + 2, "three turns of the better one")
    assert len(pair.ear.adverts_of(ONE, since_ns=thawed_at)) == 1
    mac = pair.d1.mac()
    assert [each for each in pair.ear.garps(VIP, thawed_at) if each.source_mac == mac] == []


def _in_no_call(syscall: Path) -> bool:
    return syscall.read_text().startswith("-1 ")


def freeze_at_work(speaker: SpeakerHandle) -> bool:
    """Stop it; whether it was amid its own code, and its renewer was not: else it goes on."""
    for _ in range(100):
        speaker.send(AskStatus(ticket=0))
    pid = speaker.process.pid
    speaker.process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED)
    # proc_pid_syscall(5): -1 = in no system call.
    at_work = [each.parent.name for each in Path(f"/proc/{pid}/task").glob("*/syscall") if _in_no_call(each)]
    if at_work == [str(pid)]:
        return True
    speaker.process.send_signal(signal.SIGCONT)
    return False


def test_what_ran_out_while_it_was_frozen_is_not_put_back_before_what_was_said_meanwhile_is_heard(pair: Pair) -> None:
    # No timer is due while it is frozen: of what waits afterwards the loss of the address is the first.
    calm = replace(SECOND, advert_interval_us=30_000_000, garp=GarpConfig(master_delay_us=0))
    one = pair.speaker(pair.d1, replace(calm, priority=255))  # at once, and not after three intervals
    one.becomes(Role.MASTER)
    assert one.configure(calm) == ""
    eventually(lambda: freeze_at_work(one), "it is frozen amid its work: asyncio, interrupted, calls its timers first")
    eventually(lambda: holders(pair) == [], "the kernel takes the VIP off the frozen one")
    two = pair.speaker(pair.d2, FAST)
    two.becomes(Role.MASTER)
    start = len(one.messages)
    with AddressWatch(pair.d1.namespace) as watch:
        one.process.send_signal(signal.SIGCONT)
        one.becomes(Role.BACKUP, start=start)
        assert VIP not in watch.added()


def test_link_down_is_fault_and_back(pair: Pair) -> None:
    one, two = elect(pair)
    pair.d1.unplug()
    one.becomes(Role.FAULT)
    assert VIP not in addresses(pair.d1)
    two.becomes(Role.MASTER)
    start = len(one.messages)
    pair.d1.plug()
    one.becomes(Role.MASTER, start=start)
    eventually(lambda: holders(pair) == ["d1"], "the VIP moves back")


def test_a_tracked_source_that_is_taken_off_is_fault_and_back(pair: Pair) -> None:
    one = pair.speaker(pair.d1, replace(FAST, source=IPv4Address("10.99.0.7"), track_source=True))
    assert one.status().instances[0].role is Role.FAULT
    for _ in range(2):
        start = len(one.messages)
        pair.d1.run("ip", "address", "add", "10.99.0.7/32", "dev", "lo")
        one.becomes(Role.MASTER, start=start)
        eventually(lambda: VIP in addresses(pair.d1), "the VIP is on")
        start = len(one.messages)
        pair.d1.run("ip", "address", "del", "10.99.0.7/32", "dev", "lo")
        assert "10.99.0.7 is not an address of this host" in one.becomes(Role.FAULT, start=start).reason
        assert VIP not in addresses(pair.d1)


def test_an_interface_that_vanishes_and_comes_back_under_another_index(pair: Pair) -> None:
    instance = replace(FAST, interface="dummy7", vips=(vip("10.9.0.100", interface="dummy7"),))
    one = pair.speaker(pair.d1)
    assert one.configure(instance) == ""
    assert one.status().instances[0].role is Role.FAULT
    for _ in range(2):
        start = len(one.messages)
        pair.d1.run("ip", "link", "add", "dummy7", "type", "veth", "peer", "name", "other7")
        pair.d1.run("ip", "address", "add", "10.9.7.1/24", "dev", "dummy7")
        pair.d1.run("ip", "link", "set", "other7", "up")
        with Ear(pair.d1.namespace, "other7") as ear:
            pair.d1.run("ip", "link", "set", "dummy7", "up")
            one.becomes(Role.MASTER, start=start)
            assert VIP in addresses(pair.d1, "dummy7")
            eventually(lambda: len(ear.adverts()) > 2, "adverts on the new interface")
            eventually(lambda: ear.garps(VIP), "announcements on the new interface")
            start = len(one.messages)
            pair.d1.run("ip", "link", "del", "dummy7")
        one.becomes(Role.FAULT, start=start)


def test_an_interface_that_is_renamed_does_not_keep_the_vip(pair: Pair) -> None:
    one, _ = elect(pair)
    one.host.run("ip", "link", "set", "eth0", "name", "wan0")
    assert one.becomes(Role.FAULT).reason == "eth0 is down"
    assert addresses(pair.d1, "wan0") == {ONE}
    start = len(one.messages)
    one.host.run("ip", "link", "set", "wan0", "name", "eth0")
    one.becomes(Role.MASTER, start=start)
    eventually(lambda: holders(pair) == ["d1"], "the VIP is back")


def test_a_new_mac_is_announced_and_new_frames_are_asked_for(pair: Pair) -> None:
    one = pair.speaker(pair.d1, FAST)
    one.becomes(Role.MASTER)
    eventually(lambda: len(pair.ear.garps(VIP)) == 10, "the announcements of the election")
    pair.d1.run("ip", "link", "set", "eth0", "address", "02:00:00:00:99:01")
    one.wait_for(lambda m: getattr(m, "mac", "") == "02:00:00:00:99:01", "LinkAltered")
    eventually(lambda: pair.ear.garps(VIP)[-1].source_mac == "02:00:00:00:99:01", "announcement from the new MAC")


def test_a_vip_whose_own_interface_vanishes_is_said_once_and_comes_back_with_it(pair: Pair) -> None:
    pair.d1.run("ip", "link", "add", "dummy7", "type", "veth", "peer", "name", "other7")
    one = pair.speaker(pair.d1, replace(FAST, vips=(*FAST.vips, vip("10.9.7.100", interface="dummy7"))))
    one.becomes(Role.MASTER)
    assert addresses(pair.d1, "dummy7") == {IPv4Address("10.9.7.100")}

    def logged(event: str) -> list[Logged]:
        return [each for each in one.messages if isinstance(each, Logged) and each.event == event]

    pair.d1.run("ip", "link", "del", "dummy7")
    eventually(lambda: logged("vip_not_renewed"), "the complaint")
    sent = one.status().instances[0].adverts_sent
    eventually(lambda: one.status().instances[0].adverts_sent > sent + 20, "two seconds as MASTER")
    pair.d1.run("ip", "link", "add", "dummy7", "type", "veth", "peer", "name", "other7")
    eventually(lambda: addresses(pair.d1, "dummy7"), "the VIP is back")
    eventually(lambda: logged("vips_renewed_again"), "the all-clear")
    complaint = (
        "cannot add 10.9.7.100/32: there is no interface dummy7 "
        "(create the interface, or name another one in `interface` or `dev`)"
    )
    assert [each.fields["reason"] for each in logged("vip_not_renewed")] == [complaint]
    assert VIP in addresses(pair.d1)


def test_a_vip_that_somebody_takes_off_is_put_back(pair: Pair) -> None:
    one = pair.speaker(pair.d1, FAST)
    one.becomes(Role.MASTER)
    pair.d1.run("ip", "address", "del", f"{VIP}/32", "dev", "eth0")
    eventually(lambda: VIP in addresses(pair.d1), "the VIP is back")


def notify_script(tmp_path: Path) -> tuple[Path, NotifyScripts]:
    """A script that writes its arguments and its line of proc_pid_stat(5) to a file, without another process."""
    out, script = tmp_path / "out", tmp_path / "notify"
    script.write_text(f'#!/bin/sh\nread -r stat < /proc/$$/stat\necho "$*: $stat" >> {out}\n')
    script.chmod(0o755)
    master = Command(argv=(str(script), "m"), user="root")
    return out, NotifyScripts(master=master, any=Command(argv=(str(script),), user="root"))


def scheduling_class(stat: str) -> str:
    """Field `policy` of a line of proc_pid_stat(5)."""
    return stat.rsplit(")", 1)[1].split()[38]


def test_the_supervisor_is_told_what_to_tell_and_no_script_runs_here(pair: Pair, tmp_path: Path) -> None:
    out, scripts = notify_script(tmp_path)
    one = pair.speaker(pair.d1, replace(FAST, notify=scripts))
    one.becomes(Role.MASTER)
    one.send(Stop())
    assert one.process.wait(timeout=60) == 0
    eventually(lambda: one.eof, "all that it said is read")
    told = [each.due for each in one.messages if isinstance(each, Notify)]
    assert [(each.subject, each.name, each.state, each.priority) for each in told] == [
        ("INSTANCE", "VI_1", "BACKUP", 150),
        ("INSTANCE", "VI_1", "MASTER", 150),
        ("INSTANCE", "VI_1", "STOP", 150),
    ]
    assert not out.exists()


def test_without_a_supervisor_the_last_script_runs_here_in_the_normal_class(pair: Pair, tmp_path: Path) -> None:
    out, scripts = notify_script(tmp_path)
    one = pair.speaker(pair.d1, replace(FAST, notify=scripts))
    one.becomes(Role.MASTER)
    one.hang_up()
    assert one.process.wait(timeout=60) == 0
    (line,) = out.read_text().splitlines()
    arguments, _, stat = line.partition(": ")
    assert (arguments, scheduling_class(stat)) == ("INSTANCE VI_1 STOP 150", "0"), "SCHED_OTHER"


def test_bad_adverts_are_reported_and_change_nothing(pair: Pair) -> None:
    one, two = elect(pair)
    other = replace(SECOND, priority=200, version=2, advert_interval_us=1_000_000, initial_role=Role.MASTER)
    stranger = pair.speaker(pair.lab.host("d3", "10.9.0.3/24"), other)
    stranger.becomes(Role.MASTER)
    one.wait_for(lambda m: isinstance(getattr(m, "fact", None), AdvertRejected), "AdvertRejected")
    assert {each.reason for each in one.facts(AdvertRejected)} == {"vers_err"}
    assert one.status().instances[0].role is Role.MASTER
    assert two.status().instances[0].role is Role.BACKUP


def test_without_capabilities_one_clear_answer(pair: Pair) -> None:
    wrapper = ("setpriv", "--bounding-set=-net_raw,-net_admin,-sys_nice,-ipc_lock", "--inh-caps=-all")
    with SpeakerHandle(pair.d1, wrapper=wrapper) as speaker:
        ready = speaker.wait_for(lambda m: type(m).__name__ == "Ready", "Ready")
        assert "CAP_NET_RAW is missing (run as root" in ready.problem
        assert speaker.process.wait(timeout=60) == 77


def test_the_speaker_is_small(pair: Pair) -> None:
    one = pair.speaker(pair.d1, FAST)
    one.becomes(Role.MASTER)
    rollup = Path(f"/proc/{one.process.pid}/smaps_rollup").read_text()
    pss = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    assert pss < 35_000, f"{pss} kB"
    assert scheduling_class(Path(f"/proc/{one.process.pid}/stat").read_text()) == "2", "SCHED_RR"
