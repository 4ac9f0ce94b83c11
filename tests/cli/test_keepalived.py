"""`haxlb keepalived`, called as scripts and unit files call keepalived."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from haxlb.cli import keepalived_work as command
from haxlb.cli.keepalived_arguments import FLAGS, WrongUsage, parse, speaks, usage, void_flags
from haxlb.cli.main import haxlb
from haxlb.config import load
from haxlb.config.part import Part
from haxlb.config.verdict import Verdict, verdict

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
DATA = Path(__file__).parents[1] / "config" / "data"


def run(*arguments: str):
    return CliRunner().invoke(haxlb, ["keepalived", *arguments])


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ("", {}),
        ("-nlD", {"dont-fork": "", "log-console": "", "log-detail": ""}),
        ("--dont-fork --log-console", {"dont-fork": "", "log-console": ""}),
        ("-f a.conf -f b.conf", {"use-file": "b.conf"}),
        ("-fa.conf", {"use-file": "a.conf"}),
        ("-nfa.conf", {"dont-fork": "", "use-file": "a.conf"}),
        ("--use-file=a.conf", {"use-file": "a.conf"}),
        ("--use-file a.conf", {"use-file": "a.conf"}),
        ("-t a.conf", {"config-test": ""}),
        ("-ta.log", {"config-test": "a.log"}),
        ("--config-test=a.log -f x", {"config-test": "a.log", "use-file": "x"}),
        ("word -n - -- -l", {"dont-fork": ""}),
        ("--signum=RELOAD", {"signum": "RELOAD"}),
    ],
)
def test_flags_are_read_as_getopt_does(arguments, given):
    assert parse(tuple(arguments.split())) == given


@pytest.mark.parametrize("arguments", ["--zzz", "-Z", "-nZ", "-f", "--use-file", "--dont-fork=1", "--conf -t"])
def test_what_keepalived_does_not_know_ends_as_with_keepalived(arguments):
    with pytest.raises(WrongUsage):
        parse(tuple(arguments.split()))
    assert run(*arguments.split()).exception.exit_code == 1


@pytest.mark.skipif(shutil.which("keepalived") is None, reason="keepalived is not installed")
def test_every_flag_of_keepalived_is_known():
    text = subprocess.run(["keepalived", "--help"], capture_output=True, text=True, check=True).stderr
    theirs = {word.strip(",").partition("=")[0].partition("[")[0] for word in text.split() if word.startswith("-")}
    ours = {f"--{each.name}" for each in FLAGS} | {f"-{each.short}" for each in FLAGS if each.short}
    # genhash is another program under the same name.
    assert theirs - ours - {"--genhash", "-T"} <= {"--"}


def test_a_flag_that_does_nothing_is_said_once():
    assert list(void_flags(parse(("-D", "-D", "-n", "-V")))) == [
        "-D, --log-detail does nothing here: the log always has every change and its reason",
        "-V, --dont-release-vrrp does nothing here: addresses are always released: left behind they are a split brain",
    ]
    result = run("-DD", "-t", "-f", str(DATA / "master.conf"))
    assert result.stderr.count("--log-detail") == 1


def test_help_and_version():
    result = run("-h")
    assert result.exit_code == 0
    assert usage() in result.stderr
    assert "--use-file=FILE" in result.stderr
    assert run("--version").stderr.startswith("haxlb ")


@pytest.mark.parametrize(("name", "number"), [("STOP", signal.SIGTERM), ("RELOAD", signal.SIGHUP)])
def test_signal_numbers(name, number):
    assert run(f"--signum={name}").stdout == f"{int(number)}\n"


@pytest.mark.parametrize("name", ["DATA", "FOO"])
def test_signals_that_there_are_not(name):
    assert run(f"--signum={name}").exception.exit_code == 1


def test_it_wants_to_stay_in_the_foreground():
    problem = run("-f", str(DATA / "master.conf")).exception
    assert problem.exit_code == 1
    assert "--dont-fork" in problem.remedy


def test_a_mask_that_is_none():
    assert run("-t", "-u", "09").exception.exit_code == 1


GOOD = "vrrp_instance A {\n interface lo\n virtual_router_id 1\n virtual_ipaddress {\n 10.0.0.1/24\n }\n%s\n}\n"

CASES = [
    (GOOD % "", 0),
    (GOOD % "advert_int 1.5", 5),
    (GOOD % "priorty 1", 5),
    (GOOD % "use_vmac", 0),
    (GOOD % "priority", 2),
    (GOOD % "notify_master /bin/true", 6),
    (GOOD % "notify_master /nonexistent/script", 0),
    ("global_defs {\n enable_script_security\n script_user root\n}\n" + GOOD % "notify_master /bin/true", 0),
    (GOOD.replace("lo\n", "nosuch0\n") % "", 5),
    (GOOD.replace("router_id 1\n", "router_id 0\n") % "", 5),
    ("include nothing.conf\n" + GOOD % "", 0),
]


@pytest.fixture
def written(tmp_path):
    def of(text: str) -> str:
        path = tmp_path / "keepalived.conf"
        path.write_text(text)
        return str(path)

    return of


@pytest.mark.parametrize(("text", "code"), CASES)
def test_exit_codes_of_a_configuration_test(written, text, code):
    result = run("-t", "-f", written(text))
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr or code == 0


@pytest.fixture(scope="module")
def namespace():
    """One with an interface that keepalived likes: it wants none to be the loopback."""
    name = f"hxkt{os.getpid()}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    subprocess.run(["ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", "eth1"], check=True)
    yield name
    subprocess.run(["ip", "netns", "del", name], check=True)


@pytest.mark.netns
@pytest.mark.skipif(shutil.which("keepalived") is None, reason="keepalived is not installed")
@pytest.mark.parametrize(("text", "code"), CASES)
def test_keepalived_ends_with_the_same(written, namespace, text, code):
    words = ["ip", "netns", "exec", namespace, "keepalived", "-t", "-f", written(text.replace("lo\n", "eth0\n"))]
    assert subprocess.run(words, capture_output=True, check=False).returncode == code


def test_a_file_that_is_not_there(tmp_path):
    assert run("-t", "-f", str(tmp_path / "none.conf")).exit_code == 4


def test_missing_includes_count_with_all_config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "keepalived.conf"
    path.write_text("include nothing.conf\n" + GOOD % "")
    # getopt: what is attached to -t is the name of its file.
    assert run("-te", "-f", str(path)).exit_code == 0
    assert Path("e").exists()
    assert run("-et", "-f", str(path)).exit_code == 5
    assert run("-en", "-f", str(path)).exception.exit_code == 4


def test_the_report_goes_to_a_file(tmp_path):
    path, log = tmp_path / "keepalived.conf", tmp_path / "log"
    path.write_text(GOOD % "priorty 1")
    result = run(f"-t{log}", "-f", str(path))
    assert (result.exit_code, result.stderr) == (5, "")
    assert "did you mean `priority`?" in log.read_text()
    assert run(f"--config-test={tmp_path}/no/log", "-f", str(path)).exception.exit_code == 71


def test_lines_are_selected_by_the_config_id(tmp_path):
    path = tmp_path / "keepalived.conf"
    path.write_text("@other priorty 1\n" + GOOD % "")
    assert run("-t", "-f", str(path)).exit_code == 0
    assert run("-t", "-f", str(path), "-i", "other").exit_code == 5


@pytest.fixture
def both():
    return load(DATA / "master.conf", settings=None, node="host").config


def test_parts(both):
    vrrp, checkers = Part.VRRP.of(both), Part.CHECKERS.of(both)
    assert (vrrp.instances, vrrp.virtual_servers) == (both.instances, ())
    assert (checkers.instances, checkers.virtual_servers) == ((), both.virtual_servers)
    assert checkers.forwarding_interfaces == both.forwarding_interfaces
    assert Part.ALL.of(both) == both


@pytest.mark.parametrize(
    ("arguments", "part"), [("-n", Part.ALL), ("-P", Part.VRRP), ("-C", Part.CHECKERS), ("-PC", Part.ALL)]
)
def test_parts_by_flags(arguments, part):
    assert command.part_of(parse((arguments,))) is part
    assert speaks(parse((arguments,))) is (part is not Part.CHECKERS)


def test_the_pid_file_lives_as_long_as_the_daemon(tmp_path):
    path = tmp_path / "pid"
    with command.pid_file(str(path)):
        assert path.read_text() == f"{os.getpid()}\n"
    assert not path.exists()
    # In a process of its own: it takes another nice value.
    argv = [Path(sys.executable).with_name("haxlb"), "keepalived", "-n", "-p", "/nonexistent/pid"]
    done = subprocess.run([*argv, "-f", DATA / "master.conf"], capture_output=True, text=True, check=False)
    assert done.returncode == 71
    assert done.stderr.splitlines()[-1].startswith("haxlb: cannot write /nonexistent/pid")


def test_the_speaker_is_started_before_what_reads_the_configuration_is_imported():
    argv = [sys.executable, "-X", "importtime", "-c", "from haxlb.cli.main import main; main()"]
    done = subprocess.run(
        [*argv, "keepalived", "-n", "-f", "/nonexistent/file"], capture_output=True, text=True, check=False
    )
    modules = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert done.returncode == 4
    assert modules.index("haxlb.linux.offspring") < modules.index("haxlb.config.load")


UNLIKE = {
    "c013-keepalived.conf": "an unfilled template: keepalived takes `${…}` apart as braces and misses an argument",
    "keepalived.conf.SSL_GET": "keepalived lets no instance with AH begin as MASTER, and says so",
    "c059-keepalived-backup.conf": "the user of scripts does not exist where keepalived judged it",
}
"""Files on which haxlb ends otherwise, and not for what it does not support yet."""


def verdicts() -> dict[str, tuple[int, str]]:
    found = {}
    for table in CORPUS.glob("*.tsv"):
        with table.open(newline="") as rows:
            for row in csv.reader(rows, delimiter="\t", quoting=csv.QUOTE_NONE):
                if row[0] != "file":
                    found[row[0]] = (int(row[1]), row[2])
    return found


FILES = sorted(each for each in CORPUS.glob("*/*") if each.is_file())


@pytest.mark.parametrize("path", FILES, ids=[each.name for each in FILES])
def test_the_exit_code_is_that_of_keepalived(path):
    theirs, _ = verdicts()[path.name]
    loaded = load(path, settings=None, node="high")
    ours = verdict(loaded, runnable=lambda words: shutil.which(words[0]) is not None).value
    unsupported = any((each.code, each.severity.value) == ("not-supported-yet", "error") for each in loaded.diagnostics)
    if path.name in UNLIKE:
        assert ours != theirs
    elif unsupported:
        # Not all of it is used: a complaint, whatever keepalived says.
        assert ours in (Verdict.COMPLAINTS.value, Verdict.MISSING_ARGUMENT.value)
    else:
        assert ours == theirs


def test_a_symbolic_link_called_keepalived(tmp_path):
    link = tmp_path / "keepalived"
    link.symlink_to(Path(sys.executable).with_name("haxlb"))
    assert subprocess.run([link, "--signum=RELOAD"], capture_output=True, check=True).stdout == b"1\n"
    done = subprocess.run([link, "--zzz"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.startswith("haxlb: Unknown option --zzz")) == (1, True)
