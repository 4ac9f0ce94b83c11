"""The runs of tracked scripts: when each is due, how long it may take, what it comes to.

Runs follow an absolute schedule. One that is due while the one before it still runs is left out (keepalived). A run
that takes too long is a failure at that moment, whatever becomes of its processes: SIGTERM to all of them, SIGKILL two
seconds later. One that has not begun says nothing of what it checks: it is late, and counts when it has had its time.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

from haxlb.daemon.tracker_board import Board
from haxlb.daemon.tracker_ports import TrackerReportPort, TrackScriptPort
from haxlb.model.facts import AlarmCleared, AlarmRaised
from haxlb.model.tracking import TrackKind, TrackScript
from haxlb.model.units import SECOND_US
from haxlb.vrrp.track_script import ScriptCounter

GRACE_US = 2 * SECOND_US
"""Between SIGTERM and SIGKILL."""
STARTS_AT_ONCE = 1
"""A BFD session in the same process may want to send every ten milliseconds: that comes between."""


@dataclass(slots=True)
class _Run:
    """A run that has not ended."""

    ticket: int
    name: str
    deadline: int | None
    """When the next signal is due; None = the last one has been sent."""
    signals: int = 0
    late: bool = False
    """It had not begun when it was to have ended."""


@dataclass(slots=True)
class _Watch:
    """One script."""

    script: TrackScript
    counter: ScriptCounter
    due: int
    run: _Run | None = None
    problem: str = ""
    """Why it could not be run the last time."""


class ScriptRuns:
    """All scripts of a node."""

    def __init__(self, port: TrackScriptPort, board: Board, reports: TrackerReportPort) -> None:
        self._port = port
        self._board = board
        self._reports = reports
        self._tickets = count(1)
        self._watches: dict[str, _Watch] = {}
        self._leaving: dict[int, _Run] = {}
        """Runs of scripts that are not configured any more."""

    def configure(self, scripts: tuple[TrackScript, ...], now: int) -> None:
        """Run exactly these. A script with the same name and command is the same one and keeps what is known of it.

        What the board knows of one that was not here before counts as its past.
        """
        former, self._watches = self._watches, {}
        for script in scripts:
            key = (TrackKind.SCRIPT, script.name)
            watch = former.get(script.name)
            if watch is not None and watch.script.run.argv == script.run.argv:
                del former[script.name]
                self._watches[script.name] = self._adapted(watch, script, now)
                continue
            known = self._board.value(key) if watch is None else None
            counter = ScriptCounter(script, known=known)
            self._watches[script.name] = _Watch(script=script, counter=counter, due=now)
            self._board.restore(key, counter.value, detail="has not run yet")
        for name, watch in former.items():
            self._clear_alarm(name, watch, "it is not configured any more", now)
            if watch.run is not None:
                self._leave(watch.run, now)

    def ended(self, ticket: int, now: int, *, well: bool, how: str) -> None:
        """A run has ended; `how` in words."""
        watch = self._finish(ticket)
        if watch is not None:
            self._clear_alarm(watch.script.name, watch, "it can be run again", now)
            self._count(watch, now, well=well, how=how)

    def refused(self, ticket: int, now: int, problem: str) -> None:
        """A run could not be begun."""
        watch = self._finish(ticket)
        if watch is not None:
            self._refuse(watch, problem, now)

    def advance(self, now: int) -> None:
        """Do what is due."""
        for watch in self._watches.values():
            if watch.run is not None:
                self._hurry(watch.run, watch, now)
        for run in self._leaving.values():
            self._hurry(run, None, now)
        due = sorted((each for each in self._watches.values() if each.due <= now), key=lambda each: each.due)
        started = 0
        for watch in due:
            if watch.run is None:
                if started == STARTS_AT_ONCE:
                    continue
                started += 1
                self._start(watch, now)
            interval = watch.script.interval_us
            watch.due += ((now - watch.due) // interval + 1) * interval

    def next_deadline(self) -> int | None:
        """When `advance` is wanted."""
        deadlines = [watch.due for watch in self._watches.values()]
        runs = [watch.run for watch in self._watches.values() if watch.run is not None]
        deadlines += [run.deadline for run in (*runs, *self._leaving.values()) if run.deadline is not None]
        return min(deadlines, default=None)

    def stop(self) -> None:
        """End what runs."""
        for watch in self._watches.values():
            if watch.run is not None:
                self._port.terminate(watch.run.ticket)

    def _adapted(self, watch: _Watch, script: TrackScript, now: int) -> _Watch:
        if (watch.script.rise, watch.script.fall) != (script.rise, script.fall):
            watch.counter = ScriptCounter(script, known=watch.counter.value)
        watch.script = script
        watch.due = min(watch.due, now + script.interval_us)
        return watch

    def _finish(self, ticket: int) -> _Watch | None:
        """The script whose run this was, where that still counts."""
        if self._leaving.pop(ticket, None) is not None:
            return None
        watch = next((each for each in self._watches.values() if each.run and each.run.ticket == ticket), None)
        if watch is None or watch.run is None:
            return None
        run, watch.run = watch.run, None
        return None if run.signals else watch

    def _start(self, watch: _Watch, now: int) -> None:
        ticket = next(self._tickets)
        problem = self._port.start(ticket, watch.script)
        if problem:
            self._refuse(watch, problem, now)
        else:
            watch.run = _Run(ticket, watch.script.name, now + _limit_us(watch.script))

    def _refuse(self, watch: _Watch, problem: str, now: int) -> None:
        self._raise_alarm(watch, problem, now)
        if watch.counter.value is None:
            # Nothing is known of the service: to make it a fault could take both directors down, by one wrong path.
            key = (TrackKind.SCRIPT, watch.script.name)
            self._board.put(key, None, now, detail=f"cannot be run: {problem}", counts=False)
        else:
            self._count(watch, now, well=False, how=f"cannot be run: {problem}")

    def _hurry(self, run: _Run, watch: _Watch | None, now: int) -> None:
        """Send the signal that is due."""
        if run.deadline is None or now < run.deadline:
            return
        if watch is not None and not run.signals and self._is_late(run):
            run.deadline = now + _limit_us(watch.script)
            return
        run.signals += 1
        if run.signals > 1:
            self._port.kill(run.ticket)
            run.deadline = None
            self._reports.log("error", "track_script_killed", script=run.name, reason="SIGTERM did not end it")
            return
        self._port.terminate(run.ticket)
        run.deadline = now + GRACE_US
        if watch is not None:
            limit_s = _limit_us(watch.script) / SECOND_US
            self._reports.log("warning", "track_script_overdue", script=run.name, limit_s=limit_s)
            self._clear_alarm(run.name, watch, "it can be run again", now)
            self._count(watch, now, well=False, how=f"did not end within {limit_s:g} s")

    def _is_late(self, run: _Run) -> bool:
        """Whether it has not begun, or only since this was asked last."""
        begun = self._port.begun(run.ticket)
        if not begun and not run.late:
            self._reports.log("warning", "track_script_late", script=run.name, reason="it could not yet be started")
        former, run.late = run.late, not begun
        return former or run.late

    def _leave(self, run: _Run, now: int) -> None:
        if not run.signals:
            run.signals, run.deadline = 1, now + GRACE_US
            self._port.terminate(run.ticket)
        self._leaving[run.ticket] = run

    def _count(self, watch: _Watch, now: int, *, well: bool, how: str) -> None:
        watch.counter.take(well=well)
        progress = watch.counter.progress
        detail = f"{how}, {progress}" if progress else how
        self._board.put((TrackKind.SCRIPT, watch.script.name), watch.counter.value, now, detail=detail)

    def _raise_alarm(self, watch: _Watch, problem: str, now: int) -> None:
        if problem == watch.problem:
            return
        watch.problem = problem
        alarm = AlarmRaised(
            key=_key(watch.script.name),
            severity="warning",
            summary=f"the script {watch.script.name} {_meaning(watch.counter)}",
            evidence=(problem,),
            at_us=now,
        )
        self._reports.report(alarm)

    def _clear_alarm(self, name: str, watch: _Watch, reason: str, now: int) -> None:
        if watch.problem:
            watch.problem = ""
            self._reports.report(AlarmCleared(key=_key(name), reason=reason, at_us=now))


def _meaning(counter: ScriptCounter) -> str:
    if counter.value is None:
        return "cannot be run: nothing is known of what it checks, and it does not count"
    # It has run before, or `init_fail` says so.
    return "cannot be run: each attempt counts as a failure"


def _limit_us(script: TrackScript) -> int:
    """`timeout 0` means the interval, as in keepalived."""
    return script.timeout_us or script.interval_us


def _key(name: str) -> str:
    return f"track-script/{name}"
