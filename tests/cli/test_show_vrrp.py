from __future__ import annotations

import io
import json
import subprocess
import sys
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest

from haxlb.cli.show_render import render as render_all
from haxlb.cli.show_vrrp_render import lag_line, next_line, priority_sum, render
from haxlb.daemon.control import Answer, Show
from haxlb.model.instance import Role
from haxlb.model.status import (
    Contribution,
    LoopLag,
    PeerStatus,
    ProcessStatus,
    TrackedStatus,
    TransitionStatus,
)
from tests.cli.conftest import NOW

HAXLB = Path(sys.executable).with_name("haxlb")
NGINX = Contribution(kind="track_script", name="chk_nginx", well=False, change=-20)
LINK = Contribution(kind="track_interface", name="eth1", well=True)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.fixture
def instance(status):
    return replace(
        status.instances[0],
        role=Role.BACKUP,
        reason="priority 200 of 192.168.10.12 is higher than our 150",
        base_priority=170,
        contributions=(NGINX, LINK),
        sync_group="G1",
        source="192.168.10.11",
        excluded_vips=("192.168.10.101/32",),
        next_at=NOW + 2.1,
        next_what="becomes MASTER",
        master_down_interval_us=3_414_062,
        peers=(
            PeerStatus(
                address=IPv4Address("192.168.10.12"),
                priority=200,
                heard_at=NOW - 0.4,
                version=2,
                interval_us=1_000_000,
                addresses=("192.168.10.100",),
            ),
        ),
        latest=(
            TransitionStatus(at=NOW - 60.5, before=Role.INIT, after=Role.BACKUP, reason="started"),
            TransitionStatus(at=NOW - 3.25, before=Role.BACKUP, after=Role.MASTER, reason="no advert for 3.414 s"),
        ),
    )


@pytest.fixture
def full(status, instance):
    return replace(
        status,
        instances=(instance, replace(instance, name="VI_6", family=6, version=3, vrid=52)),
        lag=LoopLag(wakes=4711, last_us=52, max_us=2345, max_at=NOW - 250, over_ms=3),
        tracked=(
            TrackedStatus(
                kind="track_script", name="chk_nginx", value=0, since_at=NOW - 61, detail="exit code 1, 3 of 3 failures"
            ),
        ),
    )


def rendered(status, instances=None, draw=render):
    stream = io.StringIO()
    draw(status, status.instances if instances is None else instances, stream)
    return stream.getvalue()


def test_everything_that_decides_a_role_is_said(full):
    lines = rendered(full, full.instances[:1]).splitlines()
    assert lines[5:] == [
        "speaker  woken 4711 times, last 0.05 ms late, worst 2.35 ms 4 min 10 s ago, 3 times 1 ms or more",
        "the speaker's status is old: waiting to be started again",
        "",
        "VI_1  BACKUP for 3.2 s  VRRPv2 IPv4 VRID 51 on eth0 from 192.168.10.11",
        "  why         priority 200 of 192.168.10.12 is higher than our 150",
        "  priority    150 = 170 base - 20 chk_nginx",
        "  next        becomes MASTER in 2.10 s unless an advert comes",
        "  sync group  G1",
        "  VIPs        192.168.10.100/24",
        "  excluded    192.168.10.101/32",
        "  tracks      track_script chk_nginx: not well, -20, for 1 min 1 s; exit code 1, 3 of 3 failures",
        "              track_interface eth1: well, changes nothing",
        "  peers       192.168.10.12: priority 200, v2, every 1 s, 0.4 s ago, VIPs 192.168.10.100",
        "  adverts     12 sent, 3 received, refused: 2 ip_ttl_err",
        "  waits       3.41406 s for an advert (master_down_interval)",
        "  history     2027-01-15 07:58:59.500 UTC  INIT -> BACKUP    started",
        "              2027-01-15 07:59:56.750 UTC  BACKUP -> MASTER  no advert for 3.414 s",
    ]


@pytest.mark.parametrize(
    ("ago_s", "changes", "heard"),
    [
        (3.4, {}, "priority 200, v2, every 1 s, 3.4 s ago,"),
        (17.8, {}, "priority 200, v2, last advert 17.8 s ago: a BACKUP sends none,"),
        (3.5, {"priority": 0}, "resigned (priority 0), v2, every 1 s, 3.5 s ago,"),
    ],
)
def test_a_silent_peer_is_a_backup_and_no_fault(full, ago_s, changes, heard):
    peer = replace(full.instances[0].peers[0], heard_at=NOW - ago_s, **changes)
    master = replace(full.instances[0], role=Role.MASTER, peers=(peer,))
    assert f"  peers       192.168.10.12: {heard} VIPs" in rendered(full, (master,))
    unknown = replace(master, master_down_interval_us=0, peers=(replace(peer, heard_at=NOW - 4.5, priority=9),))
    assert ": priority 9, v2, last advert 4.5 s ago: a BACKUP sends none," in rendered(full, (unknown,))


def test_each_instance_has_a_block(full):
    text = rendered(full)
    assert "\nVI_1  BACKUP" in text
    assert "\nVI_6  BACKUP for 3.2 s  VRRPv3 IPv6 VRID 52 on eth0" in text


def test_what_is_not_there_is_said(status):
    bare = replace(
        status.instances[0],
        peers=(),
        adverts_rejected={},
        vips=(),
        reason="",
        next_at=None,
        priority=100,
        role=Role.INIT,
    )
    text = rendered(replace(status, instances=(bare,)))
    for words in (
        "how late it was woken is not known yet",
        "why       -",
        "priority  100",
        "next      nothing is due",
        "VIPs      -",
        "peers     none was heard",
        "refused: none",
        "history   no change of role yet",
    ):
        assert words in text
    assert "no VRRP instance is configured" in rendered(replace(status, instances=()))


def test_a_pipe_wraps_nothing_and_a_narrow_terminal_loses_nothing(full, monkeypatch):
    long = "x" * 70 + " " + "y" * 70
    full = replace(full, instances=(replace(full.instances[0], reason=long),))
    assert f"  why         {long}\n" in rendered(full)
    monkeypatch.setenv("COLUMNS", "60")
    text = rendered(full)
    assert max(map(len, text.splitlines())) <= 60
    assert (
        text.count("x") - rendered(replace(full, instances=(replace(full.instances[0], reason=""),))).count("x") == 70
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colours_on_a_terminal_unless_not_wanted(full, monkeypatch):
    terminal = Terminal()
    render(full, full.instances, terminal)
    assert "\x1b[36mBACKUP\x1b[0m" in terminal.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    render(full, full.instances, terminal)
    assert "\x1b[3" not in terminal.getvalue()


def test_names_are_not_taken_for_markup(full):
    odd = replace(full.instances[0], name="[bold]x", sync_group="[red]g", contributions=(replace(NGINX, name="[b]"),))
    text = rendered(replace(full, instances=(odd,)))
    for words in ("[bold]x  BACKUP", "[red]g", "track_script [b]:"):
        assert words in text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"contributions": (), "priority": 170}, "170 = 170 base"),
        ({"contributions": ()}, "150, not yet 170 base = 170"),
        ({}, "150 = 170 base - 20 chk_nginx"),
        ({"contributions": (replace(NGINX, change=+5), LINK), "priority": 175}, "175 = 170 base + 5 chk_nginx"),
        (
            {"contributions": (replace(NGINX, change=-250),), "priority": 1},
            "1: 170 base - 250 chk_nginx is -80, kept within 1 to 254",
        ),
        ({"base_priority": 255, "priority": 255}, "255: owner of the addresses; tracking changes nothing"),
        ({"base_priority": 0}, "150"),
    ],
)
def test_the_sum_of_the_priority(instance, changes, said):
    assert priority_sum(replace(instance, **changes)) == said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "becomes MASTER in 2.10 s unless an advert comes"),
        ({"role": Role.MASTER, "next_what": "advert"}, "advert in 2.10 s"),
        ({"next_at": NOW - 1}, "becomes MASTER in 0.00 s unless an advert comes"),
        ({"next_at": NOW + 125, "role": Role.FAULT, "next_what": "looks again"}, "looks again in 2 min 5 s"),
        ({"next_what": "", "role": Role.MASTER}, "its timer ends in 2.10 s"),
        ({"next_at": None}, "nothing is due"),
    ],
)
def test_what_comes_next(instance, changes, said):
    assert next_line(replace(instance, **changes), NOW) == said


def test_a_tracked_thing_that_is_not_known_yet_and_one_that_is_a_fault(full):
    tracks = (replace(NGINX, well=None, change=0, fault=True), replace(LINK, well=False, fault=True))
    text = rendered(replace(full, instances=(replace(full.instances[0], contributions=tracks),)))
    assert "track_script chk_nginx: not known yet, FAULT, for" in text
    assert "track_interface eth1: not well, FAULT\n" in text


def test_a_peer_that_has_resigned_and_an_old_speaker_s_peer(full):
    gone = PeerStatus(address=IPv6Address("fe80::2"), priority=0, heard_at=NOW - 1)
    text = rendered(replace(full, instances=(replace(full.instances[0], peers=(gone,)),)))
    assert "fe80::2: resigned (priority 0), 1.0 s ago\n" in text


def test_lag_of_a_speaker_that_is_just_started():
    assert lag_line(LoopLag(), NOW) == "how late it was woken is not known yet"


def test_the_main_page_names_family_group_and_what_is_not_well(full):
    text = rendered(full, draw=lambda status, _, stream: render_all(status, stream))
    assert "  VI_1: sync group G1, chk_nginx not well (-20)\n" in text
    assert "VI_6 (VRID 52, v3, IPv6)" in text
    assert "eth1 well" not in text


def test_a_status_without_trouble_has_no_line_more(status):
    healthy = replace(status.instances[0], contributions=(LINK,))
    text = rendered(replace(status, instances=(healthy,)), draw=lambda page, _, stream: render_all(page, stream))
    assert "sync group" not in text
    assert "eth1" not in text


# -- the command


def show(*words):
    return subprocess.run([HAXLB, "show", *map(str, words)], capture_output=True, text=True, check=False, timeout=200)


@pytest.fixture
def answering(daemon, full):
    daemon.answer = Answer(
        ok=True, status=replace(full, processes=(ProcessStatus(name="speaker", pid=9, restarts=0, since_at=NOW),))
    )
    return daemon


def test_one_instance(answering):
    done = show("vrrp", "VI_6", "--runtime-dir", answering.runtime_dir)
    assert (done.returncode, done.stderr) == (0, "")
    assert "VI_6  BACKUP" in done.stdout
    assert "VI_1" not in done.stdout
    assert answering.requests == [Show()]


def test_options_stand_before_or_behind_the_subcommand(answering):
    before = show("--runtime-dir", answering.runtime_dir, "--json", "vrrp")
    behind = show("vrrp", "--json", "--runtime-dir", answering.runtime_dir)
    assert before.stdout == behind.stdout
    document = json.loads(before.stdout)
    assert list(document) == ["schema", "node", "at", "lag", "instances", "tracked"]
    assert document["schema"] == "haxlb.show-vrrp/1"
    assert document["lag"]["max_us"] == 2345
    assert document["tracked"][0]["detail"] == "exit code 1, 3 of 3 failures"
    first = document["instances"][0]
    assert first["latest"][1] == {
        "at": NOW - 3.25,
        "before": "BACKUP",
        "after": "MASTER",
        "reason": "no advert for 3.414 s",
    }
    assert first["peers"][0]["addresses"] == ["192.168.10.100"]


def test_an_instance_that_is_not_there(answering):
    done = show("vrrp", "VI_7", "--runtime-dir", answering.runtime_dir)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("haxlb: no instance is called VI_7 (")
    assert "VI_1" in done.stderr or "VI_6" in done.stderr


def test_without_a_daemon(tmp_path):
    done = show("vrrp", "--runtime-dir", tmp_path)
    assert (done.returncode, done.stdout) == (69, "")
    assert done.stderr.startswith(f"haxlb: no haxlb runs in {tmp_path} (")


@pytest.mark.parametrize("words", [("-L", "vrrp"), ("--stats", "vrrp"), ("vrpp",), ("vrrp", "A", "B")])
def test_wrong_usage(words):
    done = show(*words)
    assert (done.returncode, done.stdout) == (2, "")


def test_the_interface_of_a_virtual_mac_is_named(full):
    behind = replace(full.instances[0], virtual_mac="vrrp.51")
    assert "VRID 51 on eth0 (virtual MAC: vrrp.51) from 192.168.10.11" in rendered(full, (behind,))
