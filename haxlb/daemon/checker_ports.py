"""What the checker may ask of the outside world, beyond the ports that it shares with the speaker.

Every call is synchronous, returns at once and raises nothing but HostError; answers come in through the `Checker`'s
`on_…` methods, from the loop and never from inside the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from haxlb.health.timetable import StartProbe
from haxlb.model.addresses import IPAddress
from haxlb.model.facts import Fact


class ProbePort(Protocol):
    """Makes probes; each outcome comes in through `on_probe_result`, at its deadline at the latest."""

    def start(self, probe: StartProbe) -> None:
        """Begin this probe."""
        ...

    def abandon(self, ticket: int) -> None:
        """End the probe of this ticket without an outcome; one that has ended is no error."""
        ...


class NeighbourPort(Protocol):
    """Finds out how frames reach addresses, and keeps it fresh; comes in through `on_neighbour` and `on_interfaces`."""

    def follow(self, addresses: Iterable[IPAddress]) -> None:
        """Follow exactly these. What is known of a new one at once, or found out later, is reported from the loop.

        A link-local one has the name of its interface as its scope.
        """
        ...


class VerdictPort(Protocol):
    """Remembers which servers are up, for the checker that comes after this one.

    The data plane outlives the checker. One that started from nothing would put dead servers back into it (without
    `alpha`) or take all of them out (with it).
    """

    def load(self) -> dict[str, bool]:
        """What was saved last; empty when nothing was, or when it cannot be read."""
        ...

    def save(self, verdicts: Mapping[str, bool]) -> None:
        """Replace what was saved. A failure is logged by the adapter, never raised."""
        ...


class CheckerReportPort(Protocol):
    """Where the checker's facts, log lines and answers go: to the supervisor."""

    def report(self, fact: Fact) -> None:
        """Never blocks; the oldest is dropped when nobody listens."""
        ...

    def log(self, level: str, event: str, **fields: object) -> None:
        """One line for the log: debug, info, warning or error; `event` is a stable snake_case name."""
        ...

    def ready(self, of: str, problem: str) -> None:
        """The last message of this class name is in force, or (`problem`) why not."""
        ...
