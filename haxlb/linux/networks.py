"""The networks that this host is connected to."""

from __future__ import annotations

import sys
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

_ROUTES = Path("/proc/net/route")
_UP, _GATEWAY = 0x1, 0x2
"""RTF_UP, RTF_GATEWAY of <linux/route.h>."""


def connected_networks(routes: Path = _ROUTES) -> tuple[IPv4Network, ...]:
    """Networks of the main routing table that are reached without a gateway, default routes apart; () when unreadable.

    Its columns are Iface, Destination, Gateway, Flags, RefCnt, Use, Metric, Mask, ...; addresses are hexadecimal
    in host byte order (net/ipv4/fib_trie.c, fib_route_seq_show).
    """
    try:
        lines = routes.read_text(encoding="ascii").splitlines()[1:]
    except OSError:
        return ()
    found: dict[IPv4Network, None] = {}
    for line in lines:
        words = line.split()
        destination, flags, mask = (int(words[column], 16) for column in (1, 3, 7))
        if flags & _UP and not flags & _GATEWAY and mask:
            found[IPv4Network((_address(destination), mask.bit_count()))] = None
    return tuple(found)


def _address(number: int) -> IPv4Address:
    return IPv4Address(number.to_bytes(4, byteorder=sys.byteorder))
