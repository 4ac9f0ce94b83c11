"""What the tracker may ask of the outside world, beyond the ports that it shares with the speaker.

Every call is synchronous, returns at once and raises nothing but HostError; what is found out comes in through the
`Tracker`'s `on_…` methods, from the loop and never from inside the call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from haxlb.model.facts import Fact
from haxlb.model.notification import ScriptSettings
from haxlb.model.tracking import TrackFile, TrackProcess, TrackResult, TrackScript


class TrackScriptPort(Protocol):
    """Runs tracked scripts; each end comes in through `on_script_ended`, or `on_script_refused` where none began."""

    def configure(self, scripts: Iterable[TrackScript], settings: ScriptSettings) -> None:
        """These may be started from now on, as these users."""
        ...

    def start(self, ticket: int, script: TrackScript) -> str:
        """Begin a run, soon; why it cannot be run where that is known already, else empty."""
        ...

    def begun(self, ticket: int) -> bool:
        """Whether this run, which has not ended, has begun: it waits for those before it, and for the host."""
        ...

    def terminate(self, ticket: int) -> None:
        """SIGTERM to all that the run has started; one that has ended is no error."""
        ...

    def kill(self, ticket: int) -> None:
        """SIGKILL, likewise."""
        ...


class TrackFilePort(Protocol):
    """Reads tracked files whenever they change; comes in through `on_file`."""

    def create(self, file: TrackFile) -> None:
        """Make it with its `init_value`, if it has one. A failure is logged by the adapter, never raised."""
        ...

    def watch(self, files: Iterable[TrackFile]) -> None:
        """Watch exactly these. Every one is reported at once, from the loop."""
        ...


class TrackProcessPort(Protocol):
    """Counts tracked processes; comes in through `on_count`."""

    def watch(self, processes: Iterable[TrackProcess]) -> None:
        """Watch exactly these. Every one is reported at once, from the loop."""
        ...


class TrackerReportPort(Protocol):
    """Where the tracker's results, facts, log lines and answers go: to the supervisor."""

    def tracked(self, results: tuple[TrackResult, ...]) -> None:
        """These are so now."""
        ...

    def report(self, fact: Fact) -> None:
        """Never blocks; the oldest is dropped when nobody listens."""
        ...

    def log(self, level: str, event: str, **fields: object) -> None:
        """One line for the log: debug, info, warning or error; `event` is a stable snake_case name."""
        ...

    def ready(self, of: str, problem: str) -> None:
        """The last message of this class name is in force, or (`problem`) why not."""
        ...
