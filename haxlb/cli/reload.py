"""`haxlb reload`: have a running daemon read its configuration again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from haxlb.cli.client import ask
from haxlb.cli.options import json_option, runtime_dir_option
from haxlb.cli.waiting import tell
from haxlb.daemon.control import Reload

SCHEMA = "haxlb.reload/1"


@click.command(short_help="Have the daemon read its configuration again.")
@runtime_dir_option()
@click.option(
    "--force", is_flag=True, help="Also when an instance or a virtual server would go while the file has errors."
)
@json_option(SCHEMA)
def reload(runtime_dir: Path, *, force: bool, as_json: bool) -> None:
    """Have the daemon read its configuration again, and wait until it is in force.

    A configuration that cannot be used is refused and the old one stays in force; so is one with errors that would
    remove an instance or a virtual server that is in force. What has not changed is not touched.

    Exit codes: 0 in force; 1 in force, but something did not work; 4 refused; 5 in force, but for what its errors
    name; 69 no daemon answers; 71 the host lacks what the new one needs; 77 not permitted.
    """
    answer = ask(runtime_dir, Reload(force=force), tell)
    if as_json:
        result = {
            "schema": SCHEMA,
            "ok": answer.ok,
            "message": answer.message,
            "remedy": answer.remedy,
            "diagnostics": answer.diagnostics,
        }
        click.echo(json.dumps(result, indent=2))
    else:
        if answer.report:
            click.echo(answer.report, err=True)
        said = f"{answer.message} ({answer.remedy})" if answer.remedy else answer.message
        click.echo(said if answer.ok else f"haxlb: {said}", err=not answer.ok)
    sys.exit(answer.exit_code)
