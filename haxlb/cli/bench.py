"""`haxlb bench`: put the forwarder where a benchmark can reach it."""

from __future__ import annotations

import click

from haxlb.model.virtual_server import Scheduler

SCHEDULERS = [each.value for each in Scheduler]


@click.group(short_help="For developers: put the forwarder where it can be measured.")
def bench() -> None:
    """Put the forwarder where a benchmark can reach it. `make bench`, in the source, measures it."""


@bench.command()
@click.argument("path", type=click.Path())
@click.option(
    "--scheduler",
    type=click.Choice(SCHEDULERS),
    default="rr",
    show_default=True,
    help="of the service that it serves",
)
@click.option(
    "--features", default="", metavar="A,B", help="compile these: `all`, `none`; by default what the service needs"
)
def pin(path: str, scheduler: str, features: str) -> None:
    """Pin a forwarder at PATH, in a bpffs, until interrupted.

    It serves 10.200.1.1:80, TCP and UDP, with ten servers, and is attached to nothing: for BPF_PROG_TEST_RUN. Frames
    must be addressed to 02:00:00:00:00:aa and arrive on interface 1 (the loopback, which a test run takes). There is
    room for four million flows.
    """
    from pathlib import Path

    from haxlb.forwarding.features import Features
    from haxlb.linux.specimen import pin_until_interrupted

    if features:
        try:
            Features.parse(features)
        except ValueError as problem:
            raise click.BadParameter(str(problem), param_hint="--features") from problem
    pin_until_interrupted(Path(path), scheduler, features, ready=lambda: click.echo(f"pinned at {path}"))
