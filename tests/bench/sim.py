"""How fast virtual time passes: a day of three directors, two hundred drills of the tutorial's pair, fifty storms."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from haxlb.config import load_or_raise
from haxlb.model.node import NodeConfig
from haxlb.sim import Nature, World, by_seed, plan, rehearse
from tests.sim import marathon

TUTORIAL = Path(__file__).parents[2] / "docs/tutorial/keepalived.conf"
HOUR_US = 3_600_000_000
DAY_LIMIT_S = 10
DRILLS = 200
DRILLS_LIMIT_S = 20
STORMS = 50
STORMS_LIMIT_S = 15


def measure() -> Iterator[dict[str, Any]]:
    """Seconds of this machine, and how many virtual seconds pass in one of them."""
    config = load_or_raise(TUTORIAL, settings=None, node="bench").config
    assert config is not None
    yield _day(config)
    yield _drills(config)
    yield _storms()


def _day(config: NodeConfig) -> dict[str, Any]:
    world = World(plan(config, nodes=3), 1, Nature())
    for director in world.directors:
        world.loop.at(0, director.power_on)
    begin = time.perf_counter()
    world.loop.run_until(24 * HOUR_US)
    seconds = time.perf_counter() - begin
    return {
        "bench": "sim.day",
        "nodes": 3,
        "virtual_hours": 24,
        "events": world.loop.fired,
        "laws_broken": len(world.laws.breaches),
        "seconds": round(seconds, 3),
        "speed_up": round(24 * 3600 / seconds),
        "limit_seconds": DAY_LIMIT_S,
    }


def _drills(config: NodeConfig) -> dict[str, Any]:
    stations = plan(config)
    begin = time.perf_counter()
    runs = [rehearse(stations, seed, by_seed(seed), Nature()) for seed in range(1, DRILLS + 1)]
    seconds = time.perf_counter() - begin
    return {
        "bench": "sim.drills",
        "runs": DRILLS,
        "laws_broken": sum(len(run.laws_broken) for run in runs),
        "seconds": round(seconds, 3),
        "limit_seconds": DRILLS_LIMIT_S,
    }


def _storms() -> dict[str, Any]:
    begin = time.perf_counter()
    runs = [marathon.run(seed) for seed in range(1, STORMS + 1)]
    seconds = time.perf_counter() - begin
    return {
        "bench": "sim.storms",
        "runs": STORMS,
        "events": sum(run.events for run in runs),
        "laws_broken": sum(len(run.laws_broken) for run in runs),
        "seconds": round(seconds, 3),
        "limit_seconds": STORMS_LIMIT_S,
    }
