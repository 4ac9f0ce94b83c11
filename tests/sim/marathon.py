"""Random faults on random clusters, seed after seed: `make sim`, or `python -m tests.sim.marathon COUNT SEED`.

A line for each hundred that is done. For a seed that breaks a law: the law, the cluster, the whole timeline and the
command that plays it again. Exit code 1 when one did.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from random import Random

from haxlb.sim import Nature, Run, Station, play, rehearse
from haxlb.sim.lottery import draw
from haxlb.sim.report import cast
from haxlb.sim.storm import STORM

COUNT = 2_000
A_HUNDRED = 100
_TWICE_EVERY = 20
"""So many seeds apart law L10 is checked: the run is played twice."""


def cluster(seed: int) -> tuple[Station, ...]:
    """The cluster of one seed."""
    return draw(Random(f"{seed}/cluster"))


def run(seed: int) -> Run:
    """Its storm. L6 is left to the named drills: a storm splits a cluster in ways that no detector can see."""
    again = rehearse if seed % _TWICE_EVERY == 0 else play
    return again(cluster(seed), seed, STORM, Nature(broker=True, judges_alarms=False))


def story(result: Run) -> str:
    """A failure, as it is printed."""
    lines = [f"seed {result.seed} breaks a law"]
    lines += [f"  {law}" for law in result.laws_broken]
    lines += [f"  {line}" for line in cast(cluster(result.seed))]
    lines += [f"  {each.at_us / 1e6:12.6f} s  {each.who:<10}  {each.what}" for each in result.timeline]
    lines.append(f"again: {sys.executable} -m tests.sim.marathon 1 {result.seed}")
    return "\n".join(lines)


def _judge(seed: int) -> tuple[int, int, str]:
    """Seed, events, and the story where a law was broken."""
    try:
        result = run(seed)
    except Exception as problem:
        problem.add_note(f"seed {seed}; again: {sys.executable} -m tests.sim.marathon 1 {seed}")
        raise
    return seed, result.events, story(result) if result.laws_broken else ""


def _results(seeds: range) -> Iterator[tuple[int, int, str]]:
    processes = min(os.cpu_count() or 1, len(seeds))
    if processes == 1:
        yield from map(_judge, seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(_judge, seeds, chunksize=5)


def main() -> int:
    """Play them all."""
    parser = argparse.ArgumentParser(prog="make sim", description="Random faults on random clusters.")
    parser.add_argument("count", nargs="?", type=int, default=COUNT, help="how many seeds")
    parser.add_argument("seed", nargs="?", type=int, default=1, help="the first one")
    arguments = parser.parse_args()
    if arguments.count < 1:
        parser.error("at least one seed must be played")
    begin, events, failures = time.perf_counter(), 0, 0
    for done, (_, fired, told) in enumerate(_results(range(arguments.seed, arguments.seed + arguments.count)), start=1):
        events += fired
        if told:
            failures += 1
            print(told, flush=True)
        if done % A_HUNDRED == 0 or done == arguments.count:
            seconds = time.perf_counter() - begin
            print(f"{done} seeds, {events} events, {seconds:.0f} s: {failures} broke a law", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
