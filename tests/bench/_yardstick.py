"""The forwarder in the yardstick's harness, beside it: built as its configuration needs it, and with every feature."""

from __future__ import annotations

import contextlib
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from haxlb.forwarding.features import ALL
from haxlb.linux.bpffs import ensure_bpffs, unmount
from haxlb.linux.specimen import features_of, pinned, specimen, table
from haxlb.model.virtual_server import Scheduler

HARNESS = Path(__file__).parents[3] / "shared" / "bench" / "run.sh"
SCHEDULERS = (Scheduler.RR, Scheduler.WLC, Scheduler.MH)
BOUNDS = {
    "hit: ACK, 1 flow": (1.3, 1.25),
    "hit: ACK, 64k flows": (1.2, 0.6),
    "hit: ACK, 1M flows": (1.2, 0.4),
    "miss: SYN": (1.3, 0.4),
    "miss: ACK of unknown flow": (1.3, 0.4),
    "UDP hit, 1 flow": (1.3, 1.25),
    "non-VIP pass-through": (1.2, 1.2),
}
"""What a packet may cost in yardsticks: of a scheduler whose flows are on record, of one that goes by the hash."""
COPIES = 3
"""Of the one that is built as needed. Where in memory a table comes to lie makes a fifth of difference."""
_LINE = re.compile(r"^(\S+) +(\S.*?) {2,}([\d.]+) +([\d.]+) +[\d.]+ +(\w+) ")


def beside_the_yardstick(rounds: int) -> Iterator[dict[str, Any]]:
    """Nothing, and a word about it, where the harness is not there: it is no part of this repository."""
    if not HARNESS.exists():
        print(f"forwarder: nothing beside the yardstick, whose harness {HARNESS} is not there", file=sys.stderr)
        return
    for scheduler in SCHEDULERS:
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="haxlb-")))
            ensure_bpffs(folder)
            stack.callback(unmount, folder)
            pins = []
            needed = features_of(scheduler)
            for name, features in [*((f"needed-{copy}", needed) for copy in range(COPIES)), ("all", ALL)]:
                loaded = stack.enter_context(specimen(table(scheduler), features=features))
                stack.enter_context(pinned(loaded.program, folder / name))
                pins += ["--pin", f"{name}={folder / name}"]
            command = [HARNESS, "--rounds", str(rounds), "--only", "yardstick-4M", *pins]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            yield {"scheduler": scheduler.value, "problem": (done.stderr or done.stdout).strip().splitlines()[-1:]}
            continue
        yield from _rows(scheduler, done.stdout)


def _rows(scheduler: Scheduler, output: str) -> Iterator[dict[str, Any]]:
    figures: dict[str, dict[str, tuple[float, float]]] = {}
    for line in output.splitlines():
        if found := _LINE.match(line):
            target, case, median, least, _ = found.groups()
            # The yardstick's own name of a case says what it does then.
            figures.setdefault(case.split(" + ")[0], {})[target] = (float(median), float(least))
    for case, by_target in figures.items():
        yardstick, yardstick_least = by_target.pop("yardstick-4M")
        for features in ("needed", "all"):
            copies = [found for target, found in by_target.items() if target.split("-")[0] == features]
            ours, least = (statistics.median(column) for column in zip(*copies, strict=True))
            ratio = round(ours / yardstick, 2)
            bound = BOUNDS[case][scheduler.hashes] if case in BOUNDS else None
            yield {
                "scheduler": scheduler.value,
                "features": features,
                "case": case,
                "ns": ours,
                "yardstick_ns": yardstick,
                "ratio": ratio,
                "ratios": sorted(round(each / yardstick, 2) for each, _ in copies),
                "ratio_of_minima": round(least / yardstick_least, 2),
                **({} if bound is None else {"bound": bound, "met": ratio <= bound}),
            }
