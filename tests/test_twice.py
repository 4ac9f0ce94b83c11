"""The second chance of a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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


def run(place: Path, text: str) -> subprocess.CompletedProcess[str]:
    (place / "test_made.py").write_text(text)
    (place / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "tests.twice", "-q", "-c", str(place / "pytest.ini"), str(place)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])


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
