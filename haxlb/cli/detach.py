"""`haxlb detach`: take every trace of the data plane off this host."""

from __future__ import annotations

from pathlib import Path

import click

from haxlb.cli.options import runtime_dir_option


@click.command(short_help="Remove the forwarder of a stopped daemon: links, programs, maps.")
@runtime_dir_option()
def detach(runtime_dir: Path) -> None:
    """Remove the forwarder of a stopped daemon: links, programs, maps.

    A daemon that stops leaves its data plane behind on purpose: traffic flows on. This ends it.

    Exit codes: 0 removed, or nothing there; 71 a daemon still runs; 77 not permitted.
    """
    from haxlb.linux.teardown import tear_down

    removed = tear_down(runtime_dir)
    for what in removed:
        click.echo(f"removed {what}")
    if not removed:
        click.echo("nothing to remove")
