"""What user space does to the table of NAT: the program writes it, and forgets with the flow what answers it.

It cannot where the server is no longer what it was: the index belongs to another one, or its packets go by another
method. Then the table is looked through once.
"""

from __future__ import annotations

from haxlb.forwarding.replies import keys_of_backends
from haxlb.linux import bpf
from haxlb.linux.maps import Maps


def forget_replies(maps: Maps, backends: frozenset[int]) -> int:
    """Remove what answers for the servers of these indices; how many entries that were. Raises HostError.

    To be called when an index is about to be another server's, before that one's record is written, and when its server
    no longer gets its packets by NAT.
    """
    shape = maps.shape("replies")
    table = maps.fds["replies"]
    keys, values = bpf.map_lookup_batch(table, shape.key_size, shape.value_size, shape.entries)
    return sum(bpf.map_delete(table, key) for key in keys_of_backends(keys, values, backends))
