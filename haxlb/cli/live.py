"""`haxlb weight`, `haxlb drain`, `haxlb enable`: other weights on a running daemon, without touching the file."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from haxlb.cli.client import ask
from haxlb.cli.options import Seconds, json_option, runtime_dir_option
from haxlb.cli.outcome import conclude
from haxlb.cli.show import fetch
from haxlb.cli.waiting import tell
from haxlb.daemon.control import Answer, SetWeight, refusal
from haxlb.daemon.live_weights import MOST, find_status
from haxlb.model.errors import HaxlbError
from haxlb.model.status import NodeStatus, RealServerStatus

WEIGHT_SCHEMA: Final = "haxlb.weight/1"
DRAIN_SCHEMA: Final = "haxlb.drain/1"
ENABLE_SCHEMA: Final = "haxlb.enable/1"
_LOOK_EVERY_S: Final = 1.0


@click.command(short_help="Give a real server another weight, until it is ended or haxlb restarts.")
@click.argument("virtual_server", metavar="VS")
@click.argument("real_server", metavar="RS")
@click.argument("number", metavar="N", type=click.IntRange(0, MOST))
@runtime_dir_option()
@json_option(WEIGHT_SCHEMA)
def weight(virtual_server: str, real_server: str, number: int, runtime_dir: Path, *, as_json: bool) -> None:
    """Give the real server RS of the virtual server VS the weight N, 0 to 65535, as if the file said so.

    VS and RS are named as `haxlb show` does: `haxlb weight 10.0.0.1:80 192.168.1.11:80 5`. A reload of the file keeps
    the weight; `haxlb enable` ends it, and so does a restart of haxlb.

    Exit codes: 0 in force; 1 no such server, or not in force; 69 no daemon answers; 77 not permitted.
    """
    conclude(_set(runtime_dir, virtual_server, real_server, number), WEIGHT_SCHEMA, as_json=as_json)


@click.command(short_help="Give a real server no new connections; those that it has stay.")
@click.argument("virtual_server", metavar="VS")
@click.argument("real_server", metavar="RS")
@click.option("--wait", is_flag=True, help="Return when it has no connections any more.")
@click.option(
    "--timeout",
    type=Seconds(min=0),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait at most.",
)
@runtime_dir_option()
@json_option(DRAIN_SCHEMA)
def drain(
    virtual_server: str, real_server: str, runtime_dir: Path, *, wait: bool, timeout: float, as_json: bool
) -> None:
    """Set the weight of the real server RS of the virtual server VS to 0: it gets no new connections.

    What it has goes on, and so do clients that a persistent virtual server keeps there. UDP does not say what is new:
    flows of a virtual server of mh, sh or dh may begin there for the longer of the tcp and the udp time of
    `lvs_timeouts` (900 s) more. `haxlb enable` ends it.

    Exit codes: 0 in force (--wait: and drained); 1 no such server, not in force, or connections are left at the
    timeout; 69 no daemon answers; 77 not permitted.
    """
    answer = _set(runtime_dir, virtual_server, real_server, 0)
    if not as_json:
        conclude(answer, DRAIN_SCHEMA, as_json=False)
        if wait:
            click.echo(_waited(runtime_dir, virtual_server, real_server, timeout))
        return
    drained = None
    if wait and answer.ok:
        try:
            said = _waited(runtime_dir, virtual_server, real_server, timeout)
            answer, drained = replace(answer, message=f"{answer.message}; {said}"), True
        except HaxlbError as problem:
            answer, drained = refusal(problem), False
    conclude(answer, DRAIN_SCHEMA, as_json=True, drained=drained)


@click.command(short_help="Give a real server its configured weight again.")
@click.argument("virtual_server", metavar="VS")
@click.argument("real_server", metavar="RS")
@runtime_dir_option()
@json_option(ENABLE_SCHEMA)
def enable(virtual_server: str, real_server: str, runtime_dir: Path, *, as_json: bool) -> None:
    """End what `haxlb weight` or `haxlb drain` has set: the weight of the real server RS is that of the file again.

    Exit codes: 0 in force; 1 no such server, or not in force; 69 no daemon answers; 77 not permitted.
    """
    conclude(_set(runtime_dir, virtual_server, real_server, None), ENABLE_SCHEMA, as_json=as_json)


def _set(runtime_dir: Path, virtual_server: str, real_server: str, number: int | None) -> Answer:
    request = SetWeight(virtual_server=virtual_server, real_server=real_server, weight=number)
    return ask(runtime_dir, request, tell)


def _waited(runtime_dir: Path, virtual_server: str, real_server: str, timeout: float) -> str:
    """That it is drained, in words. Raises HaxlbError when it is not at the timeout, or nobody knows."""
    deadline = time.monotonic() + timeout
    while True:
        server = _server(fetch(runtime_dir), virtual_server, real_server)
        if server.active is None or server.inactive is None:
            raise HaxlbError(
                f"nobody knows whether {server.key} has connections: its virtual server keeps no record of them",
                remedy="it is drained all the same: see its packets in `haxlb show --rate`",
            )
        left = server.active + server.inactive
        if not left:
            return f"{server.key} has no connections any more"
        if time.monotonic() >= deadline:
            raise HaxlbError(
                f"{server.key} still has {server.active} active and {server.inactive} inactive connections",
                remedy="it stays drained: wait longer, or see `haxlb show -c --server`",
            )
        time.sleep(min(_LOOK_EVERY_S, max(0.0, deadline - time.monotonic())))


def _server(status: NodeStatus, virtual_server: str, real_server: str) -> RealServerStatus:
    found = find_status(status.virtual_servers, virtual_server, real_server)
    if found is None:
        raise HaxlbError(
            f"{virtual_server} has no real server {real_server} any more", remedy="the configuration has changed"
        )
    return found
