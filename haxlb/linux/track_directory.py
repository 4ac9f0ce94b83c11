"""The tracked files of one directory, watched by a thread of their own.

Whoever asks for a file on a network file system whose server is gone waits, for minutes or for good, and nobody can end
that wait. So all that touches files is done here: making them, watching them, reading them. What else is tracked, and
the files of other directories, go on.

What is watched is the directory of a file, so that the file may come, go and be replaced (a rename over it is how
careful programs write). While the directory is missing, the nearest one above it is watched.
"""

from __future__ import annotations

import contextlib
import os
import select
import stat
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue

from haxlb.linux import inotify
from haxlb.linux.inotify import Inotify
from haxlb.linux.log import Log
from haxlb.linux.realtime import follow
from haxlb.linux.track_number import read
from haxlb.model.errors import HostError
from haxlb.model.tracking import TrackFile

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Directory:
    """A directory that is watched."""

    path: Path
    affected: dict[str, dict[str, None]] = field(default_factory=dict)
    """By a name in it: the tracked files whose number that may change."""


class TrackDirectory:
    """A thread, from construction until `close`. Orders are carried out in turn, when the file system answers."""

    def __init__(self, on_value: Callable[[TrackDirectory, str, int, str], None], log: Log) -> None:
        """Both are called by the thread. Raises HostError."""
        self._on_value = on_value
        self._log = log
        self._orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        try:
            self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        except OSError as problem:
            raise HostError(f"eventfd: {problem.strerror}", remedy="raise the limit of open files") from problem
        self._open = threading.Lock()
        """Held while the bell is rung: its number must not have become another file's."""
        self._asked_by = threading.get_native_id()
        self._began = 0.0
        self._inotify: Inotify | None = None
        self._files: dict[str, TrackFile] = {}
        self._directories: dict[int, _Directory] = {}
        """By watch."""
        self.names: tuple[str, ...] = ()
        """Of the files that are wanted; the thread does not look at it."""
        try:
            threading.Thread(target=self._run, name="tracked files", daemon=True).start()
        except RuntimeError as problem:
            os.close(self._bell)
            raise HostError(str(problem), remedy="raise the limit of processes") from problem

    # -- for whoever made it

    def create(self, file: TrackFile) -> None:
        """Make the file with its `init_value`, where there is none or that one is to be overwritten."""
        self._order(lambda: self._create(file))

    def watch(self, files: Iterable[TrackFile]) -> None:
        """Watch exactly these; each is told of."""
        wanted = {each.name: each for each in files}
        self.names = tuple(wanted)
        self._order(lambda: self._watch(wanted))

    def close(self) -> None:
        """End the thread, as soon as it can be; nobody waits for it."""
        self._order(None)

    @property
    def busy_s(self) -> float:
        """For how long it has been waiting for the file system by now."""
        began = self._began
        return time.monotonic() - began if began else 0.0

    def _order(self, order: Callable[[], None] | None) -> None:
        with self._open, contextlib.suppress(BlockingIOError):
            self._orders.put(order)
            os.eventfd_write(self._bell, 1)

    # -- the thread's side

    def _run(self) -> None:
        going = True
        while going:
            readers = [self._bell] if self._inotify is None else [self._bell, self._inotify.fileno()]
            poll = select.poll()
            for each in readers:
                poll.register(each, select.POLLIN)
            poll.poll()
            # In a lower class it could lose the CPU while it holds the interpreter that a BFD session waits for.
            follow(self._asked_by)
            self._began = time.monotonic()
            try:
                going = self._carry_out()
                if going and self._inotify is not None:
                    self._look(self._inotify)
            except Exception as bug:  # noqa: BLE001 - the thread must outlive it, else these files are never read again
                self._log("error", "bug", reason=repr(bug))
            self._began = 0.0
        if self._inotify is not None:
            self._inotify.close()
        with self._open:
            os.close(self._bell)

    def _carry_out(self) -> bool:
        """All that was ordered; whether it goes on."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        while True:
            try:
                order = self._orders.get_nowait()
            except Empty:
                return True
            if order is None:
                return False
            order()

    def _create(self, file: TrackFile) -> None:
        if file.init_value is None:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        flags |= os.O_TRUNC if file.init_overwrite else os.O_EXCL
        try:
            with os.fdopen(os.open(file.path, flags, 0o644), "w") as stream:
                stream.write(f"{file.init_value}\n")
        except FileExistsError:
            return
        except OSError as problem:
            self._log("error", "track_file_not_made", file=file.path, reason=problem.strerror)

    def _watch(self, files: dict[str, TrackFile]) -> None:
        self._files = files
        if self._files and self._inotify is None:
            try:
                self._inotify = Inotify()
            except HostError as problem:
                self._log("error", "track_files_not_watched", reason=problem.message, remedy=problem.remedy)
        self._watch_directories()
        self._report(self._files)

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

    def _look(self, notifier: Inotify) -> None:
        changed: dict[str, None] = {}
        moved = False
        for event in notifier.read():
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
            self._on_value(self, name, *read(self._files[name].path))


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
