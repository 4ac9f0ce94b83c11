"""What tracking costs: starting a script, many scripts at once, counting processes, a file that changes.

All times are of the tracker's own process, which does nothing else meanwhile; what scripts themselves use is not in it.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from haxlb.daemon.messages import ConfigureTracker
from haxlb.daemon.tracker import Tracker
from haxlb.linux.proc_connector import ProcConnector
from haxlb.linux.process_table import ProcessTable
from haxlb.linux.realtime import BFD_PRIORITY, leave_realtime_class
from haxlb.linux.script_process import start
from haxlb.linux.script_security import Identity, unfit
from haxlb.linux.timerfd import MonotonicClock, TimerfdWake
from haxlb.linux.track_files import TrackFiles
from haxlb.linux.track_processes import TrackProcesses
from haxlb.linux.track_scripts import TrackScripts
from haxlb.linux.users import ourselves
from haxlb.model.commands import Command
from haxlb.model.errors import HostError
from haxlb.model.notification import ScriptSettings
from haxlb.model.tracking import TrackFile, TrackProcess, TrackScript

ROUNDS = 200
SCRIPTS, FEW = 100, 20
TICK_S = 0.01
SECONDS = 5
FILE_CHANGES = 200
FORKS = 500


def measure() -> Iterator[dict[str, Any]]:
    yield from starts()
    yield asyncio.run(many_scripts(SCRIPTS))
    yield asyncio.run(many_scripts(FEW))
    if os.geteuid() == 0:
        yield hurried()
    yield from processes()
    yield asyncio.run(files())


def microseconds(work: Callable[[], Any], rounds: int = ROUNDS, after: Callable[[Any], Any] = id) -> list[float]:
    """Sorted times of the calls; `after` is not part of them."""
    times = []
    for _ in range(rounds):
        begin = time.perf_counter_ns()
        made = work()
        times.append((time.perf_counter_ns() - begin) / 1000)
        after(made)
    return sorted(times)


def row(case: str, times: list[float]) -> dict[str, Any]:
    return {
        "case": case,
        "median_us": round(statistics.median(times), 1),
        "p99_us": round(times[len(times) * 99 // 100], 1),
    }


def starts() -> Iterator[dict[str, Any]]:
    """How long the loop stands still while a script is started."""
    runner = Identity(uid=65534, gid=65534) if os.geteuid() == 0 else ourselves()

    def spawn() -> int:
        return start(("/bin/true",), runner)

    def fork() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["/bin/true"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            user=runner.uid,
            group=runner.gid,
            extra_groups=() if os.geteuid() == 0 else None,
        )

    spawned = microseconds(spawn, after=lambda pid: os.waitpid(pid, 0))
    forked = microseconds(fork, after=lambda process: process.wait())
    yield row("start a script as another user: posix_spawn and setpriv", spawned)
    yield row("start a script as another user: fork and exec", forked)
    yield {"case": "ratio", "fork_over_spawn": round(statistics.median(forked) / statistics.median(spawned), 1)}
    yield row("look at a script's path", microseconds(lambda: unfit(("/bin/true",), ourselves(), security=True)))


class Reports:
    """A supervisor that does not listen."""

    def tracked(self, *_: object) -> None: ...
    def report(self, *_: object) -> None: ...
    def log(self, *_: object, **__: object) -> None: ...
    def ready(self, *_: object) -> None: ...
    def watch(self, *_: object) -> None: ...
    def create(self, *_: object) -> None: ...


def hurried() -> dict[str, Any]:
    """The same beside four processes that want every CPU, in the class that a tracker with BFD sessions takes."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(BFD_PRIORITY))
        found = asyncio.run(many_scripts(FEW))
    finally:
        leave_realtime_class()
        for each in hogs:
            each.kill()
            each.wait()
    return {**found, "case": f"{FEW} scripts, each once a second, 4 hogs, real-time class"}


async def many_scripts(number_of_scripts: int) -> dict[str, Any]:
    """Scripts beside a tick of 10 ms, such as BFD needs: how late is the tick? asyncio's own part of it is 1 ms."""
    loop = asyncio.get_running_loop()
    ends = 0

    def on_ended(ticket: int, well: bool, how: str) -> None:  # noqa: FBT001
        nonlocal ends
        ends += 1
        tracker.on_script_ended(ticket, well=well, how=how)

    idle = Reports()
    adapter = TrackScripts(on_ended, lambda *_: None, idle.log)
    wake = TimerfdWake(lambda: tracker.on_wake())  # noqa: PLW0108 - it does not exist yet
    tracker = Tracker(clock=MonotonicClock(), wake=wake, scripts=adapter, files=idle, processes=idle, reports=idle)
    scripts = tuple(TrackScript(name=str(n), run=Command(argv=("/bin/true",))) for n in range(number_of_scripts))
    user = "root" if os.geteuid() == 0 else ""
    tracker.configure(ConfigureTracker(scripts=scripts, script_settings=ScriptSettings(user=user)))
    late: list[float] = []
    begin, used = loop.time(), cpu_us()
    for number in range(round(SECONDS / TICK_S)):
        due = begin + (number + 1) * TICK_S
        await asyncio.sleep(max(0.0, due - loop.time()))
        late.append((loop.time() - due) * 1e6)
    used = cpu_us() - used
    tracker.stop()
    await adapter.finish(10)
    wake.close()
    late.sort()
    return {
        "case": f"{number_of_scripts} scripts, each once a second",
        "runs": ends,
        "cpu_ms_a_second": round(used / 1000 / SECONDS, 1),
        "tick_late_median_us": round(statistics.median(late)),
        "tick_late_p99_us": round(late[len(late) * 99 // 100]),
        "tick_late_max_us": round(late[-1]),
    }


def processes() -> Iterator[dict[str, Any]]:
    table = ProcessTable((TrackProcess(name="x", process="nginx"),))
    number = sum(1 for each in Path("/proc").iterdir() if each.name.isdigit())
    times = microseconds(table.scan, 50)
    yield {**row("read /proc", times), "processes": number, "each_us": round(statistics.median(times) / number, 1)}
    try:
        ProcConnector().close()
    except HostError as problem:
        yield {"case": "process events", "skipped": str(problem)}
        return
    yield asyncio.run(events())


def run_true() -> None:
    os.waitpid(os.posix_spawn("/bin/true", ["/bin/true"], {}), 0)


async def events() -> dict[str, Any]:
    told: asyncio.Queue[int] = asyncio.Queue()
    watcher = TrackProcesses(lambda _, number: told.put_nowait(number), lambda *_, **__: None)
    watcher.watch((TrackProcess(name="x", process="nginx"),))
    await told.get()
    spent = 0.0
    for _ in range(FORKS):
        run_true()
        begin = cpu_us()
        watcher._readable()
        spent += cpu_us() - begin
    watcher.close()
    return {"case": "process events", "cpu_us_for_each_program_that_is_run": round(spent / FORKS, 1)}


async def files() -> dict[str, Any]:
    """From the writer's close to the number."""
    told: asyncio.Queue[int] = asyncio.Queue()
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "f")  # noqa: PTH118
        watcher = TrackFiles(lambda _, value, __: told.put_nowait(value), lambda *_, **__: None)
        watcher.watch((TrackFile(name="f", path=path),))
        await told.get()
        times = []
        for number in range(1, FILE_CHANGES + 1):
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.write(fd, str(number).encode())
            begin = time.perf_counter_ns()
            os.close(fd)
            while await told.get() != number:
                pass
            times.append((time.perf_counter_ns() - begin) / 1000)
        watcher.close()
    return row("a file is closed: its number is known after", sorted(times))


def cpu_us() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return (usage.ru_utime + usage.ru_stime) * 1e6


if __name__ == "__main__":
    sys.exit("python -m tests.bench tracking")
