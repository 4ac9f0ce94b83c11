"""Virtual routes and rules on and off, and what to do when the kernel refuses.

As with addresses (`VipKeeper`), a refusal never changes a role: an alarm says what is wrong, and it is tried again each
second until it works. What two instances hold is taken off by the last one only.
"""

from __future__ import annotations

from haxlb.daemon.ports import ReportPort, RoutePort
from haxlb.daemon.speaker_retries import Key, Refusals
from haxlb.model.errors import HostError
from haxlb.model.instance import VrrpInstance
from haxlb.model.routes import Route, Rule

Entry = Route | Rule


class RouteKeeper:
    """Executes AddRoutes and RemoveRoutes for all instances of a node."""

    def __init__(self, *, routes: RoutePort, reports: ReportPort) -> None:
        self._port = routes
        self._holders: dict[Entry, set[Key]] = {}
        self._refusals = Refusals[Entry](kind="route", settled="the kernel has the routes as wanted", reports=reports)

    @property
    def retry_at(self) -> int | None:
        """When `retry` wants to be called, monotonic µs."""
        return self._refusals.retry_at

    def claim(self, instance: VrrpInstance, routes: tuple[Route, ...], rules: tuple[Rule, ...]) -> None:
        """The instance holds these, or is about to: no other instance's removal takes them off."""
        for entry in _entries(routes, rules):
            self._holders.setdefault(entry, set()).add(instance.key)

    def add(self, instance: VrrpInstance, routes: tuple[Route, ...], rules: tuple[Rule, ...], now: int) -> None:
        """Put on; a refusal raises an alarm and is tried again."""
        self.claim(instance, routes, rules)
        for entry in _entries(routes, rules):
            self._refusals.not_off.pop(entry, None)
        try:
            self._port.add(routes, rules)
        except HostError as problem:
            self._refusals.not_on.update(dict.fromkeys(_entries(routes, rules), instance.key))
            self._refusals.raise_for(instance, "routes or rules cannot be put on", problem, now)
        self._refusals.settle(now)

    def remove(self, instance: VrrpInstance, routes: tuple[Route, ...], rules: tuple[Rule, ...], now: int) -> None:
        """Take off what no other instance of ours holds."""
        for entry in _entries(routes, rules):
            self._refusals.not_on.pop(entry, None)
        free_routes = tuple(each for each in routes if self._release(each, instance.key))
        free_rules = tuple(each for each in rules if self._release(each, instance.key))
        if free_routes or free_rules:
            try:
                self._port.remove(free_routes, free_rules)
            except HostError as problem:
                self._refusals.not_off.update(dict.fromkeys(_entries(free_routes, free_rules), instance.key))
                self._refusals.raise_for(instance, "routes or rules cannot be taken off", problem, now)
        self._refusals.settle(now)

    def retry(self, now: int) -> None:
        """Try again what failed, if it is time."""
        if not self._refusals.is_due(now):
            return
        self._refusals.retry(
            now,
            remove=lambda entry: self._succeeds(entry, on=False),
            add=lambda entry: self._succeeds(entry, on=True),
        )

    def stop(self) -> None:
        """Nothing is tried again."""
        self._refusals.retry_at = None

    def _succeeds(self, entry: Entry, *, on: bool) -> bool:
        change = self._port.add if on else self._port.remove
        try:
            change(*(((entry,), ()) if isinstance(entry, Route) else ((), (entry,))))
        except HostError:
            return False
        return True

    def _release(self, entry: Entry, key: Key) -> bool:
        """Whether nobody holds it when this instance lets it go."""
        holders = self._holders.get(entry)
        if holders is None:
            return True
        holders.discard(key)
        if holders:
            return False
        del self._holders[entry]
        return True


def _entries(routes: tuple[Route, ...], rules: tuple[Rule, ...]) -> tuple[Entry, ...]:
    return (*routes, *rules)
