"""`haxlb detach`: take every trace of the data plane off this host."""

from __future__ import annotations

import click


@click.command()
@click.option(
    "--runtime-dir",
    type=click.Path(),
    default="/run/haxlb",
    show_default=True,
    help="the runtime directory of the daemon whose data plane goes",
)
def detach(runtime_dir: str) -> None:
    """Detach the forwarder and remove its programs, maps and pins.

    A stopped daemon leaves its data plane behind on purpose: traffic flows on. This ends it.
    """
    from pathlib import Path

    from haxlb.linux.teardown import tear_down

    removed = tear_down(Path(runtime_dir))
    for what in removed:
        click.echo(f"removed {what}")
    if not removed:
        click.echo("nothing to remove")
