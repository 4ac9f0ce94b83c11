"""`haxlb resume`: end what `haxlb failover` has begun."""

from __future__ import annotations

from pathlib import Path

import click

from haxlb.cli.client import ask
from haxlb.cli.options import json_option, runtime_dir_option
from haxlb.cli.outcome import conclude
from haxlb.daemon.control import Resume

SCHEMA = "haxlb.resume/1"


@click.command(short_help="Let instances that were handed over preempt again.")
@click.argument("instances", nargs=-1, metavar="[INSTANCE]...")
@runtime_dir_option()
@json_option(SCHEMA)
def resume(instances: tuple[str, ...], runtime_dir: Path, *, as_json: bool) -> None:
    """Let the named instances (all, when none is named) preempt again as the configuration says.

    After `haxlb failover` an instance leaves the role to its peer for as long as that lives, whatever its priority.

    Exit codes: 0 done, or nothing to do; 1 no such instance; 69 no daemon answers; 77 not permitted.
    """
    conclude(ask(runtime_dir, Resume(instances=instances)), SCHEMA, as_json=as_json)
