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


HAXLB = [sys.executable, "-c", "from haxlb.cli.main import main; main()"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["check", "--no-interfaces", "-f", "FILE"], 5),
        (["check", "--no-interfaces", "--json", "-f", "FILE"], 5),
        (["config", "show", "-f", "FILE"], None),
        (["keywords", "--json"], 0),
        (["keepalived", "-t", "-f", "FILE"], None),
        (["show", "--json", "--runtime-dir", "DIRECTORY"], 69),
        (["--help"], 0),
        (["shwo"], 2),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_is_gone_changes_no_exit_code_and_is_not_complained_of(tmp_path, arguments, code, unbuffered):
    file = tmp_path / "keepalived.conf"
    file.write_text("wrod x\n" * 2000)
    places = {"FILE": str(file), "DIRECTORY": str(tmp_path)}
    command = [*HAXLB, *(places.get(each, each) for each in arguments)]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    read = subprocess.run(command, capture_output=True, check=False, env=environment)
    assert code in (None, read.returncode)
    for streams in ("stdout",), ("stdout", "stderr"):
        reader, writer = os.pipe()
        os.close(reader)
        try:
            nobody = dict.fromkeys(streams, writer)
            done = subprocess.run(
                command,
                check=False,
                env=environment,
                **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **nobody},
            )
        finally:
            os.close(writer)
        assert done.returncode == read.returncode
        assert done.stderr in (None, read.stderr)


def test_a_reader_that_goes_amid_an_output_changes_nothing(tmp_path):
    file = tmp_path / "keepalived.conf"
    file.write_text("wrod x\n" * 5000)
    with subprocess.Popen([*CHECK, str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        # It has more to say than a pipe holds, and has begun.
        assert process.stdout.read(1)
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 5


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-"])
def test_a_closed_output_is_one_that_nobody_reads(tmp_path, closed):
    file = tmp_path / "keepalived.conf"
    file.write_text("wrod x\n")
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *CHECK, str(file)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (5, "", "")
