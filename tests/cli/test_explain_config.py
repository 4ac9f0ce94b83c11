"""`haxlb check --explain`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from haxlb.cli.check import check
from haxlb.cli.explain_config import explain, explain_json
from haxlb.config import load

DATA = Path(__file__).parents[1] / "config" / "data"
ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
FILES = sorted(each for each in CORPUS.glob("*/*") if each.is_file())


@pytest.fixture
def sentences(tmp_path):
    def of(text: str) -> list[str]:
        path = tmp_path / "keepalived.conf"
        path.write_text(text)
        return [line[4:] for line in explain(load(path, settings=None, node="lb1")).splitlines() if line[:3] == "  *"]

    return of


@pytest.fixture
def values(tmp_path):
    def of(text: str) -> dict[str, tuple[str, str]]:
        path = tmp_path / "keepalived.conf"
        path.write_text(text)
        document = explain_json(load(path, settings=None, node="lb1"))
        assert document["schema"] == "haxlb.explain/1"
        last = document["meanings"][-1]
        return {each["name"]: (each["text"], each["origin"]) for each in last["values"]}

    return of


INSTANCE = (
    "vrrp_instance A {\ninterface eth0\nvirtual_router_id 1\n%s\nvirtual_ipaddress {\n10.0.0.1/24\n}\n}\n"  # filled in
)
SERVER = "virtual_server 10.0.0.1 80 {\nlb_algo wrr\nlb_kind DR\nprotocol TCP\n%s\n%s\n}\n"
REAL = "real_server 10.0.0.%d 80 {\n%s\n}\n"


def test_values_and_where_they_come_from(values):
    found = values("global_defs {\nvrrp_version 3\nvrrp_garp_master_repeat 2\n}\n" + INSTANCE % "priority 150")
    assert found["priority"] == ("150", "written")
    assert found["version"] == ("3", "global_defs")
    assert found["garp_master_repeat"] == ("2", "global_defs")
    assert found["advert_int"] == ("1 s", "default")
    assert found["state"] == ("BACKUP", "default")
    assert found["virtual_ipaddress"] == ("10.0.0.1/24 dev eth0", "written")


def test_timing_of_checks_has_its_origin(values):
    check_ = "TCP_CHECK {\nconnect_timeout 3\n}"
    found = values(SERVER % ("delay_loop 5", REAL % (5, check_) + REAL % (6, check_)))
    assert found["delay_loop"] == ("5 s", "written")
    assert found["connect_timeout"] == ("3 s", "written")
    assert found["retry"] == ("not named: two in a row", "default")
    assert "connect_timeout" not in values(SERVER % ("", REAL % (5, check_) + REAL % (6, "TCP_CHECK {\n}")))


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("", "as BACKUP it takes over 3.609 s after the last advert, 0.609 s after the MASTER has resigned"),
        (
            "version 3\nadvert_int 0.1",
            "as BACKUP it takes over 0.361 s after the last advert, 0.061 s after the MASTER has resigned",
        ),
        ("", "it takes over from a MASTER of lower priority than 100"),
        ("preempt_delay 30", "it takes over from a MASTER of lower priority than 100, 30 s after it has heard of it"),
        ("nopreempt", "it leaves a MASTER of lower priority alone (nopreempt)"),
        ("priority 255", "at the start: it is MASTER at once, being the addresses' owner (priority 255)"),
        ("garp_master_refresh 60", "gratuitous ARP 5 times on becoming MASTER, again after 5 s, and every 60 s"),
        ("", "the loss of eth0 makes it FAULT: it gives up its addresses"),
    ],
)
def test_an_instance(sentences, lines, sentence):
    assert any(each.endswith(sentence) for each in sentences(INSTANCE % lines))


SCRIPT = 'vrrp_script chk {\nscript "/bin/check -a"\ninterval 2\nfall 3\n%s\n}\n'
RUNS = "(/bin/check -a, every 2 s, 3 times in a row: noticed after at most 8 s)"


@pytest.mark.parametrize(
    ("weight", "priority", "sentence"),
    [
        ("-20", 150, f"chk failing {RUNS} makes 150 → 130; a peer needs more than 130 to take over"),
        ("20", 100, f"chk failing {RUNS} makes 120 → 100; a peer needs more than 100 to take over"),
        ("-20", 15, f"chk failing {RUNS} makes 15 → 1; a peer needs more than 1 to take over"),
        ("0", 100, f"chk failing {RUNS} makes it FAULT: it gives up its addresses, and any peer takes over"),
        ("0 reverse", 100, f"chk being well {RUNS} makes it FAULT: it gives up its addresses"),
        ("-20", 255, f"chk failing {RUNS} changes nothing: priority 255 has no weights"),
    ],
)
def test_what_is_tracked(sentences, weight, priority, sentence):
    text = SCRIPT % f"weight {weight}" + INSTANCE % f"priority {priority}\ntrack_script {{\nchk\n}}"
    assert any(each.startswith(sentence) for each in sentences(text))


GROUP = "vrrp_sync_group G {\ngroup {\nA\nB\n}\n%s\n}\n"
SECOND = (
    "vrrp_instance B {\ninterface eth1\nvirtual_router_id 2\npriority 140\n%s\nvirtual_ipaddress {\n10.1.0.1/24\n}\n}\n"
)
EVERY = (
    "the peer's group takes over only when every member of it is better (here: has more than 130) or hears no MASTER"
)


@pytest.mark.parametrize(
    ("group", "first", "second", "end"),
    [
        ("sync_group_tracking_weight", "track_script {\nchk\n}", "", "; B keeps 140"),
        ("sync_group_tracking_weight", "track_script {\nchk\n}", "track_script {\nchk\n}", ""),
        ("track_script {\nchk\n}", "", "", ""),
    ],
)
def test_what_is_tracked_in_a_sync_group_needs_every_member(sentences, group, first, second, end):
    text = SCRIPT % "weight -20" + GROUP % group + INSTANCE % f"priority 150\n{first}" + SECOND % second
    assert f"chk failing {RUNS} makes 150 → 130; {EVERY}{end}" in sentences(text)


def test_a_script_that_outlasts_its_interval_is_noticed_later(sentences):
    text = SCRIPT % "timeout 5" + INSTANCE % "track_script {\nchk\n}"
    # Begun at 2, 8 and 14 s: each lasts 5 s, and the next is due at an even second.
    assert any("noticed after at most 19 s" in each for each in sentences(text))


def test_several_that_fail(sentences):
    text = INSTANCE % "priority 150\ntrack_interface {\neth1 weight -20\neth2 weight -40\n}"
    assert "eth1 failing makes 150 → 130; a peer needs more than 130 to take over (all of them failing: 90)" in (
        sentences(text)
    )


def test_a_track_file(sentences):
    text = "track_file f {\nfile /run/f\nweight 2\n}\n" + INSTANCE % "track_file {\nf\n}"
    assert "f adds 2 times the number in its file to the priority 100" in sentences(text)


def test_a_virtual_server(sentences):
    checked = "weight %d\nTCP_CHECK {\nconnect_timeout 3\nretry 1\ndelay_before_retry 1\n}"
    text = SERVER % (
        "delay_loop 5\nsorry_server 10.0.0.9 80\nquorum 2\nhysteresis 1",
        REAL % (5, checked % 3) + REAL % (6, checked % 1) + REAL % (7, "weight 0\ninhibit_on_failure"),
    )
    found = sentences(INSTANCE % "" + text)
    # 5 s until the next probe, two that take 3 s each, 1 s between them.
    assert "a failed server is out after at most 12 s" in found
    assert "its address moves with A" in found
    assert "new connections by weight: 10.0.0.5:80 75 %, 10.0.0.6:80 25 %" in found
    assert "drained, so that they keep their connections and get no new ones: 10.0.0.7:80" in found
    assert "connections stay with a failed server (inhibit_on_failure): 10.0.0.7:80" in found
    assert "10.0.0.7:80: not checked: it counts as up" in found
    assert (
        "10.0.0.5:80, 10.0.0.6:80: TCP_CHECK 5 s after the end of the last one, given up after 3 s; down after 2"
        " failures in a row, 1 s apart, up after 2 successes, 1 s apart"
    ) in found
    assert "the quorum needs a weight of 3, and is lost below 1: then 10.0.0.9:80 serves alone" in found
    assert any(each.startswith("each director makes 2 different probes, at most 0.4 a second") for each in found)


def test_a_server_with_two_checks_is_out_when_the_first_says_so(sentences):
    slow = "TCP_CHECK {\nconnect_timeout 10\n}"
    fast = "TCP_CHECK {\nconnect_timeout 1\ndelay_loop 1\n}"
    found = sentences(SERVER % ("delay_loop 60", REAL % (5, slow + "\n" + fast)))
    assert "a failed server is out after at most 4 s" in found
    assert "no instance has its address: it is served where packets for it arrive, and does not move" in found


def test_what_cannot_be_used_is_not_explained(tmp_path):
    path = tmp_path / "bad.conf"
    path.write_text("vrrp_instance A {\n")
    loaded = load(path, settings=None, node="x")
    assert "mend what is fatal first" in explain(loaded)
    assert explain_json(loaded)["meanings"] == []


@pytest.mark.parametrize("path", FILES, ids=[each.name for each in FILES])
def test_every_public_file_can_be_explained(path):
    loaded = load(path, settings=None, node="high")
    text = explain(loaded)
    for each in loaded.config.instances if loaded.config else ():
        assert f"vrrp_instance {each.name}" in text
    json.dumps(explain_json(loaded))


def test_passwords_are_not_explained():
    assert "s3cr3t" not in explain(load(DATA / "master.conf", settings=None, node="host"))


@pytest.fixture
def run(tmp_path):
    def of(*arguments: str):
        settings = tmp_path / "haxlb.yml"
        settings.touch()
        words = ["-f", str(DATA / "master.conf"), "--settings", str(settings), "--no-interfaces", "--explain"]
        return CliRunner().invoke(check, [*words, *arguments])

    return of


def test_the_option(run):
    text = run().stdout
    assert text.index("no complaints") < text.index("vrrp_instance VI_1\n")
    document = json.loads(run("--json").stdout)
    assert document["explanation"]["schema"] == "haxlb.explain/1"
    assert run("--format", "sarif").exit_code == 2
