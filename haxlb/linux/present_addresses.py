"""The addresses that the kernel has now, of either family, by one rtnetlink dump."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from socket import AF_INET, AF_INET6

from haxlb.linux.rtnetlink import (
    IFA_ADDRESS,
    IFA_FLAGS,
    IFA_LOCAL,
    NLM_F_DUMP,
    RTM_GETADDR,
    Rtnetlink,
    attribute,
    request,
)
from haxlb.model.addresses import IPAddress

# <linux/if_addr.h>
IFA_F_SECONDARY = 0x01
IFA_F_NODAD = 0x02
IFA_F_OPTIMISTIC = 0x04
IFA_F_DADFAILED = 0x08
IFA_F_HOMEADDRESS = 0x10
IFA_F_DEPRECATED = 0x20
IFA_F_TENTATIVE = 0x40
IFA_F_MANAGETEMPADDR = 0x100
IFA_F_NOPREFIXROUTE = 0x200
IFA_F_MCAUTOJOIN = 0x400
IFA_PROTO = 11
IFADDRMSG = struct.Struct("=BBBBI")
"""family, prefix length, flags, scope, interface index"""
_HEADER_SIZE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Present:
    """An address on an interface."""

    address: IPAddress
    prefix_length: int
    index: int
    flags: int
    """IFA_F_…"""
    protocol: int
    """IFA_PROTO: who put it on; 0 = it does not say."""


def present_addresses(rtnetlink: Rtnetlink, *, family: int = 0, index: int = 0) -> Iterator[Present]:
    """Those of one family (socket.AF_…) and interface, 0 = of all. Raises OSError."""
    try:
        answers = rtnetlink.get(_dump(family, index))
    except OSError as problem:
        if problem.errno == errno.ENODEV:  # the interface has gone
            return
        raise
    for answer in answers:
        found = parse_address(answer)
        if found is not None and index in (0, found.index):
            yield found


def parse_address(message: bytes) -> Present | None:
    """The address of an RTM_NEWADDR or RTM_DELADDR, None for families that are not IP."""
    family, prefix_length, flags, _, owner = IFADDRMSG.unpack_from(message, _HEADER_SIZE)
    if family not in (AF_INET, AF_INET6):
        return None
    # IFA_ADDRESS is the other end where the two differ (point-to-point).
    local = attribute(message, IFADDRMSG.size, IFA_LOCAL) or attribute(message, IFADDRMSG.size, IFA_ADDRESS)
    if local is None:
        return None
    wide = attribute(message, IFADDRMSG.size, IFA_FLAGS)
    protocol = attribute(message, IFADDRMSG.size, IFA_PROTO)
    return Present(
        address=ip_address(local),
        prefix_length=prefix_length,
        index=owner,
        flags=struct.unpack("=I", wide)[0] if wide else flags,
        protocol=protocol[0] if protocol else 0,
    )


@lru_cache(maxsize=256)
def _dump(family: int, index: int) -> bytes:
    return request(RTM_GETADDR, NLM_F_DUMP, IFADDRMSG.pack(family, 0, 0, 0, index))
