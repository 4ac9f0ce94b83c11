"""How long it takes from the outcome that decides until the maps say so: machine, table, ring and map writes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from haxlb.forwarding import layout
from haxlb.forwarding.features import Features
from haxlb.forwarding.wanted import WantedTable
from haxlb.linux.bpffs import unmount
from haxlb.linux.forwarder_build import compile_forwarder
from haxlb.linux.pinned import PinnedForwarder
from haxlb.model.virtual_server import Scheduler
from tests.health.worlds import check, server, virtual_server
from tests.machines.checker_stage import BAD, RecordingForwarder, Stage

pytestmark = pytest.mark.bpf
SERVERS = 100


@pytest.fixture(scope="module")
def pinned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PinnedForwarder]:
    directory = tmp_path_factory.mktemp("latency") / "bpf" / layout.ABI
    # The tables are the same whatever the program can do.
    asyncio.run(compile_forwarder(directory, backends=4 * SERVERS, features=Features.parse("none")))
    forwarder = PinnedForwarder(lambda *_, **__: None)
    forwarder.use(directory)
    yield forwarder
    forwarder.close()
    unmount(directory.parent)


class Both(RecordingForwarder):
    """Records, and writes the real maps."""

    def __init__(self, stage: Stage, real: PinnedForwarder) -> None:
        super().__init__(stage)
        self.real = real

    def apply(self, wanted: WantedTable) -> None:
        self.real.apply(wanted)
        super().apply(wanted)


def elapsed_s() -> float:
    """Without the time in which this thread could have run and others did (Documentation/scheduler/sched-stats.rst)."""
    _, waited_ns, _ = Path("/proc/thread-self/schedstat").read_text().split()
    return (time.perf_counter_ns() - int(waited_ns)) / 1e9


@pytest.mark.parametrize("scheduler", list(Scheduler), ids=lambda each: each.value)
def test_a_verdict_is_in_the_maps_in_under_100_ms(pinned: PinnedForwarder, scheduler: Scheduler) -> None:
    checks = [check(1, port=1000 + n) for n in range(SERVERS)]
    servers = [server(1, port=each.port, weight=1 + n % 5, checks=(each,)) for n, each in enumerate(checks)]
    stage = Stage(forwarder=lambda stage: Both(stage, pinned))
    stage.configure(virtual_server(*servers, scheduler=scheduler), program="")
    stage.resolve(1)
    stage.go(5)
    took: list[float] = []
    # The best of some: what else runs on this machine, and on its host, is not the subject.
    for each in checks[:20]:
        if took and min(took) < 0.1:
            break
        stage.sick[each] = BAD
        applied = len(stage.forwarder.applied)
        while len(stage.forwarder.applied) == applied:
            assert stage.now_us < 200_000_000
            begun = elapsed_s()
            # A millisecond of virtual time holds at most the outcome and what follows from it.
            stage.go(0.001)
            step = elapsed_s() - begun
        took.append(step)
    assert len(stage.serving()) == SERVERS - len(took)
    assert min(took) < 0.1, took
