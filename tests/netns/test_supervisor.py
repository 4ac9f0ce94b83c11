from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from datetime import datetime
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from haxlb.cli.client import ask
from haxlb.daemon.control import Answer, Failover, Resume, Step, Swap
from haxlb.model.instance import Role
from haxlb.model.status import AlarmStatus
from tests.netns.site import ONE, VIP, Director, carries_xdp, configuration, has_vip
from tests.netns.standin import LIMIT_S, addresses, eventually, whole_lines

pytestmark = pytest.mark.netns


def test_who_reads_json_lines_meets_nothing_else(site):
    one = site.director("lb1", 150, servers=False, unicast="unicast_peer {\n        10.8.0.2\n    }")
    one.start().becomes(Role.MASTER)
    lines = [json.loads(line) for line in whole_lines(one.log)]
    (found,) = [each for each in lines if each["event"] == "config_complaint"]
    assert (found["code"], found["level"]) == ("unchecked-source", "info")
    assert found["file"] == str(one.config)
    assert found["line"] == one.config.read_text().splitlines().index("vrrp_instance VI_1 {") + 1


def serves(one: Director) -> None:
    """It is MASTER and forwards; a speaker waits five seconds for the data plane, and a busy machine takes longer."""
    one.becomes(Role.MASTER)
    eventually(
        lambda: carries_xdp(one) and (status := one.status()) and status.data_plane.links, "the forwarder is in force"
    )


def test_one_director_from_start_to_stop(site):
    one = site.director("lb1", 150).start()
    serves(one)
    assert has_vip(one)

    shown = one.cli("show", "--json")
    assert shown.returncode == 0
    status = json.loads(shown.stdout)
    assert status["schema"] == "haxlb.status/1"
    assert status["node"] == "lb1"
    assert status["instances"][0]["role"] == "MASTER"
    assert status["data_plane"]["links"][0]["mode"] == "native"
    assert [process["name"] for process in status["processes"]][:2] == ["checker", "speaker"]
    assert one.cli("show", "-Ln").stdout.splitlines()[3] == "TCP  10.8.0.100:80 wrr"
    assert "VI_1 (VRID 51, v3)" in one.cli("show").stdout

    second = one.refused()
    assert second.returncode == 71
    assert len(second.stderr.splitlines()) == 1
    assert f"pid {one.process.pid}" in second.stderr
    assert "--runtime-dir" in second.stderr

    pids = {"supervisor": one.process.pid, **{name: one.pid(name) for name in ("speaker", "checker")}}
    pss_mb = {name: pss_kb(pid) / 1024 for name, pid in pids.items()}
    assert pss_mb["supervisor"] < 45, pss_mb
    assert sum(pss_mb.values()) < 150, pss_mb
    for pid in pids.values():
        assert "LLVM" not in Path(f"/proc/{pid}/maps").read_text()

    before_ns = time.time_ns()
    assert one.stop() == 0
    assert not has_vip(one)
    eventually(lambda: site.ear.adverts_of(ONE, 0, since_ns=before_ns), "priority 0")
    assert len(site.ear.adverts_of(ONE, 0, since_ns=before_ns)) == 1
    assert carries_xdp(one), "what is still on its way here must be forwarded"
    assert one.cli("show").returncode == 69
    assert not (one.runtime_dir / "control.sock").exists()


def test_a_killed_speaker_leaves_no_address_and_comes_back(site):
    one = site.director("lb1", 150, settings="processes:\n  spare_speaker: false\n").start()
    one.becomes(Role.MASTER)
    pid = one.pid("speaker")
    before_ns = time.time_ns()
    os.kill(pid, signal.SIGKILL)
    killed_ns = time.time_ns()
    zero = eventually(lambda: site.ear.adverts_of(ONE, 0, since_ns=before_ns), "priority 0 in its stead")[0]
    # One advert may have been under way.
    assert len([each for each in site.ear.adverts_of(ONE, since_ns=killed_ns) if each.at_ns < zero.at_ns]) <= 1
    eventually(lambda: "process_died" in one.events(), "the death is in the log")
    eventually(lambda: one.pid("speaker") not in (0, pid) and one.role() is Role.MASTER, "another one is MASTER")
    status = one.status()
    assert [each.restarts for each in status.processes if each.name == "speaker"] == [1]
    assert any("was killed by signal 9" in line and "MASTER -> INIT" in line for line in status.history)


def test_swap_and_a_killed_checker_do_not_touch_the_data_plane(site):
    one = site.director("lb1", 150).start()
    serves(one)
    assert ask(one.runtime_dir, Swap()).ok
    # A checker that does not answer at once is shown as it was.
    eventually(lambda: (status := one.status()) and status.data_plane.swaps == 1, "it is counted")
    assert carries_xdp(one)
    pid = one.pid("checker")
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: one.pid("checker") not in (0, pid), "it is started again")
    assert carries_xdp(one)
    assert one.role() is Role.MASTER


def test_reload_takes_what_changed_and_refuses_what_is_bad(site):
    def announced_once(text: str) -> str:
        """Without the second set of announcements, five seconds after the first: what is heard is the reload's."""
        return text.replace("advert_int 0.1", "advert_int 0.1\n    garp_master_delay 0")

    one = site.director("lb1", 150)
    text = announced_once(one.config.read_text())
    one.config.write_text(text)
    serves(one.start())

    one.config.write_text(text.replace("interface eth0", "interface eth7"))
    refused = one.cli("reload")
    assert refused.returncode == 4
    assert "eth7" in refused.stderr
    assert "^^^^" in refused.stderr
    assert one.status().config_problem
    as_object = json.loads(one.cli("reload", "--json").stdout)
    assert (as_object["ok"], as_object["diagnostics"][0]["code"]) == (False, "no-such-interface")
    assert one.role() is Role.MASTER

    one.config.write_text(text)
    before_ns = time.time_ns()
    done = one.cli("reload")
    assert (done.returncode, done.stdout) == (0, "reloaded: nothing has changed\n")
    assert one.status().config_problem == ""
    assert site.ear.garps(VIP, before_ns) == []

    more = configuration("lb1", 150, vips=("10.8.0.100/24", "10.8.0.101/24"))
    one.config.write_text(announced_once(more))
    assert one.cli("reload").returncode == 0
    assert has_vip(one, IPv4Address("10.8.0.101"))
    assert has_vip(one)

    one.config.write_text(text)
    one.process.send_signal(signal.SIGHUP)
    eventually(lambda: not has_vip(one, IPv4Address("10.8.0.101")), "SIGHUP reloads")
    assert one.role() is Role.MASTER


def test_the_first_virtual_server_comes_by_reload(site):
    one = site.director("lb1", 150, servers=False).start()
    one.becomes(Role.MASTER)
    assert not carries_xdp(one)
    one.config.write_text(configuration("lb1", 150))
    assert one.cli("reload").returncode == 0
    eventually(lambda: carries_xdp(one), "the forwarder is attached")
    one.config.write_text(configuration("lb1", 150, servers=False))
    assert one.cli("reload").returncode == 0
    eventually(lambda: not carries_xdp(one), "and detached when the last virtual server goes")


def test_without_standard_streams_it_runs(site):
    one = site.director("lb1", 150, servers=False).start("sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh")
    one.becomes(Role.MASTER)
    for pid in (one.process.pid, one.pid("speaker")):
        assert [str(Path(f"/proc/{pid}/fd/{number}").readlink()) for number in range(3)] == ["/dev/null"] * 3
    assert one.stop() == 0


def test_a_second_one_with_a_directory_of_its_own_is_refused_too(site):
    one = site.director("lb1", 150, servers=False).start()
    one.becomes(Role.MASTER)
    argv = one.argv()
    argv[argv.index("--runtime-dir") + 1] = str(one.runtime_dir.with_name("other"))
    refused = one.host.run(*argv, check=False)
    assert refused.returncode == 71
    assert refused.stderr.startswith("haxlb: another haxlb runs VRID 51 on eth0 of this host")
    assert refused.stderr.count("\n") == 1
    assert has_vip(one)


def test_a_working_directory_that_is_gone_is_not_missed(site, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    one = site.director("lb1", 150).start("sh", "-c", f'cd {gone} && rmdir {gone} && exec "$@"', "sh")
    serves(one)
    assert one.cli("swap").returncode == 0


def test_signals_that_ask_keepalived_for_dumps_end_nobody(site):
    one = site.director("lb1", 150).start()
    serves(one)
    pids = {name: one.pid(name) for name in ("speaker", "checker")}
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        os.killpg(one.process.pid, number)
    eventually(lambda: one.events().count("signal_ignored") == 2, "both are in the log")
    assert {name: one.pid(name) for name in pids} == pids
    assert one.role() is Role.MASTER


def test_scripts_that_hang_delay_the_end_and_no_hand_over(site, tmp_path):
    script = tmp_path / "hang"
    script.write_text("#!/bin/sh\ntrap '' TERM\nsleep 600\n")
    script.chmod(0o755)
    one = site.director("lb1", 150, servers=False)
    text = one.config.read_text()
    one.config.write_text(text.replace("advert_int 0.1", f"advert_int 0.1\n    notify_master {script}"))
    one.start()
    one.becomes(Role.MASTER)
    before_ns = time.time_ns()
    one.process.send_signal(signal.SIGTERM)
    farewell = eventually(lambda: site.ear.adverts_of(ONE, 0, since_ns=before_ns), "priority 0")
    assert one.process.wait(timeout=LIMIT_S) == 0
    given_up = next(each for each in map(json.loads, whole_lines(one.log)) if each["event"] == "notify_ended")
    assert farewell[0].at_ns / 1e9 < datetime.fromisoformat(given_up["timestamp"]).timestamp()
    eventually(lambda: one.host.pids() == [], "nothing of it is left")
    assert "process_killed" not in one.events()


def test_services_that_are_no_longer_configured_at_the_next_start_are_not_forwarded(site):
    one = site.director("lb1", 150).start()
    serves(one)
    assert one.stop() == 0
    assert carries_xdp(one)
    one.config.write_text(configuration("lb1", 150, servers=False))
    one.start()
    one.becomes(Role.MASTER)
    assert not carries_xdp(one)
    assert not (one.runtime_dir / "bpf").exists()


def fail_over(director: Director, *, force: bool = False) -> tuple[Answer, list[Step]]:
    steps: list[Step] = []
    return ask(director.runtime_dir, Failover(force=force), steps.append), steps


@pytest.mark.parametrize("unicast", [False, True], ids=["multicast", "unicast"])
def test_a_planned_hand_over_and_back(site, unicast):
    peers = ("unicast_peer {\n 10.8.0.2\n}", "unicast_peer {\n 10.8.0.1\n}") if unicast else ("", "")
    one = site.director("lb1", 150, unicast=peers[0]).start()
    one.becomes(Role.MASTER)
    # Started after the MASTER: it has never said a word when it is asked to take over.
    two = site.director("lb2", 100, unicast=peers[1]).start()
    eventually(lambda: (status := two.status()) and status.instances and status.instances[0].peers, "it hears lb1")
    done = one.cli("failover")
    assert done.returncode == 0, done.stderr
    assert [line.split()[2] for line in done.stdout.splitlines()[:4]] == ["check:", "peer:", "hand_over:", "take_over:"]
    assert ("answers ARP" if unicast else "listens to VRRP") in done.stdout
    two.becomes(Role.MASTER)
    assert (has_vip(one), has_vip(two)) == (False, True)
    # Its priority is higher, and it stays BACKUP: five master_down_intervals are enough to see it.
    received = one.status().instances[0].adverts_received
    eventually(lambda: one.status().instances[0].adverts_received >= received + 20, "adverts of lb2")
    (instance,) = one.status().instances
    assert (instance.role, instance.yielded) == (Role.BACKUP, True)
    assert ask(one.runtime_dir, Resume()).ok
    one.becomes(Role.MASTER)
    two.becomes(Role.BACKUP)


@pytest.mark.skipif(shutil.which("keepalived") is None, reason="needs keepalived (apt)")
def test_a_silent_keepalived_is_a_peer_to_hand_over_to(site, tmp_path):
    one = site.director("lb1", 150).start()
    one.becomes(Role.MASTER)
    host = site.lab.host("ka", "10.8.0.2/24")
    config = tmp_path / "keepalived.conf"
    config.write_text(configuration("ka", 100, servers=False))
    pids = ("-p", str(tmp_path / "pid"), "-r", str(tmp_path / "vrrp.pid"))
    log = tmp_path / "keepalived.log"
    with log.open("wb") as out:
        host.start("keepalived", "-n", "-l", "-P", "-f", str(config), *pids, stdout=out, stderr=subprocess.STDOUT)

    def listens() -> bool:
        joined = "224.0.0.18" in host.run("ip", "maddress", "show", "dev", "eth0").stdout
        return joined and any("Entering BACKUP STATE" in line for line in whole_lines(log))

    eventually(listens, "it listens")
    done = one.cli("failover")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10.8.0.2 listens to VRRP (224.0.0.18) on eth0" in done.stdout
    eventually(lambda: VIP in addresses(host), "it has the address")
    assert not has_vip(one)
    assert one.cli("resume").returncode == 0
    one.becomes(Role.MASTER)


def test_alone_a_hand_over_is_refused_and_by_force_taken_back(site):
    one = site.director("lb1", 150).start()
    one.becomes(Role.MASTER)
    before_ns = time.time_ns()
    refused = one.cli("failover")
    assert refused.returncode == 1
    assert "--force" in refused.stderr
    assert site.ear.adverts_of(ONE, 0, since_ns=before_ns) == []
    answer, steps = fail_over(one, force=True)
    assert (answer.ok, answer.exit_code) == (False, 1)
    assert [step.step for step in steps] == ["check", "peer", "hand_over", "take_over", "take_back"]
    assert one.role() is Role.MASTER
    assert has_vip(one)


def test_an_answering_host_without_vrrp_does_not_get_the_address(site):
    """ARP is weak evidence: what comes of it is seen, and undone."""
    one = site.director("lb1", 150, unicast="unicast_peer {\n 10.8.0.10\n}").start()
    one.becomes(Role.MASTER)
    answer, steps = fail_over(one)
    assert not answer.ok
    assert steps[1].ok
    assert steps[-1].step == "take_back"
    assert one.role() is Role.MASTER


def test_without_capabilities_it_is_refused_in_one_line(site):
    one = site.director("lb1", 150)
    refused = one.refused("setpriv", "--bounding-set", "-net_admin,-net_raw", "--inh-caps", "-net_admin,-net_raw")
    assert refused.returncode == 77
    assert refused.stderr.startswith("haxlb: haxlb run lacks CAP_NET_ADMIN and CAP_NET_RAW (")
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize("files", [5, 8, 9, 12, 16])
def test_with_too_few_open_files_it_is_refused_in_one_line(site, files):
    refused = site.director("lb1", 150).refused("prlimit", f"--nofile={files}", "--")
    assert refused.returncode == 71
    (line,) = (line for line in refused.stderr.splitlines() if not line.startswith("{"))
    assert line.startswith("haxlb: ")
    assert line.endswith(": Too many open files (see the limits of open files, processes and memory)")


def test_without_bcc_it_is_refused_and_runs_nothing(site, tmp_path):
    one = site.director("lb1", 150)
    empty = tmp_path / "empty"
    empty.mkdir()
    script = 'mount --bind "$1" /usr/lib/python3/dist-packages/bcc && shift && exec "$@"'
    refused = one.refused("unshare", "--mount", "sh", "-c", script, "sh", str(empty))
    assert refused.returncode == 71
    last = refused.stderr.splitlines()[-1]
    assert last.startswith("haxlb: ")
    assert "python3-bpfcc" in last
    assert "Traceback" not in refused.stderr
    assert not has_vip(one)


def test_a_killed_supervisor_takes_the_speaker_along_and_can_be_started_again(site):
    one = site.director("lb1", 150).start()
    serves(one)
    before_ns = time.time_ns()
    one.process.kill()
    eventually(lambda: not has_vip(one), "the speaker hands over")
    eventually(lambda: site.ear.adverts_of(ONE, 0, since_ns=before_ns), "priority 0")
    eventually(lambda: not one.host.pids(), "no process is left")
    assert carries_xdp(one)
    one.process.wait(timeout=LIMIT_S)
    one.start()
    one.becomes(Role.MASTER)


def test_a_host_that_answers_for_our_address_raises_an_alarm(site):
    one = site.director("lb1", 150).start()
    one.becomes(Role.MASTER)
    site.client.run("ip", "address", "add", f"{VIP}/32", "dev", "eth0")

    def conflicts() -> list[AlarmStatus]:
        status = one.status()
        return [each for each in status.alarms if each.key.startswith("vip-conflict/")] if status else []

    (alarm,) = eventually(conflicts, "the alarm")
    assert alarm.key == f"vip-conflict/{VIP}"
    assert site.client.mac() in alarm.summary
    assert "ALARM vip-conflict" in one.cli("show").stdout
    assert one.role() is Role.MASTER


@pytest.mark.skipif(shutil.which("mosquitto") is None, reason="needs mosquitto (apt)")
def test_mqtt_says_master_and_the_last_will_says_offline(site, tmp_path):
    broker = tmp_path / "mosquitto.conf"
    broker.write_text("listener 1883 0.0.0.0\nallow_anonymous true\npersistence false\nlog_dest none\n")
    site.client.start("mosquitto", "-c", str(broker))
    settings = "mqtt:\n  host: 10.8.0.10\n  site: test\n  keepalive_s: 1\n"
    one = site.director("lb1", 150, settings=settings).start()
    one.becomes(Role.MASTER)
    eventually(lambda: (status := one.status()) and status.mqtt == "connected", "connected")

    def held(topic: str) -> str:
        listen = ("mosquitto_sub", "-h", "127.0.0.1", "-t", topic, "-C", "1", "-W", "1")
        return site.client.run(*listen, check=False).stdout.strip()

    eventually(lambda: held("haxlb/test/lb1/vrrp/VI_1/state") == "MASTER", "the role")
    # Each is asked for until it comes: who holds it, or asks, may be kept waiting for longer than mosquitto_sub waits.
    eventually(lambda: held("haxlb/test/lb1/availability") == "online", "it is there")
    claim = json.loads(eventually(lambda: held("haxlb/test/vrrp/51/claims/lb1/VI_1"), "the claim"))
    assert claim["master"] is True

    def expires_at() -> float:
        return float(json.loads(held("haxlb/test/lb1/state") or "{}").get("expires_at", 0))

    eventually(lambda: expires_at() > time.time(), "a snapshot that holds")
    one.process.kill()
    eventually(lambda: held("haxlb/test/lb1/availability") == "offline", "the last will")


def pss_kb(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in rollup if line.startswith("Pss:"))
