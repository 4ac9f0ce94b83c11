"""`haxlb show`: how a running director is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from haxlb.cli.client import ask_or_raise
from haxlb.cli.options import runtime_dir_option
from haxlb.daemon.control import Show
from haxlb.model.errors import Bug
from haxlb.model.status import NodeStatus
from haxlb.model.wire import to_json


class _Subcommands(click.Group):
    """Imports a part's page only when it is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """There is one."""
        del ctx
        return ["vrrp"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load it."""
        del ctx
        if cmd_name != "vrrp":
            return None
        from haxlb.cli.show_vrrp import vrrp

        return vrrp


@click.group(cls=_Subcommands, invoke_without_command=True, short_help="Show how the director is.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print the whole status as one JSON object, schema haxlb.status/1."
)
@click.option(
    "-L",
    "--ipvs",
    "ipvs",
    is_flag=True,
    help="Only the virtual servers, as `ipvsadm -Ln` prints them; how many connections are open is not known.",
)
@click.option("-n", "numeric", is_flag=True, help="Accepted for `-Ln`: addresses are always numeric.")
@click.option("--stats", is_flag=True, help="As -L, with the connections, packets and bytes since the start.")
@runtime_dir_option()
@click.pass_context
def show(context: click.Context, runtime_dir: Path, *, as_json: bool, ipvs: bool, numeric: bool, stats: bool) -> None:
    """Show how the director is: instances, virtual servers, health, alarms, data plane, history.

    Exit codes: 0 shown; 69 no daemon answers; 77 not permitted.
    """
    del numeric
    if context.invoked_subcommand is not None:
        if ipvs or stats:
            raise click.UsageError(f"-L and --stats do not go with `{context.invoked_subcommand}`")
        return
    status = fetch(runtime_dir)
    if as_json:
        click.echo(json.dumps(to_json(status), indent=2))
        return
    if ipvs or stats:
        from haxlb.cli.show_ipvs import connections, statistics

        click.echo("\n".join(statistics(status) if stats else connections(status)))
        return
    from haxlb.cli.show_render import render

    render(status, sys.stdout)


def fetch(runtime_dir: Path) -> NodeStatus:
    """The status of the daemon of this runtime directory. Raises what `ask_or_raise` does."""
    status = ask_or_raise(runtime_dir, Show()).status
    if status is None:
        raise Bug("the daemon has answered without a status")
    return status
