"""The second chance of a test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
UNLUCKY = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range({number}))
def test_it(number):
    mark = Path({place!r}) / str(number)
    before = mark.exists()
    mark.touch()
    assert before
"""

INTERRUPTED = """
import signal
import time
from pathlib import Path
import pytest

@pytest.fixture
def made():
    yield
    time.sleep(0.5)
    Path({tidy!r}).touch()

def test_it(made):
    Path({begun!r}).write_text("begun")
    signal.pause()
"""
"""To tidy up takes longer than subprocess.run waits for who is interrupted."""


def run(place: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (place / "test_made.py").write_text(text)
    (place / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "tests.twice", "-q", "-c", str(place / "pytest.ini"), str(place), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.parametrize(("number", "code"), [(3, 0), (4, 1)])
def test_a_few_that_fail_beside_others_and_not_alone_are_named(tmp_path: Path, number: int, code: int) -> None:
    done = run(tmp_path, UNLUCKY.format(number=number, place=str(tmp_path)))
    assert done.returncode == code, done.stdout + done.stderr
    assert ("not alone" in done.stdout) == (code == 0)
    assert "test_made.py::test_it[0]" in done.stdout


@pytest.mark.parametrize(
    ("text", "code", "runs"),
    [("def test_it():\n    assert False\n", 1, 2), ("import no_such_module\n", 2, 2), ("", 5, 1)],
    ids=["fails", "cannot be read", "nothing there"],
)
def test_what_fails_twice_fails(tmp_path: Path, text: str, code: int, runs: int) -> None:
    done = run(tmp_path, text)
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stdout.count("Once more") == runs - 1
    assert "not alone" not in done.stdout


def test_what_is_written_down_nowhere_is_not_run_again(tmp_path: Path) -> None:
    done = run(tmp_path, "def test_it():\n    assert False\n", "-p", "no:cacheprovider")
    assert done.returncode == 1
    assert "Once more" not in done.stdout
    assert "Traceback" not in done.stderr


def test_who_is_interrupted_waits_until_pytest_has_tidied_up(tmp_path: Path) -> None:
    begun, tidy = tmp_path / "begun", tmp_path / "tidy"
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_made.py").write_text(INTERRUPTED.format(begun=str(begun), tidy=str(tidy)))
    os.mkfifo(begun)
    command = [sys.executable, "-m", "tests.twice", "-n0", "-q", "-c", str(tmp_path / "pytest.ini"), str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, start_new_session=True
    ) as process:
        assert begun.read_text() == "begun"
        os.killpg(process.pid, signal.SIGINT)
        said, _ = process.communicate()
    assert process.returncode == 2, said
    assert tidy.exists()
    assert "Once more" not in said
