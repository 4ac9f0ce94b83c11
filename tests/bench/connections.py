"""What a million connections cost: to sweep them, and to list them with `haxlb show -c`."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from haxlb.linux.sweeper import Sweeper
from tests.bpf.flow_tables import BACKENDS, FRONTEND, INCARNATION, FlowTables, flow_tables, now

_ESTABLISHED: Final = 3
_LOG2: Final = 20
_ROUNDS: Final = 5
_LISTED: Final = 1_000_000
_PIECE: Final = 1 << 16
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
        _scatter(tables)
        for form, arguments in _FORMS.items():
            yield _list(Path(runtime), form, arguments)


def _fill(tables: FlowTables, buckets: int, *, age_s: int) -> None:
    tables.clear()
    stamp = _stamp(age_s)
    tables.poke("flows", 0, b"".join(_flow(number, stamp) for number in range(4 * buckets)))


def _scatter(tables: FlowTables) -> None:
    """A million in the ways that a hash might give them, last heard of at any time in ten minutes."""
    tables.clear()
    chance = random.Random(1)
    stamps = [_stamp(age_s) for age_s in range(1, 600)]
    content = bytearray(16 * 4 << _LOG2)
    for number, way in enumerate(chance.sample(range(4 << _LOG2), _LISTED)):
        content[16 * way : 16 * way + 16] = _flow(number, chance.choice(stamps))
    tables.poke("flows", 0, bytes(content))


def _stamp(age_s: int) -> int:
    return (now() - age_s * round(1 / time.clock_getres(6))) & 0xFFFFFFFF


def _flow(number: int, stamp: int) -> bytes:
    return struct.pack(
        "=IHHQ",
        int.from_bytes((10 << 24 | number >> 4).to_bytes(4, "big"), "little"),
        number & 0xFFFF,
        FRONTEND,
        stamp << 32 | _ESTABLISHED << 24 | INCARNATION << 16 | BACKENDS[number % len(BACKENDS)],
    )


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
    times, processor, lines, own_kib = [], [], 0, 0
    for _ in range(_ROUNDS):
        started = time.perf_counter()
        with subprocess.Popen(
            [*command, "--runtime-dir", runtime],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        ) as process:
            assert process.stdout is not None
            lines = 0
            for number, piece in enumerate(iter(partial(os.read, process.stdout.fileno(), _PIECE), b"")):
                lines += piece.count(b"\n")
                if not number % 64:
                    own_kib = max(own_kib, _own_memory_kib(process.pid))
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        times.append(time.perf_counter() - started)
        processor.append(used.ru_utime + used.ru_stime)
    return {
        "what": f"show {' '.join(arguments)}",
        "form": form,
        "lines": lines,
        "ms": round(min(times) * 1000),
        "cpu_ms": round(min(processor) * 1000),
        "own_mib": round(own_kib / 1024, 1),
    }


def _own_memory_kib(pid: int) -> int:
    """Without the tables, which are the kernel's wherever they are mapped."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon:")), 0)
