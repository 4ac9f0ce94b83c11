"""Whether the forwarder must take frames of several buffers: what an interface's MTU says."""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Iterable
from typing import Final

LARGEST_OF_ONE_BUFFER: Final = 3498
"""Bytes. What a page has room for beside 256 bytes of headroom, struct skb_shared_info (320 on 64-bit machines), the
Ethernet header and two VLAN tags: veth_xdp_set of drivers/net/veth.c, which leaves more than other drivers do."""
_SIOCGIFMTU: Final = 0x8921


def interface_mtu(interface: str) -> int | None:
    """MTU of an interface of this network namespace; None where there is no such interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
        try:
            answer = fcntl.ioctl(channel, _SIOCGIFMTU, struct.pack("16s24x", interface.encode()))
        except OSError:
            return None
    mtu: int = struct.unpack_from("=i", answer, 16)[0]
    return mtu


def needs_several_buffers(interfaces: Iterable[str]) -> bool:
    """Some interface has frames that do not fit into one buffer.

    Without `jumbo` and BPF_F_XDP_HAS_FRAGS its driver would refuse the program. Missing interfaces do not count.
    """
    return any((interface_mtu(each) or 0) > LARGEST_OF_ONE_BUFFER for each in interfaces)
