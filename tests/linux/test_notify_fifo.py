from __future__ import annotations

import asyncio
import grp
import os
import pwd
import select
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from haxlb.linux import notify_fifo
from haxlb.linux.notify_fifo import NotifyFifos
from haxlb.model.commands import Command
from haxlb.model.notification import NotifyFifo, ScriptSettings

ME = pwd.getpwuid(os.geteuid()).pw_name
LINE = 'INSTANCE "VI_1" MASTER 150\n'


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


class Lines:
    """A log that remembers, and that a test can wait for."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, object]]] = []
        self.changed = asyncio.Event()

    def __call__(self, level: str, event: str, **fields: object) -> None:
        self.lines.append((level, event, fields))
        self.changed.set()

    @property
    def events(self) -> list[str]:
        return [event for _, event, _ in self.lines]

    async def until(self, event: str, times: int = 1) -> None:
        while self.events.count(event) < times:
            self.changed.clear()
            await self.changed.wait()


def configure(fifos: NotifyFifos, *what: NotifyFifo, settings: ScriptSettings | None = None) -> None:
    fifos.configure(what, settings or ScriptSettings(user=ME), "/")


def reader_of(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK)


async def content_of(file: Path, length: int) -> str:
    """What a reader has written, when it is as long as it will be."""

    def wait() -> str:
        while not file.exists() or file.stat().st_size < length:
            time.sleep(0.005)
        return file.read_text()

    return await asyncio.to_thread(wait)


def copying(out: Path, *, lines: int | None = None) -> Command:
    """A reader: copies what it reads to a file, line by line, and ends after so many of them."""
    code = (
        "import sys\n"
        f"left = {lines}\n"
        "with open(sys.argv[2], 'rb', 0) as source:\n"
        "    while left is None or left > 0:\n"
        "        line = source.readline()\n"
        "        if not line: break\n"
        "        open(sys.argv[1], 'ab').write(line)\n"
        "        left = None if left is None else left - 1\n"
    )
    return Command(argv=(sys.executable, "-I", "-S", "-c", code, str(out)))


def test_lines_arrive_whole_and_by_kind(tmp_path: Path) -> None:
    async def test() -> None:
        fifos = NotifyFifos(Lines())
        both, vrrp, lvs = (str(tmp_path / name) for name in ("both", "vrrp", "lvs"))
        configure(
            fifos,
            NotifyFifo(path=both),
            NotifyFifo(path=vrrp, lvs=False),
            NotifyFifo(path=lvs, vrrp=False),
        )
        ends = [reader_of(Path(path)) for path in (both, vrrp, lvs)]
        fifos.write(LINE)
        fifos.write("VS [10.0.0.1]:tcp:80 UP\n", lvs=True)
        assert [os.read(end, 4096).decode() for end in ends] == [
            LINE + "VS [10.0.0.1]:tcp:80 UP\n",
            LINE,
            "VS [10.0.0.1]:tcp:80 UP\n",
        ]
        await fifos.close()
        assert [os.read(end, 4096) for end in ends] == [b"", b"", b""]  # the end of the file
        for end in ends:
            os.close(end)

    run(test())


def test_one_path_that_is_named_twice_gets_each_line_once(tmp_path: Path) -> None:
    async def test() -> None:
        fifos = NotifyFifos(Lines())
        path = str(tmp_path / "fifo")
        configure(fifos, NotifyFifo(path=path, lvs=False), NotifyFifo(path=path, vrrp=False))
        end = reader_of(Path(path))
        fifos.write(LINE)
        fifos.write("VS x UP\n", lvs=True)
        assert os.read(end, 4096).decode() == LINE + "VS x UP\n"
        os.close(end)
        await fifos.close()

    run(test())


def test_nobody_reads_and_nothing_waits_and_the_log_hears_once(tmp_path: Path) -> None:
    async def test() -> None:
        log = Lines()
        fifos = NotifyFifos(log)
        path = tmp_path / "fifo"
        configure(fifos, NotifyFifo(path=str(path)))
        written = 0
        while not fifos.lost:
            fifos.write(LINE)
            written += 1
        for _ in range(100):
            fifos.write(LINE)
        assert fifos.lost == {str(path): 101}
        assert log.events == ["fifo_full"]
        # A reader that comes now finds what was kept, and no torn line.
        end = reader_of(path)
        kept = b"".join(iter(lambda: _some(end), b""))
        assert kept == LINE.encode() * (written - 1)
        fifos.write(LINE)
        assert os.read(end, 4096).decode() == LINE
        assert log.events == ["fifo_full", "fifo_read_again"]
        assert log.lines[1][2]["lost"] == 101
        os.close(end)
        await fifos.close()

    run(test())


def _some(end: int) -> bytes:
    try:
        return os.read(end, 65536)
    except BlockingIOError:
        return b""


def test_a_line_beyond_what_a_pipe_takes_at_once_is_cut_and_still_a_line(tmp_path: Path) -> None:
    async def test() -> None:
        fifos = NotifyFifos(Lines())
        path = tmp_path / "fifo"
        configure(fifos, NotifyFifo(path=str(path)))
        end = reader_of(path)
        fifos.write("x" * 9000 + "\n")
        fifos.write(LINE)
        long, short, rest = os.read(end, 65536).split(b"\n")
        assert (len(long) + 1, short, rest) == (select.PIPE_BUF, LINE.strip().encode(), b"")
        os.close(end)
        await fifos.close()

    run(test())


# -- what is there already


@pytest.mark.parametrize("what", ["file", "link to a file", "link to a FIFO", "directory", "dangling link"])
def test_what_is_no_fifo_is_refused_with_one_error_and_left_alone(tmp_path: Path, what: str) -> None:
    path, target = tmp_path / "fifo", tmp_path / "target"
    match what:
        case "file":
            path.write_text("precious")
        case "link to a file":
            target.write_text("precious")
            path.symlink_to(target)
        case "link to a FIFO":
            os.mkfifo(target)
            path.symlink_to(target)
        case "directory":
            path.mkdir()
        case "dangling link":
            path.symlink_to(target)
    before = os.lstat(path)

    async def test() -> None:
        log = Lines()
        fifos = NotifyFifos(log)
        configure(fifos, NotifyFifo(path=str(path), script=Command(argv=("/bin/false",))))
        fifos.write(LINE)
        await fifos.close()
        assert [(level, event) for level, event, _ in log.lines] == [("error", "fifo_refused")]
        assert log.lines[0][2]["reason"] == "there is something else than a FIFO"
        assert log.lines[0][2]["remedy"]

    run(test())
    assert os.lstat(path) == before
    if what == "file":
        assert path.read_text() == "precious"


@pytest.mark.parametrize("path", ["/hxabsent/fifo", "/tmp/hx\0fifo", "/" + "x" * 300])
def test_a_path_that_cannot_be_made_is_one_error(path: str) -> None:
    async def test() -> None:
        log = Lines()
        fifos = NotifyFifos(log)
        configure(fifos, NotifyFifo(path=path))
        fifos.write(LINE)
        await fifos.close()
        assert log.events == ["fifo_refused"]

    run(test())


def test_a_fifo_of_an_earlier_run_is_used_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path, 0o600)

    async def test() -> None:
        fifos = NotifyFifos(Lines())
        configure(fifos, NotifyFifo(path=str(path)))
        assert stat.S_IMODE(path.stat().st_mode) == notify_fifo.MODE
        await fifos.close()

    run(test())
    assert path.is_fifo()


def test_a_fifo_that_we_made_goes_with_us(tmp_path: Path) -> None:
    path = tmp_path / "fifo"

    async def test() -> None:
        fifos = NotifyFifos(Lines())
        configure(fifos, NotifyFifo(path=str(path)))
        assert path.is_fifo()
        await fifos.close()

    run(test())
    assert not path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize(
    ("user", "group", "settings", "expected"),
    [
        ("nobody", "daemon", ScriptSettings(), ("nobody", "daemon")),
        ("nobody", "", ScriptSettings(), ("nobody", "nogroup")),
        ("", "", ScriptSettings(user="daemon"), ("daemon", "daemon")),
    ],
)
def test_the_fifo_belongs_to_its_user(
    tmp_path: Path, user: str, group: str, settings: ScriptSettings, expected: tuple[str, str]
) -> None:
    async def test() -> None:
        fifos = NotifyFifos(Lines())
        path = tmp_path / "fifo"
        configure(fifos, NotifyFifo(path=str(path), user=user, group=group), settings=settings)
        owner = path.stat()
        assert (owner.st_uid, owner.st_gid) == (pwd.getpwnam(expected[0]).pw_uid, grp.getgrnam(expected[1]).gr_gid)
        await fifos.close()

    run(test())


def test_an_owner_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    async def test() -> None:
        log = Lines()
        fifos = NotifyFifos(log)
        configure(fifos, NotifyFifo(path=str(tmp_path / "fifo"), user="hxabsent"))
        assert log.events == ["fifo_refused"]
        await fifos.close()

    run(test())


# -- reload


def test_a_reload_gives_no_reader_an_end_of_file_unless_the_path_changes(tmp_path: Path) -> None:
    async def test() -> None:
        fifos = NotifyFifos(Lines())
        one, two = tmp_path / "one", tmp_path / "two"
        configure(fifos, NotifyFifo(path=str(one)))
        end = reader_of(one)
        configure(fifos, NotifyFifo(path=str(one), lvs=False))
        fifos.write("VS x UP\n", lvs=True)
        fifos.write(LINE)
        assert os.read(end, 4096).decode() == LINE
        assert _some(end) == b""
        with pytest.raises(BlockingIOError):
            os.read(end, 1)  # nothing to read, and not the end
        configure(fifos, NotifyFifo(path=str(two)))
        assert os.read(end, 1) == b""
        assert two.is_fifo()
        assert not one.exists()
        os.close(end)
        await fifos.close()

    run(test())


def test_one_that_somebody_has_removed_or_replaced_is_made_anew_on_reload(tmp_path: Path) -> None:
    async def test() -> None:
        log = Lines()
        fifos = NotifyFifos(log)
        path = tmp_path / "fifo"
        configure(fifos, NotifyFifo(path=str(path)))
        path.unlink()
        fifos.write(LINE)  # to whoever has it open still
        configure(fifos, NotifyFifo(path=str(path)))
        end = reader_of(path)
        fifos.write(LINE)
        assert os.read(end, 4096).decode() == LINE
        os.close(end)
        path.unlink()
        path.write_text("precious")
        configure(fifos, NotifyFifo(path=str(path)))
        assert log.events == ["fifo_refused"]
        await fifos.close()
        assert path.read_text() == "precious"

    run(test())


def test_what_has_taken_the_place_of_ours_is_not_removed_at_the_end(tmp_path: Path) -> None:
    async def test() -> None:
        fifos = NotifyFifos(Lines())
        path = tmp_path / "fifo"
        configure(fifos, NotifyFifo(path=str(path)))
        path.unlink()
        path.write_text("precious")
        await fifos.close()
        assert path.read_text() == "precious"

    run(test())


def test_one_that_was_refused_is_tried_again_with_the_next_configuration(tmp_path: Path) -> None:
    async def test() -> None:
        fifos = NotifyFifos(Lines())
        path = tmp_path / "fifo"
        path.write_text("")
        configure(fifos, NotifyFifo(path=str(path)))
        path.unlink()
        configure(fifos, NotifyFifo(path=str(path)))
        assert path.is_fifo()
        await fifos.close()

    run(test())


# -- readers


def test_the_reader_gets_every_line_to_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify_fifo, "READER_PATIENCE_S", 60.0)

    async def test() -> None:
        log = Lines()
        fifos = NotifyFifos(log)
        out = tmp_path / "out"
        configure(fifos, NotifyFifo(path=str(tmp_path / "fifo"), script=copying(out)))
        fifos.write(LINE)
        await content_of(out, len(LINE))
        for number in range(20):
            fifos.write(f"{number}\n")
        await fifos.close()  # it reads on to the end of the file, then leaves
        assert out.read_text() == LINE + "".join(f"{number}\n" for number in range(20))
        assert log.events == []

    run(test())


def test_a_reader_that_ends_is_started_again_and_loses_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        log = Lines()
        fifos = NotifyFifos(log)
        out = tmp_path / "out"
        configure(fifos, NotifyFifo(path=str(tmp_path / "fifo"), script=copying(out, lines=1)))
        fifos.write("1\n")
        await log.until("fifo_script_ended")
        fifos.write("2\n")
        assert await content_of(out, 4) == "1\n2\n"
        await fifos.close()

    run(test())


def test_a_reader_that_cannot_start_is_tried_again_later_and_later(tmp_path: Path) -> None:
    async def test() -> None:
        log = Lines()
        fifos = NotifyFifos(log)
        configure(fifos, NotifyFifo(path=str(tmp_path / "fifo"), script=Command(argv=("/hxabsent",))))
        await log.until("fifo_script_failed", 2)  # at once, then after a second
        fifos.write(LINE)
        await fifos.close()
        assert set(log.events) == {"fifo_script_failed"}

    run(test())


def test_a_reader_that_does_not_leave_is_ended_with_its_children(tmp_path: Path) -> None:
    async def test() -> None:
        fifos = NotifyFifos(Lines())
        lock = tmp_path / "lock"
        os.mkfifo(lock)
        code = (
            "import os, signal, sys, time\n"
            "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "os.fork()\n"
            "fd = os.open(sys.argv[1], os.O_WRONLY)\n"
            "os.write(fd, b'.')\n"
            "time.sleep(600)\n"
        )
        script = Command(argv=(sys.executable, "-I", "-S", "-c", code, str(lock)))
        configure(fifos, NotifyFifo(path=str(tmp_path / "fifo"), script=script))
        loop = asyncio.get_running_loop()
        stream = await loop.run_in_executor(None, lock.open, "rb")
        await fifos.close()
        assert (await loop.run_in_executor(None, stream.read)).strip(b".") == b""  # its end: both are gone
        stream.close()

    run(test())


def test_another_script_replaces_the_reader_and_the_same_one_stays(tmp_path: Path) -> None:
    async def test() -> None:
        log = Lines()
        fifos = NotifyFifos(log)
        path = str(tmp_path / "fifo")
        code = (
            "import os, sys, time\nopen(sys.argv[1], 'a').write(f'{os.getpid()}\\n')\nopen(sys.argv[2], 'rb').read()\n"
        )

        def naming(out: Path) -> NotifyFifo:
            return NotifyFifo(path=path, script=Command(argv=(sys.executable, "-I", "-S", "-c", code, str(out))))

        one, two = tmp_path / "one", tmp_path / "two"
        configure(fifos, naming(one))
        first = await content_of(one, 2)
        configure(fifos, naming(one))
        configure(fifos, naming(two))
        await content_of(two, 2)
        assert one.read_text() == first  # it was not started twice
        await fifos.close()
        assert log.events == []

    run(test())


OF_ANOTHER_USER = """
import asyncio, os, sys
from haxlb.linux.notify_fifo import NotifyFifos
from haxlb.model.notification import NotifyFifo, ScriptSettings

async def test():
    for _ in range(2):  # the second time it is there, and the other user's
        fifos = NotifyFifos(lambda *said, **fields: print(said, fields))
        fifos.configure([NotifyFifo(path=sys.argv[1], vrrp=True)], ScriptSettings(user="nobody"), "/")
        os.link(sys.argv[1], sys.argv[1] + ".kept")
        await fifos.close()
        os.rename(sys.argv[1] + ".kept", sys.argv[1])

asyncio.run(test())
"""


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_the_units_capabilities_are_enough_for_a_fifo_of_another_user(tmp_path: Path) -> None:
    unit = (Path(__file__).parents[2] / "deploy/systemd/haxlb.service").read_text()
    (line,) = (line for line in unit.splitlines() if line.startswith("CapabilityBoundingSet="))
    capabilities = [each.removeprefix("CAP_").lower() for each in line.partition("=")[2].split()]
    bounding = ",".join(["-all", *(f"+{each}" for each in capabilities)])
    command = ["setpriv", f"--bounding-set={bounding}", "--inh-caps=-all", sys.executable, "-c", OF_ANOTHER_USER]
    path = tmp_path / "fifo"
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert path.stat().st_uid == pwd.getpwnam("nobody").pw_uid


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_what_cannot_be_given_to_its_user_is_not_left_behind(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    command = ["setpriv", "--bounding-set=-chown", "--inh-caps=-all", sys.executable, "-c", OF_ANOTHER_USER, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "CAP_CHOWN" in done.stdout
    assert not path.exists()
