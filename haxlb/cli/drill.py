"""`haxlb failover --simulate`: reads the configuration, plays drills, prints what came of them."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from pathlib import Path

import click

from haxlb.cli.options import DEFAULT_SETTINGS
from haxlb.config import load
from haxlb.model.errors import ConfigError
from haxlb.model.node import NodeConfig
from haxlb.sim.drill import Run, rehearse
from haxlb.sim.report import as_json, has_broker, story, sums
from haxlb.sim.scenario import SCENARIOS, Scenario, by_seed
from haxlb.sim.storm import ON_DEMAND, STORM
from haxlb.sim.topology import plan
from haxlb.sim.world import Nature
from keepalived_compat.diagnostics import Severity
from keepalived_compat.rendering import as_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What the command line asks for."""

    path: Path
    peers: tuple[Path, ...]
    settings: Path | None
    """None = the default one, where it exists."""
    nodes: int | None
    seed: int
    runs: int
    scenario: str | None
    """None = each seed has its own."""
    track: str
    """What fails in `track-fails`; empty = the first thing that is tracked."""
    broker: bool | None
    """None = as the settings say."""
    as_json: bool


def drill(order: Order) -> bool:
    """Play and print; whether all laws held. Raises ConfigError."""
    config = _read(order.path, order.settings)
    stations = plan(config, tuple(_read(each, order.settings) for each in order.peers), order.nodes)
    broker = has_broker(config) if order.broker is None else order.broker
    # A storm splits a cluster in ways that no detector can see.
    nature = Nature(broker=broker, judges_alarms=order.scenario != STORM.name)
    seeds = range(order.seed, order.seed + order.runs)
    runs: list[Run] = [rehearse(stations, seed, _scenario(order, seed), nature, track=order.track) for seed in seeds]
    if order.as_json:
        click.echo(json.dumps(as_json(runs), indent=2))
    elif len(runs) == 1:
        click.echo(story(runs[0], stations, broker=broker))
    else:
        click.echo(sums(runs, stations, broker=broker))
    return not any(run.laws_broken for run in runs)


def _scenario(order: Order, seed: int) -> Scenario:
    if order.scenario is None:
        return by_seed(seed)
    return next(each for each in (*SCENARIOS, *ON_DEMAND) if each.name == order.scenario)


def _read(path: Path, settings: Path | None) -> NodeConfig:
    """The configuration; complaints that change what it does go to stderr."""
    loaded = load(path, settings=settings or DEFAULT_SETTINGS, interfaces=None, node=socket.gethostname())
    for each in loaded.diagnostics:
        if each.severity.rank <= Severity.ERROR.rank:
            click.echo(as_text(each, loaded.sources, colour=False), err=True)
    if loaded.config is None:
        raise ConfigError(f"{path} cannot be used: its complaints are above")
    if not loaded.config.instances:
        raise ConfigError(
            f"{path} has no vrrp_instance: there is nothing that could fail over",
            remedy="name a configuration with at least one vrrp_instance",
        )
    return loaded.config
