"""What a virtual director tracks: scripts that fail or hang, files, processes; found out by the real tracker.

How the things are (`Health`) belongs to the host and outlives the processes that look at them. In good health nothing
that is tracked is a fault: a script that is tracked in reverse fails, a process that must not run does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial

from haxlb.daemon.messages import ConfigureTracker
from haxlb.daemon.tracker import Tracker
from haxlb.model.facts import Fact
from haxlb.model.node import NodeConfig
from haxlb.model.notification import ScriptSettings
from haxlb.model.tracking import Track, TrackFile, TrackKind, TrackProcess, TrackResult, TrackScript
from haxlb.sim.adapters import VirtualClock, VirtualWake
from haxlb.sim.loop import Timer, VirtualLoop

RUN_US = 3_000
"""How long a script takes that does not hang."""
NOTICED_US = 500
"""From the kernel's event to the tracker: a file was written, a process has ended."""

Key = tuple[TrackKind, str]
When = Callable[[str, Callable[[], None]], None]
"""Runs something now, or, while the processes are stopped, when they run again (the key: at most once)."""


class Health(Enum):
    """How a tracked thing is."""

    WELL = "well"
    ILL = "failing"
    HANGING = "hanging"
    """A script that ends only when it is killed."""
    MISSING = "missing"
    """A script that cannot be run."""


class Tracking:
    """The tracker of one director while its processes live, and the ports that it looks through."""

    def __init__(
        self,
        *,
        loop: VirtualLoop,
        clock: VirtualClock,
        health: dict[Key, Health],
        when: When,
        on_tracked: Callable[[tuple[TrackResult, ...]], None],
        on_fact: Callable[[Fact], None],
    ) -> None:
        self._loop = loop
        self._when = when
        self._health = health
        self._on_tracked = on_tracked
        self._on_fact = on_fact
        self._gone = False
        self._tracks: dict[Key, Track] = {}
        self._watched: dict[Key, TrackFile | TrackProcess] = {}
        self._wake = VirtualWake(loop, clock, lambda: self._later("tracker wakes", self._tracker.on_wake))
        self._tracker = Tracker(
            clock=clock,
            wake=self._wake,
            scripts=_Scripts(self._later, loop, self),
            files=_Files(self),
            processes=_Processes(self),
            reports=self,
        )

    def configure(self, config: NodeConfig, orders: ConfigureTracker) -> None:
        """Track this."""
        lists = (*(each.tracks for each in config.instances), *(each.tracks for each in config.sync_groups))
        self._tracks = {(each.kind, each.name): each for listed in lists for each in listed}
        self._tracker.configure(orders)
        for each in orders.bfd_sessions:
            self.look((TrackKind.BFD, each.name))

    def close(self) -> None:
        """Its process is gone."""
        self._gone = True
        self._wake.close()

    def look(self, key: Key) -> None:
        """The kernel says that this may have changed."""
        self._loop.after(NOTICED_US, partial(self._later, f"look at {key[1]}", partial(self._look, key)))

    def is_well(self, key: Key) -> bool:
        """Whether a script succeeds, a process runs, a session is up: the reverse of that is healthy where it is
        tracked in reverse.
        """
        track = self._tracks.get(key)
        upside_down = track is not None and track.reverse and track.weight == 0
        return (self.health(key) is Health.WELL) is not upside_down

    def health(self, key: Key) -> Health:
        """How it is."""
        return self._health.get(key, Health.WELL)

    def ended(self, ticket: int, *, well: bool, how: str) -> None:
        """A script has."""
        self._tracker.on_script_ended(ticket, well=well, how=how)

    # -- TrackerReportPort

    def tracked(self, results: tuple[TrackResult, ...]) -> None:
        """On to the supervisor."""
        self._on_tracked(results)

    def report(self, fact: Fact) -> None:
        """On to the supervisor."""
        self._on_fact(fact)

    def log(self, level: str, event: str, **fields: object) -> None:
        """A drill has its timeline."""

    def ready(self, of: str, problem: str) -> None:
        """Nobody waits for it."""

    # -- inside

    def watch(self, things: Iterable[TrackFile | TrackProcess]) -> None:
        """Look at each of these from now on."""
        for each in things:
            key = (TrackKind.FILE if isinstance(each, TrackFile) else TrackKind.PROCESS, each.name)
            self._watched[key] = each
            self.look(key)

    def _later(self, key: str, what: Callable[[], None]) -> None:
        if not self._gone:
            self._when(key, lambda: None if self._gone else what())

    def _look(self, key: Key) -> None:
        kind, name = key
        thing = self._watched.get(key)
        if isinstance(thing, TrackFile):
            self._tracker.on_file(name, self._number(thing), "")
        elif isinstance(thing, TrackProcess):
            self._tracker.on_count(name, thing.quorum if self.is_well(key) else 0)
        elif kind is TrackKind.BFD:
            self._tracker.on_result(kind, name, int(self.is_well(key)), "")

    def _number(self, file: TrackFile) -> int:
        """What the file says: ill is what makes a fault, or costs ten times its weight."""
        key = (TrackKind.FILE, file.name)
        track = self._tracks.get(key)
        if track is None or track.weight == 0:
            return int(not self.is_well(key))
        if self.health(key) is Health.WELL:
            return file.init_value or 0
        return -10 if (track.weight > 0) is not track.reverse else 10


class _Scripts:
    """TrackScriptPort."""

    def __init__(self, later: When, loop: VirtualLoop, tracking: Tracking) -> None:
        self._later = later
        self._loop = loop
        self._tracking = tracking
        self._runs: dict[int, Timer | None] = {}
        """Those that hang have no timer."""

    def configure(self, scripts: Iterable[TrackScript], settings: ScriptSettings) -> None:
        """Nothing is really started."""

    def start(self, ticket: int, script: TrackScript) -> str:
        """As the script's health is."""
        key = (TrackKind.SCRIPT, script.name)
        health = self._tracking.health(key)
        if health is Health.MISSING:
            return "there is no such file"
        self._runs[ticket] = None
        if health is not Health.HANGING:
            well = self._tracking.is_well(key)
            self._end_in(RUN_US, ticket, well=well, how=f"exit code {int(not well)}")
        return ""

    def begun(self, ticket: int) -> bool:
        """All do at once."""
        return ticket in self._runs

    def terminate(self, ticket: int) -> None:
        """A script that hangs does not heed it."""

    def kill(self, ticket: int) -> None:
        """It ends."""
        if ticket in self._runs and self._runs[ticket] is None:
            self._end_in(1, ticket, well=False, how="killed by signal 9")

    def _end_in(self, delay_us: int, ticket: int, *, well: bool, how: str) -> None:
        what = partial(self._end, ticket, well=well, how=how)
        self._runs[ticket] = self._loop.after(delay_us, partial(self._later, f"script {ticket}", what))

    def _end(self, ticket: int, *, well: bool, how: str) -> None:
        del self._runs[ticket]
        self._tracking.ended(ticket, well=well, how=how)


class _Files:
    """TrackFilePort."""

    def __init__(self, tracking: Tracking) -> None:
        self._tracking = tracking

    def create(self, file: TrackFile) -> None:
        """It is there."""

    def watch(self, files: Iterable[TrackFile]) -> None:
        """All are reported soon."""
        self._tracking.watch(files)


class _Processes:
    """TrackProcessPort."""

    def __init__(self, tracking: Tracking) -> None:
        self._tracking = tracking

    def watch(self, processes: Iterable[TrackProcess]) -> None:
        """All are reported soon."""
        self._tracking.watch(processes)
