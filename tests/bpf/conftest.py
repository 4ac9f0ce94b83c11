"""One loaded forwarder for each module; each test begins with empty tables."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from haxlb.forwarding.wanted import WantedTable
from haxlb.linux.specimen import Specimen, specimen
from tests.bpf.plane import Plane


@pytest.fixture(scope="module")
def loaded() -> Iterator[Specimen]:
    with asyncio.Runner() as runner:
        context = specimen(WantedTable(), flow_buckets_log2=12)
        yield runner.run(context.__aenter__())
        runner.run(context.__aexit__(None, None, None))


@pytest.fixture
def plane(loaded: Specimen) -> Plane:
    return Plane(loaded)
