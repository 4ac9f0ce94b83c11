"""How a command on a running daemon ends: one line for people, or one JSON object."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from haxlb.cli.client import Refused
from haxlb.daemon.control import Answer


def conclude(answer: Answer, schema: str, *, as_json: bool, **more: Any) -> None:
    """Print the answer and, where it is no success, exit with its code; `more` are fields of the object alone.

    Raises Refused when people are to read of a refusal.
    """
    if as_json:
        said = {"schema": schema, "ok": answer.ok, "message": answer.message, "remedy": answer.remedy, **more}
        click.echo(json.dumps(said, indent=2))
        if not answer.ok:
            sys.exit(answer.exit_code or 1)
        return
    if not answer.ok:
        raise Refused(answer)
    click.echo(answer.message)
