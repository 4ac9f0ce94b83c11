"""static_ipaddress, static_routes, static_rules: what the host is to have for as long as haxlb runs.

Put on when haxlb starts, changed by difference at a reload, taken off when it stops. An address that was there before
is somebody else's and stays. Ours are marked with keepalived's protocol number (IFA_PROTO, Linux 5.18): after a crash
the next start knows them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address
from typing import Protocol

from haxlb.linux.address_requests import FOREVER, encode_addition, encode_removal, preferred_lifetime_s
from haxlb.linux.present_addresses import present_addresses
from haxlb.linux.routes import PROTOCOL
from haxlb.linux.rtnetlink import NLM_F_EXCL, Rtnetlink
from haxlb.model.addresses import StaticAddress, Vip
from haxlb.model.errors import HostError
from haxlb.model.routes import Route, Rule

_GONE = (0, errno.EADDRNOTAVAIL, errno.ENODEV, errno.ENXIO)


class RoutePort(Protocol):
    """`Routing`."""

    def add(self, routes: Iterable[Route], rules: Iterable[Rule]) -> None:
        """Put on."""
        ...

    def remove(self, routes: Iterable[Route], rules: Iterable[Rule]) -> None:
        """Take off."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticTurn:
    """Addresses that are to be there, and the requests that see to it."""

    vips: tuple[tuple[Vip, int], ...]
    """And on which index."""
    requests: tuple[bytes, ...]
    lacking: tuple[HostError, ...]
    """Of those that have no interface."""


class StaticEntries:
    """What of the static blocks is on the host because of us."""

    def __init__(
        self,
        rtnetlink: Rtnetlink,
        routing: RoutePort,
        index_of: Callable[[str], int | None],
        *,
        before_removal: Callable[[], None] = lambda: None,
    ) -> None:
        """`index_of` names an interface's index now, None when it does not exist.

        `before_removal` as in `Addresses`.
        """
        self._before_removal = before_removal
        self._rtnetlink = rtnetlink
        self._routing = routing
        self._index_of = index_of
        self._wanted: tuple[Vip, ...] = ()
        self._put: dict[Vip, int] = {}
        """Those that are ours, and on which index they are."""
        self._encoded: dict[tuple[Vip, int], bytes] = {}
        self._routes: tuple[Route, ...] = ()
        self._rules: tuple[Rule, ...] = ()

    @property
    def addresses(self) -> tuple[Vip, ...]:
        """Those that were put on here."""
        return tuple(self._put)

    def apply(
        self, addresses: Iterable[StaticAddress], routes: Iterable[Route], rules: Iterable[Rule]
    ) -> list[HostError]:
        """Have exactly these on; what could not be done, one error each."""
        problems: list[HostError] = []
        self._wanted = tuple(dict.fromkeys(map(_vip, addresses)))
        self._encoded.clear()
        wanted_routes, wanted_rules = tuple(routes), tuple(rules)
        former_routes, self._routes = self._routes, wanted_routes
        former_rules, self._rules = self._rules, wanted_rules
        # What comes on first, what goes last: a route that changes is replaced in its place.
        turn = self.begin_turn()
        problems += self.end_turn(turn, self._outcome(turn), adopt=True)
        _try(
            problems,
            self._routing.add,
            [each for each in wanted_routes if each not in former_routes],
            [each for each in wanted_rules if each not in former_rules],
        )
        _try(
            problems,
            self._routing.remove,
            [each for each in former_routes if each not in wanted_routes],
            [each for each in former_rules if each not in wanted_rules],
        )
        for vip in [each for each in self._put if each not in self._wanted]:
            problems += self._take_off(vip)
        return problems

    def renew(self) -> list[HostError]:
        """Put on the addresses that are not there: somebody took them off, or their interface has come only now."""
        turn = self.begin_turn()
        return self.end_turn(turn, self._outcome(turn))

    def begin_turn(self) -> StaticTurn:
        """The first half of `renew`, for who has the requests carried out by somebody else."""
        vips: list[tuple[Vip, int]] = []
        lacking: list[HostError] = []
        for vip in self._wanted:
            index = self._index_of(vip.interface)
            if index is not None:
                vips.append((vip, index))
                continue
            lacking.append(
                HostError(
                    f"static_ipaddress {vip}: there is no interface {vip.interface}",
                    remedy="create it, or name another one in `dev`",
                )
            )
        requests = tuple(self._request(vip, index) for vip, index in vips)
        return StaticTurn(vips=tuple(vips), requests=requests, lacking=tuple(lacking))

    def end_turn(self, turn: StaticTurn, outcome: list[int] | Exception, *, adopt: bool = False) -> list[HostError]:
        """The second half: what became of the requests; what could not be done.

        `adopt`: what is there already is looked at, and is ours if an earlier haxlb has left it. Raises what is
        neither HostError nor OSError.
        """
        if isinstance(outcome, OSError):
            why = f"static_ipaddress: rtnetlink: {outcome.strerror}"
            return [HostError(why, remedy="see the limits of memory and socket buffers")]
        if isinstance(outcome, Exception):
            raise outcome
        problems = list(turn.lacking)
        for (vip, index), number in zip(turn.vips, outcome, strict=True):
            if number == 0:
                self._put[vip] = index
                if vip not in self._wanted:  # a reload has come between
                    problems += self._take_off(vip)
            elif number == errno.EEXIST:
                if adopt and vip not in self._put and self._is_marked(vip, index):
                    self._put[vip] = index
            elif vip in self._wanted:
                problems.append(
                    HostError(
                        f"static_ipaddress {vip} on {vip.interface}: {os.strerror(number)}",
                        remedy=f"try `ip address add {vip} dev {vip.interface}` and read its answer",
                    )
                )
        return problems

    def close(self) -> list[HostError]:
        """Take everything off."""
        return self.apply((), (), ())

    def _outcome(self, turn: StaticTurn) -> list[int] | Exception:
        try:
            return self._rtnetlink.change(turn.requests)
        except OSError as problem:
            return problem

    def _request(self, vip: Vip, index: int) -> bytes:
        request = self._encoded.get((vip, index))
        if request is None:
            preferred = preferred_lifetime_s(vip)
            request = encode_addition(vip, index, FOREVER, preferred, flags=NLM_F_EXCL, protocol=PROTOCOL)
            self._encoded[vip, index] = request
        return request

    def _is_marked(self, vip: Vip, index: int) -> bool:
        return any(
            each.address == vip.address and each.protocol == PROTOCOL
            for each in present_addresses(self._rtnetlink, index=index)
        )

    def _take_off(self, vip: Vip) -> list[HostError]:
        index = self._put.pop(vip)
        self._before_removal()
        (number,) = self._rtnetlink.change([encode_removal(vip.address, vip.prefix_length, index)])
        if number in _GONE:
            return []
        return [
            HostError(
                f"static_ipaddress {vip} cannot be taken off {vip.interface}: {os.strerror(number)}",
                remedy=f"ip address del {vip} dev {vip.interface}",
            )
        ]


def _try(
    problems: list[HostError],
    change: Callable[[Iterable[Route], Iterable[Rule]], None],
    routes: list[Route],
    rules: list[Rule],
) -> None:
    if routes or rules:
        try:
            change(routes, rules)
        except HostError as problem:
            problems.append(problem)


def _vip(address: StaticAddress) -> Vip:
    return Vip(
        address=ip_address(address.address),
        prefix_length=address.prefix_length,
        interface=address.interface,
        label=address.label or None,
        scope=address.scope or 0,
        broadcast=IPv4Address(address.broadcast) if address.broadcast else None,
        peer=ip_address(address.peer) if address.peer else None,
        preferred_lifetime_s=address.preferred_lifetime_s,
        flags=address.flags,
    )


def devices(addresses: Iterable[StaticAddress]) -> tuple[str, ...]:
    """The interfaces that they name."""
    return tuple(dict.fromkeys(each.interface for each in addresses))
