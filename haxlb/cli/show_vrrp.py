"""`haxlb show vrrp`: the VRRP instances of a running director, each with all that decides its role."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from click.core import ParameterSource

from haxlb.cli.options import json_option, runtime_dir_option
from haxlb.cli.show import fetch
from haxlb.model.errors import HaxlbError
from haxlb.model.status import InstanceStatus, NodeStatus
from haxlb.model.wire import to_json
from keepalived_compat.nearest import did_you_mean

SCHEMA = "haxlb.show-vrrp/1"


@click.command(short_help="Show VRRP instances in detail.")
@click.argument("instance", required=False)
@json_option(SCHEMA)
@runtime_dir_option()
@click.pass_context
def vrrp(context: click.Context, instance: str | None, runtime_dir: Path, *, as_json: bool) -> None:
    """Show each VRRP instance, or only INSTANCE: role and why, the sum of its priority, what happens next, the other
    directors' adverts, counters, tracked things, the last twenty changes of role.

    Exit codes: 0 shown; 1 there is no such instance; 69 no daemon answers; 77 not permitted.
    """
    above = context.parent.params if context.parent is not None else {}
    if context.get_parameter_source("runtime_dir") is ParameterSource.DEFAULT:
        # `haxlb show --runtime-dir X vrrp`
        runtime_dir = above.get("runtime_dir", runtime_dir)
    status = fetch(runtime_dir)
    chosen = _chosen(status, instance)
    if as_json or above.get("as_json"):
        document = {
            "schema": SCHEMA,
            "node": status.node,
            "at": status.at,
            "lag": to_json(status.lag),
            "instances": to_json(chosen),
            "tracked": to_json(status.tracked),
        }
        click.echo(json.dumps(document, indent=2))
        return
    from haxlb.cli.show_vrrp_render import render

    render(status, chosen, sys.stdout)


def _chosen(status: NodeStatus, name: str | None) -> tuple[InstanceStatus, ...]:
    if name is None:
        return status.instances
    chosen = tuple(each for each in status.instances if each.name == name)
    if not chosen:
        known = [each.name for each in status.instances]
        raise HaxlbError(
            f"no instance is called {name}",
            remedy=did_you_mean(name, known) or f"there are: {', '.join(known) or 'none'}",
        )
    return chosen
