from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from haxlb.daemon.messages import ConfigureTracker
from haxlb.daemon.tracker import Tracker
from haxlb.daemon.tracker_scripts import STARTS_AT_ONCE
from haxlb.model.commands import Command
from haxlb.model.facts import AlarmCleared, AlarmRaised, Fact
from haxlb.model.notification import ScriptSettings
from haxlb.model.status import TrackedStatus
from haxlb.model.tracking import BfdSession, TrackFile, TrackKind, TrackProcess, TrackResult, TrackScript

S = 1_000_000
SCRIPT, FILE, PROCESS, BFD = TrackKind.SCRIPT, TrackKind.FILE, TrackKind.PROCESS, TrackKind.BFD


class Stage:
    """A tracker, its world, and a clock that is moved by hand. `said` holds what happened, in short words."""

    def __init__(self) -> None:
        self.time = 1000 * S
        self.alarm: int | None = None
        self.said: list[str] = []
        self.facts: list[Fact] = []
        self.told: list[tuple[TrackResult, ...]] = []
        self.running: dict[int, str] = {}
        self.unfit: dict[str, str] = {}
        self.waiting: set[str] = set()
        """Scripts that are not begun yet."""
        self.watched: tuple[list[str], list[str]] = ([], [])
        self.tracker = Tracker(
            clock=self, wake=self, scripts=Scripts(self), files=Files(self), processes=Processes(self), reports=self
        )

    def now(self) -> int:
        return self.time

    def wake_at(self, deadline_us: int | None) -> None:
        self.alarm = deadline_us

    def tracked(self, results: tuple[TrackResult, ...]) -> None:
        self.told.append(results)
        self.said += [f"{each.name}={each.value}" if each.counts else f"{each.name}=void" for each in results]

    def report(self, fact: Fact) -> None:
        self.facts.append(fact)

    def log(self, level: str, event: str, **fields: object) -> None:
        self.said.append(event)

    def ready(self, of: str, problem: str) -> None:
        self.said.append(f"ready {of}{problem}")

    def configure(self, **orders: Any) -> list[str]:
        self.tracker.configure(ConfigureTracker(**orders))
        return self.hear()

    def go(self, duration_us: int = 0) -> list[str]:
        """Let time pass, waking the tracker whenever it wants to be."""
        end = self.time + duration_us
        while self.alarm is not None and self.alarm <= end:
            self.time, self.alarm = max(self.time, self.alarm), None
            self.tracker.on_wake()
        self.time = end
        return self.hear()

    def end(self, name: str, code: int = 0) -> list[str]:
        ticket = next(ticket for ticket, each in self.running.items() if each == name)
        del self.running[ticket]
        self.tracker.on_script_ended(ticket, well=code == 0, how=f"exit code {code}")
        return self.hear()

    def refuse(self, name: str, problem: str) -> list[str]:
        ticket = next(ticket for ticket, each in self.running.items() if each == name)
        del self.running[ticket]
        self.tracker.on_script_refused(ticket, problem)
        return self.hear()

    def hear(self) -> list[str]:
        said, self.said = self.said, []
        return said

    def status(self, name: str) -> TrackedStatus:
        return next(each for each in self.tracker.status(self.time) if each.name == name)


class Scripts:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def configure(self, scripts: Iterable[TrackScript], settings: ScriptSettings) -> None:
        pass

    def start(self, ticket: int, script: TrackScript) -> str:
        if problem := self._stage.unfit.get(script.name, ""):
            return problem
        assert script.name not in self._stage.running.values()
        self._stage.running[ticket] = script.name
        self._stage.said.append(f"start {script.name}")
        return ""

    def begun(self, ticket: int) -> bool:
        return self._stage.running[ticket] not in self._stage.waiting

    def terminate(self, ticket: int) -> None:
        self._stage.said.append(f"TERM {self._stage.running[ticket]}")

    def kill(self, ticket: int) -> None:
        self._stage.said.append(f"KILL {self._stage.running[ticket]}")


class Files:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def create(self, file: TrackFile) -> None:
        self._stage.said.append(f"create {file.name}")

    def watch(self, files: Iterable[TrackFile]) -> None:
        self._stage.watched[0][:] = [each.name for each in files]


class Processes:
    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def watch(self, processes: Iterable[TrackProcess]) -> None:
        self._stage.watched[1][:] = [each.name for each in processes]


def script(name: str = "web", **settings: Any) -> TrackScript:
    return TrackScript(name=name, **{"run": Command(argv=(f"/bin/{name}",)), **settings})


def running(**settings: Any) -> Stage:
    """A stage with one script that is well."""
    stage = Stage()
    stage.configure(scripts=(script(**settings),))
    stage.go()
    stage.end("web")
    return stage


def test_the_answer_to_a_configuration_is_everything_that_is_known() -> None:
    stage = Stage()
    said = stage.configure(
        scripts=(script(), script("db", init_fail=True)),
        files=(TrackFile(name="f", path="/f"),),
        processes=(TrackProcess(name="p", process="p"),),
        bfd_sessions=(BfdSession(name="b", neighbor="192.0.2.1"),),
    )
    assert said == ["create f", "web=None", "db=0", "f=None", "p=None", "b=None", "ready ConfigureTracker"]
    assert len(stage.told) == 1
    assert stage.watched == (["f"], ["p"])


def test_the_first_run_is_immediate_and_decides_alone() -> None:
    stage = Stage()
    stage.configure(scripts=(script(rise=3, fall=3),))
    assert stage.go() == ["start web"]
    assert stage.end("web") == ["web=1"]
    assert stage.go(S - 1) == []
    assert stage.go(1) == ["start web"]


def test_runs_keep_to_the_schedule_however_long_they_take() -> None:
    stage = Stage()
    stage.configure(scripts=(script(interval_us=S),))
    begun = stage.time
    for number in range(5):
        assert stage.go(0 if number == 0 else begun + number * S - stage.time) == ["start web"]
        stage.go(300_000)
        stage.end("web")
    assert stage.time == begun + 4 * S + 300_000


def test_after_a_stall_there_is_one_run_and_the_old_schedule() -> None:
    stage = running()
    begun = stage.time
    stage.time += 10 * S + 400_000
    stage.tracker.on_wake()
    assert stage.hear() == ["start web"]
    assert stage.alarm == begun + 11 * S


def test_many_scripts_are_started_a_few_at_a_time_and_all_on_the_same_schedule() -> None:
    stage = Stage()
    names = [f"s{number}" for number in range(7)]
    stage.configure(scripts=tuple(script(name) for name in names))
    begun = stage.time
    for _ in range(3):
        started: list[str] = []
        while stage.alarm is not None and stage.alarm <= stage.time:
            stage.tracker.on_wake()
            at_once = [each.removeprefix("start ") for each in stage.hear() if each.startswith("start ")]
            assert 0 < len(at_once) <= STARTS_AT_ONCE
            started += at_once
            stage.time += 1000  # a start takes its time
        assert started == names
        for name in names:
            stage.end(name)
        assert stage.alarm is not None
        assert (stage.alarm - begun) % S == 0
        stage.time = stage.alarm


def test_what_is_due_while_it_still_runs_is_left_out() -> None:
    stage = running(interval_us=S, timeout_us=5 * S)
    assert stage.go(S) == ["start web"]
    assert stage.go(3 * S) == []
    assert stage.end("web") == []
    assert stage.go(S) == ["start web"]


def test_fall_and_rise() -> None:
    stage = running(rise=2, fall=3)
    said: list[str] = []
    for code in (1, 1, 1, 0, 1, 0, 0):
        stage.go(S)
        said += [*stage.end("web", code), stage.status("web").detail]
    assert said == [
        "exit code 1, 1 of 3 failures",
        "exit code 1, 2 of 3 failures",
        "web=0",
        "exit code 1",
        "exit code 0, 1 of 2 successes",
        "exit code 1",
        "exit code 0, 1 of 2 successes",
        "web=1",
        "exit code 0",
    ]


def test_a_run_that_hangs_is_a_failure_at_once() -> None:
    stage = running(interval_us=S, timeout_us=S // 2)
    assert stage.go(S) == ["start web"]
    assert stage.go(S // 2) == ["TERM web", "track_script_overdue", "web=0"]
    assert stage.status("web").detail == "did not end within 0.5 s"
    assert stage.end("web", 0) == []  # what it says now is too late
    assert stage.go(S // 2) == ["start web"]
    assert stage.end("web") == ["web=1"]


def test_a_run_that_does_not_heed_sigterm() -> None:
    stage = running(interval_us=S)
    stage.go(S)
    assert stage.go(S) == ["TERM web", "track_script_overdue", "web=0"]
    assert stage.go(2 * S - 1) == []
    assert stage.go(1) == ["KILL web", "track_script_killed"]
    assert stage.go(60 * S) == []  # nothing is started beside one that cannot be killed
    stage.end("web", 1)
    assert stage.go(S) == ["start web"]


def test_a_run_that_has_not_begun_is_late_and_no_failure() -> None:
    stage = running(interval_us=S)
    stage.waiting.add("web")
    assert stage.go(S) == ["start web"]
    assert stage.go(S) == ["track_script_late"]
    assert stage.go(10 * S + S // 2) == []  # once, and nothing is started beside it
    stage.waiting.clear()
    assert stage.go(S) == []  # it has its whole time from when it was seen to have begun
    assert stage.end("web", 0) == []
    assert stage.status("web").value == 1


def test_a_late_run_that_hangs_is_a_failure_all_the_same() -> None:
    stage = running(interval_us=S)
    stage.waiting.add("web")
    assert stage.go(2 * S) == ["start web", "track_script_late"]
    stage.waiting.clear()
    assert stage.go(S) == []
    assert stage.go(S) == ["TERM web", "track_script_overdue", "web=0"]


def test_a_run_that_is_refused_when_its_turn_comes_counts_as_one_that_cannot_be_run() -> None:
    stage = Stage()
    stage.configure(scripts=(script(),))
    stage.go()
    assert stage.refuse("web", "/bin/web: No such file or directory") == ["web=void"]
    stage.go(S)
    assert stage.refuse("web", "/bin/web: No such file or directory") == []
    assert [type(each) for each in stage.facts] == [AlarmRaised]  # it does not go between two attempts
    stage.go(S)
    assert stage.end("web", 0) == ["web=1"]
    assert [type(each) for each in stage.facts] == [AlarmRaised, AlarmCleared]
    stage.go(S)
    assert stage.refuse("web", "/bin/web is not executable") == ["web=0"]
    stage.go(S)
    stage.configure()
    assert stage.refuse("web", "/bin/web is not executable") == []


def test_timeout_0_is_the_interval() -> None:
    stage = running(interval_us=2 * S, timeout_us=0)
    assert stage.go(2 * S) == ["start web"]
    assert stage.go(2 * S) == ["TERM web", "track_script_overdue", "web=0"]


def test_a_script_that_cannot_be_run_says_nothing_but_raises_an_alarm() -> None:
    stage = Stage()
    stage.unfit["web"] = "/bin/web: No such file or directory"
    stage.configure(scripts=(script(),))
    assert stage.go() == ["web=void"]
    assert stage.go(3 * S) == []
    raised = [each for each in stage.facts if isinstance(each, AlarmRaised)]
    assert [(each.key, each.severity, each.evidence) for each in raised] == [
        ("track-script/web", "warning", ("/bin/web: No such file or directory",))
    ]
    assert raised[0].summary == (
        "the script web cannot be run: nothing is known of what it checks, and it does not count"
    )
    assert stage.status("web") == TrackedStatus(
        kind="track_script",
        name="web",
        value=None,
        since_at=1000.0,
        detail="cannot be run: /bin/web: No such file or directory",
    )
    # It is tried again each time: no reload is needed once the file is there.
    stage.unfit.clear()
    assert stage.go(S) == ["start web"]
    assert stage.end("web", 1) == ["web=0"]
    assert isinstance(stage.facts[-1], AlarmCleared)


def test_a_script_that_cannot_be_run_any_more_fails() -> None:
    stage = running(fall=2)
    stage.unfit["web"] = "/bin/web is not executable"
    assert stage.go(S) == []
    assert stage.status("web").detail == "cannot be run: /bin/web is not executable, 1 of 2 failures"
    assert stage.go(S) == ["web=0"]
    (raised,) = stage.facts
    assert isinstance(raised, AlarmRaised)
    assert raised.summary == "the script web cannot be run: each attempt counts as a failure"


def test_init_fail_makes_a_missing_script_a_failure() -> None:
    stage = Stage()
    stage.unfit["web"] = "missing"
    assert stage.configure(scripts=(script(init_fail=True),)) == ["web=0", "ready ConfigureTracker"]
    assert stage.go(S) == []
    (raised,) = stage.facts
    assert isinstance(raised, AlarmRaised)
    assert raised.summary == "the script web cannot be run: each attempt counts as a failure"


def test_a_reload_keeps_what_is_known_of_the_same_script() -> None:
    stage = running(fall=2)
    stage.go(S)
    stage.end("web", 1)
    assert stage.configure(scripts=(script(fall=2, interval_us=S, weight=5),)) == ["web=1", "ready ConfigureTracker"]
    assert stage.go(S) == ["start web"]
    assert stage.end("web", 1) == ["web=0"]


def test_a_reload_with_another_command_starts_anew() -> None:
    stage = running()
    stage.go(S)
    said = stage.configure(scripts=(script(run=Command(argv=("/bin/other",))),))
    assert said == ["TERM web", "web=None", "ready ConfigureTracker"]
    stage.running.clear()
    assert stage.go() == ["start web"]


def test_a_run_of_a_removed_script_is_ended_and_not_counted() -> None:
    stage = running()
    stage.go(S)
    assert stage.configure() == ["TERM web", "ready ConfigureTracker"]
    assert stage.go(2 * S) == ["KILL web", "track_script_killed"]
    assert stage.end("web", 1) == []
    assert stage.alarm is None


def test_an_alarm_goes_with_its_script() -> None:
    stage = Stage()
    stage.unfit["web"] = "missing"
    stage.configure(scripts=(script(),))
    stage.go()
    stage.configure()
    assert isinstance(stage.facts[-1], AlarmCleared)


def test_another_interval_counts_from_now() -> None:
    stage = running(interval_us=60 * S)
    stage.configure(scripts=(script(interval_us=S),))
    assert stage.go(S) == ["start web"]


def test_other_counts_keep_the_verdict() -> None:
    stage = running(fall=1)
    stage.configure(scripts=(script(fall=3),))
    stage.go(2 * S)
    assert stage.end("web", 1) == []


def test_the_tracker_after_another_one_knows_what_that_knew() -> None:
    known = (
        TrackResult(kind=SCRIPT, name="web", value=1),
        TrackResult(kind=SCRIPT, name="db", value=0),
        TrackResult(kind=FILE, name="f", value=7),
        TrackResult(kind=PROCESS, name="p", value=1),
        TrackResult(kind=SCRIPT, name="gone", value=1),
    )
    stage = Stage()
    said = stage.configure(
        scripts=(script(fall=2), script("db", rise=2)),
        files=(TrackFile(name="f", path="/f"),),
        processes=(TrackProcess(name="p", process="p"),),
        known=known,
    )
    assert said == ["web=1", "db=0", "f=7", "p=1", "ready ConfigureTracker"]
    stage.go()
    assert stage.end("web", 1) == []  # the first run does not decide alone any more
    assert stage.end("db", 0) == []
    stage.go(S)
    assert stage.end("web", 1) == ["web=0"]


def test_files() -> None:
    stage = Stage()
    stage.configure(files=(TrackFile(name="f", path="/f"),))
    stage.tracker.on_file("f", 0, "missing")
    stage.tracker.on_file("f", 0, "empty")
    stage.tracker.on_file("f", -20, "")
    stage.tracker.on_file("another", 1, "")
    assert stage.hear() == ["f=0", "f=-20"]
    assert stage.configure(files=(TrackFile(name="f", path="/f", weight=3),))[0] == "f=-20"
    assert stage.configure(files=(TrackFile(name="f", path="/g"),))[0] == "f=None"


def test_files_are_made_at_the_start_only() -> None:
    stage = Stage()
    file = TrackFile(name="f", path="/f", init_value=1)
    assert stage.configure(files=(file,))[0] == "create f"
    assert "create g" not in stage.configure(files=(file, TrackFile(name="g", path="/g", init_value=1)))
    # The tracker after one that has died.
    known = (TrackResult(kind=FILE, name="f", value=3),)
    assert Stage().configure(files=(file,), known=known) == ["f=3", "ready ConfigureTracker"]


def test_processes_and_their_delays() -> None:
    stage = Stage()
    process = TrackProcess(name="p", process="nginx", quorum=2, quorum_max=4, terminate_delay_us=S)
    stage.configure(processes=(process,))
    stage.tracker.on_count("p", 2)
    assert stage.hear() == ["p=1"]
    stage.tracker.on_count("p", 1)
    assert stage.go(S - 1) == []
    assert stage.status("p").detail == "1 running, wanted: at least 2, at most 4"
    assert stage.go(1) == ["p=0"]
    assert stage.configure(processes=(process,))[0] == "p=0"
    other = TrackProcess(name="p", process="apache")
    assert stage.configure(processes=(other,))[0] == "p=None"
    stage.tracker.on_count("p", 1)
    stage.tracker.on_count("gone", 1)
    assert stage.hear() == ["p=1"]


def test_a_changed_quorum_is_judged_by_the_next_count() -> None:
    stage = Stage()
    stage.configure(processes=(TrackProcess(name="p", process="nginx", terminate_delay_us=S),))
    stage.tracker.on_count("p", 1)
    stage.configure(processes=(TrackProcess(name="p", process="nginx", quorum=2, terminate_delay_us=S),))
    stage.hear()
    stage.tracker.on_count("p", 1)
    assert stage.hear() == ["p=0"]


def test_results_of_others() -> None:
    stage = Stage()
    stage.configure(bfd_sessions=(BfdSession(name="b", neighbor="192.0.2.1"),))
    stage.tracker.on_result(BFD, "b", 1, "up")
    stage.tracker.on_result(BFD, "another", 1, "up")
    assert stage.hear() == ["b=1"]


def test_the_status_says_since_when() -> None:
    stage = running(interval_us=5 * S)
    stage.go(5 * S)
    stage.end("web", 1)
    stage.go(4 * S)
    status = stage.status("web")
    assert (status.value, status.since_at, status.detail) == (0, 1005.0, "exit code 1")


def test_a_stop_ends_what_runs_and_starts_nothing() -> None:
    stage = running()
    stage.go(S)
    stage.tracker.stop()
    assert stage.hear() == ["TERM web"]
    assert stage.alarm is None
