"""Reading a large configuration: `haxlb check` beside `keepalived -t` on the same file, in turn, in one run.

5,000 virtual servers of 4 real servers each are 110,000 lines. `over_keepalived` is the ratio of the medians of the
wall times; `linear` is the time a line takes in twice the file, over that in the file.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROUNDS = 5
SERVERS, REAL_SERVERS = 5_000, 4
ERRORS = 5
"""Exit code where statements are not used: NAT may not be supported."""
CHECK = [sys.executable, "-c", "from haxlb.cli.main import main; main()", "check", "--no-interfaces", "-f"]


def large(servers: int) -> str:
    """A file of one virtual server after the other."""
    out = ["global_defs {\n    router_id bench\n}"]
    for i in range(servers):
        out.append(
            f"virtual_server 10.{100 + i // 62500}.{i // 250 % 250}.{i % 250 + 1} 80 {{\n    delay_loop 5\n"
            "    lb_algo wlc\n    lb_kind NAT\n    protocol TCP"
        )
        for j in range(REAL_SERVERS):
            k = i * REAL_SERVERS + j
            out.append(
                f"    real_server 10.{200 + k // 62500}.{k // 250 % 250}.{k % 250 + 1} 80 {{\n        weight 1\n"
                "        TCP_CHECK { connect_timeout 2 }\n    }"
            )
        out.append("}")
    return "\n".join(out) + "\n"


def timed(command: list[str]) -> tuple[float, float, int]:
    """Wall seconds, CPU seconds and peak memory in KiB of one run."""
    with Path(os.devnull).open("wb") as sink:
        begin = time.perf_counter()
        process = subprocess.Popen(command, stdout=sink, stderr=sink)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in (0, ERRORS), f"{command}: exit code {process.returncode}"
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


def measure() -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as directory:
        file, double = Path(directory) / "large.conf", Path(directory) / "double.conf"
        file.write_text(large(SERVERS))
        double.write_text(large(2 * SERVERS))
        cases = {"haxlb": [*CHECK, str(file)], "haxlb, twice the file": [*CHECK, str(double)]}
        if shutil.which("keepalived"):
            cases["keepalived"] = ["keepalived", "-t", "-f", str(file)]
        found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in cases}
        for _ in range(ROUNDS):
            for name, command in cases.items():
                found[name].append(timed(command))
        lines = file.read_text().count("\n")
    wall = {name: statistics.median(each[0] for each in runs) for name, runs in found.items()}
    for name, runs in found.items():
        yield {
            "case": name,
            "lines": lines * (2 if "twice" in name else 1),
            "wall_s": round(wall[name], 3),
            "cpu_s": round(statistics.median(each[1] for each in runs), 3),
            "peak_mib": round(max(each[2] for each in runs) / 1024, 1),
        }
    yield {"case": "linear", "time_a_line": round(wall["haxlb, twice the file"] / wall["haxlb"] / 2, 2)}
    if "keepalived" in wall:
        yield {"case": "ratio", "over_keepalived": round(wall["haxlb"] / wall["keepalived"], 2), "bound": 6}
