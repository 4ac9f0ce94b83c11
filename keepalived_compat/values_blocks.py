"""Which reader is for which block of lines: to judge the lines of a block that nobody else reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from keepalived_compat.diagnostics import Complaints
from keepalived_compat.source import Word
from keepalived_compat.values_addresses import read_addresses, read_peers
from keepalived_compat.values_groups import read_delays, read_group, read_linkbeat
from keepalived_compat.values_routes import read_routes
from keepalived_compat.values_rules import read_rules
from keepalived_compat.values_tracking import LIMITS, read_tracks

LineJudge = Callable[[Iterable[list[Word]], Complaints], object]

LINE_JUDGES: dict[str, LineJudge] = {
    **{
        block: partial(read_addresses, block=block)
        for block in ("virtual_ipaddress", "virtual_ipaddress_excluded", "static_ipaddress")
    },
    **{block: partial(read_routes, block=block) for block in ("virtual_routes", "static_routes")},
    **{block: partial(read_rules, block=block) for block in ("virtual_rules", "static_rules")},
    **{block: partial(read_tracks, block=block) for block in LIMITS},
    "unicast_peer": read_peers,
    "virtual_server_group": read_group,
    "linkbeat_interfaces": read_linkbeat,
    "interface_up_down_delays": read_delays,
}
"""By the keyword that opens the block; blocks of plain names have none."""

WEIGHT_LIMITS = {
    "vrrp_script": 253,
    "bfd_instance": 253,
    "vrrp_track_process": 254,
    "track_file": 254,
    "FILE_CHECK": 2**31 - 1,
}
"""The largest `weight` either way, by the block that it stands in."""
