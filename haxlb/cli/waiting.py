"""What a command that takes its time says meanwhile."""

from __future__ import annotations

import click

from haxlb.daemon.control import Step


def tell(step: Step) -> None:
    """Say on stderr what is waited for: what was asked for is on stdout."""
    click.echo(f"haxlb: {step.reason} …", err=True)
