"""The order of a sweep, against bpf/abi.h as a C compiler sees it."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from pathlib import Path

import pytest

from haxlb.forwarding.layout import LOAD_BYTES, SWEEP_BUCKETS, Sizes
from haxlb.forwarding.sweep_order import SweepOrder, pack_sweep_order, told_lifetimes

BPF = Path(__file__).parents[2] / "bpf"
ETHERNET = 14
NAMES = {
    "order": "sizeof(struct sweep_order)",
    "backend": "offsetof(struct sweep_order, backend)",
    "active": "offsetof(struct sweep_order, active)",
    "inactive": "offsetof(struct sweep_order, inactive)",
    "what": "offsetof(struct sweep_order, what)",
    "lifetimes": "offsetof(struct sweep_order, lifetimes)",
    "load": "sizeof(struct load)",
    "counted_active": "offsetof(struct load, counted_active)",
    "counted_inactive": "offsetof(struct load, counted_inactive)",
    "next": "offsetof(struct sweep, next)",
    "expired": "offsetof(struct sweep, expired)",
    "buckets": "SWEEP_BUCKETS",
    **{each.name or "": f"SWEEP_{each.name}" for each in SweepOrder},
}


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler: make setup installs gcc")
    folder = tmp_path_factory.mktemp("sweep")
    items = ", ".join(f'\\"{name}\\": %d' for name in NAMES)
    values = ", ".join(f"(int)({value})" for value in NAMES.values())
    source = folder / "said.c"
    source.write_text(
        '#include <stddef.h>\n#include <stdio.h>\n#include "abi.h"\n'
        f'int main(void) {{ printf("{{{items}}}", {values}); return 0; }}\n'
    )
    subprocess.run([compiler, "-iquote", BPF, source, "-o", folder / "said"], check=True)
    answer: dict[str, int] = json.loads(subprocess.run([folder / "said"], check=True, capture_output=True).stdout)
    return answer


def test_an_order_is_where_the_program_looks_for_it(said: dict[str, int]) -> None:
    frame = pack_sweep_order(what=SweepOrder.COUNTING, backend=0x1234, active=-5, inactive=7)
    assert len(frame) == ETHERNET + said["order"]
    order = frame[ETHERNET:]
    assert [struct.unpack_from("=i", order, said[name])[0] for name in ("backend", "active", "inactive", "what")] == [
        0x1234,
        -5,
        7,
        said["COUNTING"],
    ]
    assert {each.name: said[each.name or ""] for each in SweepOrder} == {each.name: each.value for each in SweepOrder}


def test_lifetimes_are_read_where_they_are_told(said: dict[str, int]) -> None:
    frame = bytearray(ETHERNET + said["order"])
    struct.pack_into("=8H", frame, ETHERNET + said["lifetimes"], *range(8))
    assert told_lifetimes(bytes(frame)) == tuple(range(8))


def test_loads_and_cursor_are_where_the_sweeper_looks_for_them(said: dict[str, int]) -> None:
    assert said["load"] == LOAD_BYTES
    assert (said["counted_active"], said["counted_inactive"]) == (4 * 4, 5 * 4)
    assert (said["next"], said["expired"]) == (0, 8)


@pytest.mark.parametrize("log2", range(4, 25))
def test_every_table_is_swept_in_whole_runs(said: dict[str, int], log2: int) -> None:
    sizes = Sizes(flow_buckets_log2=log2)
    assert said["buckets"] == SWEEP_BUCKETS
    for buckets in (sizes.flow_buckets, sizes.overflow_buckets, sizes.wide_flow_buckets, sizes.wide_overflow_buckets):
        assert buckets % SWEEP_BUCKETS == 0


@pytest.mark.parametrize("log2", range(4, 25))
def test_what_overflows_a_bucket_is_in_one_of_the_overflow(log2: int) -> None:
    sizes = Sizes(flow_buckets_log2=log2)
    assert sizes.flow_buckets % sizes.overflow_buckets == 0
    assert sizes.wide_flow_buckets % sizes.wide_overflow_buckets == 0
