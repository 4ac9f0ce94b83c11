from __future__ import annotations

import asyncio
import grp
import os
import pwd
import signal
import subprocess
import sys
import tempfile
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from haxlb.linux import notify
from haxlb.linux.launch import Launcher
from haxlb.linux.notify import ScriptRunner
from haxlb.linux.script_process import SETPRIV
from haxlb.linux.users import ourselves, popen_arguments
from haxlb.model.commands import Command
from haxlb.model.notification import ScriptSettings
from tests.linux.loop_clock import put_forward


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 90))


class Lines:
    """A log that remembers."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.fields: list[dict[str, object]] = []

    def __call__(self, level: str, event: str, **fields: object) -> None:
        self.events.append((level, event))
        self.fields.append(fields)


ME = pwd.getpwuid(os.geteuid()).pw_name


def python(code: str, *arguments: str) -> Command:
    return Command(argv=(sys.executable, "-I", "-S", "-c", code, *arguments), user=ME)


def append(file: Path, text: str, *, first: str = "pass") -> Command:
    """A command that appends a line to a file."""
    code = f"import os, sys, time\n{first}\nopen(sys.argv[1], 'a').write(sys.argv[2] + '\\n')"
    return python(code, str(file), text)


def command(*argv: str) -> Command:
    return Command(argv=argv, user=ME)


def test_commands_of_one_instance_run_strictly_in_order(tmp_path: Path) -> None:
    async def test() -> None:
        log = Lines()
        runner = ScriptRunner(log)
        file = tmp_path / "out"
        # The first is the slowest: started together they would end in another order.
        for number, pause in enumerate((0.2, 0.1, 0)):
            runner.run("VI_1", append(file, str(number), first=f"time.sleep({pause})"))
        await runner.finish(60)
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
        await runner.finish(60)
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
        runner.run("VI_1", python(code, str(file), "$HOME;`id`"))
        await runner.finish(60)

    run(test())
    assert file.read_text() == "$HOME;`id` False yes True"


def test_a_command_that_cannot_start_or_fails_is_logged_and_the_next_one_runs(tmp_path: Path) -> None:
    async def test() -> None:
        log = Lines()
        runner = ScriptRunner(log)
        file = tmp_path / "out"
        runner.run("VI_1", command(str(tmp_path / "absent")))
        runner.run("VI_1", command("/bin/false"))
        runner.run("VI_1", append(file, "ran"))
        await runner.finish(60)
        assert file.read_text() == "ran\n"
        assert log.events == [("error", "notify_failed"), ("warning", "notify_failed")]
        assert log.fields[0]["reason"] == f"{tmp_path / 'absent'}: No such file or directory"
        assert log.fields[1]["status"] == 1

    run(test())


def test_an_overdue_script_is_ended_with_all_its_children(tmp_path: Path) -> None:
    async def test() -> None:
        log = Lines()
        runner = ScriptRunner(log, time_limit_s=3600)
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
        runner.run("VI_1", python(code, str(lock)))
        runner.run("VI_1", append(tmp_path / "out", "next"))
        with await asyncio.to_thread(lock.open, "rb") as stream:
            assert await asyncio.to_thread(stream.read, 1) == b"x"
            put_forward(3600)
            assert await asyncio.to_thread(stream.read) == b""
        await runner.finish(60)
        assert (tmp_path / "out").read_text() == "next\n"
        assert ("error", "notify_overdue") in log.events

    asyncio.run(test())


def test_finish_ends_what_does_not_end_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "GRACE_S", 60.0)

    async def test() -> None:
        log = Lines()
        runner = ScriptRunner(log)
        runner.run("VI_1", command("/bin/sleep", "60"))
        runner.run("VI_1", command("/bin/true"))
        await runner.finish(0.05)
        assert [event for _, event in log.events] == ["notify_dropped", "notify_ended", "notify_failed"]
        assert log.fields[-1]["status"] == -signal.SIGTERM  # at once, and not after the time of grace

    run(test())


def test_a_flood_of_commands_is_bounded_keeps_the_last_and_is_logged_once(tmp_path: Path) -> None:
    async def test() -> None:
        log = Lines()
        runner = ScriptRunner(log)
        gate, out = tmp_path / "gate", tmp_path / "out"
        os.mkfifo(gate)
        runner.run("VI_1", python("import sys; open(sys.argv[1]).read()", str(gate)))
        for number in range(notify.QUEUE_LIMIT + 3):
            runner.run("VI_1", append(out, str(number)) if number == notify.QUEUE_LIMIT + 2 else command("/bin/true"))
        assert [event for _, event in log.events] == ["notify_dropped"]
        gate.write_text("")  # the first one ends, and the others follow
        await runner.finish(60)
        assert out.read_text() == f"{notify.QUEUE_LIMIT + 2}\n"
        assert [event for _, event in log.events] == ["notify_dropped", "notify_caught_up"]
        assert log.fields[1]["dropped"] == 3

    run(test())


# -- as whom, where


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs scripts as other users")


@pytest.fixture
def public() -> Iterator[Path]:
    """A directory of everybody's, since a script may be anybody. Those of pytest are closed, by each of its runs."""
    with tempfile.TemporaryDirectory(prefix="hx-notify-") as name:
        path = Path(name)
        path.chmod(0o777)
        yield path


def outcome(what: Command, settings: ScriptSettings, directory: str = "") -> Lines:
    log = Lines()

    async def test() -> None:
        runner = ScriptRunner(log)
        runner.configure(settings, directory)
        runner.run("VI_1", what)
        await runner.finish(60)

    run(test())
    return log


def whoami(directory: Path, *, user: str = "", group: str = "") -> tuple[Path, Command]:
    """Writes who and where it is."""
    file = directory / "out"
    code = (
        "import os, sys\n"
        "text = f'{os.getuid()} {os.getgid()} {os.getgroups()} {os.getcwd()} {os.sched_getscheduler(0)}'\n"
        "open(sys.argv[1], 'w').write(text)"
    )
    interpreter = "/usr/bin/python3"  # ours may be where only root may go
    return file, Command(argv=(interpreter, "-I", "-S", "-c", code, str(file)), user=user, group=group)


@needs_root
@pytest.mark.parametrize(
    ("user", "group", "settings", "expected"),
    [
        ("nobody", "", ScriptSettings(), ("nobody", "nogroup")),
        ("nobody", "daemon", ScriptSettings(), ("nobody", "daemon")),
        ("", "", ScriptSettings(user="nobody"), ("nobody", "nogroup")),
        ("", "", ScriptSettings(user="nobody", group="daemon"), ("nobody", "daemon")),
        ("root", "", ScriptSettings(user="nobody"), ("root", "root")),
    ],
)
def test_a_script_runs_as_its_user_without_supplementary_groups(
    public: Path, user: str, group: str, settings: ScriptSettings, expected: tuple[str, str]
) -> None:
    file, what = whoami(public, user=user, group=group)
    log = outcome(what, settings, str(public))
    uid, gid = pwd.getpwnam(expected[0]).pw_uid, grp.getgrnam(expected[1]).gr_gid
    assert file.read_text() == f"{uid} {gid} [] {public} {os.SCHED_OTHER}", log.fields


@needs_root
@pytest.mark.parametrize("setpriv", [SETPRIV, None], ids=["setpriv", "fork"])
@pytest.mark.parametrize("user", ["nobody", "root"])
def test_supplementary_groups_of_its_user_where_they_are_wanted(
    public: Path, monkeypatch: pytest.MonkeyPatch, user: str, setpriv: str | None
) -> None:
    file, what = whoami(public, user=user)
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid, 12, 1])
    launcher = Launcher(ScriptSettings(supplementary_groups=True), str(public), setpriv=setpriv)
    assert launcher.launch(what).wait() == 0
    assert "[1, 12]" in file.read_text()
    assert Launcher(ScriptSettings(), str(public), setpriv=setpriv).launch(what).wait() == 0
    assert "[]" in file.read_text()


@pytest.mark.parametrize(
    ("user", "group", "said"),
    [("hxabsent", "", "there is no user hxabsent"), ("root", "hxabsent", "there is no group hxabsent")],
)
def test_a_user_or_group_that_is_not_there_is_one_error_with_a_remedy(
    public: Path, user: str, group: str, said: str
) -> None:
    file, what = whoami(public, user=user, group=group)
    log = outcome(what, ScriptSettings())
    assert log.events == [("error", "notify_failed")]
    assert log.fields[0]["reason"] == said
    assert log.fields[0]["remedy"]
    assert not file.exists()


def test_a_directory_that_is_gone_keeps_no_script_from_running(public: Path) -> None:
    file, what = whoami(public, user=ME)
    outcome(what, ScriptSettings(), str(public / "gone"))
    assert file.read_text().split()[-2] == "/"


def test_a_relative_path_counts_from_the_directory_of_the_configuration(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\necho ran > out\n")
    script.chmod(0o700)
    log = outcome(command("./script"), ScriptSettings(), str(tmp_path))
    assert log.events == []
    assert (tmp_path / "out").read_text() == "ran\n"


@needs_root
def test_with_script_security_nothing_is_run_as_root_that_others_can_change(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\n: > {tmp_path}/out\n")
    script.chmod(0o777)
    log = outcome(Command(argv=(str(script),)), ScriptSettings(user="root", security=True))
    assert log.events == [("error", "notify_failed")]
    assert "can be written by everybody" in str(log.fields[0]["reason"])
    assert not (tmp_path / "out").exists()


@needs_root
def test_with_script_security_a_script_that_was_replaced_by_a_link_is_looked_at_again(tmp_path: Path) -> None:
    script, other = Path("/run") / f"hxscript{os.getpid()}", tmp_path / "other"
    other.write_text(f"#!/bin/sh\necho other >> {tmp_path}/out\n")
    other.chmod(0o777)
    script.write_text(f"#!/bin/sh\necho ours >> {tmp_path}/out\n")
    script.chmod(0o700)
    settings = ScriptSettings(user="root", security=True)
    try:
        assert outcome(Command(argv=(str(script),)), settings).events == []
        script.unlink()
        script.symlink_to(other)
        log = outcome(Command(argv=(str(script),)), settings)
    finally:
        script.unlink(missing_ok=True)
    assert log.events == [("error", "notify_failed")]
    assert (tmp_path / "out").read_text() == "ours\n"


def test_an_argument_with_a_nul_byte_is_refused_in_one_line() -> None:
    log = outcome(command("/bin/true", "a\0b"), ScriptSettings())
    assert log.events == [("error", "notify_failed")]


def test_who_is_the_user_already_needs_no_privilege() -> None:
    assert popen_arguments(ourselves()) in ({}, {"user": 0, "group": 0, "extra_groups": ()})


@needs_root
def test_without_setpriv_it_is_the_same_user_and_place(public: Path) -> None:
    file, what = whoami(public, user="nobody")
    process = Launcher(ScriptSettings(), str(public), setpriv=None).launch(what)
    assert process.wait() == 0
    nobody = pwd.getpwnam("nobody")
    assert file.read_text() == f"{nobody.pw_uid} {nobody.pw_gid} [] {public} {os.SCHED_OTHER}"


@needs_root
def test_a_directory_that_its_user_may_not_enter_keeps_no_script_from_running(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    log = outcome(Command(argv=("/bin/true",), user="nobody"), ScriptSettings(), str(tmp_path))
    assert log.events == []


def test_a_script_is_told_to_end_when_its_starter_is_killed(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = "import os, sys, time; fd = os.open(sys.argv[1], os.O_WRONLY); os.write(fd, b'.'); time.sleep(600)"
    starter = (
        "import sys, time\n"
        "from haxlb.linux.launch import Launcher\n"
        "from haxlb.model.commands import Command\n"
        "running = Launcher().launch(Command(argv=tuple(sys.argv[2:]), user=sys.argv[1]))\n"
        "time.sleep(600)\n"
    )
    argv = (sys.executable, "-I", "-S", "-c", code, str(fifo))
    with subprocess.Popen((sys.executable, "-c", starter, ME, *argv)) as process, fifo.open("rb") as stream:
        assert stream.read(1) == b"."
        process.kill()
        assert stream.read() == b""  # the end of the file: the script is gone


# -- waited for


def test_a_command_that_is_waited_for_gives_its_status_or_none() -> None:
    async def test() -> None:
        runner = ScriptRunner(Lines())
        assert await runner.complete("startup", command("/bin/sh", "-c", "exit 3"), 60) == 3
        assert await runner.complete("startup", command("/bin/true"), 60) == 0
        assert await runner.complete("startup", command("/hxabsent"), 60) is None
        assert await runner.complete("startup", command("/bin/sleep", "60"), 0.05) == -signal.SIGTERM

    run(test())


def test_who_gives_up_waiting_ends_the_command() -> None:
    async def test() -> None:
        log = Lines()
        runner = ScriptRunner(log)
        waiting = asyncio.ensure_future(runner.complete("startup", command("/bin/sleep", "60"), 60))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert log.events == [("info", "notify_ended")]
        await runner.finish(60)

    run(test())


def test_a_script_that_floods_its_output_and_forks_is_ended_whole(tmp_path: Path) -> None:
    async def test() -> None:
        log = Lines()
        runner = ScriptRunner(log, time_limit_s=3600)
        code = (
            "import os, signal\n"
            "for _ in range(8):\n"
            "    if os.fork() == 0: break\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN) if os.getpid() != os.getpgrp() else None\n"
            "fd = os.open(__import__('sys').argv[1], os.O_WRONLY)\n"
            "os.write(fd, b'.')\n"
            "while True: os.write(1, b'x' * 65536); os.write(2, b'y' * 65536)\n"
        )
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        runner.run("VI_1", python(code, str(fifo)))
        with await asyncio.to_thread(fifo.open, "rb") as stream:
            assert await asyncio.to_thread(stream.read, 9) == b"." * 9
            put_forward(3600)
            assert await asyncio.to_thread(stream.read) == b""  # it comes when the last of them is gone
        await runner.finish(60)
        assert ("error", "notify_overdue") in log.events

    asyncio.run(test())
