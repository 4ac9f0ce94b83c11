from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from haxlb.linux import notify
from haxlb.linux.notify import ScriptRunner


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


class Lines:
    """A log that remembers."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.fields: list[dict[str, object]] = []

    def __call__(self, level: str, event: str, **fields: object) -> None:
        self.events.append((level, event))
        self.fields.append(fields)


def append(file: Path, text: str, *, first: str = "pass") -> tuple[str, ...]:
    """A command that appends a line to a file."""
    code = f"import os, sys, time\n{first}\nopen(sys.argv[1], 'a').write(sys.argv[2] + '\\n')"
    return (sys.executable, "-I", "-S", "-c", code, str(file), text)


def test_commands_of_one_instance_run_strictly_in_order(tmp_path: Path) -> None:
    async def test() -> None:
        log = Lines()
        runner = ScriptRunner(log)
        file = tmp_path / "out"
        # The first is the slowest: started together they would end in another order.
        for number, pause in enumerate((0.2, 0.1, 0)):
            runner.run("VI_1", append(file, str(number), first=f"time.sleep({pause})"))
        await runner.finish(20)
        assert file.read_text().split() == ["0", "1", "2"]
        assert log.events == []

    run(test())


def test_instances_do_not_wait_for_each_other(tmp_path: Path) -> None:
    async def test() -> None:
        runner = ScriptRunner(Lines())
        gate = tmp_path / "gate"
        file = tmp_path / "out"
        # VI_1's script ends only when VI_2's has run.
        waiting = f"while not os.path.exists({str(file)!r}): time.sleep(0.01)"
        runner.run("VI_1", append(gate, "passed", first=waiting))
        runner.run("VI_2", append(file, "done"))
        await runner.finish(20)
        assert gate.read_text() == "passed\n"

    run(test())


def test_no_shell_and_no_loader_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("KEPT", "yes")
    file = tmp_path / "out"

    async def test() -> None:
        runner = ScriptRunner(Lines())
        code = (
            "import os, sys; open(sys.argv[1], 'w').write("
            "f\"{sys.argv[2]} {'LD_PRELOAD' in os.environ} {os.environ['KEPT']} {os.getsid(0) == os.getpid()}\")"
        )
        runner.run("VI_1", (sys.executable, "-I", "-S", "-c", code, str(file), "$HOME;`id`"))
        await runner.finish(20)

    run(test())
    assert file.read_text() == "$HOME;`id` False yes True"


def test_a_command_that_cannot_start_or_fails_is_logged_and_the_next_one_runs(tmp_path: Path) -> None:
    async def test() -> None:
        log = Lines()
        runner = ScriptRunner(log)
        file = tmp_path / "out"
        runner.run("VI_1", (str(tmp_path / "absent"),))
        runner.run("VI_1", ("/bin/false",))
        runner.run("VI_1", append(file, "ran"))
        await runner.finish(20)
        assert file.read_text() == "ran\n"
        assert log.events == [("error", "notify_failed"), ("warning", "notify_failed")]
        assert log.fields[0]["reason"] == "No such file or directory"
        assert log.fields[1]["status"] == 1

    run(test())


def test_an_overdue_script_is_ended_with_all_its_children(tmp_path: Path) -> None:
    async def test() -> None:
        log = Lines()
        runner = ScriptRunner(log, time_limit_s=0.5)
        lock = tmp_path / "fifo"
        os.mkfifo(lock)
        # A child that ignores SIGTERM holds the FIFO open: its end is seen as end of file.
        code = (
            "import os, signal, sys, time\n"
            "fd = os.open(sys.argv[1], os.O_WRONLY)\n"
            "if os.fork() == 0:\n"
            "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "    os.write(fd, b'x')\n"
            "    time.sleep(60)\n"
            "os.close(fd)\n"
            "time.sleep(60)\n"
        )
        runner.run("VI_1", (sys.executable, "-I", "-S", "-c", code, str(lock)))
        runner.run("VI_1", append(tmp_path / "out", "next"))
        with lock.open("rb") as stream:
            content = await asyncio.get_running_loop().run_in_executor(None, stream.read)
        assert content == b"x"
        await runner.finish(20)
        assert (tmp_path / "out").read_text() == "next\n"
        assert ("error", "notify_overdue") in log.events

    run(test())


def test_finish_ends_what_does_not_end_by_itself() -> None:
    async def test() -> None:
        log = Lines()
        runner = ScriptRunner(log)
        runner.run("VI_1", ("/bin/sleep", "60"))
        runner.run("VI_1", ("/bin/true",))
        began = asyncio.get_running_loop().time()
        await runner.finish(0.05)
        assert asyncio.get_running_loop().time() - began < notify.GRACE_S
        assert [event for _, event in log.events] == ["notify_dropped", "notify_ended", "notify_failed"]

    run(test())


def test_a_flood_of_commands_is_bounded() -> None:
    async def test() -> None:
        log = Lines()
        runner = ScriptRunner(log)
        for _ in range(notify.QUEUE_LIMIT + 4):
            runner.run("VI_1", ("/bin/sleep", "60"))
        assert [event for _, event in log.events] == ["notify_dropped"] * 3
        await runner.finish(0)

    run(test())
