"""The live half of `haxlb failover`: a planned hand-over, step by step as it happens."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from haxlb.cli.client import Refused, ask
from haxlb.daemon.control import Failover, Step
from haxlb.model.wire import to_json

SCHEMA = "haxlb.failover/1"


def hand_over(runtime_dir: Path, force: bool, instances: tuple[str, ...], as_json: bool) -> None:  # noqa: FBT001
    """Ask the daemon to hand over; print the steps as they come, or all of them as one JSON object at the end.

    Exits with the daemon's code when the hand-over is refused or fails.
    """
    steps: list[Step] = []

    def show(step: Step) -> None:
        steps.append(step)
        if not as_json and step.step != "refused":  # that one is the answer
            click.echo(f"{'ok  ' if step.ok else 'FAIL'} {step.subject or '-'} {step.step}: {step.reason}")

    answer = ask(runtime_dir, Failover(instances=instances, force=force), show)
    if as_json:
        result = {
            "schema": SCHEMA,
            "ok": answer.ok,
            "message": answer.message,
            "remedy": answer.remedy,
            "steps": [to_json(step) for step in steps],
        }
        click.echo(json.dumps(result, indent=2))
        sys.exit(answer.exit_code)
    if not answer.ok:
        raise Refused(answer)
    click.echo(answer.message)
