from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haxlb.linux import inotify, track_directory
from haxlb.linux.inotify import Event, Inotify
from haxlb.linux.track_files import TrackFiles
from haxlb.linux.track_number import parse, read
from haxlb.model.errors import HostError
from haxlb.model.tracking import TrackFile


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 90))


def write(path: Path, text: str) -> None:
    path.write_text(text)


class Bench:
    """Watches files; `value` waits until a number is told."""

    def __init__(self, *paths: Path, **settings: Any) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []
        self.told: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        self.files = TrackFiles(lambda name, value, _: self.told.put_nowait((name, value)), self.log)
        self.wanted = tuple(TrackFile(name=each.name, path=str(each), **settings) for each in paths)
        self.files.watch(self.wanted)

    def log(self, level: str, event: str, **fields: object) -> None:
        self.lines.append((event, fields))

    async def made(self, path: Path, **settings: Any) -> int:
        """Have a file made, and what it holds then."""
        file = TrackFile(name="f", path=str(path), **settings)
        self.files.create(file)
        self.files.watch((file,))
        value = await self.value()
        self.files.watch(())
        return value

    async def value(self) -> int:
        return (await self.told.get())[1]

    async def becomes(self, value: int) -> None:
        """Some number may be told more than once."""
        while await self.value() != value:
            pass

    async def nothing_more(self, cause: Callable[[], object], then: Path) -> None:
        """What `cause` does is not told of: the first that is told of is a 42 in another file."""
        cause()
        write(then, "42")
        while (told := await self.told.get()) != (then.name, 42):
            assert told[0] == then.name


@pytest.mark.parametrize(
    ("content", "number"),
    [
        (b"", 0),
        (b"\n", 0),
        (b"5", 5),
        (b" \t -20\n", -20),
        (b"+7\n", 7),
        (b"0x10", 16),
        (b"-0X1f", -31),
        (b"010", 8),
        (b"09", 0),
        (b"0", 0),
        (b"12abc", 12),
        (b"1 2 3", 1),
        (b"- 5", 0),
        (b"five", 0),
        (b"\xff\xfe", 0),
        (b"\0", 0),
        (b"9" * 100, 2**31 - 1),
        (b"-" + b"9" * 100, -(2**31) + 1),
        (b"1.9", 1),
    ],
)
def test_numbers_are_read_as_strtol_does(content: bytes, number: int) -> None:
    assert parse(content)[0] == number


@given(st.binary(max_size=130))
def test_any_content_is_a_number_and_a_remark(content: bytes) -> None:
    number, remark = parse(content)
    assert abs(number) < 2**31
    assert remark


def test_what_there_is_to_say(tmp_path: Path) -> None:
    path = tmp_path / "f"
    assert read(str(path)) == (0, "there is no such file: counts as 0")
    path.write_text("")
    assert read(str(path)) == (0, "empty: counts as 0")
    path.write_text("well")
    assert read(str(path)) == (0, "no number in it: counts as 0")
    path.write_text("5 apples")
    assert read(str(path)) == (5, "5, and more text that is not looked at")
    path.write_text("5\n")
    assert read(str(path)) == (5, "5")


def test_what_is_no_file_counts_as_0_and_does_not_stop_us(tmp_path: Path) -> None:
    assert read(str(tmp_path)) == (0, "not a file: counts as 0")
    os.mkfifo(tmp_path / "fifo")
    assert read(str(tmp_path / "fifo")) == (0, "not a file: counts as 0")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert read(str(loop)) == (0, "Too many levels of symbolic links: counts as 0")


def test_only_the_beginning_of_a_large_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("7\n" + "9" * 10_000_000)
    assert read(str(path))[0] == 7


def test_a_file_comes_changes_is_replaced_and_goes(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "f"
        bench = Bench(path)
        assert await bench.value() == 0
        path.write_text("5")
        assert await bench.value() == 5
        path.write_text("-6")
        assert await bench.value() == -6
        other = tmp_path / "other"
        other.write_text("7")
        other.rename(path)
        assert await bench.value() == 7
        path.rename(other)
        assert await bench.value() == 0
        os.link(other, path)
        assert await bench.value() == 7
        path.unlink()
        assert await bench.value() == 0
        bench.files.close()

    run(test())


def test_a_file_that_is_there_already(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "f"
        path.write_text("5")
        assert await Bench(path).value() == 5

    run(test())


def test_a_file_is_read_when_its_writer_is_done(tmp_path: Path) -> None:
    """Emptied and half written it would be told as another number."""

    async def test() -> None:
        path = tmp_path / "f"
        path.write_text("5")
        bench = Bench(path)
        assert await bench.value() == 5
        with path.open("w") as stream:
            stream.write("1")
            stream.flush()
            other = tmp_path / "g"
            bench.files.watch((*bench.wanted, TrackFile(name="g", path=str(other))))
            await bench.told.get()
            await bench.told.get()
            await bench.nothing_more(stream.flush, other)
            stream.write("23")
        await bench.becomes(123)

    run(test())


def test_other_files_of_the_directory_are_nobodys_business(tmp_path: Path) -> None:
    async def test() -> None:
        path, other = tmp_path / "f", tmp_path / "g"
        bench = Bench(path, other)
        await bench.value()
        await bench.value()
        await bench.nothing_more(lambda: (tmp_path / "h").write_text("1"), other)

    run(test())


def test_a_directory_that_comes_later_and_goes(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "a" / "b" / "f"
        bench = Bench(path)
        assert await bench.value() == 0
        path.parent.mkdir(parents=True)
        path.write_text("5")
        await bench.becomes(5)
        path.write_text("6")
        await bench.becomes(6)
        path.parent.rename(tmp_path / "a" / "c")
        await bench.becomes(0)
        path.parent.mkdir()
        path.write_text("8")
        await bench.becomes(8)
        path.unlink()
        path.parent.rmdir()
        path.parent.parent.joinpath("c", "f").unlink()
        path.parent.parent.joinpath("c").rmdir()
        path.parent.parent.rmdir()
        await bench.becomes(0)
        path.parent.mkdir(parents=True)
        path.write_text("9")
        await bench.becomes(9)
        assert bench.lines == []

    run(test())


def test_a_link_and_what_it_leads_to(tmp_path: Path) -> None:
    async def test() -> None:
        link, one, two = tmp_path / "f", tmp_path / "one" / "x", tmp_path / "two" / "y"
        for number, each in enumerate((one, two), start=1):
            each.parent.mkdir()
            each.write_text(str(number))
        link.symlink_to(one)
        bench = Bench(link)
        assert await bench.value() == 1
        one.write_text("11")
        await bench.becomes(11)
        link.unlink()
        await bench.becomes(0)
        link.symlink_to(two)
        await bench.becomes(2)
        two.write_text("22")
        await bench.becomes(22)
        new = tmp_path / "new"
        new.symlink_to(one)
        new.rename(link)
        await bench.becomes(11)

    run(test())


def test_a_lost_event_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Overrun(Inotify):
        """As if its queue had overrun each time."""

        def read(self) -> Iterator[Event]:
            for _ in super().read():
                pass
            yield Event(watch=-1, mask=inotify.OVERFLOW, name="")

    monkeypatch.setattr(track_directory, "Inotify", Overrun)

    async def test() -> None:
        path = tmp_path / "a" / "f"
        bench = Bench(path)
        assert await bench.value() == 0
        path.parent.mkdir()
        path.write_text("5")
        await bench.becomes(5)
        path.write_text("6")
        await bench.becomes(6)

    run(test())


def test_other_files_at_a_reload(tmp_path: Path) -> None:
    async def test() -> None:
        old, new = tmp_path / "a" / "f", tmp_path / "b" / "f"
        for each in (old, new):
            each.parent.mkdir()
        bench = Bench(old)
        await bench.value()
        new.write_text("3")
        bench.files.watch((TrackFile(name="f", path=str(new)),))
        assert await bench.value() == 3
        old.write_text("4")
        new.write_text("5")
        assert await bench.value() == 5
        bench.files.watch(())
        bench.files.close()

    run(test())


def test_init_file(tmp_path: Path) -> None:
    async def test() -> None:
        path = tmp_path / "f"
        bench = Bench()
        assert await bench.made(path) == 0
        assert not path.exists()
        assert await bench.made(path, init_value=5) == 5
        assert path.read_text() == "5\n"
        assert await bench.made(path, init_value=7) == 5
        assert await bench.made(path, init_value=-7, init_overwrite=True) == -7
        assert path.read_text() == "-7\n"
        assert bench.lines == []

    run(test())


def test_init_file_is_not_led_astray(tmp_path: Path) -> None:
    """The directory may be somebody else's."""

    async def test() -> None:
        path, treasure = tmp_path / "f", tmp_path / "treasure"
        treasure.write_text("treasure")
        path.symlink_to(treasure)
        bench = Bench()
        await bench.made(path, init_value=7, init_overwrite=True)
        assert treasure.read_text() == "treasure"
        assert [event for event, _ in bench.lines] == ["track_file_not_made"]
        path.unlink()
        os.mkfifo(path)
        await bench.made(path, init_value=7, init_overwrite=True)
        await bench.made(tmp_path / "absent" / "f", init_value=7)
        assert [event for event, _ in bench.lines] == ["track_file_not_made"] * 3

    run(test())


def test_a_host_without_inotify_is_said_and_the_files_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise HostError("inotify: Too many open files", remedy="raise it")

    monkeypatch.setattr(track_directory, "Inotify", refuse)

    async def test() -> None:
        path = tmp_path / "f"
        path.write_text("5")
        bench = Bench(path)
        assert await bench.value() == 5
        assert [event for event, _ in bench.lines] == ["track_files_not_watched"]

    run(test())


def test_without_another_thread_a_file_counts_as_0_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)

    async def test() -> None:
        bench = Bench(tmp_path / "f")
        assert await bench.value() == 0
        assert [event for event, _ in bench.lines] == ["track_file_not_watched"]
        assert bench.lines[0][1]["reason"] == "can't start new thread"
        bench.files.close()

    run(test())
