"""Options that several commands have: one name, one default, one sentence."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

RUNTIME_DIR = Path("/run/haxlb")
DEFAULT_FILE = Path("/etc/keepalived/keepalived.conf")
DEFAULT_SETTINGS = Path("/etc/haxlb/haxlb.yml")

_FILE = click.Path(path_type=Path, readable=False)
"""What is wrong with a file is said by whoever reads it, as of every other fault of a configuration."""


class Seconds(click.FloatRange):
    """So many, perhaps without end; but a number: what is compared with `nan` is never over."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """As a float range does."""
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return found


_Command = TypeVar("_Command", bound=Callable[..., Any])


def file_option(purpose: str) -> Callable[[_Command], _Command]:
    """`-f`, passed as `path`; `purpose` is the help: what is done with the file."""
    return click.option(
        "-f",
        "--file",
        "path",
        type=_FILE,
        default=DEFAULT_FILE,
        show_default=True,
        help=purpose,
    )


def settings_option(purpose: str = "haxlb's own settings; need not exist.") -> Callable[[_Command], _Command]:
    """`--settings`: haxlb.yml."""
    return click.option(
        "--settings",
        type=_FILE,
        default=DEFAULT_SETTINGS,
        show_default=True,
        help=purpose,
    )


def config_id_option(command: _Command) -> _Command:
    """`-i`: whose `@ID` lines are taken; empty when it is not given."""
    return click.option(
        "-i",
        "--config-id",
        metavar="ID",
        default="",
        help="Take the lines that begin with @ID, as the director of that name would.  [default: this host's name]",
    )(command)


def json_option(schema: str) -> Callable[[_Command], _Command]:
    """`--json`, passed as `as_json`: one object of this schema instead of text."""
    return click.option("--json", "as_json", is_flag=True, help=f"Print one JSON object, schema {schema}.")


def runtime_dir_option(
    purpose: str = "Where the daemon's control socket is.",
) -> Callable[[_Command], _Command]:
    """`--runtime-dir`: of a daemon that runs, or is to run."""
    return click.option(
        "--runtime-dir",
        type=click.Path(path_type=Path, file_okay=False, readable=False),
        default=RUNTIME_DIR,
        show_default=True,
        help=purpose,
    )
