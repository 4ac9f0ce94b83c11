"""`haxlb show`: how a running director is."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import click

from haxlb.cli.client import ask_or_raise
from haxlb.cli.options import runtime_dir_option
from haxlb.daemon.control import Show
from haxlb.model.errors import Bug
from haxlb.model.status import NodeStatus
from haxlb.model.wire import to_json

RATE_INTERVAL_S = 1.0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Page:
    """Which of the pages was asked for."""

    ipvs: bool
    connections: bool
    stats: bool
    rate: bool
    thresholds: bool

    @property
    def named(self) -> list[str]:
        """The options that ask for one."""
        words = {"-c": self.connections, "--stats": self.stats, "--rate": self.rate, "--thresholds": self.thresholds}
        return [word for word, given in words.items() if given]


@click.group(cls=_Subcommands, invoke_without_command=True, short_help="Show how the director is.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object: the whole status, schema haxlb.status/1; with -c haxlb.connections/1.",
)
@click.option("--history", is_flag=True, help="With all lines of the history, fifty at most, not the last ten alone.")
@click.option("-L", "--ipvs", "ipvs", is_flag=True, help="Only the virtual servers, as `ipvsadm -Ln` prints them.")
@click.option("-n", "numeric", is_flag=True, help="Accepted for `-Ln`: addresses are always numeric.")
@click.option("--stats", is_flag=True, help="As -L, with the connections, packets and bytes since the start.")
@click.option("--rate", is_flag=True, help="As --stats, per second: measured for one second.")
@click.option("--thresholds", is_flag=True, help="As -L, with uthreshold and lthreshold.")
@click.option(
    "-c", "--connections", "connections", is_flag=True, help="The connections on record, as `ipvsadm -Lnc` prints them."
)
@click.option("--json-lines", is_flag=True, help="With -c: one JSON object a line for each connection.")
@click.option("--service", metavar="VS", default="", help="With -c: only of this virtual server.")
@click.option("--server", metavar="RS", default="", help="With -c: only those of this real server.")
@click.option("--client", metavar="ADDRESS[/BITS]", default="", help="With -c: only from this address or network.")
@click.option("--state", "states", metavar="STATE", multiple=True, help="With -c: only in this state (repeatable).")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="With -c: at most so many.")
@runtime_dir_option()
@click.pass_context
def show(
    context: click.Context,
    runtime_dir: Path,
    *,
    as_json: bool,
    history: bool,
    ipvs: bool,
    numeric: bool,
    stats: bool,
    rate: bool,
    thresholds: bool,
    connections: bool,
    json_lines: bool,
    service: str,
    server: str,
    client: str,
    states: tuple[str, ...],
    count: int | None,
) -> None:
    """Show how the director is: instances, virtual servers, health, alarms, data plane, history.

    -c reads the tables of the data plane itself, as root; no daemon need run.

    Exit codes: 0 shown; 1 nothing is called so; 69 no daemon answers; 71 there is no data plane; 77 not permitted.
    """
    del numeric
    page = _Page(ipvs=ipvs, connections=connections, stats=stats, rate=rate, thresholds=thresholds)
    if history and (ipvs or page.named or context.invoked_subcommand is not None):
        raise click.UsageError("--history goes with no other page")
    if context.invoked_subcommand is not None:
        if ipvs or page.named:
            raise click.UsageError(
                f"-L, -c, --stats, --rate and --thresholds do not go with `{context.invoked_subcommand}`"
            )
        return
    if len(page.named) > 1:
        raise click.UsageError(f"{page.named[0]} does not go with {page.named[1]}")
    if connections:
        from haxlb.cli.show_connections import show_connections
        from haxlb.forwarding.connection_filter import Asked
        from haxlb.forwarding.connections import Form

        show_connections(
            runtime_dir,
            Asked(service=service, server=server, client=client, states=states),
            count=count,
            form=Form.JSON if as_json or json_lines else Form.TABLE,
            whole=not json_lines,
        )
        return
    if json_lines or service or server or client or states or count is not None:
        raise click.UsageError("--json-lines, --service, --server, --client, --state and --count go with -c only")
    status = fetch(runtime_dir)
    if as_json:
        click.echo(json.dumps(to_json(status), indent=2))
        return
    if ipvs or page.named:
        click.echo("\n".join(_as_ipvsadm(runtime_dir, status, page)))
        return
    from haxlb.cli.show_render import render

    render(status, sys.stdout, whole_history=history)


def _as_ipvsadm(runtime_dir: Path, status: NodeStatus, page: _Page) -> list[str]:
    from haxlb.cli import show_ipvs

    if page.rate:
        time.sleep(RATE_INTERVAL_S)
        return list(show_ipvs.rates(status, fetch(runtime_dir)))
    if page.thresholds:
        return list(show_ipvs.thresholds(status))
    return list(show_ipvs.statistics(status) if page.stats else show_ipvs.connections(status))


def fetch(runtime_dir: Path) -> NodeStatus:
    """The status of the daemon of this runtime directory. Raises what `ask_or_raise` does."""
    status = ask_or_raise(runtime_dir, Show()).status
    if status is None:
        raise Bug("the daemon has answered without a status")
    return status
