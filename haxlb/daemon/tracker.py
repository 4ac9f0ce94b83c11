"""The tracker: finds out how the things are that instances track, and tells of every change.

Loop-agnostic and synchronous, like the speaker: whoever drives it calls the `on_…` methods for what happens and
`on_wake` when the time asked for through the wake port has come. Sessions of BFD are found out by others and only
reported here.
"""

from __future__ import annotations

from haxlb.daemon.messages import ConfigureTracker
from haxlb.daemon.ports import ClockPort, WakePort
from haxlb.daemon.tracker_board import Board
from haxlb.daemon.tracker_ports import TrackerReportPort, TrackFilePort, TrackProcessPort, TrackScriptPort
from haxlb.daemon.tracker_scripts import ScriptRuns
from haxlb.model.status import TrackedStatus
from haxlb.model.tracking import TrackFile, TrackKind, TrackProcess
from haxlb.vrrp.track_process import QuorumWatch


class Tracker:
    """Everything that a node tracks, but for its interfaces: those the speaker knows itself."""

    def __init__(
        self,
        *,
        clock: ClockPort,
        wake: WakePort,
        scripts: TrackScriptPort,
        files: TrackFilePort,
        processes: TrackProcessPort,
        reports: TrackerReportPort,
    ) -> None:
        self._clock = clock
        self._wake = wake
        self._scripts = scripts
        self._files = files
        self._processes = processes
        self._reports = reports
        self._board = Board(reports.tracked)
        self._runs = ScriptRuns(scripts, self._board, reports)
        self._watched_files: dict[str, TrackFile] = {}
        self._quorums: dict[str, tuple[TrackProcess, QuorumWatch]] = {}

    def configure(self, orders: ConfigureTracker) -> None:
        """Track exactly this; what stays the same keeps what is known of it. All results follow, then the answer."""
        now = self._clock.now()
        present = {(each.kind, each.name) for each in self._board.results()}
        self._board.arrange(
            (
                *((TrackKind.SCRIPT, each.name) for each in orders.scripts),
                *((TrackKind.FILE, each.name) for each in orders.files),
                *((TrackKind.PROCESS, each.name) for each in orders.processes),
                *((TrackKind.BFD, each.name) for each in orders.bfd_sessions),
            ),
            now,
        )
        tracked = {(each.kind, each.name) for each in self._board.results()}
        for each in orders.known:
            if (key := (each.kind, each.name)) in tracked - present:
                self._board.restore(key, each.value, detail="as last known", counts=each.counts)
        self._scripts.configure(orders.scripts, orders.script_settings)
        self._runs.configure(orders.scripts, now)
        # keepalived makes them at its start only. What a tracker before this one has found must not be undone.
        fresh = not present and not orders.known
        self._take_files(orders.files, fresh=fresh)
        self._take_processes(orders.processes)
        self._reports.tracked(self._board.results())
        self._reports.ready(ConfigureTracker.__name__, "")
        self._files.watch(orders.files)
        self._processes.watch(orders.processes)
        self._arm()

    def on_script_ended(self, ticket: int, *, well: bool, how: str) -> None:
        """A run has ended; `how` in words: `exit code 1`."""
        self._runs.ended(ticket, self._clock.now(), well=well, how=how)
        self._arm()

    def on_script_refused(self, ticket: int, problem: str) -> None:
        """A run could not be begun; `problem` says why."""
        self._runs.refused(ticket, self._clock.now(), problem)
        self._arm()

    def on_file(self, name: str, value: int, detail: str) -> None:
        """The number in a file is this now; `detail` says why where there is none."""
        self._board.put((TrackKind.FILE, name), value, self._clock.now(), detail=detail)

    def on_count(self, name: str, count: int) -> None:
        """So many of these processes are running."""
        if name not in self._quorums:
            return
        now = self._clock.now()
        process, quorum = self._quorums[name]
        quorum.handle(count, now)
        self._put_quorum(process, quorum, now)
        self._arm()

    def on_result(self, kind: TrackKind, name: str, value: int, detail: str) -> None:
        """Somebody else has found out how this is: 1 well, 0 not."""
        self._board.put((kind, name), value, self._clock.now(), detail=detail)

    def on_wake(self) -> None:
        """The time asked for has come."""
        now = self._clock.now()
        self._runs.advance(now)
        for process, quorum in self._quorums.values():
            if quorum.handle_timer(now):
                self._put_quorum(process, quorum, now)
        self._arm()

    def stop(self) -> None:
        """End the scripts that run; nothing is started any more."""
        self._wake.wake_at(None)
        self._runs.stop()

    def status(self, epoch_us: int) -> tuple[TrackedStatus, ...]:
        """Everything in the order of the configuration; `epoch_us` is the wall clock's now."""
        return self._board.status(epoch_us - self._clock.now())

    def _take_files(self, files: tuple[TrackFile, ...], *, fresh: bool) -> None:
        former, self._watched_files = self._watched_files, {each.name: each for each in files}
        for each in files:
            if fresh:
                self._files.create(each)
            if each.name in former and former[each.name].path != each.path:
                self._board.restore((TrackKind.FILE, each.name), None)

    def _take_processes(self, processes: tuple[TrackProcess, ...]) -> None:
        former, self._quorums = self._quorums, {}
        for each in processes:
            key = (TrackKind.PROCESS, each.name)
            before = former.get(each.name)
            if before is not None and before[0] == each:
                self._quorums[each.name] = before
                continue
            if before is not None and _counted(before[0]) != _counted(each):
                self._board.restore(key, None)
            self._quorums[each.name] = (each, QuorumWatch(each, known=self._board.value(key)))

    def _put_quorum(self, process: TrackProcess, quorum: QuorumWatch, now: int) -> None:
        most = "" if process.quorum_max is None else f", at most {process.quorum_max}"
        detail = f"{quorum.count} running, wanted: at least {process.quorum}{most}"
        self._board.put((TrackKind.PROCESS, process.name), quorum.value, now, detail=detail)

    def _arm(self) -> None:
        deadlines = [quorum.next_deadline() for _, quorum in self._quorums.values()]
        deadlines.append(self._runs.next_deadline())
        self._wake.wake_at(min((each for each in deadlines if each is not None), default=None))


def _counted(process: TrackProcess) -> tuple[object, ...]:
    """What makes two definitions count the same processes."""
    return process.process, process.parameters, process.match, process.full_command
