"""What a packet costs in the forwarder: beside the yardstick, kind by kind, and as frames over a veth pair.

`HX_ROUNDS` changes how often a case is measured. The kernel reports whole nanoseconds of the mean of many runs; the
cases of a run are measured in turn, and their medians and minima are given. Bounds are of ratios of medians.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from tests.bench._kinds import kinds
from tests.bench._live_frames import live_frames
from tests.bench._yardstick import beside_the_yardstick

ROUNDS = int(os.environ.get("HX_ROUNDS", "7"))


def measure() -> Iterator[dict[str, Any]]:
    """One row a case."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    yield from beside_the_yardstick(ROUNDS)
    yield from kinds(ROUNDS)
    yield from live_frames(ROUNDS)
