"""One loaded forwarder for all modules that need no other; each test begins with empty tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import blake2b
from ipaddress import IPv4Address
from itertools import islice
from pathlib import Path

import pytest

from haxlb.forwarding.features import ALL
from haxlb.forwarding.hashing import flow_hash
from haxlb.forwarding.wanted import WantedTable
from haxlb.linux import bpf
from haxlb.linux.specimen import Specimen, specimen
from tests.bpf import slow_clock
from tests.bpf.plane import Plane

Crowd = Callable[..., list[dict[str, object]]]


@pytest.fixture(scope="session")
def loaded() -> Iterator[Specimen]:
    # Tunnels and NAT have tests and builds of their own: without them this one takes half the time.
    with specimen(
        WantedTable(), flow_buckets_log2=12, features=replace(ALL, tunnel=False, nat=False), python=slow_clock.PYTHON
    ) as made:
        yield made


@pytest.fixture
def plane(loaded: Specimen) -> Plane:
    return Plane(loaded)


@pytest.fixture
def one_cpu() -> Iterator[None]:
    """For what the kernel keeps per CPU, and does not look for elsewhere."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture
def seed(plane: Plane) -> int:
    """What the hash of flows is seeded with."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    table = str(bpf.map_info(plane.maps.fds["flows"]).id).encode()
    return int.from_bytes(blake2b(boot + table, digest_size=4).digest(), "big")


@pytest.fixture
def crowd(plane: Plane, seed: int) -> Crowd:
    """Clients whose flows meet in one bucket."""
    buckets = plane.maps.sizes.flow_buckets
    network = IPv4Address("198.51.100.0")

    def of(count: int, which: int = 1) -> list[dict[str, object]]:
        meeting = (
            {"source": str(network + host), "port": port}
            for host in range(256)
            for port in range(1024, 65536)
            if flow_hash(network + host, port, which, seed=seed) % buckets == buckets // 2
        )
        return list(islice(meeting, count))

    return of
