"""The frame crafter: gratuitous ARP requests, made by scapy in a short-lived process.

`python -m haxlb.linux.craft` reads a JSON list of {"interface", "mac", "vip"} on stdin and writes a JSON list of
GarpFrame on stdout. Importing scapy takes a third of a second and 40 MB, crafting half a millisecond a frame: none of
that belongs into a process that must take over in microseconds.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address

from haxlb.daemon.messages import GarpFrame
from haxlb.model.errors import PeerError
from haxlb.model.wire import from_json, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameOrder:
    """One frame to craft."""

    interface: str
    mac: str
    """Of the interface, `aa:bb:cc:dd:ee:ff`."""
    vip: IPv4Address


def craft(orders: Iterable[FrameOrder]) -> list[GarpFrame]:
    """Gratuitous ARP requests: sender = target = the VIP, to the broadcast MAC.

    The target hardware address is all ones, which receivers ignore in a request; keepalived sends the same.
    """
    # scapy looks for routes and interfaces while it is imported, and complains of what it does not find.
    logging.getLogger("scapy").setLevel(logging.CRITICAL)
    from scapy.layers.l2 import ARP, Ether

    broadcast = "ff:ff:ff:ff:ff:ff"
    frames = []
    for order in orders:
        vip = str(order.vip)
        frame = Ether(src=order.mac, dst=broadcast) / ARP(
            op="who-has", hwsrc=order.mac, psrc=vip, hwdst=broadcast, pdst=vip
        )
        frames.append(GarpFrame(interface=order.interface, mac=order.mac, vip=order.vip, frame_hex=bytes(frame).hex()))
    return frames


def main() -> int:
    """Read orders, write frames; exit 2 with one line on stderr for input that is no list of orders."""
    try:
        orders: list[FrameOrder] = from_json(list[FrameOrder], json.load(sys.stdin))
    except (ValueError, PeerError) as problem:
        sys.stderr.write(f"haxlb.linux.craft: {problem}\n")
        return 2
    json.dump([to_json(frame) for frame in craft(orders)], sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
