"""`haxlb failover`: hand over to the peer, or rehearse what happens when the director fails."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from haxlb.cli.options import file_option, runtime_dir_option

SCENARIO_NAMES = (
    "crash",
    "graceful-stop",
    "planned-failover",
    "return-of-master",
    "freeze",
    "killed",
    "speaker-killed",
    "link-down",
    "link-cut",
    "one-way-cut-out",
    "one-way-cut-in",
    "track-fails",
    "storm",
)
"""Those of `haxlb.sim`, which a live hand-over need not import."""
_ONLY_SIMULATED = ("peers", "nodes", "seed", "runs", "scenario", "track", "broker", "path", "settings")
TRACK_FAILS = "track-fails"
_ONLY_LIVE = ("force", "runtime_dir")


@click.command(short_help="Hand over to the peer, or rehearse a failover (--simulate).")
@click.argument("instances", nargs=-1, metavar="[INSTANCE]...")
@click.option("--simulate", is_flag=True, help="Rehearse in a virtual world: no root, no network, no daemon.")
@file_option("With --simulate: the keepalived.conf of one director.")
@click.option(
    "--peer",
    "peers",
    type=click.Path(path_type=Path),
    multiple=True,
    help="With --simulate: the file of another director, instead of a derived counterpart; may be repeated.",
)
@click.option(
    "--settings",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="With --simulate: haxlb's own settings.  [default: /etc/haxlb/haxlb.yml where it exists]",
)
@click.option("--nodes", type=click.IntRange(2, 9), help="With --simulate: how many directors.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="With --simulate: the first seed.")
@click.option(
    "--runs",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="With --simulate: how many seeds from there on; one prints its timeline, more a summary.",
)
@click.option(
    "--scenario",
    type=click.Choice(SCENARIO_NAMES),
    help="With --simulate: play only this one; else seed 1 plays the first, the next seed the next, and round again "
    "(without track-fails and storm).",
)
@click.option(
    "--track",
    metavar="NAME",
    help="With --simulate: let this track script, file, process or BFD session of the master fail: track-fails.",
)
@click.option(
    "--broker/--no-broker",
    default=None,
    help="With --simulate: with or without an MQTT broker, whatever the settings say.",
)
@click.option("--force", is_flag=True, help="Hand over although no peer is heard.")
@runtime_dir_option("Where the daemon has its control socket.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def failover(
    context: click.Context,
    instances: tuple[str, ...],
    *,
    path: Path,
    peers: tuple[Path, ...],
    settings: Path | None,
    nodes: int | None,
    seed: int,
    runs: int,
    scenario: str | None,
    track: str | None,
    runtime_dir: Path,
    simulate: bool,
    broker: bool | None,
    force: bool,
    as_json: bool,
) -> None:
    """Hand the named instances (all, when none is named) over to the peer, without breaking a connection.

    With --simulate nothing real is touched: virtual directors that run the code of the real ones crash, freeze and
    lose each other, and the timeline, the outage per VIP and the split brains are printed.

    Exit codes: 0 handed over, or all laws held; 1 refused or failed, or a law was broken; 2 wrong usage; 4 the
    configuration cannot be used; 69 no daemon answers; 77 not permitted.
    """
    _refuse_mixture(context, instances, simulate=simulate)
    if simulate:
        if track is not None and scenario not in (None, TRACK_FAILS):
            raise click.UsageError(f"--track is for the scenario {TRACK_FAILS}, not for {scenario}")
        from haxlb.cli.drill import Order, drill

        order = Order(
            path=path,
            peers=peers,
            settings=settings,
            nodes=nodes,
            seed=seed,
            runs=runs,
            scenario=scenario if track is None else TRACK_FAILS,
            track=track or "",
            broker=broker,
            as_json=as_json,
        )
        sys.exit(0 if drill(order) else 1)
    from haxlb.cli.handover import hand_over

    hand_over(runtime_dir, force, instances, as_json)


def _refuse_mixture(context: click.Context, instances: tuple[str, ...], *, simulate: bool) -> None:
    """An option of the other mode would be ignored: say so instead."""
    if simulate and instances:
        raise click.UsageError("--simulate plays all instances of the file: name none")
    for name in _ONLY_LIVE if simulate else _ONLY_SIMULATED:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            option = next(each for each in context.command.params if each.name == name)
            where = "goes without" if simulate else "needs"
            raise click.UsageError(f"{option.opts[-1]} {where} --simulate")
