"""How long it takes to build the tables of many services, and to apply the failure of one server.

Maps as the kernel has them (a bpffs of its own, root needed); no program is attached. CPU seconds of this process, the
kernel's part of the writing included; of a failure the wall time until `apply` has returned, and the worst CPU time of
a failure or return. On a machine with other work the worst wall time is the others': `undisturbed` are the failures and
returns during which this process did not lose its CPU, with their worst wall time.
"""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from haxlb.forwarding import layout, maglev
from haxlb.forwarding.layout import Sizes
from haxlb.forwarding.wanted import NextHop, WantedServer, WantedService, WantedTable
from haxlb.linux.bpffs import ensure_bpffs, unmount
from haxlb.linux.forwarder import Forwarder
from haxlb.linux.maps import Maps
from haxlb.linux.realtime import freeze_collector
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.virtual_server import Scheduler

SERVICES: Final = 1000
SERVERS: Final = 10
FAILURES: Final = 40
SIZES: Final = Sizes(
    services=SERVICES, frontends=SERVICES, backends=2 * SERVICES * SERVERS + 1, rings=1 << 21, flow_buckets_log2=10
)
_OWN: Final = "02:00:00:00:00:aa"


def services(scheduler: Scheduler, *, distinct: bool, count: int = SERVICES) -> tuple[WantedService, ...]:
    """`distinct`: each service has servers of its own; else all are offered by the same ones."""
    return tuple(_service(number, scheduler, distinct=distinct) for number in range(count))


def _service(number: int, scheduler: Scheduler, *, distinct: bool) -> WantedService:
    endpoint = Endpoint(address=IPv4Address("10.1.0.0") + number, port=80, protocol=Protocol.TCP)
    first = number * SERVERS * distinct
    return WantedService(
        name=str(endpoint),
        endpoints=(endpoint,),
        scheduler=scheduler,
        servers=tuple(_server(first + each) for each in range(SERVERS)),
    )


def _server(number: int) -> WantedServer:
    mac = f"02:01:00:{number >> 16:02x}:{number >> 8 & 255:02x}:{number & 255:02x}"
    return WantedServer(
        address=IPv4Address("10.64.0.1") + number,
        port=80,
        weight=1,
        alive=True,
        next_hop=NextHop(interface_index=1, source_mac=_OWN, destination_mac=mac),
    )


def fail(service: WantedService, which: int) -> WantedService:
    """The same with one server dead."""
    servers = list(service.servers)
    servers[which] = replace(servers[which], alive=False)
    return replace(service, servers=tuple(servers))


def _interruptions() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _measure(scheduler: Scheduler, *, distinct: bool = False) -> dict[str, object]:
    """Build, start anew, fail and restore servers one after the other."""
    wanted = services(scheduler, distinct=distinct)
    maglev.forget()
    with tempfile.TemporaryDirectory(prefix="haxlb-") as runtime:
        directory = Path(runtime) / "bpf" / layout.ABI
        ensure_bpffs(directory.parent)
        try:
            directory.mkdir()
            (directory / "links").mkdir()
            Maps.create(directory, SIZES).close()
            forwarder = Forwarder(directory)
            start = time.process_time()
            forwarder.apply(WantedTable(services=wanted))
            built = time.process_time() - start
            # As the checker does when it has written its first table.
            freeze_collector()
            failures: list[float] = []
            returns: list[float] = []
            cpu = []
            undisturbed = []
            for turn in range(FAILURES):
                at = turn * 37 % SERVICES
                failed = (*wanted[:at], fail(wanted[at], turn % SERVERS), *wanted[at + 1 :])
                for table, times in ((failed, failures), (wanted, returns)):
                    forwarder.settle(int(time.monotonic()), 900)
                    interruptions = _interruptions()
                    start, busy = time.perf_counter(), time.process_time()
                    forwarder.apply(WantedTable(services=table))
                    times.append(time.perf_counter() - start)
                    cpu.append(time.process_time() - busy)
                    if _interruptions() == interruptions:
                        undisturbed.append(times[-1])
            forwarder.close()
            successor = Forwarder(directory)
            start = time.process_time()
            successor.apply(WantedTable(services=wanted))
            compared = time.process_time() - start
            successor.close()
        finally:
            unmount(directory.parent)
    return {
        "scheduler": scheduler.value,
        "services": SERVICES,
        "servers_each": SERVERS,
        "distinct_servers": distinct,
        "built_cpu_s": round(built, 3),
        "compared_after_restart_cpu_s": round(compared, 3),
        "failure_ms_median": round(statistics.median(failures) * 1000, 2),
        "failure_ms_worst": round(max(failures) * 1000, 2),
        "return_ms_median": round(statistics.median(returns) * 1000, 2),
        "cpu_ms_worst": round(max(cpu) * 1000, 2),
        "undisturbed": len(undisturbed),
        "undisturbed_ms_worst": round(max(undisturbed, default=0) * 1000, 2),
    }


def measure() -> Iterator[dict[str, object]]:
    """One row for each case."""
    for scheduler, distinct in (
        (Scheduler.RR, True),
        (Scheduler.WRR, True),
        (Scheduler.WLC, True),
        (Scheduler.MH, False),
        (Scheduler.MH, True),
    ):
        yield _measure(scheduler, distinct=distinct)
