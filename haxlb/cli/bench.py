"""`haxlb bench`: put the forwarder where a benchmark can reach it."""

from __future__ import annotations

import click


@click.group()
def bench() -> None:
    """Measure the forwarder."""


@bench.command()
@click.argument("path", type=click.Path())
@click.option(
    "--scheduler",
    type=click.Choice(["rr", "wrr", "sh", "mh"]),
    default="rr",
    show_default=True,
    help="of the service that it serves",
)
def pin(path: str, scheduler: str) -> None:
    """Pin a forwarder at PATH, in a bpffs, until interrupted.

    It serves 10.200.1.1:80, TCP and UDP, with ten servers, and is attached to nothing: for BPF_PROG_TEST_RUN. Frames
    must be addressed to 02:00:00:00:00:aa and arrive on interface 1 (the loopback, which a test run takes).
    """
    from pathlib import Path

    from haxlb.linux.specimen import pin_until_interrupted

    pin_until_interrupted(Path(path), scheduler, ready=lambda: click.echo(f"pinned at {path}"))
