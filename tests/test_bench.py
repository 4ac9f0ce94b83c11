"""That benchmarks can be run, which nothing else here does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_every_benchmark_can_be_read_and_says_what_it_measures() -> None:
    command = [sys.executable, "-m", "tests.bench", "--list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[1])
    assert done.returncode == 0, done.stderr
    said = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert {"forwarder", "config", "soak", "plan"} <= said.keys()
