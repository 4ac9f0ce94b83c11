"""The unit: what systemd says of it, and what it promises of the code."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from haxlb.daemon.notifier import SCRIPTS_TIMEOUT_S
from haxlb.daemon.processes import KILL_PATIENCE_S, STOP_PATIENCE_S
from haxlb.linux.mqtt import CLOSE_PATIENCE_S
from haxlb.linux.notify import GRACE_S
from haxlb.linux.notify_fifo import READER_PATIENCE_S
from haxlb.model.notification import ScriptSettings

UNIT = Path(__file__).parents[2] / "deploy/systemd/haxlb.service"
MARGIN_S = 5


def settings() -> dict[str, str]:
    """The last of each."""
    lines = (line for line in UNIT.read_text().splitlines() if "=" in line and not line.startswith(("#", "[")))
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_has_nothing_to_say_about_it(tmp_path: Path) -> None:
    program = tmp_path / "haxlb"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "haxlb.service"
    unit.write_text(UNIT.read_text().replace("/opt/haxlb/bin/haxlb", str(program)))
    said = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout, said.stderr) == (0, "", "")


def test_the_longest_stop_fits_into_its_time() -> None:
    one_child = STOP_PATIENCE_S + KILL_PATIENCE_S
    scripts = SCRIPTS_TIMEOUT_S + 2 * GRACE_S
    longest = 2 * one_child + scripts + 3 * READER_PATIENCE_S + CLOSE_PATIENCE_S
    shutdown_script = ScriptSettings().shutdown_timeout_us / 1_000_000
    assert longest + shutdown_script + MARGIN_S <= float(settings()["TimeoutStopSec"])


def test_nobody_kills_a_speaker_that_is_leaving() -> None:
    """Not with its supervisor, and not because a script was out of memory."""
    assert settings()["KillMode"] == "process"
    assert settings()["OOMPolicy"] == "continue"
