"""From where probes of IPv6 servers come: not from a virtual address, where the host has another one for it.

The kernel takes an IPv6 VIP that stands there as /64 for the best source towards servers of that network (RFC 6724
section 5; keepalived's checkers come from it, too). A server of direct routing has the same VIP on lo: it takes the
packets of the probe for its own and answers itself, and every check of a MASTER fails. Only the source of the probes is
changed: connections of others from this host leave by the VIP as they do with keepalived.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterable, Iterator
from ipaddress import IPv6Address, IPv6Network
from typing import Final

from haxlb.linux.present_addresses import (
    IFA_F_DADFAILED,
    IFA_F_DEPRECATED,
    IFA_F_SECONDARY,
    IFA_F_TENTATIVE,
    Present,
    present_addresses,
)
from haxlb.linux.rtnetlink import Rtnetlink
from haxlb.model.addresses import IPAddress
from haxlb.model.errors import HostError

_DISCARD_PORT: Final = 9
"""Of a UDP socket that is connected and sends nothing."""
_UNFIT: Final = IFA_F_DADFAILED | IFA_F_DEPRECATED | IFA_F_SECONDARY | IFA_F_TENTATIVE
"""IFA_F_SECONDARY of an IPv6 address: a temporary one (RFC 8981), which would change from day to day."""
_MOST_KNOWN: Final = 1 << 14


class ProbeSources:
    """Chooses them."""

    def __init__(self) -> None:
        self._vips: frozenset[IPAddress] = frozenset()
        self._known: dict[IPAddress, IPv6Address] = {}
        """By target: instead of the VIP that the kernel takes as long as it is here."""

    def avoid(self, vips: Iterable[IPAddress]) -> None:
        """From now on these are the virtual addresses."""
        self._vips = frozenset(each for each in vips if isinstance(each, IPv6Address))
        self._known.clear()

    def of(self, target: IPAddress) -> IPv6Address | None:
        """The address to bind to; None = the kernel's choice is right, or there is no other."""
        if not self._vips or not isinstance(target, IPv6Address):
            return None
        chosen = _of_the_kernel(target)
        if chosen not in self._vips:
            return None
        known = self._known.get(target)
        if known is not None:
            return known
        # Only what was found is remembered: an address that is missing may come.
        with contextlib.suppress(OSError, HostError):
            found = self._instead_of(chosen, target)
            if found is not None and len(self._known) < _MOST_KNOWN:
                self._known[target] = found
            return found
        return None

    def forget(self, target: IPAddress) -> None:
        """What was chosen for this target cannot be bound to any more."""
        self._known.pop(target, None)

    def _instead_of(self, vip: IPv6Address, target: IPv6Address) -> IPv6Address | None:
        rtnetlink = Rtnetlink()
        try:
            present = [each for each in present_addresses(rtnetlink, family=socket.AF_INET6) if _is_there(each)]
        finally:
            rtnetlink.close()
        fit = [address for address in _beside(vip, target, present) if address not in self._vips]
        return max(fit, key=lambda each: _common_bits(each, target), default=None)


def _of_the_kernel(target: IPv6Address) -> IPv6Address | None:
    """The source that a connection to this target would get; None when it has no way."""
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as asking:
        try:
            asking.connect((str(target), _DISCARD_PORT))
        except OSError:
            return None
        return IPv6Address(asking.getsockname()[0])


def _is_there(each: Present) -> bool:
    return not each.flags & _UNFIT


def _beside(vip: IPv6Address, target: IPv6Address, present: Iterable[Present]) -> Iterator[IPv6Address]:
    """Addresses of the VIP's interface from which the way to the target and back is the same.

    They are of the VIP's network, or the target is of theirs. The way from any other one is not known: a host that has
    but its VIP for that network goes on asking from there.
    """
    everywhere = list(present)
    for held in [each for each in everywhere if each.address == vip]:
        for each in everywhere:
            if each.index == held.index and isinstance(each.address, IPv6Address):
                own = IPv6Network((each.address, each.prefix_length), strict=False)
                if each.address in IPv6Network((vip, held.prefix_length), strict=False) or target in own:
                    yield each.address


def _common_bits(one: IPv6Address, other: IPv6Address) -> int:
    return 128 - (int(one) ^ int(other)).bit_length()
