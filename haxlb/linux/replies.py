"""What user space does to the table of NAT: the program writes it, and forgets with the flow what answers it.

It cannot where the index of a server belongs to another one by then. Then the table is looked through once.
"""

from __future__ import annotations

from typing import Final

from haxlb.forwarding.layout import INDEX
from haxlb.forwarding.replies import keys_of_former
from haxlb.linux import bpf
from haxlb.linux.maps import Maps

_INCARNATION: Final = 1
"""Offset in struct backend."""


def forget_replies(maps: Maps, backends: frozenset[int]) -> int:
    """Remove what answers for the former servers of these indices; how many entries that were. Raises HostError.

    To be called when the records say the new incarnations: before, a packet could write an entry anew.
    """
    shape = maps.shape("replies")
    table = maps.fds["replies"]
    records = {index: maps.read("backends", INDEX.pack(index)) for index in backends}
    incarnations = {index: record[_INCARNATION] for index, record in records.items() if record is not None}
    keys, values = bpf.map_lookup_batch(table, shape.key_size, shape.value_size, shape.entries)
    return sum(bpf.map_delete(table, key) for key in keys_of_former(keys, values, incarnations))
