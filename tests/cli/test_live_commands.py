from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from haxlb.cli.client import ask
from haxlb.daemon.control import Answer, Failover, Reload, Resume, SetWeight, Show, Step, Swap
from haxlb.model.errors import HostError, Unreachable

HAXLB = Path(sys.executable).with_name("haxlb")
REFUSED = Answer(ok=False, exit_code=1, message="no peer of VI_1 is heard", remedy="start the peer, or use --force")
STEPS = (
    Step(subject="VI_1", step="check", ok=True, reason="MASTER here"),
    Step(subject="VI_1", step="peer", ok=False, reason="no sign of a living peer"),
)


def haxlb(*words, runtime_dir):
    command = [HAXLB, *words, "--runtime-dir", str(runtime_dir)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)


@pytest.mark.parametrize("command", ["show", "reload", "resume", "swap", "failover"])
def test_without_a_daemon_every_command_says_so_in_one_line(tmp_path, command):
    done = haxlb(command, runtime_dir=tmp_path)
    assert done.returncode == 69
    assert done.stdout == ""
    assert done.stderr.startswith(f"haxlb: no haxlb runs in {tmp_path} (")
    assert len(done.stderr.splitlines()) == 1


def test_reload(daemon):
    daemon.answer = Answer(ok=True, message="reloaded: nothing has changed", report="x.conf:1:1: warning[a]: b")
    done = haxlb("reload", runtime_dir=daemon.runtime_dir)
    assert (done.returncode, done.stdout) == (0, "reloaded: nothing has changed\n")
    assert done.stderr == "x.conf:1:1: warning[a]: b\n"
    assert daemon.requests == [Reload()]


def test_a_reload_with_errors_is_in_force_and_says_so(daemon):
    said = "reloaded: 1 instance changed; 1 error: what it names is left out"
    daemon.answer = Answer(ok=True, exit_code=5, message=said, report="x.conf:1:1: error[a]: b")
    done = haxlb("reload", runtime_dir=daemon.runtime_dir)
    assert (done.returncode, done.stdout, done.stderr) == (5, f"{said}\n", "x.conf:1:1: error[a]: b\n")
    assert haxlb("reload", "--json", runtime_dir=daemon.runtime_dir).returncode == 5


def test_a_refused_reload_shows_why(daemon):
    daemon.answer = Answer(
        ok=False, exit_code=4, message="reload refused", report="x.conf:1:1: fatal[a]: b", diagnostics=({"code": "a"},)
    )
    done = haxlb("reload", runtime_dir=daemon.runtime_dir)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.splitlines() == ["x.conf:1:1: fatal[a]: b", "haxlb: reload refused"]
    as_object = haxlb("reload", "--json", runtime_dir=daemon.runtime_dir)
    assert as_object.returncode == 4
    assert json.loads(as_object.stdout) == {
        "schema": "haxlb.reload/1",
        "ok": False,
        "message": "reload refused",
        "remedy": "",
        "diagnostics": [{"code": "a"}],
    }


@pytest.mark.parametrize("words", [("reload",), ("reload", "--json"), ("swap",), ("drain", "VS", "RS")], ids=" ".join)
def test_what_takes_its_time_says_what_it_waits_for(daemon, words):
    daemon.steps = (Step(subject="", step="wait", ok=True, reason="a reload or a swap is under way"),)
    daemon.answer = Answer(ok=True, message="done")
    done = haxlb(*words, runtime_dir=daemon.runtime_dir)
    assert (done.returncode, done.stderr) == (0, "haxlb: a reload or a swap is under way …\n")
    assert "done" in done.stdout


def test_failover_prints_its_steps_and_its_end(daemon):
    daemon.steps = STEPS[:1]
    daemon.answer = Answer(ok=True, message="handed over: VI_1")
    done = haxlb("failover", "VI_1", "--force", runtime_dir=daemon.runtime_dir)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["ok   VI_1 check: MASTER here", "handed over: VI_1"]
    assert daemon.requests == [Failover(instances=("VI_1",), force=True)]


def test_a_refused_failover(daemon):
    daemon.steps = (*STEPS, Step(subject="VI_1", step="refused", ok=False, reason=REFUSED.message))
    daemon.answer = REFUSED
    done = haxlb("failover", runtime_dir=daemon.runtime_dir)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "FAIL VI_1 peer: no sign of a living peer"
    assert done.stderr == "haxlb: no peer of VI_1 is heard (start the peer, or use --force)\n"
    as_object = haxlb("failover", "--json", runtime_dir=daemon.runtime_dir)
    assert as_object.returncode == 1
    result = json.loads(as_object.stdout)
    assert (result["schema"], result["ok"], result["message"]) == ("haxlb.failover/1", False, REFUSED.message)
    assert result["steps"][0] == {"subject": "VI_1", "step": "check", "ok": True, "reason": "MASTER here"}


def test_resume_and_swap(daemon):
    daemon.answer = Answer(ok=True, message="resumed: VI_1")
    assert haxlb("resume", "VI_1", runtime_dir=daemon.runtime_dir).stdout == "resumed: VI_1\n"
    daemon.answer = Answer(ok=False, exit_code=71, message="BCC is missing", remedy="apt install python3-bpfcc")
    done = haxlb("swap", runtime_dir=daemon.runtime_dir)
    assert (done.returncode, done.stderr) == (71, "haxlb: BCC is missing (apt install python3-bpfcc)\n")
    assert daemon.requests == [Resume(instances=("VI_1",)), Swap()]


JSON_COMMANDS = ("resume", "swap", "weight VS RS 7", "drain VS RS", "enable VS RS")


@pytest.mark.parametrize("words", JSON_COMMANDS)
def test_an_outcome_as_json(daemon, words):
    command, *arguments = words.split()
    more = {"drained": None} if command == "drain" else {}
    for answer in (
        Answer(ok=True, message="done"),
        Answer(ok=False, exit_code=71, message="not done", remedy="do this"),
    ):
        daemon.answer = answer
        done = haxlb(command, *arguments, "--json", runtime_dir=daemon.runtime_dir)
        assert (done.returncode, done.stderr) == (answer.exit_code, "")
        assert json.loads(done.stdout) == {
            "schema": f"haxlb.{command}/1",
            "ok": answer.ok,
            "message": answer.message,
            "remedy": answer.remedy,
            **more,
        }


@pytest.mark.parametrize("words", JSON_COMMANDS)
def test_a_refusal_in_words_is_one_line(daemon, words):
    daemon.answer = Answer(ok=False, exit_code=1, message="not done", remedy="do this")
    done = haxlb(*words.split(), runtime_dir=daemon.runtime_dir)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "haxlb: not done (do this)\n")


def test_show_as_json_is_the_whole_status(daemon, status):
    daemon.answer = Answer(ok=True, status=status)
    done = haxlb("show", "--json", runtime_dir=daemon.runtime_dir)
    assert done.returncode == 0
    shown = json.loads(done.stdout)
    assert shown["schema"] == "haxlb.status/1"
    assert shown["virtual_servers"][0]["real_servers"][1]["reason"] == "connection refused"
    assert daemon.requests == [Show()]


def test_all_of_the_history_is_shown_when_asked_for(daemon, status):
    history = tuple(f"line {number}" for number in range(50))
    daemon.answer = Answer(ok=True, status=replace(status, history=history))
    shown = {words: haxlb("show", *words, runtime_dir=daemon.runtime_dir).stdout for words in ((), ("--history",))}
    assert ["line 39\n" in text for text in shown.values()] == [False, True]
    for other in (("-L",), ("-c",), ("vrrp",)):
        assert haxlb("show", "--history", *other, runtime_dir=daemon.runtime_dir).returncode == 2


def test_a_pipe_gets_no_colours_and_the_ipvs_view_has_its_flags(daemon, status):
    daemon.answer = Answer(ok=True, status=status)
    assert "\x1b" not in haxlb("show", runtime_dir=daemon.runtime_dir).stdout
    for words in (("-Ln",), ("-L", "-n"), ("--ipvs",)):
        done = haxlb("show", *words, runtime_dir=daemon.runtime_dir)
        assert done.stdout.splitlines()[1] == "Prot LocalAddress:Port Scheduler Flags"
    assert "InPkts" in haxlb("show", "-Ln", "--stats", runtime_dir=daemon.runtime_dir).stdout


def test_a_daemon_that_hangs_up_is_unreachable(tmp_path):
    with served(tmp_path, b"") as runtime_dir, pytest.raises(Unreachable, match="without an answer"):
        ask(runtime_dir, Show())


def test_a_daemon_of_another_version_is_said_so(tmp_path):
    with (
        served(tmp_path, b'{"type": "Novelty"}\n') as runtime_dir,
        pytest.raises(HostError, match="another protocol"),
    ):
        ask(runtime_dir, Show())


class served:  # noqa: N801 - reads as a statement
    """Something that answers every client with these bytes."""

    def __init__(self, directory: Path, answer: bytes) -> None:
        self._directory = directory
        self._answer = answer

    def __enter__(self) -> Path:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._directory / "control.sock"))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self._directory

    def __exit__(self, *_: object) -> None:
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        with client:
            client.recv(1024)
            client.sendall(self._answer)


def test_reading_commands_import_nothing_heavy(daemon, status):
    daemon.answer = Answer(ok=True, status=status)
    code = (
        "import sys\nfrom haxlb.cli.main import haxlb\n"
        f"haxlb(['show', '-Ln', '--runtime-dir', {str(daemon.runtime_dir)!r}], standalone_mode=False)\n"
        "heavy = {'asyncio', 'rich', 'structlog', 'pyroute2', 'scapy', 'aiomqtt', 'yaml'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(
    ("words", "weight"), [(("weight", "VS", "RS", "7"), 7), (("drain", "VS", "RS"), 0), (("enable", "VS", "RS"), None)]
)
def test_weights(daemon, words, weight):
    daemon.answer = Answer(ok=True, message="VS RS: weight 1 -> 7")
    done = haxlb(*words, runtime_dir=daemon.runtime_dir)
    assert (done.returncode, done.stdout, done.stderr) == (0, "VS RS: weight 1 -> 7\n", "")
    assert daemon.requests == [SetWeight(virtual_server="VS", real_server="RS", weight=weight)]


@pytest.mark.parametrize("number", ["-1", "65536", "many"])
def test_no_weight_at_all(daemon, number):
    done = haxlb("weight", "VS", "RS", "--", number, runtime_dir=daemon.runtime_dir)
    assert done.returncode == 2
    assert daemon.requests == []


def test_nobody_waits_for_what_is_no_time(daemon):
    done = haxlb("drain", "VS", "RS", "--wait", "--timeout", "nan", runtime_dir=daemon.runtime_dir)
    assert done.returncode == 2
    assert "'nan' is not a number of seconds" in done.stderr
    assert daemon.requests == []


@pytest.mark.parametrize(
    ("loads", "code", "said"),
    [
        ({"active": 0, "inactive": 0}, 0, "192.168.10.21:80 has no connections any more\n"),
        ({"active": 2, "inactive": 1}, 1, "192.168.10.21:80 still has 2 active and 1 inactive connections"),
        ({}, 1, "nobody knows whether 192.168.10.21:80 has connections"),
    ],
)
def test_drain_waits(daemon, status, loads, code, said):
    service = status.virtual_servers[0]
    first, *others = service.real_servers
    shown = replace(service, name="web", endpoints=("[192.168.10.100]:tcp:80",))
    shown = replace(shown, real_servers=(replace(first, **loads), *others))
    daemon.answer = Answer(ok=True, message="done", status=replace(status, virtual_servers=(shown,)))
    words = ("192.168.10.100:80", "192.168.10.21:80", "--wait", "--timeout", "0")
    done = haxlb("drain", *words, runtime_dir=daemon.runtime_dir)
    assert done.returncode == code
    assert said in done.stdout + done.stderr
    assert daemon.requests[1:] == [Show()]
    as_object = haxlb("drain", *words, "--json", runtime_dir=daemon.runtime_dir)
    assert (as_object.returncode, as_object.stderr) == (code, "")
    document = json.loads(as_object.stdout)
    assert (document["schema"], document["ok"], document["drained"]) == ("haxlb.drain/1", code == 0, code == 0)
    assert said.strip() in document["message"]
