from __future__ import annotations

import asyncio
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from haxlb.linux import script_process, track_scripts
from haxlb.linux.launch import Launcher
from haxlb.linux.script_security import Identity
from haxlb.linux.track_scripts import TrackScripts
from haxlb.linux.users import ourselves
from haxlb.model.commands import Command
from haxlb.model.errors import HostError
from haxlb.model.notification import ScriptSettings
from haxlb.model.tracking import TrackScript

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it runs scripts as others")
ROOT = "root" if os.geteuid() == 0 else ""


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 90))


class Bench:
    """Runs scripts one at a time; the user is ours unless another is named."""

    def __init__(self, **settings: Any) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []
        self.ends: asyncio.Queue[tuple[int, bool, str]] = asyncio.Queue()
        self.scripts = TrackScripts(
            lambda *end: self.ends.put_nowait(end),
            lambda ticket, problem: self.ends.put_nowait((ticket, False, problem)),
            self.log,
        )
        self.settings = ScriptSettings(user=ROOT, **settings)
        self.ticket = 0

    def log(self, level: str, event: str, **fields: object) -> None:
        self.lines.append((event, fields))

    def start(self, *argv: str, user: str = "", group: str = "") -> str:
        script = TrackScript(name="x", run=Command(argv=argv, user=user, group=group))
        self.scripts.configure((script,), self.settings)
        return self.again(script)

    def again(self, script: TrackScript) -> str:
        self.ticket += 1
        return self.scripts.start(self.ticket, script)

    async def refusal(self, *argv: str) -> str:
        """How the run ended, where that was to be known only by the thread."""
        assert self.start(*argv) == ""
        return (await self.end())[1]

    async def end(self) -> tuple[bool, str]:
        ticket, well, how = await self.ends.get()
        assert ticket == self.ticket
        return well, how


def python(code: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", code, *arguments)


@pytest.fixture
def safe() -> Iterator[Path]:
    """A directory that only root can change, unlike that of temporary files."""
    with tempfile.TemporaryDirectory(prefix="hx-track-", dir="/run") as base:
        Path(base).chmod(0o755)
        yield Path(base)


def open_files() -> list[int]:
    return sorted(int(each.name) for each in Path("/proc/self/fd").iterdir() if each.exists())


def executable(path: Path, text: str = "#!/bin/sh\nexit 0\n") -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_how_a_run_has_ended() -> None:
    async def test() -> None:
        bench = Bench()
        for argv, expected in [
            (("/bin/true",), (True, "exit code 0")),
            (("/bin/false",), (False, "exit code 1")),
            (("sh", "-c", "exit 7"), (False, "exit code 7")),
            (("/bin/sh", "-c", "kill -9 $$"), (False, "killed by SIGKILL")),
        ]:
            assert bench.start(*argv) == ""
            assert await bench.end() == expected

    run(test())


def test_arguments_reach_the_script_as_they_are(tmp_path: Path) -> None:
    async def test() -> None:
        bench = Bench()
        code = "import sys; open(sys.argv[1], 'w').write(repr(sys.argv[2:]))"
        bench.start(*python(code, str(tmp_path / "out"), "two words", "$HOME", "--", ""))
        await bench.end()
        assert (tmp_path / "out").read_text() == repr(["two words", "$HOME", "--", ""])

    run(test())


def test_a_script_has_its_own_group_and_no_terminal_and_reads_and_writes_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        bench = Bench()
        code = (
            "import os, sys\n"
            "files = [os.readlink(f'/proc/self/fd/{n}') for n in range(3)]\n"
            "more = [n for n in sorted(os.listdir('/proc/self/fd'), key=int) if os.path.exists(f'/proc/self/fd/{n}')]\n"
            "own = os.getpgid(0) == os.getpid() == os.getsid(0)\n"
            "with open(sys.argv[1], 'w') as out: out.write(repr((files, more, own, os.getgroups())))\n"
        )
        bench.start(*python(code, str(tmp_path / "out")))
        assert await bench.end() == (True, "exit code 0")
        groups = [] if os.geteuid() == 0 else os.getgroups()
        # What we were given ourselves (by whoever runs the tests) is not ours to close.
        more = [str(each) for each in open_files() if each <= 2 or os.get_inheritable(each)]
        assert (tmp_path / "out").read_text() == repr((["/dev/null"] * 3, more, True, groups))

    run(test())


def test_the_environment_does_not_change_how_scripts_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IFS", "x")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.setenv("HX_KEPT", "1")

    async def test() -> None:
        bench = Bench()
        bench.start("/bin/sh", "-c", f"env > {tmp_path}/out")
        await bench.end()
        names = {line.split("=")[0] for line in (tmp_path / "out").read_text().splitlines()}
        assert "HX_KEPT" in names
        assert not {"IFS", "LD_PRELOAD"} & names

    run(test())


def test_signals_that_python_ignores_are_not_ignored_by_scripts(tmp_path: Path) -> None:
    async def test() -> None:
        bench = Bench()
        bench.start("/bin/sh", "-c", f"grep SigIgn /proc/self/status > {tmp_path}/out")
        await bench.end()
        ignored = int((tmp_path / "out").read_text().split()[1], 16)
        assert not ignored & (1 << signal.SIGPIPE - 1 | 1 << signal.SIGXFSZ - 1)

    run(test())


def test_output_without_end_goes_nowhere() -> None:
    async def test() -> None:
        bench = Bench()
        bench.start("/bin/sh", "-c", "head -c 50000000 /dev/zero; head -c 50000000 /dev/zero >&2")
        assert await bench.end() == (True, "exit code 0")

    run(test())


@needs_root
@pytest.mark.parametrize("setpriv", [script_process.SETPRIV, "/nowhere/setpriv"])
def test_scripts_run_as_their_user(setpriv: str, safe: Path) -> None:
    out = safe / "out"
    out.touch()
    out.chmod(0o666)
    pid = script_process.start(
        ("/bin/sh", "-c", f"id -u > {out}; id -g >> {out}; id -G >> {out}"),
        Identity(uid=65534, gid=12),
        setpriv=setpriv,
    )
    assert os.waitpid(pid, 0)[1] == 0
    assert out.read_text().split() == ["65534", "12", "12"]


@pytest.mark.parametrize("setpriv", [script_process.SETPRIV, "/nowhere/setpriv"])
def test_without_setpriv_scripts_run_all_the_same(setpriv: str) -> None:
    pid = script_process.start(("/bin/sh", "-c", "exit 3"), ourselves(), setpriv=setpriv)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3


@pytest.fixture(params=[(300, "300"), (50, "100")], ids=["lower", "higher"])
def oom_score(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Ours is 100, lower or higher than what is usual; what scripts are to have. Not every root may have -900."""
    usual, expected = request.param
    monkeypatch.setattr(script_process, "_USUAL_OOM_SCORE_ADJ", usual)
    own = Path("/proc/self/oom_score_adj")
    former = own.read_text()
    own.write_text("100")
    try:
        yield expected
    finally:
        own.write_text(former)


@needs_root
@pytest.mark.parametrize("starts", ["setpriv", "fork", "launcher"])
def test_scripts_are_not_spared_when_memory_runs_out_as_we_are(oom_score: str, starts: str, safe: Path) -> None:
    fifo, out = safe / "fifo", safe / "out"
    os.mkfifo(fifo, 0o600)
    shutil.chown(fifo, "nobody")
    out.touch()
    shutil.chown(out, "nobody")
    argv = ("/bin/sh", "-c", f"read go < {fifo}; cat /proc/self/oom_score_adj > {out}")
    if starts == "launcher":
        process = Launcher(ScriptSettings()).launch(Command(argv=argv, user="nobody"))
        pid, process.returncode = process.pid, 0  # it is reaped below
    else:
        setpriv = script_process.SETPRIV if starts == "setpriv" else "/nowhere/setpriv"
        pid = script_process.start(argv, Identity(uid=pwd.getpwnam("nobody").pw_uid, gid=65534), setpriv=setpriv)
    fifo.write_text("go\n")
    assert os.waitpid(pid, 0)[1] == 0
    assert out.read_text().strip() == oom_score


def test_one_that_has_ended_already_needs_no_other_score(oom_score: str) -> None:
    with subprocess.Popen(["/bin/true"]) as process:
        process.wait()
    script_process.unprotect(process.pid)
    assert Path("/proc/self/oom_score_adj").read_text().strip() == "100"


def test_a_user_that_is_not_there() -> None:
    async def test() -> None:
        bench = Bench()
        assert bench.start("/bin/true", user="there-is-no-such-user") == "there is no user there-is-no-such-user"

    run(test())


def test_scripts_that_cannot_be_run(tmp_path: Path) -> None:
    async def test() -> None:
        bench = Bench()
        path = tmp_path / "check"
        assert await bench.refusal(str(path)) == f"{path}: No such file or directory"
        executable(path).chmod(0o644)
        assert await bench.refusal(str(path)) == f"{path} is not executable"
        assert (
            await bench.refusal("there-is-no-such-program")
            == "there-is-no-such-program is not found in the search path"
        )

    run(test())


def test_a_script_that_vanishes_between_two_runs_fails_and_then_is_named(tmp_path: Path) -> None:
    async def test() -> None:
        bench = Bench()
        path = executable(tmp_path / "check")
        script = TrackScript(name="x", run=Command(argv=(str(path),)))
        assert bench.start(str(path)) == ""
        assert await bench.end() == (True, "exit code 0")
        path.unlink()
        assert bench.again(script) == ""
        assert (await bench.end())[0] is False  # it is setpriv that finds out
        bench.again(script)
        assert (await bench.end())[1] == f"{path}: No such file or directory"

    run(test())


def test_a_file_without_an_interpreter_is_a_failure(tmp_path: Path) -> None:
    async def test() -> None:
        bench = Bench()
        bench.start(str(executable(tmp_path / "check", "#!/nowhere/interpreter\n")))
        assert not (await bench.end())[0]

    run(test())


@needs_root
def test_security_refuses_what_others_can_change(tmp_path: Path, safe: Path) -> None:
    tmp_path.chmod(0o777)

    async def test() -> None:
        loose, tight = executable(tmp_path / "check"), executable(safe / "check")
        strict = Bench(security=True)
        assert "would run as root, but" in await strict.refusal(str(loose))
        assert strict.start(str(tight)) == ""
        assert await strict.end() == (True, "exit code 0")
        # It was well, and is a link to what others can change now.
        tight.unlink()
        tight.symlink_to(loose)
        strict.again(TrackScript(name="x", run=Command(argv=(str(tight),))))
        assert "would run as root, but" in (await strict.end())[1]
        assert strict.start(str(loose), user="nobody") == ""  # it can do no harm

    run(test())


@needs_root
def test_without_security_there_is_one_warning(tmp_path: Path, safe: Path) -> None:
    tmp_path.chmod(0o777)

    async def test() -> None:
        loose, tight = executable(tmp_path / "check"), executable(safe / "check")
        bench = Bench()
        for _ in range(2):
            assert bench.start(str(loose)) == ""
            await bench.end()
        assert [event for event, _ in bench.lines] == ["script_insecure"]
        bench = Bench()
        bench.start(str(tight))
        await bench.end()
        assert bench.lines == []

    run(test())


def test_a_script_that_hangs_with_children_that_ignore_sigterm(tmp_path: Path) -> None:
    async def test() -> None:
        bench = Bench()
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        # The child holds the FIFO open: its end is seen as end of file.
        code = (
            "import os, signal, sys, time\n"
            "fd = os.open(sys.argv[1], os.O_WRONLY)\n"
            "if os.fork() == 0:\n"
            "    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "    os.write(fd, b'x')\n"
            "    time.sleep(60)\n"
            "time.sleep(60)\n"
        )
        bench.start(*python(code, str(fifo)))
        loop = asyncio.get_running_loop()
        stream = await loop.run_in_executor(None, fifo.open, "rb")
        with stream:
            assert await loop.run_in_executor(None, stream.read, 1) == b"x"
            bench.scripts.terminate(bench.ticket)
            assert await bench.end() == (False, "killed by SIGTERM")
            assert await loop.run_in_executor(None, stream.read) == b""

    run(test())


def test_a_script_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    async def test() -> None:
        bench = Bench()
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        bench.start("/bin/sh", "-c", f"trap '' TERM; echo x > {fifo}; while :; do sleep 60; done")
        await asyncio.get_running_loop().run_in_executor(None, fifo.read_text)
        bench.scripts.terminate(bench.ticket)
        bench.scripts.kill(bench.ticket)
        assert await bench.end() == (False, "killed by SIGKILL")
        bench.scripts.kill(bench.ticket)  # nobody is hit

    run(test())


def test_a_look_at_a_file_system_that_hangs_holds_up_nobody_but_scripts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        bench = Bench()
        hangs, looked = threading.Event(), threading.Event()

        def unfit(*_: Any, **__: Any) -> str:
            looked.set()
            hangs.wait()
            return "at last"

        monkeypatch.setattr(track_scripts, "unfit", unfit)
        assert bench.start("/bin/true") == ""
        await asyncio.to_thread(looked.wait)
        assert not bench.scripts.begun(bench.ticket)  # and we are here to ask
        hangs.set()
        assert await bench.end() == (False, "at last")
        monkeypatch.undo()
        bench.start("/bin/sleep", "60")
        await asyncio.wrap_future(bench.scripts._thread.submit(int))  # what it did before has been told to the loop
        assert bench.scripts.begun(bench.ticket)
        bench.scripts.kill(bench.ticket)
        await bench.end()

    run(test())


def test_a_run_that_is_ended_while_it_is_still_being_started() -> None:
    async def test() -> None:
        bench = Bench()
        bench.start("/bin/sleep", "60")
        bench.scripts.terminate(bench.ticket)
        assert await bench.end() == (False, "killed by SIGTERM")

    run(test())


def test_what_the_kernel_does_not_start_is_said() -> None:
    with pytest.raises(HostError, match="/nowhere/check: No such file or directory"):
        script_process.start(("/nowhere/check",), ourselves(), setpriv="/nowhere/setpriv")


@needs_root
def test_the_thread_that_starts_scripts_is_in_our_class_and_scripts_are_not(safe: Path) -> None:
    class_of = os.sched_getscheduler
    out = safe / "out"

    async def test() -> None:
        bench = Bench()
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
        try:
            bench.start("/bin/sh", "-c", f"chrt -p $$ > {out}")
            assert await bench.end() == (True, "exit code 0")
            assert bench.scripts._thread.submit(class_of, 0).result() & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR
        finally:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        assert "SCHED_OTHER" in out.read_text()
        bench.start("/bin/true")
        await bench.end()
        assert bench.scripts._thread.submit(class_of, 0).result() == os.SCHED_OTHER

    run(test())


def test_a_script_that_leaves_a_daemon_behind_has_ended(tmp_path: Path) -> None:
    async def test() -> None:
        bench = Bench()
        pids = tmp_path / "pid"
        bench.start("/bin/sh", "-c", f"sleep 60 & echo $! > {pids}")
        assert await bench.end() == (True, "exit code 0")
        os.kill(int(pids.read_text()), signal.SIGKILL)  # it was left alone: no ProcessLookupError

    run(test())


def test_finish_kills_what_does_not_end(tmp_path: Path) -> None:
    async def test() -> None:
        bench = Bench()
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        bench.start("/bin/sh", "-c", f"trap '' TERM; echo x > {fifo}; while :; do sleep 60; done")
        await asyncio.get_running_loop().run_in_executor(None, fifo.read_text)
        bench.scripts.terminate(bench.ticket)
        await bench.scripts.finish(0.01)
        assert await bench.end() == (False, "killed by SIGKILL")

    run(test())


@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv")
def test_scripts_end_when_the_process_that_started_them_dies(tmp_path: Path) -> None:
    """SIGKILL gives the tracker no chance to end them."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = (
        "import signal, sys\n"
        "from haxlb.linux.script_process import start\n"
        "from haxlb.linux.users import ourselves\n"
        "start(('/bin/sh', '-c', f'exec sleep 60 > {sys.argv[1]}'), ourselves())\n"
        "signal.pause()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(fifo)]) as starter:
        try:
            with fifo.open("rb") as stream:  # opened: the script runs
                starter.kill()
                assert stream.read() == b""
        finally:
            starter.kill()
