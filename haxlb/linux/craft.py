"""The frame crafter: gratuitous ARP requests and neighbour advertisements, made by scapy in a short-lived process.

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
from haxlb.linux.neighbour_advertisement import ALL_NODES, forwards_ipv6
from haxlb.model.addresses import IPAddress
from haxlb.model.errors import PeerError
from haxlb.model.wire import from_json, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameOrder:
    """One frame to craft."""

    interface: str
    mac: str
    """Of the interface, `aa:bb:cc:dd:ee:ff`."""
    vip: IPAddress


def craft(orders: Iterable[FrameOrder]) -> list[GarpFrame]:
    """One frame for each order."""
    # scapy looks for routes and interfaces while it is imported, and complains of what it does not find.
    logging.getLogger("scapy").setLevel(logging.CRITICAL)
    return [
        GarpFrame(interface=each.interface, mac=each.mac, vip=each.vip, frame_hex=_frame(each).hex()) for each in orders
    ]


def _frame(order: FrameOrder) -> bytes:
    vip = str(order.vip)
    if isinstance(order.vip, IPv4Address):
        from scapy.layers.l2 import ARP, Ether

        # Sender = target = the VIP, to the broadcast MAC. The target hardware address is all ones, which receivers
        # ignore in a request; keepalived sends the same.
        broadcast = "ff:ff:ff:ff:ff:ff"
        arp = ARP(op="who-has", hwsrc=order.mac, psrc=vip, hwdst=broadcast, pdst=vip)
        return bytes(Ether(src=order.mac, dst=broadcast) / arp)
    from scapy.layers.inet6 import ICMPv6ND_NA, ICMPv6NDOptDstLLAddr, IPv6
    from scapy.layers.l2 import Ether

    # RFC 4861 section 7.2.6: not solicited, override what is known.
    advertisement = ICMPv6ND_NA(R=int(forwards_ipv6(order.interface)), S=0, O=1, tgt=vip)
    target = ICMPv6NDOptDstLLAddr(lladdr=order.mac)
    group = Ether(src=order.mac, dst="33:33:00:00:00:01") / IPv6(src=vip, dst=str(ALL_NODES), hlim=255)
    return bytes(group / advertisement / target)


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
