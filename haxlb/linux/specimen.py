"""A forwarder that is attached to nothing, for benchmarks: what `haxlb bench pin` pins."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from haxlb.forwarding import layout
from haxlb.forwarding.features import ALL, Features
from haxlb.forwarding.wanted import NextHop, WantedServer, WantedService, WantedTable
from haxlb.linux import bpf, own_macs
from haxlb.linux.bpf_call import closing
from haxlb.linux.bpffs import is_bpffs, unmount
from haxlb.linux.forwarder import Forwarder
from haxlb.linux.forwarder_build import PYTHON, compile_forwarder
from haxlb.linux.maps import Maps
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.errors import HostError, NotPermitted
from haxlb.model.virtual_server import Scheduler

VIP: Final = IPv4Address("10.200.1.1")
PORT: Final = 80
OWN_MAC: Final = "02:00:00:00:00:aa"
SERVERS: Final = 10
LOOPBACK: Final = 1
"""Interface index that BPF_PROG_TEST_RUN gives a frame that no context comes with."""
_BUCKETS_LOG2: Final = 20
"""Room for four million flows, so that a benchmark with one million measures hits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Specimen:
    """A loaded forwarder with its tables."""

    program: int
    """File descriptor."""
    forwarder: Forwarder
    maps: Maps


def table(scheduler: Scheduler, *, interface: int = LOOPBACK) -> WantedTable:
    """What the specimen serves; its servers are behind `interface`."""
    servers = tuple(
        WantedServer(
            address=VIP + 10 + number,
            port=PORT,
            weight=1,
            alive=True,
            next_hop=NextHop(
                interface_index=interface, source_mac=OWN_MAC, destination_mac=f"02:00:00:00:01:{number:02x}"
            ),
        )
        for number in range(1, SERVERS + 1)
    )
    return WantedTable(
        services=tuple(
            WantedService(
                name=str(endpoint := Endpoint(address=VIP, port=PORT, protocol=protocol)),
                endpoints=(endpoint,),
                scheduler=scheduler,
                hash_port=True,
                servers=servers,
            )
            for protocol in (Protocol.TCP, Protocol.UDP)
        )
    )


@contextlib.contextmanager
def specimen(
    wanted: WantedTable,
    *,
    flow_buckets_log2: int = _BUCKETS_LOG2,
    features: Features = ALL,
    python: str = PYTHON,
) -> Iterator[Specimen]:
    """A forwarder in a bpffs of its own, which goes with it; `python` compiles it. Raises HostError."""
    with tempfile.TemporaryDirectory(prefix="haxlb-") as runtime:
        directory = Path(runtime) / "bpf" / layout.ABI
        try:
            build = compile_forwarder(directory, flow_buckets_log2=flow_buckets_log2, features=features, python=python)
            path = asyncio.run(build)
            with Maps.open(directory) as maps, contextlib.closing(Forwarder(directory)) as forwarder:
                own_macs.note(maps, LOOPBACK, OWN_MAC)
                forwarder.apply(wanted)
                with closing(bpf.obj_get(Path(path))) as program:
                    yield Specimen(program=program, forwarder=forwarder, maps=maps)
        finally:
            unmount(directory.parent)


@contextlib.contextmanager
def pinned(program: int, path: Path) -> Iterator[None]:
    """The program at `path` meanwhile. Raises HostError."""
    bpf.obj_pin(program, path)
    try:
        yield
    finally:
        path.unlink()


def verify_pin(path: Path) -> None:
    """Whether something can be pinned at `path`. Raises HostError."""
    if not is_bpffs(path.parent):
        raise HostError(
            f"{path} does not lie in a bpffs", remedy=f"mkdir -p {path.parent} && mount -t bpf bpf {path.parent}"
        )
    if "." in path.name:
        raise HostError(f"a bpffs takes no dot in a name: {path.name}", remedy="name another path")
    try:
        taken = path.exists()
    except PermissionError as problem:
        raise NotPermitted(f"cannot look at {path}: {problem.strerror}", remedy="run it as root") from problem
    if taken:
        raise HostError(f"something is pinned at {path}", remedy=f"rm {path}, or name another path")


def features_of(scheduler: Scheduler) -> Features:
    """What a configuration of the specimen's services would compile."""
    nothing = Features.parse("none")
    return replace(
        nothing,
        stateless=scheduler.hashes,
        stateful=not scheduler.hashes,
        list=not scheduler.hashes and scheduler.value not in ("rr", "wrr"),
    )


def pin_until_interrupted(path: Path, scheduler: str, features: str = "", *, ready: Callable[[], None]) -> None:
    """Pin a specimen's program at `path`, call `ready`, remove the pin at SIGINT or SIGTERM. Raises HostError."""
    verify_pin(path)
    ends = {signal.SIGINT, signal.SIGTERM}
    # Blocked from here on: one that comes while the program is built must not leave a mount behind.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    try:
        chosen = Scheduler(scheduler)
        built = Features.parse(features) if features else features_of(chosen)
        with specimen(table(chosen), features=built) as loaded, pinned(loaded.program, path):
            ready()
            signal.sigwait(ends)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
