"""From where probes of IPv6 servers come: not from a virtual address, where the host has another one for it.

The kernel takes an IPv6 VIP that stands there as /64 for the best source towards servers of that network (RFC 6724
section 5; keepalived's checkers come from it, too). A server of direct routing has the same VIP on lo: it takes the
packets of the probe for its own and answers itself, and every check of a MASTER fails. Only the source of the probes is
changed: connections of others from this host leave by the VIP as they do with keepalived.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Final

from haxlb.linux.present_addresses import (
    IFA_F_DADFAILED,
    IFA_F_DEPRECATED,
    IFA_F_SECONDARY,
    IFA_F_TENTATIVE,
    Present,
    present_addresses,
)
from haxlb.linux.rtnetlink import RTMGRP_IPV6_IFADDR, Rtnetlink
from haxlb.model.addresses import IPAddress
from haxlb.model.errors import HostError

_DISCARD_PORT: Final = 9
"""Of a UDP socket that is connected and sends nothing."""
_UNFIT: Final = IFA_F_DADFAILED | IFA_F_DEPRECATED | IFA_F_SECONDARY | IFA_F_TENTATIVE
"""IFA_F_SECONDARY of an IPv6 address: a temporary one (RFC 8981), which would change from day to day."""
_MOST_KNOWN: Final = 1 << 14
_BITS: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class _Neighbour:
    """An address of the interface that a virtual address is on."""

    address: IPv6Address
    value: int
    host_bits: int
    """Of its network."""
    near: bool
    """It is of the virtual address's network."""


def _present() -> list[Present]:
    rtnetlink = Rtnetlink()
    try:
        return list(present_addresses(rtnetlink, family=socket.AF_INET6))
    finally:
        rtnetlink.close()


class ProbeSources:
    """Chooses them."""

    def __init__(self, present: Callable[[], list[Present]] = _present) -> None:
        """`present`: the IPv6 addresses of this host; may raise OSError or HostError."""
        self._present = present
        self._vips: frozenset[IPAddress] = frozenset()
        self._known: dict[IPAddress, IPv6Address] = {}
        """By target: instead of the VIP that the kernel takes as long as it is here."""
        self._beside: dict[IPv6Address, tuple[_Neighbour, ...]] = {}
        """By VIP, until an address changes: to read a thousand of them takes as long as a hundred probes."""
        self._changes: socket.socket | None = None

    def avoid(self, vips: Iterable[IPAddress]) -> None:
        """From now on these are the virtual addresses."""
        self._vips = frozenset(each for each in vips if isinstance(each, IPv6Address))
        self._known.clear()
        self._beside.clear()

    def close(self) -> None:
        """Let go of what tells of changes; it is opened again when it is needed."""
        self._beside.clear()
        if self._changes is not None:
            self._changes.close()
            self._changes = None

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
        """Of the VIP's interface, and such that the way to the target and back is the same: None where there is none.

        Those are of the VIP's network, or the target is of theirs. The way from any other one is not known: a host that
        has but its VIP for that network goes on asking from there.
        """
        if self._something_changed():
            self._beside.clear()
        if vip not in self._beside:
            self._beside[vip] = self._neighbours(vip)
        asked = int(target)
        fit = [each for each in self._beside[vip] if each.near or not (each.value ^ asked) >> each.host_bits]
        if not fit:
            return None
        return max(fit, key=lambda each: _BITS - (each.value ^ asked).bit_length()).address

    def _neighbours(self, vip: IPv6Address) -> tuple[_Neighbour, ...]:
        present = [each for each in self._present() if _is_there(each)]
        places = [(each.index, _BITS - each.prefix_length) for each in present if each.address == vip]
        return tuple(
            _Neighbour(
                address=each.address,
                value=int(each.address),
                host_bits=_BITS - each.prefix_length,
                near=not (int(each.address) ^ int(vip)) >> host_bits,
            )
            for index, host_bits in places
            for each in present
            if each.index == index and isinstance(each.address, IPv6Address) and each.address not in self._vips
        )

    def _something_changed(self) -> bool:
        """Whether an address has come, gone or got other flags since this was asked last, or that is not known."""
        if self._changes is None:
            self._changes = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE
            )
            self._changes.bind((0, RTMGRP_IPV6_IFADDR))
            return True
        changed = False
        while True:
            try:
                self._changes.recv(1)  # the rest of a message is dropped with it
            except BlockingIOError:
                return changed
            except OSError as problem:
                if problem.errno != errno.ENOBUFS:  # too many to be told of
                    raise
            changed = True


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
