"""The `haxlb` command itself, and options that several commands share."""

from __future__ import annotations

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
