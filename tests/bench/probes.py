"""What a health check costs the checker's process: the whole way from the timetable to the verdict, and the socket's.

Servers on the loopback, in a process of their own; the checker's own code and the real prober beside nothing else. The
kernel does both ends of a loopback connection within the client's system calls: `system_us` is more than on a wire.
`HX_SECONDS` and `HX_PROBED` change how long, how many servers.
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Address
from typing import Any

from haxlb.daemon.checker import Checker
from haxlb.forwarding.wanted import Counters, WantedTable
from haxlb.linux.probing import Prober
from haxlb.linux.probing_turns import Results
from haxlb.linux.timerfd import MonotonicClock, TimerfdWake
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.check import Check, CheckKind, HttpUrl
from haxlb.model.commands import Command
from haxlb.model.facts import Fact
from haxlb.model.node import NodeConfig
from haxlb.model.status import LinkStatus
from haxlb.model.virtual_server import RealServer, VirtualServer

SECONDS = float(os.environ.get("HX_SECONDS", "5"))
PROBED = int(os.environ.get("HX_PROBED", "500"))
PERIOD_US = 100_000

_SERVER = """
import socket, sys
answer = b"HTTP/1.0 200 OK\\r\\nServer: x\\r\\nContent-Type: text/html\\r\\nContent-Length: 3\\r\\n\\r\\nok\\n"
s = socket.create_server(("", 0), backlog=4096)
print(s.getsockname()[1], flush=True)
while True:
    c = s.accept()[0]
    if sys.argv[1] == "http":
        c.recv(4096)
        c.sendall(answer)
    c.close()
"""


def measure() -> Iterator[dict[str, Any]]:
    """TCP and HTTP, each as fast as the timetable asks for it."""
    for kind in (CheckKind.TCP, CheckKind.HTTP):
        with subprocess.Popen(
            [sys.executable, "-c", _SERVER, kind.name.lower()], stdout=subprocess.PIPE, text=True
        ) as server:
            try:
                assert server.stdout is not None
                yield asyncio.run(_probe(kind, int(server.stdout.readline())))
            finally:
                server.kill()


class _World:
    """The ports that a probe has nothing to do with."""

    def follow(self, addresses: Iterable[IPv4Address]) -> None: ...
    def attach(self, program: str, interfaces: tuple[str, ...], mode: str) -> tuple[LinkStatus, ...]:
        return ()

    def apply(self, wanted: WantedTable) -> None: ...
    def settle(self, now_s: int, lifetime_s: int) -> None: ...
    def counters(self) -> Counters:
        return Counters()

    def links(self) -> tuple[LinkStatus, ...]:
        return ()

    def repin(self) -> tuple[str, ...]:
        return ()

    def run(self, queue: str, command: Command) -> None: ...
    def load(self) -> dict[str, bool]:
        return {}

    def save(self, verdicts: Mapping[str, bool]) -> None: ...
    def report(self, fact: Fact) -> None: ...
    def log(self, level: str, event: str, **fields: object) -> None: ...
    def ready(self, of: str, problem: str) -> None: ...


async def _probe(kind: CheckKind, port: int) -> dict[str, Any]:
    ended = 0

    def on_results(results: Results) -> None:
        nonlocal ended
        ended += len(results)
        checker.on_probe_results(results)

    prober = Prober(on_results)
    wake = TimerfdWake(lambda: checker.on_wake())  # noqa: PLW0108 - it does not exist yet
    world = _World()
    checker = Checker(
        clock=MonotonicClock(),
        wake=wake,
        probes=prober,
        neighbours=world,
        forwarder=world,
        scripts=world,
        verdicts=world,
        reports=world,
    )

    urls = (HttpUrl(path="/"),) if kind is CheckKind.HTTP else ()
    servers = tuple(
        RealServer(
            address=(address := IPv4Address(f"127.1.{number // 200}.{number % 200 + 1}")),
            port=port,
            checks=(Check(kind=kind, address=address, port=port, urls=urls, delay_loop_us=PERIOD_US),),
        )
        for number in range(PROBED)
    )
    virtual = VirtualServer(
        endpoint=Endpoint(address=IPv4Address("10.8.0.100"), port=80, protocol=Protocol.TCP), real_servers=servers
    )
    checker.configure(NodeConfig(node="lb1", virtual_servers=(virtual,)), "")
    await asyncio.sleep(2)
    before, begun, used = ended, asyncio.get_running_loop().time(), resource.getrusage(resource.RUSAGE_SELF)
    await asyncio.sleep(SECONDS)
    probes, now = ended - before, resource.getrusage(resource.RUSAGE_SELF)
    seconds = asyncio.get_running_loop().time() - begun
    prober.close()
    wake.close()
    user, system = now.ru_utime - used.ru_utime, now.ru_stime - used.ru_stime
    up = sum(member.up for pool in checker._monitor.status() for member in pool.members.values())
    assert up == PROBED, f"{up} of {PROBED} servers are up"
    return {
        "case": kind.name,
        "probes_a_second": round(probes / seconds),
        "user_us": round(user / probes * 1e6, 1),
        "system_us": round(system / probes * 1e6, 1),
    }
