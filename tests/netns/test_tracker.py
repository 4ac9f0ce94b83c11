"""Whole directors that track: scripts, files and processes move the VIP, or make FAULT."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from haxlb.model.instance import Role
from haxlb.model.status import AlarmStatus, TrackedStatus
from tests.netns.site import VIP, Director, Site, has_vip
from tests.netns.standin import eventually

pytestmark = pytest.mark.netns


def configuration(name: str, priority: int, definitions: str, tracks: str) -> str:
    """Version 3 with ten adverts a second."""
    return f"""
global_defs {{
    router_id {name}
    script_user root
}}
{definitions}
vrrp_instance VI_1 {{
    version 3
    interface eth0
    virtual_router_id 51
    priority {priority}
    advert_int 0.1
    virtual_ipaddress {{
        {VIP}/24
    }}
{tracks}
}}
"""


class Pair(Site):
    """Directors, of which the first one tracks something."""

    def tracker(self, priority: int, definitions: str = "", tracks: str = "") -> Director:
        """One more, started."""
        name = f"lb{len(self.directors) + 1}"
        return self.add(name, configuration(name, priority, definitions, tracks)).start()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    with Pair(tmp_path) as made:
        yield made


@pytest.fixture
def trouble(tmp_path: Path) -> Path:
    """While this file is there, the script fails."""
    return tmp_path / "trouble"


def script(trouble: Path, more: str = "") -> str:
    """How soon it has run is the machine's doing: without a timeout it may take no longer than the interval."""
    return f"""
vrrp_script chk {{
    script "/usr/bin/test ! -e {trouble} -a -f keepalived.conf"
    interval 0.1
    timeout 60
    fall 2
    rise 2
    {more}
}}
"""


TRACKED = "    track_script {\n        chk\n    }\n"


def tracked(director: Director, name: str = "chk") -> TrackedStatus | None:
    status = director.status()
    return next((each for each in status.tracked if each.name == name), None) if status else None


def only(director: Director, other: Director) -> None:
    eventually(lambda: has_vip(director) and not has_vip(other), f"only {director.host.name} has the VIP")


def test_a_weighted_script_moves_the_vip_and_brings_it_back(pair: Pair, trouble: Path) -> None:
    one, two = pair.tracker(150, script(trouble, "weight -60"), TRACKED), pair.tracker(100)
    one.becomes(Role.MASTER)
    only(one, two)
    trouble.touch()
    one.becomes(Role.BACKUP)
    two.becomes(Role.MASTER)
    only(two, one)
    status = one.status()
    assert status is not None
    (instance,) = status.instances
    assert (instance.priority, instance.base_priority) == (90, 150)
    assert [(each.name, each.change, each.fault) for each in instance.contributions] == [("chk", -60, False)]
    # A tracker that does not answer at once is shown as it was.
    found = eventually(lambda: (each := tracked(one)) and each.detail == "exit code 1" and each, "why")
    assert (found.kind, found.value) == ("track_script", 0)
    trouble.unlink()
    one.becomes(Role.MASTER)
    only(one, two)


def test_a_script_without_weight_makes_fault_at_once(pair: Pair, trouble: Path) -> None:
    one, two = pair.tracker(150, script(trouble), TRACKED), pair.tracker(100)
    one.becomes(Role.MASTER)
    only(one, two)
    failed_ns = time.time_ns()
    trouble.touch()
    one.becomes(Role.FAULT)
    two.becomes(Role.MASTER)
    only(two, one)
    eventually(
        lambda: pair.ear.adverts_of(IPv4Address("10.8.0.1"), 0, since_ns=failed_ns), "priority 0 has hurried the peer"
    )
    trouble.unlink()
    one.becomes(Role.MASTER)
    only(one, two)


def writer(fifo: Path) -> int | None:
    """Our end of the FIFO; None while nobody reads it."""
    try:
        return os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


def test_no_role_before_the_first_run_has_ended(pair: Pair, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    slow = f'vrrp_script chk {{\n    script "/bin/cat {gate}"\n    interval 60\n}}\n'
    one = pair.tracker(150, slow, TRACKED)
    end = eventually(lambda: writer(gate), "the script runs")
    try:
        # The other one starts later and has the longer master_down_interval.
        two = pair.tracker(100)
        two.becomes(Role.MASTER)
        assert one.role() not in (Role.MASTER, Role.BACKUP)
        assert not has_vip(one)
    finally:
        os.close(end)
    one.becomes(Role.MASTER)
    only(one, two)


def test_a_stop_and_the_death_of_everything_end_a_script_that_runs(pair: Pair, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    slow = f'vrrp_script chk {{\n    script "/bin/cat {gate}"\n    interval 60\n}}\n'
    one = pair.tracker(150, slow, TRACKED)
    ends = [eventually(lambda: writer(gate), "the script runs")]
    assert one.stop() == 0
    eventually(lambda: is_broken(ends[0]), "it is ended")
    one.start()
    ends.append(eventually(lambda: writer(gate), "the script runs again"))
    one.stop(signal.SIGKILL)
    eventually(lambda: is_broken(ends[1]), "the kernel has ended it, by way of the tracker")
    for each in ends:
        os.close(each)


def is_broken(end: int) -> bool:
    """Nobody reads at the other end of this pipe any more."""
    poll = select.poll()
    poll.register(end, select.POLLOUT)
    return bool(poll.poll(0)[0][1] & select.POLLERR)


def test_a_killed_tracker_changes_nothing_and_comes_back(pair: Pair, trouble: Path) -> None:
    trouble.touch()
    one = pair.tracker(150, script(trouble), TRACKED)
    one.becomes(Role.FAULT)
    former = one.pid("tracker")
    os.kill(former, signal.SIGKILL)
    eventually(lambda: one.pid("tracker") not in (0, former), "a new tracker")
    eventually(lambda: (found := tracked(one)) and found.detail == "exit code 1", "it has run the script")
    assert one.role() is Role.FAULT
    status = one.status()
    assert status is not None
    assert len([line for line in status.history if "VI_1" in line and "FAULT" in line]) == 1, status.history
    trouble.unlink()
    one.becomes(Role.MASTER)


def test_a_killed_speaker_learns_at_once_that_the_script_fails(pair: Pair, trouble: Path) -> None:
    trouble.touch()
    one = pair.tracker(150, script(trouble), TRACKED)
    one.becomes(Role.FAULT)
    former = one.pid("speaker")
    os.kill(former, signal.SIGKILL)
    eventually(lambda: "process_died" in one.events(), "it is dead")
    eventually(lambda: one.pid("speaker") not in (0, former) and one.role() is Role.FAULT, "another one is in FAULT")
    assert not pair.ear.adverts_of(IPv4Address("10.8.0.1"), 150), "it never was MASTER"


def test_a_script_that_comes_with_a_reload_costs_no_role(pair: Pair, trouble: Path) -> None:
    one = pair.tracker(150)
    one.becomes(Role.MASTER)
    began_ns = time.time_ns()
    one.config.write_text(configuration("lb1", 150, script(trouble), TRACKED))
    reloaded = one.cli("reload")
    assert reloaded.returncode == 0, reloaded.stdout + reloaded.stderr
    eventually(lambda: (found := tracked(one)) and found.value == 1, "it has run")
    assert one.role() is Role.MASTER
    assert not pair.ear.adverts_of(IPv4Address("10.8.0.1"), 0, since_ns=began_ns)
    trouble.touch()
    one.becomes(Role.FAULT)
    # Another command under the same name counts as well until it has run, and it is.
    one.config.write_text(configuration("lb1", 150, script(trouble / "another"), TRACKED))
    assert one.cli("reload").returncode == 0
    one.becomes(Role.MASTER)


def test_a_script_that_is_not_there_is_an_alarm_and_no_fault(pair: Pair, tmp_path: Path) -> None:
    path = tmp_path / "absent"
    definition = f'vrrp_script chk {{\n    script "{path}"\n    interval 0.1\n    timeout 60\n}}\n'
    one = pair.tracker(150, definition, TRACKED)
    one.becomes(Role.MASTER)

    def alarms() -> list[AlarmStatus]:
        status = one.status()
        assert status is not None
        return [each for each in status.alarms if each.key == "track-script/chk"]

    (alarm,) = eventually(alarms, "the alarm")
    assert alarm.evidence == (f"{path}: No such file or directory",)
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    other.rename(path)
    one.becomes(Role.FAULT)
    eventually(lambda: not alarms(), "the all-clear")


def test_files_and_processes(pair: Pair, tmp_path: Path) -> None:
    number, name = tmp_path / "number", f"hxtk{os.getpid()}"
    program = tmp_path / name
    program.symlink_to("/bin/sleep")
    definitions = f"""
track_file num {{
    file {number}
    weight 1
    init_file 5
}}
vrrp_track_process proc {{
    process {name}
    weight 20
}}
"""
    one = pair.tracker(
        100, definitions, "    track_file {\n        num\n    }\n    track_process {\n        proc\n    }\n"
    )
    one.becomes(Role.MASTER)

    def priority(wanted: int) -> bool:
        status = one.status()
        return status is not None and status.instances[0].priority == wanted

    eventually(lambda: priority(105), "init_file")
    assert number.read_text() == "5\n"
    number.write_text("-30")
    eventually(lambda: priority(70), "the number counts")
    with subprocess.Popen([program, "60"]) as process:
        eventually(lambda: priority(90), "the process counts")
        process.kill()
    eventually(lambda: priority(70), "and its end")
    number.write_text("-254")
    one.becomes(Role.FAULT)
    number.unlink()
    one.becomes(Role.MASTER)
    eventually(lambda: priority(100), "nothing counts any more")
