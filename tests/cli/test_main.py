"""The `haxlb` command itself, and options that several commands share."""

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from haxlb.cli.main import COMMANDS, haxlb

SHARED = {"path": Path("/etc/keepalived/keepalived.conf"), "runtime_dir": Path("/run/haxlb"), "config_id": ""}


@pytest.mark.parametrize(("word", "says"), [("chekc", "did you mean `check`?"), ("Reload", "did you mean `reload`?")])
def test_a_misspelt_command_gets_the_nearest(word, says):
    result = CliRunner().invoke(haxlb, [word])
    assert result.exit_code == 2
    assert result.stderr.rstrip().endswith(f"Error: No such command '{word}'. {says}")


def test_a_command_that_is_near_to_none_gets_no_guess():
    result = CliRunner().invoke(haxlb, ["frobnicate"])
    assert result.exit_code == 2
    assert result.stderr.rstrip().endswith("Error: No such command 'frobnicate'.")


def test_shared_options_have_one_default():
    context = click.Context(haxlb)
    found = {name: set() for name in SHARED}
    for command in (haxlb.get_command(context, name) for name in COMMANDS):
        for parameter in command.params:
            if parameter.name in SHARED and isinstance(parameter, click.Option):
                found[parameter.name].add(parameter.default)
    assert found == {name: {default} for name, default in SHARED.items()}


DATA = Path(__file__).parents[1] / "config" / "data"
CHECK = [sys.executable, "-c", "from haxlb.cli.main import main; main()", "check", "--no-interfaces", "-f"]


def test_check_has_said_all_when_its_process_ends(tmp_path):
    """More than a pipe holds, with the exit code and the text of the command that is called in this process."""
    file = tmp_path / "keepalived.conf"
    file.write_text("wrod x\n" * 5000)
    done = subprocess.run([*CHECK, str(file)], capture_output=True, text=True, check=False)
    called = CliRunner().invoke(haxlb, ["check", "--no-interfaces", "-f", str(file)])
    assert (done.returncode, done.stdout, done.stderr) == (5, called.stdout, "")
    assert len(done.stdout) > 5000 * 80


def test_check_whose_output_cannot_be_written_does_not_end_well(tmp_path):
    file = tmp_path / "keepalived.conf"
    file.write_text((DATA / "master.conf").read_text())
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([*CHECK, str(file)], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == os.EX_IOERR
    assert done.stderr == "haxlb: the output could not be written: No space left on device\n"


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_closed_output_is_one_that_nobody_reads(tmp_path, closed):
    file = tmp_path / "keepalived.conf"
    file.write_text("wrod x\n")
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *CHECK, str(file)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (5, "", "")
