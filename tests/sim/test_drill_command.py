"""`haxlb failover --simulate`: what scripts rely on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from haxlb.cli.failover import SCENARIO_NAMES, failover
from haxlb.model.errors import ConfigError
from haxlb.sim import SCENARIOS
from haxlb.sim.storm import ON_DEMAND

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs/tutorial/keepalived.conf"
BACKUP = ROOT / "docs/tutorial/keepalived-backup.conf"


def run(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(failover, ["--simulate", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_the_names_on_the_command_line_are_those_of_the_scenarios() -> None:
    assert tuple(each.name for each in (*SCENARIOS, *ON_DEMAND)) == SCENARIO_NAMES


def test_json_has_the_documented_shape() -> None:
    result = run("-f", TUTORIAL, "--runs", "11", "--json")
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert answer["schema"] == "haxlb.drill/1"
    assert [each["seed"] for each in answer["runs"]] == list(range(1, 12))
    assert [each["scenario"] for each in answer["runs"]] == [each.name for each in SCENARIOS]
    for each in answer["runs"]:
        assert each["laws_broken"] == []
        assert [outage["vip"] for outage in each["outages"]] == ["192.168.10.100"]
        assert each["outages"][0]["theory_ms"] == 3609.375
        assert 0 <= each["outages"][0]["ms"] <= 3611
        assert isinstance(each["split_brain_ms"], float)
        assert each["alarm_ms"] is None or each["alarm_ms"] > 0


def test_one_run_is_told_as_a_timeline() -> None:
    result = run("-f", TUTORIAL, "--scenario", "crash", "--seed", "5")
    assert result.exit_code == 0
    assert "+0.000 s  lb1       power off" in result.stdout
    assert "BACKUP -> MASTER: no advert for 3.609 s" in result.stdout
    assert "laws hold" in result.stdout


def test_many_runs_are_told_as_sums() -> None:
    result = run("-f", TUTORIAL, "--runs", "22")
    assert result.exit_code == 0
    for name in (each.name for each in SCENARIOS):
        assert any(line.startswith(name) and line.endswith("hold") for line in result.stdout.splitlines())
    assert "laws hold in 22 runs" in result.stdout


def test_a_seed_of_many_can_be_told_alone() -> None:
    many = json.loads(run("-f", TUTORIAL, "--runs", "9", "--json").stdout)["runs"]
    alone = json.loads(run("-f", TUTORIAL, "--seed", "9", "--json").stdout)["runs"]
    assert alone == many[-1:]


def test_the_peers_real_file_is_used() -> None:
    result = run("-f", TUTORIAL, "--peer", BACKUP)
    assert result.exit_code == 0
    assert "lb2 (as configured)" in result.stdout


def test_a_pair_that_does_not_fit_breaks_a_law_and_exits_1(tmp_path: Path) -> None:
    other = tmp_path / "other.conf"
    other.write_text(BACKUP.read_text().replace("advert_int 1", "advert_int 2"))
    result = run("-f", TUTORIAL, "--peer", other)
    assert result.exit_code == 1
    assert "LAW BROKEN  L1" in result.stdout
    assert "rejects an advert" in result.stdout
    summary = run("-f", TUTORIAL, "--peer", other, "--runs", "3")
    assert summary.exit_code == 1
    assert "LAW BROKEN  seed 1 (crash): L1" in summary.stdout
    answer = json.loads(run("-f", TUTORIAL, "--peer", other, "--json").stdout)
    assert answer["runs"][0]["laws_broken"]


def test_a_broker_makes_a_cut_visible() -> None:
    def alarm(*arguments: str) -> float | None:
        value: float | None = json.loads(
            run("-f", TUTORIAL, "--scenario", "link-cut", "--seed", "9", "--json", *arguments).stdout
        )["runs"][0]["alarm_ms"]
        return value

    assert alarm() is None
    assert (alarm("--broker") or 0) > 4_000


def test_the_settings_say_whether_there_is_a_broker(tmp_path: Path) -> None:
    settings = tmp_path / "haxlb.yml"
    settings.write_text("mqtt:\n  host: broker.example\n")
    chosen = ("-f", TUTORIAL, "--scenario", "link-cut", "--seed", "9", "--settings", settings)
    assert "ALARM" in run(*chosen).stdout
    assert "ALARM" not in run(*chosen, "--no-broker").stdout


def test_a_file_that_cannot_be_used_is_refused_with_its_complaints(tmp_path: Path) -> None:
    bad = tmp_path / "bad.conf"
    bad.write_text("vrrp_instance X {\n")
    runner = CliRunner()
    result = runner.invoke(failover, ["--simulate", "-f", str(bad)])
    assert isinstance(result.exception, ConfigError)
    assert f"{bad}:1:1" in result.stderr
    assert result.stdout == ""


def test_a_file_without_vrrp_has_nothing_to_rehearse(tmp_path: Path) -> None:
    empty = tmp_path / "empty.conf"
    empty.write_text("")
    result = CliRunner().invoke(failover, ["--simulate", "-f", str(empty)])
    assert isinstance(result.exception, ConfigError)
    assert f"{empty} has no vrrp_instance" in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--simulate", "--force"], "--force goes without --simulate"),
        (["--simulate", "--runtime-dir", "/x"], "--runtime-dir goes without --simulate"),
        (["--simulate", "VI_1"], "name none"),
        (["--seed", "3"], "--seed needs --simulate"),
        (["--peer", "x"], "--peer needs --simulate"),
        (["--simulate", "--scenario", "flood"], "is not one of"),
        (["--simulate", "--runs", "0"], "--runs"),
        (["--track", "chk"], "--track needs --simulate"),
        (["--simulate", "--track", "chk", "--scenario", "crash"], "--track is for the scenario track-fails"),
    ],
)
def test_wrong_usage_is_said(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(failover, arguments)
    assert result.exit_code == 2
    assert said in result.stderr


EVERYTHING = """
vrrp_script chk_web {
    script "/usr/bin/true"
    interval 1
    fall 2
}
vrrp_script chk_db {
    script "/usr/bin/true"
    interval 1
    weight -60
}
vrrp_sync_group G {
    group {
        V4
        V6
    }
}
vrrp_instance V4 {
    interface eth0
    virtual_router_id 10
    state MASTER
    priority 150
    version 3
    advert_int 0.1
    use_vmac
    virtual_ipaddress {
        192.0.2.1/24
    }
    virtual_ipaddress_excluded {
        2001:db8:1::1/64
    }
    virtual_routes {
        198.51.100.0/24 via 192.0.2.254
    }
    track_script {
        chk_web
    }
    track_interface {
        eth7
    }
}
vrrp_instance V6 {
    interface eth1
    virtual_router_id 10
    state MASTER
    priority 150
    version 3
    advert_int 0.1
    virtual_ipaddress {
        fe80::100/64
        2001:db8::1/64
    }
    track_script {
        chk_db
    }
}
"""


@pytest.fixture
def everything(tmp_path: Path) -> Path:
    """IPv6, a sync group, tracking, a macvlan, routes: whatever haxlb runs can be rehearsed."""
    path = tmp_path / "keepalived.conf"
    path.write_text(EVERYTHING)
    return path


def test_all_that_haxlb_runs_is_rehearsed(everything: Path) -> None:
    result = run("-f", everything, "--runs", "11", "--json", "--broker")
    assert result.exit_code == 0, result.stdout
    first = json.loads(result.stdout)["runs"][0]
    vips = {each["vip"] for each in first["outages"]}
    assert vips == {"192.0.2.1", "2001:db8:1::1", "fe80::100", "2001:db8::1"}
    assert all(0 < each["ms"] < 400 for each in first["outages"]), "a crash at 0.1 s"


def test_a_failing_track_script_is_a_fault_that_can_be_asked_for(everything: Path) -> None:
    told = run("-f", everything, "--scenario", "track-fails").stdout
    assert "track_script chk_web is failing" in told
    assert "MASTER -> FAULT: script chk_web fails" in told
    assert "FAULT -> BACKUP" in told
    assert "V6: MASTER -> FAULT" in told, "the sync group follows"
    assert "laws hold" in told
    assert run("-f", everything, "--track", "chk_web").stdout == told


def test_the_timeline_shows_what_tracking_makes_of_the_priority(tmp_path: Path) -> None:
    path = tmp_path / "weighted.conf"
    path.write_text(WEIGHTED)
    told = run("-f", path, "--scenario", "track-fails").stdout
    failed, recovered = "VI_1: priority 150 -> 90: chk_web -60", "VI_1: priority 90 -> 150: as configured"
    assert failed in told
    assert recovered in told
    places = [told.index(each) for each in ("chk_web is failing", failed, "MASTER -> BACKUP", recovered)]
    assert places == sorted(places)
    assert told.count("VI_1: priority ") == 2  # nothing of the start, nothing of the peer's


WEIGHTED = """
vrrp_script chk_web {
    script "/usr/bin/true"
    interval 1
    weight -60
}
vrrp_instance VI_1 {
    state MASTER
    interface eth0
    virtual_router_id 51
    priority 150
    track_script {
        chk_web
    }
    virtual_ipaddress {
        192.0.2.1/24
    }
}
"""


def test_a_track_script_that_nobody_tracks_is_refused(everything: Path) -> None:
    for arguments, said in (
        (("-f", str(everything), "--track", "chk_mail"), "tracks nothing that is called chk_mail"),
        (("-f", str(TUTORIAL), "--scenario", "track-fails"), "nothing is tracked"),
    ):
        result = CliRunner().invoke(failover, ["--simulate", *arguments])
        assert isinstance(result.exception, ConfigError)
        assert said in str(result.exception)


def test_a_storm_of_ones_own_configuration(everything: Path) -> None:
    result = run("-f", everything, "--scenario", "storm", "--runs", "5", "--nodes", "3")
    assert result.exit_code == 0, result.stdout
    assert "storm" in result.stdout


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_the_same_seed_prints_the_same_bytes_in_every_process(form: list[str]) -> None:
    """With another hash seed each: no order of a set or of hashes may reach the output."""
    command = [sys.executable, "-c", "from haxlb.cli.main import main; main()"]
    printed = {
        subprocess.run(
            [
                *command,
                "failover",
                "--simulate",
                "-f",
                str(TUTORIAL),
                "--runs",
                "11",
                "--nodes",
                "3",
                "--broker",
                *form,
            ],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1
    assert printed != {b""}
