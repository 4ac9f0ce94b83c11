"""RoutePort: the routes and rules of this host, by rtnetlink.

What is put on carries keepalived's protocol number (unless the line names another): only that is ever taken off, so a
route of the operator's with the same destination stays. A route has no lifetime as an address has; what remains of
one after a death of ours, and who takes it off, is told in docs/adr/0008.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from haxlb.linux import routes as route_codec
from haxlb.linux import rules as rule_codec
from haxlb.linux.routes import IndexOf
from haxlb.linux.rtnetlink import NLM_F_EXCL, NLM_F_REPLACE, Rtnetlink
from haxlb.model.errors import HostError, NotPermitted
from haxlb.model.routes import Route, Rule

GONE = frozenset(
    {errno.ESRCH, errno.ENOENT, errno.ENODEV, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EINVAL, errno.EOPNOTSUPP}
)
"""The kernel's answers to the removal of what is not there, or cannot be."""

_THERE = frozenset({errno.EEXIST})
"""To an addition."""

Entry = Route | Rule
Place = tuple[str, int, int, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteTurn:
    """Routes and rules whose turn it is to be seen to."""

    entries: tuple[Entry, ...]
    asked: tuple[tuple[Entry, bytes], ...]
    """Those that can be asked for, and how."""
    problems: dict[Entry, HostError]
    """Of the others."""

    @property
    def requests(self) -> tuple[bytes, ...]:
        """What the kernel is to be asked."""
        return tuple(request for _, request in self.asked)


class Routing:
    """The routes and rules that this process put on, and the requests for them, encoded once."""

    def __init__(
        self, rtnetlink: Rtnetlink, index_of: IndexOf, *, before_removal: Callable[[], None] = lambda: None
    ) -> None:
        """`index_of` names an interface's index now, None when it does not exist.

        `before_removal` as in `Addresses`.
        """
        self._before_removal = before_removal
        self._rtnetlink = rtnetlink
        self._index_of = index_of
        self._held: OrderedDict[Entry, None] = OrderedDict()
        """In the order in which it is their turn to be renewed."""
        self._troubled: dict[Entry, HostError] = {}
        """Held ones that could not be had the last time."""
        self._place_of: dict[Route, Place] = {}
        self._places: dict[Place, set[Route]] = {}
        """The held routes by what the kernel has but one of."""
        self._preferences: dict[Rule, int] = {}
        self._encoded: dict[tuple[Entry, tuple[int | None, ...]], bytes] = {}
        self._removals: dict[Entry, bytes] = {}

    @property
    def held(self) -> tuple[Entry, ...]:
        """What is to be there now."""
        return tuple(self._held)

    def prepare(self, routes: Iterable[Route], rules: Iterable[Rule]) -> None:
        """Encode requests now instead of at take-over; what cannot be encoded is complained of when it is put on."""
        wanted: tuple[Entry, ...] = (*routes, *rules)
        keep = {*wanted, *self._held}
        self._encoded = {key: each for key, each in self._encoded.items() if key[0] in keep}
        self._removals = {key: each for key, each in self._removals.items() if key in keep}
        # Names of tables are looked up here, in files, and not at take-over.
        self._place_of = {route: place for route, place in self._place_of.items() if route in self._held}
        self._preferences = {rule: number for rule, number in self._preferences.items() if rule in keep}
        for entry in wanted:
            try:
                self._addition(entry)
                self._removal(entry)
                self._has_twin(entry)
            except HostError:
                continue

    def add(self, routes: Iterable[Route], rules: Iterable[Rule]) -> None:
        """Put on all that can be; raises HostError naming the first that could not."""
        wanted: tuple[Entry, ...] = (*routes, *rules)
        for entry in wanted:
            # Held also where it fails: `renew` tries again for as long as the instance is MASTER.
            self._held[entry] = None
        _raise_first(self._put_on(wanted))

    def remove(self, routes: Iterable[Route], rules: Iterable[Rule]) -> None:
        """Take off; those not there are no error. Raises HostError."""
        # Rules first: they must not lead into tables that are empty already.
        wanted: tuple[Entry, ...] = (*rules, *routes)
        for entry in wanted:
            self._held.pop(entry, None)
            self._troubled.pop(entry, None)
        requests = []
        for entry in wanted:
            try:
                self._vacate(entry)
                if not self._has_twin(entry):
                    requests.append((entry, self._removal(entry)))
            except HostError:  # it could not be put on, either
                continue
        if requests:
            self._before_removal()
        _raise_first(self._carry_out(requests, "delete", GONE))

    def renew(self, most: int | None = None) -> None:
        """Put back what somebody took off, but for what is marked `no_track`: the next `most` of them, or all.

        Raises HostError while any cannot be had, also one of another turn.
        """
        turn = self.begin_turn(most)
        self.end_turn(turn, self._outcome(turn.requests))

    def begin_turn(self, most: int | None = None) -> RouteTurn:
        """The first half of `renew`, for who has the requests carried out by somebody else."""
        chosen = tuple(entry for entry in self._next(most) if not _untracked(entry))
        asked, problems = self._additions(chosen, replace=False)
        return RouteTurn(entries=chosen, asked=tuple(asked), problems=problems)

    def end_turn(self, turn: RouteTurn, outcome: list[int] | Exception) -> None:
        """The second half: what became of the requests. Raises HostError as `renew` does, all else as it is."""
        refused = turn.problems | _refusals(turn.asked, outcome, "add", _THERE)
        for entry in turn.entries:
            self._troubled.pop(entry, None)
        # What has been taken off meanwhile troubles nobody.
        self._troubled.update((entry, problem) for entry, problem in refused.items() if entry in self._held)
        _raise_first(self._troubled)

    def reconcile(self, routes: Iterable[Route], rules: Iterable[Rule]) -> None:
        """Take off what a former process has left of these, and put back what is held. Raises HostError."""
        left_routes = [route for route in routes if route not in self._held]
        left_rules = [rule for rule in rules if rule not in self._held]
        fresh = not self._held
        self.remove(left_routes, left_rules)
        if fresh:
            # A process with another configuration may have given them other preferences.
            self._rtnetlink.change(tuple(encode_removals((), left_rules)))
        self.renew()

    def _next(self, most: int | None) -> list[Entry]:
        chosen = list(islice(self._held, most))
        for entry in chosen:
            self._held.move_to_end(entry)
        return chosen

    def _put_on(self, entries: Iterable[Entry]) -> dict[Entry, HostError]:
        """One of ours that has the place gives way."""
        requests, problems = self._additions(entries, replace=True)
        return problems | self._carry_out(requests, "add", _THERE)

    def _additions(
        self, entries: Iterable[Entry], *, replace: bool
    ) -> tuple[list[tuple[Entry, bytes]], dict[Entry, HostError]]:
        """`replace` says whether one of ours that has the place gives way."""
        problems: dict[Entry, HostError] = {}
        requests = []
        for entry in entries:
            try:
                requests.append((entry, self._addition(entry, replaces=replace and self._has_twin(entry))))
                self._occupy(entry)
            except HostError as problem:
                problems[entry] = problem
        return requests, problems

    def _carry_out(
        self, requests: list[tuple[Entry, bytes]], verb: str, harmless: frozenset[int]
    ) -> dict[Entry, HostError]:
        """What the kernel did not do, and why."""
        return _refusals(requests, self._outcome([each for _, each in requests]), verb, harmless)

    def _outcome(self, requests: Sequence[bytes]) -> list[int] | Exception:
        try:
            return self._rtnetlink.change(requests)
        except OSError as problem:
            return problem

    def _has_twin(self, entry: Entry) -> bool:
        """Whether another one of ours has its place in the kernel: the former or the next one of a reload."""
        return isinstance(entry, Route) and bool(self._places.get(self._place(entry), set()) - {entry})

    def _place(self, route: Route) -> Place:
        if route not in self._place_of:
            self._place_of[route] = route_codec.key_of(route)
        return self._place_of[route]

    def _occupy(self, entry: Entry) -> None:
        if isinstance(entry, Route):
            self._places.setdefault(self._place(entry), set()).add(entry)

    def _vacate(self, entry: Entry) -> None:
        if isinstance(entry, Route):
            place = self._place(entry)
            self._places.get(place, set()).discard(entry)
            if not self._places.get(place):
                self._places.pop(place, None)

    def _addition(self, entry: Entry, *, replaces: bool = False) -> bytes:
        if isinstance(entry, Rule):
            key: tuple[Entry, tuple[int | None, ...]] = (entry, ())
            if key not in self._encoded:
                self._encoded[key] = rule_codec.encode_addition(entry, self._preference(entry))
            return self._encoded[key]
        flags = NLM_F_REPLACE if replaces else NLM_F_EXCL
        key = (entry, (flags, *(self._index_of(name) for name in route_codec.devices_of(entry))))
        if key not in self._encoded:
            self._encoded[key] = route_codec.encode_addition(entry, self._index_of, flags)
        return self._encoded[key]

    def _removal(self, entry: Entry) -> bytes:
        if entry not in self._removals:
            if isinstance(entry, Rule):
                self._removals[entry] = rule_codec.encode_removal(entry, self._preference(entry))
            else:
                self._removals[entry] = route_codec.encode_removal(entry)
        return self._removals[entry]

    def _preference(self, rule: Rule) -> int:
        """The one that it names, else the highest free one from 16384 downwards."""
        named = rule_codec.preference_of(rule)
        if named is not None:
            return named
        if rule not in self._preferences:
            taken = set(self._preferences.values())
            number = rule_codec.FIRST_PREFERENCE
            while number in taken:
                number -= 1
            self._preferences[rule] = number
        return self._preferences[rule]


def encode_removals(routes: Iterable[Route], rules: Iterable[Rule]) -> Iterator[bytes]:
    """The requests that take these off, for whoever has not put them on: rules go whatever preference they have."""
    for rule in rules:
        with contextlib.suppress(HostError):  # it could not be put on, either
            yield rule_codec.encode_removal(rule, rule_codec.preference_of(rule))
    for route in routes:
        with contextlib.suppress(HostError):
            yield route_codec.encode_removal(route)


def _refusals(
    asked: Sequence[tuple[Entry, bytes]], outcome: list[int] | Exception, verb: str, harmless: frozenset[int]
) -> dict[Entry, HostError]:
    """What the kernel did not do, and why. Raises HostError where that cannot be told."""
    if isinstance(outcome, OSError):
        raise HostError(
            f"rtnetlink: {outcome.strerror}", remedy="see the limits of memory and socket buffers"
        ) from outcome
    if isinstance(outcome, Exception):
        raise outcome
    return {
        entry: _error(entry, number, verb)
        for (entry, _), number in zip(asked, outcome, strict=True)
        if number and number not in harmless
    }


def _raise_first(problems: dict[Entry, HostError]) -> None:
    for problem in problems.values():
        raise problem


def _untracked(entry: Entry) -> bool:
    if isinstance(entry, Route):
        return entry.no_track
    return ("no_track", "") in entry.selectors


def _error(entry: Entry, number: int, verb: str) -> HostError:
    if isinstance(entry, Route):
        what, tool = f"the route to {entry.destination}", f"ip route {verb} {entry.destination} …"
    else:
        text = rule_codec.describe(entry)
        what, tool = f"the rule `{text}`", f"ip rule {verb} {text}"
    if number in (errno.EPERM, errno.EACCES):
        return NotPermitted(
            f"may not {verb} {what}: CAP_NET_ADMIN is missing",
            remedy="run as root, or give the unit AmbientCapabilities=CAP_NET_RAW CAP_NET_ADMIN",
        )
    if (
        number == errno.EOPNOTSUPP
        and isinstance(entry, Route)
        and (entry.encap or any(h.encap for h in entry.nexthops))
    ):
        words = entry.encap or next(hop.encap for hop in entry.nexthops if hop.encap)
        return HostError(
            f"cannot {verb} {what}: this kernel has no encap {words[0]}",
            remedy=f"load its module ({words[0]}_tunnel or mpls_iptunnel), or leave `encap` out",
        )
    return HostError(f"cannot {verb} {what}: {os.strerror(number)}", remedy=f"try `{tool}` and read its answer")
