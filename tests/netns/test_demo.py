"""The demo's stage: it leaves nothing behind, however it ends."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from demo.report import PHASES
from demo.stage import Stage, wait_for

from haxlb.model.errors import HostError

pytestmark = pytest.mark.netns

NAME = f"demo{os.getpid()}"
"""Not the name that `make demo` gives: one may be running on this machine."""
PREFIX = f"hx{NAME}"
DIRECTORY = Path(f"/run/haxlb-{NAME}")
DEMO = (sys.executable, str(Path(__file__).parents[2] / "deploy" / "demo" / "run.py"), "--name", NAME)


def processes(*words: str) -> list[str]:
    """Directories in /proc of those whose command lines have these words in them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended since it was listed
            line = path.read_bytes()
            if all(word.encode() in line for word in words):
                found.append(str(path.parent))
    return found


def left_over() -> list[str]:
    inside = f"{DIRECTORY}/"
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if inside in line]
    namespaces = [path.name for path in Path("/run/netns").glob(f"{PREFIX}-*")]
    return [*mounts, *processes(inside), *namespaces, *([str(DIRECTORY)] if DIRECTORY.exists() else [])]


def unlocked() -> bool:
    """Nobody holds the directory; what a killed demo was just forking holds it until it executes its program.

    And is on its way into a namespace for a moment then, where whoever removes what is in there does not find it yet.
    """
    held = os.open(DIRECTORY, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(held)
    return not processes("nsenter", f"{PREFIX}-")


def fail_on(stage: Stage) -> None:
    for server in stage.web_servers:
        server.start()
    assert left_over()
    raise ZeroDivisionError


def test_a_stage_removes_what_it_made_also_after_an_error():
    with pytest.raises(ZeroDivisionError), Stage(PREFIX, DIRECTORY) as stage:
        fail_on(stage)
    assert left_over() == []


def test_two_demos_at_once_are_refused_and_the_first_one_stays():
    with Stage(PREFIX, DIRECTORY) as stage:
        with pytest.raises(HostError, match="another demo"):
            Stage(PREFIX, DIRECTORY).__enter__()
        assert stage.client.run("true").returncode == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_cleans_up(number):
    demo = subprocess.Popen(DEMO, stderr=subprocess.PIPE, text=True)
    try:
        wait_for("the demo has begun", (DIRECTORY / "web1" / "nginx.pid").exists, 60, every=0.02)
        demo.send_signal(number)
        _, said = demo.communicate(timeout=90)
    finally:
        demo.kill()
    assert demo.returncode == 130, said
    assert left_over() == []


def test_the_next_demo_removes_what_a_killed_one_has_left():
    demo = subprocess.Popen(DEMO, stderr=subprocess.DEVNULL)
    wait_for("the demo has begun", (DIRECTORY / "web1" / "nginx.pid").exists, 60, every=0.02)
    demo.kill()
    demo.wait()
    assert left_over()
    wait_for("it is dead altogether", unlocked, 60, every=0.02)
    with Stage(PREFIX, DIRECTORY):
        pass
    assert left_over() == []


def test_without_root_one_line_says_so():
    done = subprocess.run(
        ["setpriv", "--reuid=65534", "--clear-groups", *DEMO],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (77, "", 1)
    assert "root" in done.stderr


@pytest.mark.timeout(900)
def test_every_promise_of_the_demo_is_kept():
    done = subprocess.run(
        # What it promises within milliseconds is for a machine with nothing else to do: `make demo`.
        [*DEMO, "--json", "--measure", "1", "--patience", "60"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["schema"] == "haxlb.demo/1"
    assert [phase["name"] for phase in report["phases"]] == list(PHASES)
    assert {name: round(part, 1) for name, part in report["phases"][0]["share"].items()} == {
        "web1": 0.5,
        "web2": 0.3,
        "web3": 0.2,
    }
    assert left_over() == []
