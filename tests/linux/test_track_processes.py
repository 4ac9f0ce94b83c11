from __future__ import annotations

import asyncio
import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haxlb.linux.proc_connector import Change, ProcConnector, ProcessEvent, decode
from haxlb.linux.process_table import ProcessTable
from haxlb.linux.track_processes import TrackProcesses
from haxlb.model.errors import HostError
from haxlb.model.tracking import TrackProcess


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 90))


class Proc:
    """A /proc made of files."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "self").mkdir()
        (directory / "uptime").write_text("1 2")

    def add(self, pid: int, comm: str, *argv: str, state: str = "S") -> None:
        directory = self.directory / str(pid)
        directory.mkdir(exist_ok=True)
        (directory / "stat").write_text(f"{pid} ({comm}) {state} 1 1 1 0 -1 4194560")
        (directory / "cmdline").write_bytes(b"".join(os.fsencode(each) + b"\0" for each in argv))

    def count(self, **settings: Any) -> int:
        table = ProcessTable((TrackProcess(name="x", **settings),), proc=self.directory)
        table.scan()
        return table.counts()["x"]


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def test_by_the_name_of_the_process(proc: Proc) -> None:
    proc.add(10, "nginx", "nginx: master process")
    proc.add(11, "nginx", "nginx: worker process")
    proc.add(12, "nginxlike", "nginxlike")
    proc.add(13, "kthreadd")
    proc.add(14, "nginx", "nginx", state="Z")
    assert proc.count(process="nginx") == 2
    assert proc.count(process="kthreadd") == 1
    assert proc.count(process="apache") == 0


def test_names_that_are_longer_than_the_kernel_keeps(proc: Proc) -> None:
    proc.add(10, "a-very-long-nam", "a-very-long-name-indeed")
    assert proc.count(process="a-very-long-name-indeed") == 1


def test_names_with_blanks_and_parentheses(proc: Proc) -> None:
    proc.add(10, "my (odd) S name", "x")
    assert proc.count(process="my (odd) S name") == 1


def test_the_full_command(proc: Proc) -> None:
    proc.add(10, "named", "/usr/sbin/named", "-u", "bind")
    proc.add(11, "named", "/opt/bin/named")
    proc.add(12, "sh", "/usr/sbin/named-starter")
    assert proc.count(process="/usr/sbin/named", full_command=True) == 1
    assert proc.count(process="/usr/sbin/named") == 1  # a path is no name of a process
    assert proc.count(process="named", full_command=True) == 0
    assert proc.count(process="named") == 2


@pytest.mark.parametrize(
    ("match", "parameters", "expected"),
    [
        ("exact", ("-u", "bind"), 1),
        ("exact", (), 1),
        ("exact", ("-u",), 0),
        ("partial", ("-u",), 2),
        ("partial", ("-u", "bind"), 2),
        ("partial", ("bind",), 0),
        ("partial", (), 1),
        ("initial", ("-u", "bi"), 2),
        ("initial", ("-u", "bind", "-"), 1),
        ("initial", ("-u", "bind", "-4", "x"), 0),
        ("initial", (), 1),
        ("", (), 3),
        ("", ("ignored",), 3),
    ],
)
def test_parameters(proc: Proc, match: str, parameters: tuple[str, ...], expected: int) -> None:
    proc.add(10, "named", "named")
    proc.add(11, "named", "named", "-u", "bind")
    proc.add(12, "named", "named", "-u", "bind", "-4")
    proc.add(13, "named")  # no arguments at all: a kernel thread, or one that is ending
    assert proc.count(process="named", full_command=True, match=match, parameters=parameters) == expected


def test_processes_come_fork_change_and_go(proc: Proc) -> None:
    table = ProcessTable(
        (TrackProcess(name="a", process="a"), TrackProcess(name="b", process="b")), proc=proc.directory
    )
    proc.add(10, "a", "a")
    table.examine(10)
    table.inherit(10, 11)
    table.inherit(99, 12)
    assert table.counts() == {"a": 2, "b": 0}
    proc.add(11, "b", "b")
    table.examine(11)
    assert table.counts() == {"a": 1, "b": 1}
    table.forget(10)
    table.forget(10)
    table.examine(77)  # gone already
    assert table.counts() == {"a": 0, "b": 1}
    table.scan()
    assert table.counts() == {"a": 1, "b": 1}


def test_a_sweep_stops_now_and_then_and_does_not_miss_what_is_told_meanwhile(proc: Proc) -> None:
    for pid in range(1000, 1200):
        proc.add(pid, "a", "a")
    table = ProcessTable((TrackProcess(name="a", process="a"),), proc=proc.directory)
    sweep = table.sweep()
    next(sweep)
    assert table.counts() == {"a": 0}
    proc.add(5000, "a", "a")
    table.examine(5000)
    table.inherit(5000, 5001)
    table._pids["a"].discard(5000)  # as if only the sweep had found it
    table.inherit(5000, 5002)
    for pid in range(1000, 1100):  # some of which have been looked at, others have not
        shutil.rmtree(proc.directory / str(pid))
        table.forget(pid)
    assert table.counts() == {"a": 2}
    assert len(list(sweep)) >= 1
    assert table.counts() == {"a": 103}


def test_a_new_sweep_ends_the_one_before(proc: Proc) -> None:
    for pid in range(1000, 1200):
        proc.add(pid, "a", "a")
    table = ProcessTable((TrackProcess(name="a", process="a"),), proc=proc.directory)
    old = table.sweep()
    next(old)
    table.scan()
    assert list(old) == []
    assert table.counts() == {"a": 200}


def message(what: int, *numbers: int, idx: int = 1) -> bytes:
    event = struct.pack("=IIQ", what, 0, 0) + struct.pack(f"={len(numbers)}i", *numbers).ljust(24, b"\0")
    connector = struct.pack("=IIIIHH", idx, 1, 0, 0, len(event), 0) + event
    return struct.pack("=IHHII", 16 + len(connector), 3, 0, 0, 0) + connector


@pytest.mark.parametrize(
    ("datagram", "event"),
    [
        (message(1, 5, 5, 9, 9), ProcessEvent(change=Change.FORK, pid=9, parent=5)),
        (message(1, 5, 5, 9, 5), None),
        (message(2, 9, 9), ProcessEvent(change=Change.EXEC, pid=9)),
        (message(0x200, 9, 9), ProcessEvent(change=Change.COMM, pid=9)),
        (message(0x200, 9, 8), None),
        (message(0x80000000, 9, 9, 0, 17), ProcessEvent(change=Change.EXIT, pid=9)),
        (message(0x80000000, 9, 8, 0, 17), None),
        (message(0), None),
        (message(4, 9, 9), None),
        (message(2, 9, 9, idx=3), None),
        (b"", None),
        (message(2, 9, 9)[:-20], None),
    ],
)
def test_events(datagram: bytes, event: ProcessEvent | None) -> None:
    assert decode(datagram) == event


@given(st.binary(max_size=100))
def test_any_datagram_is_an_event_or_none(datagram: bytes) -> None:
    decode(datagram)


def started(*argv: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv)


class Bench:
    """Counts processes that are called `name`, the default is one of ours alone."""

    def __init__(self, **settings: Any) -> None:
        self.lines: list[str] = []
        self.told: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        self.processes = TrackProcesses(lambda *each: self.told.put_nowait(each), self.log, **settings)

    def log(self, level: str, event: str, **fields: object) -> None:
        self.lines.append(event)

    async def count(self) -> int:
        return (await self.told.get())[1]

    async def becomes(self, count: int) -> None:
        while await self.count() != count:
            pass


@pytest.fixture
def name() -> str:
    return f"hxtp{os.getpid()}"


@pytest.fixture
def program(tmp_path: Path, name: str) -> Path:
    path = tmp_path / name
    path.symlink_to("/bin/sleep")
    return path


def refuse() -> ProcConnector:
    raise HostError("no process events: not here")


def connection() -> ProcConnector:
    try:
        return ProcConnector()
    except HostError as problem:
        pytest.skip(str(problem))


@pytest.fixture(params=["events", "scan"])
def bench_settings(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    if request.param == "scan":
        yield {"connect": refuse, "scan_every_s": 0.02}
    else:
        connection().close()
        yield {}


def test_processes_are_counted(bench_settings: dict[str, Any], name: str, program: Path) -> None:
    async def test() -> None:
        bench = Bench(**bench_settings)
        bench.processes.watch((TrackProcess(name="x", process=name),))
        assert await bench.count() == 0
        with started(program, "60") as one, started(program, "60") as two:
            await bench.becomes(2)
            one.send_signal(signal.SIGTERM)
            one.wait()
            await bench.becomes(1)
            two.kill()
        await bench.becomes(0)
        assert bench.lines == (["processes_polled"] if bench_settings else [])
        bench.processes.close()

    run(test())


def test_a_process_that_forks_and_renames_itself(bench_settings: dict[str, Any], name: str, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = (
        "import os, sys\n"
        "def rename(name):\n"
        "    with open('/proc/self/comm', 'w') as out: out.write(name)\n"
        "rename(sys.argv[1])\n"
        "if os.fork() == 0:\n"
        "    open(sys.argv[2]).read()\n"
        "    rename('another')\n"
        "    open(sys.argv[2]).read()\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )

    async def test() -> None:
        bench = Bench(**bench_settings)
        bench.processes.watch((TrackProcess(name="x", process=name),))
        assert await bench.count() == 0
        with started(sys.executable, "-I", "-S", "-c", code, name, fifo):
            await bench.becomes(2)
            await asyncio.get_running_loop().run_in_executor(None, fifo.write_text, "")
            await bench.becomes(1)
            await asyncio.get_running_loop().run_in_executor(None, fifo.write_text, "")
        await bench.becomes(0)
        bench.processes.close()

    run(test())


def test_all_are_told_anew_after_a_reload(bench_settings: dict[str, Any], name: str) -> None:
    async def test() -> None:
        bench = Bench(**bench_settings)
        for _ in range(2):
            bench.processes.watch((TrackProcess(name="x", process=name), TrackProcess(name="y", process=name)))
            assert sorted([await bench.told.get(), await bench.told.get()]) == [("x", 0), ("y", 0)]
        bench.processes.watch(())
        bench.processes.watch((TrackProcess(name="z", process=name),))
        assert await bench.told.get() == ("z", 0)
        bench.processes.close()

    run(test())


def test_lost_events_cost_nothing(name: str, program: Path) -> None:
    connection().close()

    class Lossy(ProcConnector):
        """As if its buffer had overrun each time."""

        def read(self) -> Iterator[ProcessEvent]:
            for _ in super().read():
                pass
            raise BufferError
            yield

    async def test() -> None:
        bench = Bench(connect=Lossy)
        bench.processes.watch((TrackProcess(name="x", process=name),))
        assert await bench.count() == 0
        with started(program, "60") as process:
            await bench.becomes(1)
            process.kill()
        await bench.becomes(0)
        bench.processes.close()

    run(test())


def test_events_that_are_lost_all_the_time_keep_nobody_from_being_counted(name: str, program: Path) -> None:
    class Overrun:
        """Says so at every turn of the loop."""

        def __init__(self) -> None:
            self._bell = os.eventfd(1)

        def fileno(self) -> int:
            return self._bell

        def read(self) -> Iterator[ProcessEvent]:
            raise BufferError

        def close(self) -> None:
            os.close(self._bell)

    async def test() -> None:
        bench = Bench(connect=Overrun)
        bench.processes.watch((TrackProcess(name="x", process=name),))
        assert await bench.count() == 0
        with started(program, "600") as process:
            await bench.becomes(1)
            process.kill()
        await bench.becomes(0)
        bench.processes.close()

    run(test())


@pytest.mark.netns
def test_without_events_in_a_network_namespace() -> None:
    code = (
        "from haxlb.linux.proc_connector import ProcConnector\n"
        "from haxlb.model.errors import HostError\n"
        "try: ProcConnector()\n"
        "except HostError as problem: print(problem)\n"
    )
    said = subprocess.run(["unshare", "-n", sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "no process events: Connection refused (/proc is read each second instead)\n"
