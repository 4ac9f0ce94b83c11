"""Time passes for flows: their stamps become older."""

from __future__ import annotations

import mmap
import struct


def age_flows(table: mmap.mmap, size: int, ticks: int) -> None:
    """Those of a table whose ways have `size` bytes."""
    # Nearly all ways are empty: to look at them one by one would take longer than all else that a test does.
    with memoryview(table) as whole, whole.cast("Q") as words:
        values = words[1 :: size // 8].tolist()
    for way in [each for each, value in enumerate(values) if value]:
        struct.pack_into("=I", table, way * size + 12, (values[way] >> 32) - ticks & 0xFFFFFFFF)
