"""Tracked files on a file system that does not answer: a real one, whose server never says a word."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from haxlb.linux.track_files import TrackFiles
from haxlb.model.tracking import TrackFile

pytestmark = [pytest.mark.netns]

_MNT_FORCE, _MNT_DETACH = 1, 2
_libc = ctypes.CDLL(None, use_errno=True)


class Hung:
    """A FUSE mount: whoever asks for something in it waits until `end`."""

    def __init__(self, place: Path) -> None:
        place.mkdir()
        self.place = place
        self._server = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self._server},rootmode=40000,user_id=0,group_id=0"
        if _libc.mount(b"haxlb-test", os.fsencode(place), b"fuse", 0, options.encode()):
            raise OSError(ctypes.get_errno(), "mount")

    def end(self) -> None:
        """Whoever waits gets an error."""
        if self._server >= 0:
            _libc.umount2(os.fsencode(self.place), _MNT_FORCE | _MNT_DETACH)
            os.close(self._server)
            self._server = -1


@pytest.fixture
def hung(tmp_path: Path) -> Iterator[Hung]:
    if not Path("/dev/fuse").exists():
        pytest.skip("this kernel has no FUSE")
    with contextlib.ExitStack() as stack:
        made = Hung(tmp_path / "hung")
        stack.callback(made.end)
        yield made


class Watching:
    """What was told and logged."""

    def __init__(self, patience_s: float = 0.2) -> None:
        self.told: list[tuple[str, int, str]] = []
        self.lines: list[str] = []
        self.hanging: list[str] = []
        """Directories that were said to hang."""
        self.files = TrackFiles(lambda *told: self.told.append(told), self.log, patience_s=patience_s)

    def log(self, level: str, event: str, **fields: object) -> None:
        del level
        self.lines.append(event)
        if event == "track_files_hang":
            self.hanging.append(str(fields["directory"]))

    def of(self, name: str) -> list[tuple[int, str]]:
        """What was told of a file, in order."""
        return [told[1:] for told in self.told if told[0] == name]

    async def until(self, name: str, value: int) -> None:
        """Until this is what was told of it last."""
        await self.so(lambda: [each for each, _ in self.of(name)[-1:]] == [value])

    async def so(self, look: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not look():  # noqa: ASYNC110 - it knows no event
                await asyncio.sleep(0.005)


def test_the_other_files_go_on_and_it_is_said_once(hung: Hung, tmp_path: Path) -> None:
    well, sick = tmp_path / "well", hung.place / "sick"
    well.write_text("5")

    async def test() -> None:
        watching = Watching()
        wanted = [TrackFile(name=each.name, path=str(each), init_value=3) for each in (sick, well)]
        for each in wanted:
            watching.files.create(each)
        watching.files.watch(wanted)
        await watching.until("well", 5)
        await watching.until("sick", 0)
        assert watching.of("sick")[-1][1] == "the file system does not answer: counts as 0"
        well.write_text("6")
        await watching.until("well", 6)
        # A reload that keeps both does not wait either, and says nothing twice.
        before = len(watching.of("well"))
        watching.files.watch(wanted)
        await watching.so(lambda: len(watching.of("well")) > before)
        await watching.until("well", 6)
        well.write_text("7")
        await watching.until("well", 7)
        # On a machine that lets nobody run for a while the other directory may seem to hang, too.
        assert watching.hanging.count(str(hung.place)) == 1
        answers = watching.lines.count("track_files_answer")
        hung.end()
        await watching.so(lambda: watching.lines.count("track_files_answer") > answers)
        watching.files.close()

    asyncio.run(test())


def test_what_hangs_can_be_left(hung: Hung, tmp_path: Path) -> None:
    """By a reload, and by the process; what the file system says later is of no interest any more."""
    well, sick = tmp_path / "sick", hung.place / "sick"
    well.write_text("5")

    async def test() -> None:
        watching = Watching(patience_s=60)
        watching.files.watch([TrackFile(name="sick", path=str(sick))])
        watching.files.watch([TrackFile(name="sick", path=str(well))])
        await watching.until("sick", 5)
        hung.end()
        well.write_text("6")
        await watching.until("sick", 6)
        assert [each[:2] for each in watching.told] == [("sick", 5), ("sick", 6)]
        assert watching.lines == []
        watching.files.close()

    asyncio.run(test())


def test_a_file_that_was_read_keeps_its_number_and_is_read_again(hung: Hung, tmp_path: Path) -> None:
    link, well = tmp_path / "link", tmp_path / "well"
    well.write_text("5")
    link.symlink_to(well)

    async def test() -> None:
        watching = Watching()
        watching.files.watch([TrackFile(name="f", path=str(link))])
        await watching.until("f", 5)
        new = tmp_path / "new"
        new.symlink_to(hung.place / "f")
        new.rename(link)
        await watching.so(lambda: watching.lines[-1:] == ["track_files_hang"])
        assert [each[:2] for each in watching.told] == [("f", 5)]
        hung.end()
        new.symlink_to(well)
        new.rename(link)
        await watching.so(lambda: len(watching.told) > 1)
        await watching.until("f", 5)  # what was asked before the link was renamed is a 0
        watching.files.close()

    asyncio.run(test())
