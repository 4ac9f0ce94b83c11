"""What a million connections cost: to sweep them, and to list them with `haxlb show -c`."""

from __future__ import annotations

import mmap
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from haxlb.linux.sweeper import Sweeper
from tests.bpf.flow_tables import BACKENDS, FRONTEND, INCARNATION, FlowTables, flow_tables, now

_ESTABLISHED: Final = 3
_LOG2: Final = 20
_ROUNDS: Final = 5
_FORMS: Final = {
    "table": ("-Lnc",),
    "json": ("-c", "--json"),
    "json lines": ("-c", "--json-lines"),
    "table, one client": ("-Lnc", "--client", "10.0.0.7"),
    "table, one server": ("-Lnc", "--server", "10.200.1.2"),
    "table, ten lines": ("-Lnc", "--count", "10"),
}


def measure() -> Iterator[dict[str, object]]:
    """A row for each figure; milliseconds are the best of five rounds."""
    with (
        tempfile.TemporaryDirectory(prefix="hxconnections") as runtime,
        flow_tables(Path(runtime), f"--flow-buckets-log2={_LOG2}") as tables,
    ):
        buckets = 1 << _LOG2
        yield _sweep(tables, "no flows")
        _fill(tables, buckets, age_s=1)
        yield _sweep(tables, f"{4 * buckets} live flows")
        yield _sweep(tables, f"{4 * buckets} live flows, counted", counting=True)
        _fill(tables, buckets, age_s=2000)
        yield _sweep(tables, f"{4 * buckets} flows that end", rounds=1)
        _fill(tables, 1_000_000 // 4, age_s=1)
        for form, arguments in _FORMS.items():
            yield _list(Path(runtime), form, arguments)


def _fill(tables: FlowTables, buckets: int, *, age_s: int) -> None:
    tables.clear()
    stamp = (now() - age_s * round(1 / time.clock_getres(6))) & 0xFFFFFFFF
    flows = (
        struct.pack(
            "=IHHQ",
            int.from_bytes((10 << 24 | number >> 4).to_bytes(4, "big"), "little"),
            number & 0xFFFF,
            FRONTEND,
            stamp << 32 | _ESTABLISHED << 24 | INCARNATION << 16 | BACKENDS[number % len(BACKENDS)],
        )
        for number in range(4 * buckets)
    )
    shape = tables.maps.shape("flows")
    with mmap.mmap(tables.maps.fds["flows"], shape.entries * shape.value_size) as memory:
        content = b"".join(flows)
        memory[: len(content)] = content


def _sweep(tables: FlowTables, what: str, *, counting: bool = False, rounds: int = _ROUNDS) -> dict[str, object]:
    sweeper = Sweeper()
    sweeper.use(tables.program.parent)
    sweeper.begin(counting=False)
    totals, longest = [], []
    for _ in range(rounds):
        portions = []
        before = time.process_time()
        for _ in range(sweeper.begin(counting=counting)):
            started = time.perf_counter()
            sweeper.sweep()
            portions.append(time.perf_counter() - started)
        totals.append(time.process_time() - before)
        longest.append(max(portions))
    sweeper.close()
    buckets = sum(tables.maps.shape(each).entries for each in ("flows", "overflow", "wide_flows", "wide_overflow"))
    return {
        "what": f"sweep, {what}",
        "buckets": buckets,
        "cpu_ms": round(min(totals) * 1000, 2),
        "ns_per_bucket": round(min(totals) / buckets * 1e9, 1),
        "longest_portion_ms": round(min(longest) * 1000, 2),
    }


def _list(runtime: Path, form: str, arguments: tuple[str, ...]) -> dict[str, object]:
    command = [sys.executable, "-c", "from haxlb.cli.main import main; main()", "show", *arguments]
    times, processor, lines = [], [], 0
    for _ in range(_ROUNDS):
        started, used = time.perf_counter(), _children_s()
        done = subprocess.run(
            [*command, "--runtime-dir", runtime],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
            env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        )
        times.append(time.perf_counter() - started)
        processor.append(_children_s() - used)
        lines = done.stdout.count(b"\n")
    return {"what": f"show {' '.join(arguments)}", "form": form, "lines": lines, **_ms(times, processor)}


def _ms(times: list[float], processor: list[float]) -> dict[str, int]:
    return {"ms": round(min(times) * 1000), "cpu_ms": round(min(processor) * 1000)}


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
