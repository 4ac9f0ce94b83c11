"""Addresses as rtnetlink requests, encoded by pyroute2."""

from __future__ import annotations

from socket import AF_INET, AF_INET6

from haxlb.linux.present_addresses import (
    IFA_F_HOMEADDRESS,
    IFA_F_MANAGETEMPADDR,
    IFA_F_MCAUTOJOIN,
    IFA_F_NODAD,
    IFA_F_NOPREFIXROUTE,
)
from haxlb.linux.rtnetlink import (
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_REPLACE,
    RTM_DELADDR,
    RTM_NEWADDR,
    encode,
)
from haxlb.model.addresses import IPAddress, Vip

FOREVER = 2**32 - 1
"""INFINITY_LIFE_TIME of <linux/if_addr.h>."""
_FLAGS = {
    "home": IFA_F_HOMEADDRESS,
    "mngtmpaddr": IFA_F_MANAGETEMPADDR,
    "noprefixroute": IFA_F_NOPREFIXROUTE,
    "autojoin": IFA_F_MCAUTOJOIN,
}
_IPV6 = 6


def encode_addition(
    vip: Vip, index: int, valid_s: int, preferred_s: int, *, flags: int = NLM_F_REPLACE, protocol: int = 0
) -> bytes:
    """The request that puts an address on; lifetimes in seconds, FOREVER among them; `protocol` marks its owner."""
    from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg

    message = ifaddrmsg()
    message["family"] = AF_INET if vip.family != _IPV6 else AF_INET6
    message["prefixlen"] = vip.prefix_length
    message["scope"] = vip.scope if vip.family != _IPV6 else 0
    message["index"] = index
    message["attrs"] = [
        ("IFA_ADDRESS", str(vip.peer or vip.address)),
        ("IFA_LOCAL", str(vip.address)),
        ("IFA_CACHEINFO", {"ifa_preferred": preferred_s, "ifa_valid": valid_s}),
        ("IFA_FLAGS", _flags(vip)),
    ]
    if vip.label:
        message["attrs"].append(("IFA_LABEL", vip.label))
    if vip.broadcast:
        message["attrs"].append(("IFA_BROADCAST", str(vip.broadcast)))
    if protocol:
        message["attrs"].append(("IFA_PROTO", protocol))
    # REPLACE on an address that is there sets its lifetime and nothing else (net/ipv4/devinet.c, inet_rtm_newaddr;
    # of IPv6 the flags as well).
    return encode(message, RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | flags)


def _flags(vip: Vip) -> int:
    """As keepalived has them: IPv6 VIPs are not probed for duplicates first, unless `-nodad` asks for it.

    The one that had the address may be dead or deaf, and a second of probing is a second of outage.
    """
    flags = IFA_F_NODAD if vip.family == _IPV6 and "-nodad" not in vip.flags else 0
    for name in vip.flags:
        flags |= _FLAGS.get(name, 0)
    return flags


def preferred_lifetime_s(vip: Vip) -> int:
    """How long it may be the source of new connections, as configured: seconds, or FOREVER."""
    if vip.preferred_lifetime_s is not None:
        return vip.preferred_lifetime_s
    return 0 if vip.family == _IPV6 and vip.prefix_length == vip.address.max_prefixlen else FOREVER


def encode_removal(address: IPAddress, prefix_length: int, index: int) -> bytes:
    """The request that takes an address off."""
    from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg

    message = ifaddrmsg()
    message["index"] = index
    message["attrs"] = [("IFA_LOCAL", str(address))]
    if address.version == _IPV6:
        message["family"] = AF_INET6
        message["prefixlen"] = prefix_length
    else:
        # IFA_LOCAL alone matches any prefix length and label: a left-over of a former configuration goes, too.
        message["family"] = AF_INET
    return encode(message, RTM_DELADDR, NLM_F_ACK)
