"""TrackFilePort: numbers in files, read whenever inotify says that a file has changed; nothing is polled.

What is watched is the directory of a file, so that the file may come, go and be replaced (a rename over it is how
careful programs write). While the directory is missing, the nearest one above it is watched.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from haxlb.linux import inotify
from haxlb.linux.inotify import Inotify
from haxlb.linux.log import Log
from haxlb.model.errors import HostError
from haxlb.model.tracking import TrackFile

_READ = 127
"""Bytes of a file that are looked at, as in keepalived."""
_MOST = 2**31 - 1
# Not IN_MODIFY: a shell's `echo 5 > file` empties the file first, and that must not be taken for a 0.
_CHANGES = (
    inotify.CLOSE_WRITE
    | inotify.MOVED_FROM
    | inotify.MOVED_TO
    | inotify.DELETE
    | inotify.CREATE
    | inotify.DELETE_SELF
    | inotify.MOVE_SELF
    | inotify.ONLYDIR
)
_NUMBER = re.compile(rb"\s*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Directory:
    """A directory that is watched."""

    path: Path
    affected: dict[str, dict[str, None]] = field(default_factory=dict)
    """By a name in it: the tracked files whose number that may change."""


class TrackFiles:
    """All tracked files of a node."""

    def __init__(self, on_value: Callable[[str, int, str], None], log: Log) -> None:
        """`on_value` hears the name, the number, and what there is to say about it."""
        self._on_value = on_value
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._inotify: Inotify | None = None
        self._files: dict[str, TrackFile] = {}
        self._directories: dict[int, _Directory] = {}
        """By watch."""

    def create(self, file: TrackFile) -> None:
        """Make the file with its `init_value`, where there is none or that one is to be overwritten."""
        if file.init_value is None:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        flags |= os.O_TRUNC if file.init_overwrite else os.O_EXCL
        try:
            fd = os.open(file.path, flags, 0o644)
        except FileExistsError:
            return
        except OSError as problem:
            self._log("error", "track_file_not_made", file=file.path, reason=problem.strerror)
            return
        with os.fdopen(fd, "w") as stream:
            stream.write(f"{file.init_value}\n")

    def watch(self, files: Iterable[TrackFile]) -> None:
        """Watch exactly these; each is reported soon."""
        self._files = {each.name: each for each in files}
        if self._files and self._inotify is None:
            try:
                self._inotify = Inotify()
            except HostError as problem:
                self._log("error", "track_files_not_watched", reason=problem.message, remedy=problem.remedy)
            else:
                self._loop.add_reader(self._inotify.fileno(), self._readable)
        self._watch_directories()
        self._loop.call_soon(self._report, tuple(self._files))

    def close(self) -> None:
        """Watch nothing any more."""
        if self._inotify is not None:
            self._loop.remove_reader(self._inotify.fileno())
            self._inotify.close()
            self._inotify = None

    def _watch_directories(self) -> None:
        if self._inotify is None:
            return
        former, self._directories = self._directories, {}
        for file in self._files.values():
            for path in _ways(Path(file.path).absolute()):
                self._watch_way(self._inotify, path, file.name)
        for watch in former.keys() - self._directories.keys():
            self._inotify.remove(watch)

    def _watch_way(self, notifier: Inotify, path: Path, name: str) -> None:
        """Watch the directory of this path, or the nearest one above it that is there."""
        awaited = path
        while True:
            try:
                watch = notifier.add(str(awaited.parent), _CHANGES)
            except (FileNotFoundError, NotADirectoryError):
                awaited = awaited.parent
                continue
            except OSError as problem:
                self._log(
                    "error",
                    "track_file_not_watched",
                    file=self._files[name].path,
                    reason=problem.strerror,
                    remedy="if space is lacking: raise the sysctl fs.inotify.max_user_watches",
                )
                return
            directory = self._directories.setdefault(watch, _Directory(path=awaited.parent))
            directory.affected.setdefault(awaited.name, {})[name] = None
            if awaited == path or not awaited.is_dir():
                return
            awaited = path  # it has come in this very moment

    def _readable(self) -> None:
        assert self._inotify is not None
        changed: dict[str, None] = {}
        moved = False
        for event in self._inotify.read():
            if event.mask & inotify.OVERFLOW:
                changed.update(dict.fromkeys(self._files))
                moved = True
                continue
            directory = self._directories.get(event.watch)
            if directory is None:
                continue
            if not event.name:  # the directory itself is gone
                for each in directory.affected.values():
                    changed.update(each)
                moved = True
                continue
            affected = directory.affected.get(event.name)
            if affected is None or (event.mask & inotify.CREATE and _is_being_written(directory.path / event.name)):
                continue
            changed.update(affected)
            moved = moved or not event.mask & inotify.CLOSE_WRITE
        if moved:
            self._watch_directories()
        self._report(changed)

    def _report(self, names: Iterable[str]) -> None:
        for name in names:
            file = self._files.get(name)
            if file is not None:
                self._on_value(name, *read(file.path))


def read(path: str) -> tuple[int, str]:
    """The number in a file, and what there is to say; 0 where there is none (keepalived)."""
    try:
        # Not blocking, or a FIFO in the file's place would stop us.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        return 0, "there is no such file: counts as 0"
    except OSError as problem:
        return 0, f"{problem.strerror}: counts as 0"
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return 0, "not a file: counts as 0"
        content = os.read(fd, _READ)
    except OSError as problem:
        return 0, f"{problem.strerror}: counts as 0"
    finally:
        os.close(fd)
    return parse(content)


def parse(content: bytes) -> tuple[int, str]:
    """The number that a text begins with, read as strtol(3) with base 0 does, and what there is to say about it."""
    found = _NUMBER.match(content)
    if found is None:
        return 0, "no number in it: counts as 0" if content.strip() else "empty: counts as 0"
    digits = found[2]
    base = 16 if digits[:2] in (b"0x", b"0X") else 8 if digits[:1] == b"0" else 10
    number = min(int(digits, base), _MOST) * (-1 if found[1] == b"-" else 1)
    rest = content[found.end() :].strip()
    return number, f"{number}, and more text that is not looked at" if rest else str(number)


def _ways(path: Path) -> list[Path]:
    """The path, and where it leads to when it is a link: both may change."""
    try:
        target = path.resolve()
    except (OSError, RuntimeError):  # a link that leads to itself
        return [path]
    return [path] if target == path else [path, target]


def _is_being_written(path: Path) -> bool:
    """A file that was just made is read when its writer closes it; links and directories come complete."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1
