"""What a flood of foreign adverts costs a pair of directors, and how late their own adverts get.

Needs root: three network namespaces on a bridge. v3 at 100 ms and v2 at 1 s side by side, flooded for three seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

SECONDS = 3.0
RATE = 100_000
LIMIT_MS = 300
"""Three intervals: the backup would take over."""


def measure() -> Iterator[dict[str, Any]]:
    """One row per kind of flood."""
    from lab import Lab

    from tests.netns.floods import FLOODS, Pair

    with Lab(f"hxflb{os.getpid()}") as lab:
        pair = Pair(lab)
        try:
            for name, frames in FLOODS.items():
                outcome = asdict(pair.flood(frames(), RATE, SECONDS))
                outcome["longest_gap_ms"] = round(outcome["longest_gap_ms"], 2)
                outcome["longest_gap_of_seconds_ms"] = round(outcome["longest_gap_of_seconds_ms"], 2)
                yield {"flood": name, **outcome, "limit_ms": LIMIT_MS}
        finally:
            pair.close()
