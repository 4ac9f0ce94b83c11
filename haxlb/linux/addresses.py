"""AddressPort: VIPs on interfaces, by rtnetlink.

A VIP is put on with a lifetime of two seconds that `renew` extends, so the kernel takes it off by itself when haxlb
was killed, is stopped in a debugger or hangs: a director that no longer speaks VRRP must not go on answering ARP.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable

from haxlb.linux.rtnetlink import (
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_REPLACE,
    RTM_DELADDR,
    RTM_NEWADDR,
    Rtnetlink,
    encode,
)
from haxlb.model.addresses import Vip
from haxlb.model.errors import HostError, NotPermitted

LIFETIME_S = 2
RENEW_EVERY_S = 0.7
"""Two renewals may be late or lost before an address goes."""
_FAMILY_INET = 2
# Not there (any more), or its interface is not: what removal wanted.
_GONE = {errno.EADDRNOTAVAIL, errno.ENODEV}


class Addresses:
    """The VIPs that this process put on, and the requests that put them on and take them off, encoded once."""

    def __init__(self, rtnetlink: Rtnetlink, index_of: Callable[[str], int | None]) -> None:
        """`index_of` names an interface's index now, None when it does not exist."""
        self._rtnetlink = rtnetlink
        self._index_of = index_of
        self._held: dict[Vip, None] = {}
        self._put: dict[Vip, int] = {}
        """On the interface of which index: one that is renamed still has the address."""
        self._encoded: dict[tuple[Vip, int, int], bytes] = {}

    @property
    def held(self) -> tuple[Vip, ...]:
        """VIPs that are renewed."""
        return tuple(self._held)

    def prepare(self, vips: Iterable[Vip]) -> None:
        """Encode requests now (90 µs each) instead of at take-over; forget those of VIPs that are not named."""
        wanted = tuple(vips)
        keep = set(wanted) | set(self._held)
        self._encoded = {key: request for key, request in self._encoded.items() if key[0] in keep}
        for vip in wanted:
            index = self._index_of(vip.interface)
            if index is not None:
                self._request(vip, index, RTM_NEWADDR)
                self._request(vip, index, RTM_DELADDR)

    def add(self, vips: Iterable[Vip]) -> None:
        """Put addresses on their interfaces, all that can be; raises HostError naming the first that could not."""
        wanted = tuple(vips)
        # Held from now on, also where it fails: `renew` tries again for as long as the instance is MASTER.
        self._held.update(dict.fromkeys(wanted))
        self._change(wanted, RTM_NEWADDR)

    def remove(self, vips: Iterable[Vip]) -> None:
        """Take addresses off, whatever their prefix length is; those not there are no error. Raises HostError."""
        wanted = tuple(vips)
        for vip in wanted:
            self._held.pop(vip, None)
        self._change(wanted, RTM_DELADDR)
        for vip in wanted:
            self._put.pop(vip, None)

    def renew(self) -> None:
        """Extend the lifetime of every VIP held, and put back those that somebody took off. Raises HostError."""
        self._change(self.held, RTM_NEWADDR)

    def _change(self, vips: tuple[Vip, ...], kind: int) -> None:
        problems: list[tuple[Vip, int]] = []
        chosen: list[Vip] = []
        requests: list[bytes] = []
        for vip in vips:
            index = self._index_of(vip.interface)
            if kind == RTM_DELADDR and index is None:
                index = self._put.get(vip)
            if index is None:
                problems.append((vip, errno.ENODEV))
            else:
                if kind == RTM_NEWADDR:
                    self._put[vip] = index
                chosen.append(vip)
                requests.append(self._request(vip, index, kind))
        try:
            problems += zip(chosen, self._rtnetlink.change(requests), strict=True)
        except OSError as problem:
            raise HostError(
                f"rtnetlink: {problem.strerror}", remedy="see the limits of memory and socket buffers"
            ) from problem
        harmless = _GONE if kind == RTM_DELADDR else set()
        for vip, number in problems:
            if number and number not in harmless:
                raise _error(vip, number, "add" if kind == RTM_NEWADDR else "remove")

    def _request(self, vip: Vip, index: int, kind: int) -> bytes:
        key = (vip, index, kind)
        request = self._encoded.get(key)
        if request is None:
            request = self._encoded[key] = _addition(vip, index) if kind == RTM_NEWADDR else _removal(vip, index)
        return request


def _addition(vip: Vip, index: int) -> bytes:
    from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg

    message = ifaddrmsg()
    message["family"] = _FAMILY_INET
    message["prefixlen"] = vip.prefix_length
    message["scope"] = vip.scope
    message["index"] = index
    message["attrs"] = [
        ("IFA_ADDRESS", str(vip.address)),
        ("IFA_LOCAL", str(vip.address)),
        ("IFA_CACHEINFO", {"ifa_preferred": LIFETIME_S, "ifa_valid": LIFETIME_S}),
    ]
    if vip.label:
        message["attrs"].append(("IFA_LABEL", vip.label))
    if vip.broadcast:
        message["attrs"].append(("IFA_BROADCAST", str(vip.broadcast)))
    # REPLACE on an address that is there sets its lifetime and nothing else (net/ipv4/devinet.c, inet_rtm_newaddr).
    return encode(message, RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE)


def _removal(vip: Vip, index: int) -> bytes:
    from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg

    message = ifaddrmsg()
    message["family"] = _FAMILY_INET
    message["index"] = index
    # IFA_LOCAL alone matches any prefix length and label: a left-over of a former configuration goes, too.
    message["attrs"] = [("IFA_LOCAL", str(vip.address))]
    return encode(message, RTM_DELADDR, NLM_F_ACK)


def _error(vip: Vip, number: int, verb: str) -> HostError:
    if number in (errno.EPERM, errno.EACCES):
        return NotPermitted(
            f"may not {verb} {vip} on {vip.interface}: CAP_NET_ADMIN is missing",
            remedy="run as root, or give the unit AmbientCapabilities=CAP_NET_RAW CAP_NET_ADMIN",
        )
    if number == errno.ENODEV:
        return HostError(
            f"cannot {verb} {vip}: there is no interface {vip.interface}",
            remedy="create the interface, or name another one in `interface` or `dev`",
        )
    return HostError(
        f"cannot {verb} {vip} on {vip.interface}: {os.strerror(number)}",
        remedy=f"try `ip address {verb} {vip} dev {vip.interface}` and read its answer",
    )
