"""Tracked files on a file system that does not answer: a real one, whose server never says a word."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Iterator
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
        self.files = TrackFiles(lambda *told: self.told.append(told), self.log, patience_s=patience_s)

    def log(self, level: str, event: str, **fields: object) -> None:
        del level, fields
        self.lines.append(event)

    async def until(self, *told: tuple[str, int]) -> None:
        async with asyncio.timeout(60):
            while [each[:2] for each in self.told[-len(told) :]] != list(told):  # noqa: ASYNC110 - it knows no event
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
        await watching.until(("well", 5), ("sick", 0))
        assert watching.told[-1][2] == "the file system does not answer: counts as 0"
        well.write_text("6")
        await watching.until(("well", 6))
        # A reload that keeps both does not wait either, and says nothing twice.
        watching.files.watch(wanted)
        await watching.until(("well", 6))
        well.write_text("7")
        await watching.until(("well", 7))
        assert watching.lines == ["track_files_hang"]
        hung.end()
        async with asyncio.timeout(60):
            while "track_files_answer" not in watching.lines:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        watching.files.close()

    asyncio.run(test())


def test_what_hangs_can_be_left(hung: Hung, tmp_path: Path) -> None:
    """By a reload, and by the process; what the file system says later is of no interest any more."""
    well, sick = tmp_path / "sick", hung.place / "sick"
    well.write_text("5")

    async def test() -> None:
        watching = Watching(patience_s=20)
        watching.files.watch([TrackFile(name="sick", path=str(sick))])
        watching.files.watch([TrackFile(name="sick", path=str(well))])
        await watching.until(("sick", 5))
        hung.end()
        well.write_text("6")
        await watching.until(("sick", 6))
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
        await watching.until(("f", 5))
        new = tmp_path / "new"
        new.symlink_to(hung.place / "f")
        new.rename(link)
        async with asyncio.timeout(60):
            while watching.lines != ["track_files_hang"]:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert [each[:2] for each in watching.told] == [("f", 5)]
        hung.end()
        new.symlink_to(well)
        new.rename(link)
        await watching.until(("f", 5))
        async with asyncio.timeout(60):
            while len(watching.told) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert watching.told[-1][1] == 5
        watching.files.close()

    asyncio.run(test())
