"""`haxlb swap`: compile the forwarder anew and exchange the program that is attached."""

from __future__ import annotations

from pathlib import Path

import click

from haxlb.cli.client import ask
from haxlb.cli.options import json_option, runtime_dir_option
from haxlb.cli.outcome import conclude
from haxlb.cli.waiting import tell
from haxlb.daemon.control import Swap

SCHEMA = "haxlb.swap/1"


@click.command(short_help="Compile the forwarder anew and swap it in, without losing a packet.")
@runtime_dir_option()
@json_option(SCHEMA)
def swap(runtime_dir: Path, *, as_json: bool) -> None:
    """Compile the forwarder anew and swap it in, without losing a packet; tables and flows stay.

    After an update of haxlb or of the kernel. The old program stays in force when the new one is refused.

    Exit codes: 0 swapped; 1 not swapped; 69 no daemon answers; 71 it cannot be compiled here; 77 not permitted.
    """
    conclude(ask(runtime_dir, Swap(), tell), SCHEMA, as_json=as_json)
