"""AddressPort: VIPs of both families on interfaces, by rtnetlink.

A VIP is put on with a lifetime of two seconds that `renew` extends, so the kernel takes it off by itself when haxlb
was killed, is stopped in a debugger or hangs: a director that no longer speaks VRRP must not go on answering ARP.
"""

from __future__ import annotations

import errno
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from socket import AF_INET6

from haxlb.linux.address_requests import FOREVER, encode_addition, encode_removal, preferred_lifetime_s
from haxlb.linux.present_addresses import IFA_F_TENTATIVE, Present, present_addresses
from haxlb.linux.rtnetlink import RTM_DELADDR, RTM_NEWADDR, Rtnetlink
from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.errors import HostError, NotPermitted

LIFETIME_S = 2
RENEW_EVERY_S = 0.7
"""Two renewals may be late or lost before an address goes."""
_PROBING_S = 5.0
"""A probe of one second after a random delay of at most one (RFC 4862 section 5.4.2), and then some."""
# Not there (any more), or its interface is not, or that has no IPv6: what removal wanted.
_GONE = {errno.EADDRNOTAVAIL, errno.ENODEV, errno.ENXIO}
_IPV6 = 6
_MOST_TWINS = 32
"""Prefix lengths of IPv4 beside the one that has gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Addresses whose turn it is to be renewed."""

    vips: tuple[Vip, ...]
    requests: tuple[bytes, ...]
    """Of those whose interface is there."""
    lacking: tuple[Vip, ...]
    """The others."""


class Addresses:
    """The VIPs that this process put on, and the requests that put them on and take them off, encoded once."""

    def __init__(
        self,
        rtnetlink: Rtnetlink,
        index_of: Callable[[str], int | None],
        *,
        lifetime_s: int = LIFETIME_S,
        monotonic: Callable[[], float] = time.monotonic,
        before_removal: Callable[[], None] = lambda: None,
    ) -> None:
        """`index_of` names an interface's index now, None when it does not exist; `lifetime_s` 0 = for ever.

        `before_removal` returns when no `Turn` is under way: a renewal must not bring back what is taken off.
        """
        self._before_removal = before_removal
        self._rtnetlink = rtnetlink
        self._index_of = index_of
        self._lifetime_s = lifetime_s or FOREVER
        self._monotonic = monotonic
        self._held: OrderedDict[Vip, None] = OrderedDict()
        """In the order in which it is their turn to be renewed."""
        self._troubled: dict[Vip, HostError] = {}
        """Held ones that the last renewal could not have."""
        self._put: dict[Vip, int] = {}
        """On the interface of which index: one that is renamed still has the address."""
        self._ageing: dict[Vip, float] = {}
        """VIPs whose preferred lifetime ends, and when."""
        self._probed: dict[Vip, float] = {}
        """VIPs that are probed for duplicates, and since when they are held."""
        self._encoded: dict[tuple[Vip, int, int, bool], bytes] = {}

    @property
    def held(self) -> tuple[Vip, ...]:
        """VIPs that are renewed."""
        return tuple(self._held)

    def holds(self, address: IPAddress) -> bool:
        """Whether this address is to be on some interface."""
        return any(vip.address == address for vip in self._held)

    @property
    def lifetime_s(self) -> int:
        """What an address is put on and renewed with, seconds; 0 = for ever."""
        return 0 if self._lifetime_s == FOREVER else self._lifetime_s

    @lifetime_s.setter
    def lifetime_s(self, lifetime_s: int) -> None:
        if lifetime_s != self.lifetime_s:
            self._lifetime_s = lifetime_s or FOREVER
            self._encoded.clear()

    def prepare(self, vips: Iterable[Vip]) -> None:
        """Encode requests now (90 µs each) instead of at take-over; forget those of VIPs that are not named."""
        wanted = tuple(vips)
        keep = set(wanted) | set(self._held)
        self._encoded = {key: request for key, request in self._encoded.items() if key[0] in keep}
        for vip in wanted:
            index = self._index_of(vip.interface)
            if index is not None:
                self._request(vip, index, RTM_NEWADDR, deprecated=preferred_lifetime_s(vip) == 0)
                self._request(vip, index, RTM_DELADDR)

    def add(self, vips: Iterable[Vip]) -> None:
        """Put addresses on their interfaces, all that can be; raises HostError naming the first that could not."""
        wanted = tuple(vips)
        # Held from now on, also where it fails: `renew` tries again for as long as the instance is MASTER.
        for vip in wanted:
            preferred = preferred_lifetime_s(vip)
            if vip in self._held:
                continue
            if preferred != FOREVER:
                self._ageing[vip] = self._monotonic() + preferred
            if "-nodad" in vip.flags and vip.family == _IPV6:
                self._probed[vip] = self._monotonic()
            self._held[vip] = None
        _raise_first(self._change(wanted, RTM_NEWADDR))

    def remove(self, vips: Iterable[Vip]) -> None:
        """Take addresses off, whatever their prefix length is; those not there are no error. Raises HostError."""
        wanted = tuple(vips)
        for vip in wanted:
            self._held.pop(vip, None)
            self._ageing.pop(vip, None)
            self._probed.pop(vip, None)
            self._troubled.pop(vip, None)
        refused = self._change(wanted, RTM_DELADDR)
        for vip in wanted:
            self._put.pop(vip, None)
        _raise_first(refused)

    def renew(self, most: int | None = None) -> None:
        """Extend the lifetime of the next `most` VIPs held, or of all; those that somebody took off come back.

        Raises HostError while any cannot be had, also one of another turn.
        """
        turn = self.begin_turn(most)
        try:
            outcome: list[int] | Exception = self._rtnetlink.change(turn.requests)
        except OSError as problem:
            outcome = problem
        self.end_turn(turn, outcome)

    def begin_turn(self, most: int | None = None) -> Turn:
        """The first half of `renew`, for who has the requests carried out by somebody else."""
        vips = tuple(self._next(most))
        chosen, requests = self._requests(vips, RTM_NEWADDR)
        return Turn(vips=vips, requests=tuple(requests), lacking=tuple(each for each in vips if each not in chosen))

    def end_turn(self, turn: Turn, outcome: list[int] | Exception) -> None:
        """The second half: what became of the requests. Raises HostError as `renew` does, all else as it is."""
        if isinstance(outcome, OSError):
            raise _refused(outcome) from outcome
        if isinstance(outcome, Exception):
            raise outcome
        asked = [each for each in turn.vips if each not in turn.lacking]
        refused = _refusals(
            [*zip(asked, outcome, strict=True), *((each, errno.ENODEV) for each in turn.lacking)], "add"
        )
        for vip in turn.vips:
            self._troubled.pop(vip, None)
        # What has been taken off meanwhile troubles nobody.
        self._troubled.update((vip, problem) for vip, problem in refused.items() if vip in self._held)
        _raise_first(self._troubled)

    def restore(self) -> None:
        """Put back those that somebody took off, and touch no other. Raises HostError as `renew` does."""
        present = {(each.address, each.index) for each in self._present()}
        self._put_on([vip for vip in self._held if (vip.address, self._index_of(vip.interface)) not in present])

    def reconcile(self, vips: Iterable[Vip]) -> tuple[Vip, ...]:
        """Take off those of these that are on although they are not held, and put on the held; what was taken off.

        Addresses that are no VIP are nobody's business here. Raises HostError.
        """
        held = {(vip.address, vip.interface) for vip in self._held}
        present = {(each.address, each.index) for each in self._present()}
        left_over = tuple(
            vip
            for vip in vips
            if (vip.address, vip.interface) not in held and (vip.address, self._index_of(vip.interface)) in present
        )
        if left_over:
            _raise_first(self._change(left_over, RTM_DELADDR))
        self.restore()
        return left_over

    def duplicates(self) -> tuple[Vip, ...]:
        """Held VIPs that another host has, too, as the probing that `-nodad` asks for has found. Raises HostError.

        An address that has a lifetime does not stay on as failed: the kernel takes it off (addrconf_dad_stop) and
        `renew` puts it on again, so it is one that is still being probed long after it was put on.
        """
        late = self._monotonic() - _PROBING_S
        doubtful = [vip for vip, since in self._probed.items() if since <= late]
        if not doubtful:
            return ()
        usable = {(each.address, each.index) for each in self._present(AF_INET6) if not each.flags & IFA_F_TENTATIVE}
        return tuple(vip for vip in doubtful if (vip.address, self._index_of(vip.interface)) not in usable)

    def _next(self, most: int | None) -> list[Vip]:
        chosen = list(islice(self._held, most))
        for vip in chosen:
            self._held.move_to_end(vip)
        return chosen

    def _put_on(self, vips: list[Vip]) -> None:
        refused = self._change(tuple(vips), RTM_NEWADDR)
        for vip in vips:
            self._troubled.pop(vip, None)
        self._troubled.update(refused)
        _raise_first(self._troubled)

    def _change(self, vips: tuple[Vip, ...], kind: int) -> dict[Vip, HostError]:
        """What the kernel did not do, and why."""
        if kind == RTM_DELADDR:
            self._before_removal()
        chosen, requests = self._requests(vips, kind)
        try:
            results = self._rtnetlink.change(requests)
            if kind == RTM_DELADDR:
                self._remove_other_lengths([vip for vip, number in zip(chosen, results, strict=True) if number])
                self._remove_twins([each for each, number in zip(requests, results, strict=True) if not number])
        except OSError as problem:
            raise _refused(problem) from problem
        numbers = [(vip, errno.ENODEV) for vip in vips if vip not in chosen]
        numbers += zip(chosen, results, strict=True)
        if kind == RTM_DELADDR:
            return _refusals([(vip, number) for vip, number in numbers if number not in _GONE], "remove")
        return _refusals(numbers, "add")

    def _requests(self, vips: tuple[Vip, ...], kind: int) -> tuple[dict[Vip, None], list[bytes]]:
        """Those whose interface is there, and a request for each."""
        chosen: dict[Vip, None] = {}
        requests: list[bytes] = []
        for vip in dict.fromkeys(vips):
            index = self._index_of(vip.interface)
            if kind == RTM_DELADDR and index is None:
                index = self._put.get(vip)
            if index is None:
                continue
            if kind == RTM_NEWADDR:
                self._put[vip] = index
            chosen[vip] = None
            requests.append(self._request(vip, index, kind, deprecated=self._is_deprecated(vip)))
        return chosen, requests

    def _remove_other_lengths(self, vips: list[Vip]) -> None:
        """The kernel takes off an IPv6 address only by its very prefix length (net/ipv6/addrconf.c, inet6_addr_del)."""
        wanted = {(vip.address, self._index_of(vip.interface)) for vip in vips if vip.family == _IPV6}
        if wanted:
            found = [each for each in self._present(AF_INET6) if (each.address, each.index) in wanted]
            self._rtnetlink.change([encode_removal(each.address, each.prefix_length, each.index) for each in found])

    def _remove_twins(self, requests: list[bytes]) -> None:
        """Of an address that is on an interface several times, with several prefix lengths, one goes at a time.

        Only IPv4 has such (net/ipv4/devinet.c, inet_rtm_deladdr): somebody has put on by hand what is a VIP.
        """
        for _ in range(_MOST_TWINS):
            if not requests:
                return
            results = self._rtnetlink.change(requests)
            requests = [each for each, number in zip(requests, results, strict=True) if not number]

    def _present(self, family: int = 0) -> list[Present]:
        try:
            return list(present_addresses(self._rtnetlink, family=family))
        except OSError as problem:
            raise _refused(problem) from problem

    def _is_deprecated(self, vip: Vip) -> bool:
        end = self._ageing.get(vip)
        return end is not None and self._monotonic() >= end

    def _request(self, vip: Vip, index: int, kind: int, *, deprecated: bool = False) -> bytes:
        key = (vip, index, kind, deprecated and kind == RTM_NEWADDR)
        request = self._encoded.get(key)
        if request is None:
            if kind == RTM_DELADDR:
                request = encode_removal(vip.address, vip.prefix_length, index)
            else:
                request = encode_addition(vip, index, self._lifetime_s, 0 if deprecated else self._lifetime_s)
            self._encoded[key] = request
        return request


def _refusals(numbers: Iterable[tuple[Vip, int]], verb: str) -> dict[Vip, HostError]:
    return {vip: _error(vip, number, verb) for vip, number in numbers if number}


def _raise_first(problems: dict[Vip, HostError]) -> None:
    for problem in problems.values():
        raise problem


def _refused(problem: OSError) -> HostError:
    return HostError(f"rtnetlink: {problem.strerror}", remedy="see the limits of memory and socket buffers")


def _error(vip: Vip, number: int, verb: str) -> HostError:
    if number == errno.EACCES and vip.family == _IPV6:  # addrconf_add_dev
        return HostError(
            f"cannot {verb} {vip} on {vip.interface}: IPv6 is disabled there",
            remedy=f"sysctl net.ipv6.conf.{vip.interface}.disable_ipv6=0",
        )
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
