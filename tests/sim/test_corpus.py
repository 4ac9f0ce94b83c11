"""Public keepalived.conf files: every one that haxlb can use is rehearsed, and no law is broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from haxlb.config import load
from haxlb.model.node import NodeConfig
from haxlb.sim import SCENARIOS, Nature, play
from haxlb.sim.topology import plan

CORPUS = Path(__file__).parents[3] / "shared/corpus/wild"


def usable() -> list[tuple[str, NodeConfig]]:
    out = []
    for path in sorted(CORPUS.glob("*.conf")):
        config = load(path, settings=None, interfaces=None, node="lb1").config
        if config is not None and config.instances:
            out.append((path.name, config))
    return out


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of public configurations is not here")
def test_public_configurations_keep_the_laws() -> None:
    configurations = usable()
    assert len(configurations) > 30
    for number, (name, config) in enumerate(configurations):
        stations = plan(config)
        for offset in range(3):
            scenario = SCENARIOS[(3 * number + offset) % len(SCENARIOS)]
            run = play(stations, number, scenario, Nature(broker=True))
            assert run.laws_broken == (), (name, scenario.name)
            assert all(each.unserved_us <= each.theory_us + 2_000 for each in run.outages), (name, scenario.name)
