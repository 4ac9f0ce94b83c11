"""Adverts every 10 ms for a minute beside four CPU hogs; then the same while all else that haxlb does goes on.

Needs root: three network namespaces on a bridge, two real directors. In the second row a checker of the MASTER makes
thousands of probes a second of servers that answer at once, and its supervisor reloads every two seconds. In the third
the checker has `checker_priority -20`.
`HX_SECONDS`, `HX_HOGS`, `HX_PROBED` change how long, how busy, how many servers.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

SECONDS = float(os.environ.get("HX_SECONDS", "60"))
HOGS = int(os.environ.get("HX_HOGS", "4"))
PROBED = int(os.environ.get("HX_PROBED", "700"))
"""Servers; each is probed a tenth of a second after its last probe has ended."""
RELOAD_EVERY_S = 2.0
INTERVAL_MS = 10.0
ONE, TWO = IPv4Address("10.8.0.1"), IPv4Address("10.8.0.2")


def measure() -> Iterator[dict[str, Any]]:
    """One row without, two with the rest of the work."""
    yield _measure(busy=False)
    for nice in (0, -20):
        yield _measure(busy=True, nice=nice)


def _measure(*, busy: bool, nice: int = 0) -> dict[str, Any]:
    from lab import Lab

    from haxlb.model.instance import Role
    from tests.netns.site import Director, configuration
    from tests.netns.standin import Ear, eventually

    with tempfile.TemporaryDirectory() as directory, Lab(f"hxso{os.getpid()}") as lab:
        client = lab.host("cl", "10.8.0.10/24")
        directors = []
        for number, (name, priority) in enumerate((("lb1", 150), ("lb2", 100)), 1):
            host = lab.host(name, f"10.8.0.{number}/24", director=True)
            text = configuration(name, priority, servers=False).replace("advert_int 0.1", "advert_int 0.01")
            if busy and name == "lb1":
                text = text.replace("global_defs {", f"global_defs {{\n    checker_priority {nice}", 1) + _servers()
                lab.hosts[name].run("ip", "route", "add", "local", "10.9.0.0/16", "dev", "lo")
                # It stands for hosts of their own: the hogs are none of its affair.
                host.start("nice", "-n", "-20", sys.executable, "-c", _ANSWERS, stdout=subprocess.DEVNULL)
            directors.append(Director(host, Path(directory) / name, text))
        one, two = directors
        hogs: list[subprocess.Popen[bytes]] = []
        try:
            for each in directors:
                each.start()
            eventually(lambda: one.role() is Role.MASTER and two.role() is Role.BACKUP, "lb1 is MASTER", 120)
            with Ear(client.namespace) as ear:
                hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(HOGS)]
                begin = time.monotonic()
                probes = _packets(one) if busy else 0
                begun_ns = time.time_ns()
                reloads = 0
                while (left := begin + SECONDS - time.monotonic()) > 0:
                    time.sleep(min(left, RELOAD_EVERY_S))
                    if busy and left > RELOAD_EVERY_S:
                        _change(one, reloads)
                        assert one.process is not None
                        one.process.send_signal(1)  # SIGHUP
                        reloads += 1
                probes = _packets(one) - probes if busy else 0
                times = [each.at_ns for each in ear.adverts_of(ONE, 150, since_ns=begun_ns)]
                foreign = len(ear.adverts_of(TWO, since_ns=begun_ns))
            status = one.status()
            assert status is not None
            gaps = [(b - a) / 1e6 for a, b in itertools.pairwise(times)]
            return {
                "busy": busy,
                "checker_priority": nice,
                "seconds": SECONDS,
                "hogs": HOGS,
                "adverts": len(times),
                "gap_ms_median": round(statistics.median(gaps), 2),
                "gap_ms_p99": round(statistics.quantiles(gaps, n=100)[98], 2),
                "gap_ms_max": round(max(gaps), 2),
                "adverts_of_the_backup": foreign,
                "probes_a_second": round(probes / SECONDS),
                "reloads_asked": reloads,
                "reloaded": one.events().count("reloaded"),
                "lag_max_us": status.lag.max_us,
                "lag_over_ms": status.lag.over_ms,
            }
        finally:
            for hog in hogs:
                hog.kill()
                hog.wait()
            for each in directors:
                each.close()


_ANSWERS = """
import socket
s = socket.create_server(("", 80), backlog=4096)
while True:
    s.accept()[0].close()
"""


def _servers() -> str:
    lines = ["virtual_server 10.8.0.100 80 {", "delay_loop 0.1", "lb_algo rr", "lb_kind DR", "protocol TCP"]
    for number in range(PROBED):
        address = f"10.9.{number // 200}.{number % 200 + 1}"
        lines.append(f"real_server {address} 80 {{ weight 1\nTCP_CHECK {{ connect_timeout 1 }} }}")
    return "\n".join([*lines, "}", ""])


def _change(director: Any, number: int) -> None:
    """Another weight of one server, and another priority below 150 of none: the speaker is reloaded, too."""
    text = director.config.read_text()
    flags = f"    garp_master_refresh {3600 + number % 2}\n"
    lines = [line for line in text.splitlines(keepends=True) if "garp_master_refresh" not in line]
    text = "".join(lines).replace("    interface eth0\n", f"    interface eth0\n{flags}", 1)
    director.config.write_text(text.replace(f"weight {number % 2 + 1}", f"weight {2 - number % 2}", 1))


def _packets(director: Any) -> int:
    """TCP connections that were opened in the director's namespace."""
    lines = director.host.run("cat", "/proc/net/snmp").stdout.splitlines()
    names, values = (line.split()[1:] for line in lines if line.startswith("Tcp:"))
    return int(dict(zip(names, values, strict=True))["ActiveOpens"])
