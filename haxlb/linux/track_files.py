"""TrackFilePort: numbers in files, read whenever inotify says that a file has changed; nothing is polled.

Each directory has a thread: a file system that does not answer stops the files that are in it, and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import Callable, Iterable

from haxlb.linux.log import Log
from haxlb.linux.track_directory import TrackDirectory
from haxlb.model.errors import HostError
from haxlb.model.tracking import TrackFile

PATIENCE_S = 5.0
"""After so long without an answer of the file system, that is said."""
_LOOK_S = 1.0


class TrackFiles:
    """All tracked files of a node."""

    def __init__(self, on_value: Callable[[str, int, str], None], log: Log, *, patience_s: float = PATIENCE_S) -> None:
        """`on_value` hears the name, the number, and what there is to say about it, on the running loop."""
        self._on_value = on_value
        self._log = log
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()
        self._directories: dict[str, TrackDirectory] = {}
        self._paths: dict[str, str] = {}
        self._known: set[str] = set()
        """Files that a number was told of."""
        self._stuck: set[str] = set()
        """Directories that were said not to answer."""
        self._timer: asyncio.TimerHandle | None = None

    def create(self, file: TrackFile) -> None:
        """Have the file made with its `init_value`, where there is none or that one is to be overwritten."""
        if file.init_value is not None and (directory := self._directory(file)):
            directory.create(file)

    def watch(self, files: Iterable[TrackFile]) -> None:
        """Watch exactly these; each is reported soon."""
        wanted: dict[str, list[TrackFile]] = {}
        for file in files:
            if self._directory(file) is not None:
                wanted.setdefault(os.path.dirname(file.path), []).append(file)  # noqa: PTH120 - nothing is looked up
        for path in self._directories.keys() - wanted.keys():
            self._directories.pop(path).close()
        self._stuck &= wanted.keys()
        former, self._paths = self._paths, {file.name: file.path for each in wanted.values() for file in each}
        self._known = {name for name in self._known if former.get(name) == self._paths.get(name)}
        for path, listed in wanted.items():
            self._directories[path].watch(listed)
        if wanted and self._timer is None:
            self._timer = self._loop.call_later(self._look_s, self._look)

    def close(self) -> None:
        """Watch nothing any more."""
        self.watch(())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def _look_s(self) -> float:
        return min(_LOOK_S, self._patience_s)

    def _directory(self, file: TrackFile) -> TrackDirectory | None:
        path = os.path.dirname(file.path)  # noqa: PTH120 - nothing is looked up
        if path not in self._directories:
            try:
                self._directories[path] = TrackDirectory(self._told, self._say)
            except HostError as problem:
                self._log(
                    "error", "track_file_not_watched", file=file.path, reason=problem.message, remedy=problem.remedy
                )
                self._loop.call_soon(self._on_value, file.name, 0, "it cannot be watched: counts as 0")
                return None
        return self._directories[path]

    # -- by the threads

    def _say(self, level: str, event: str, **fields: object) -> None:
        self._on_loop(functools.partial(self._log, level, event, **fields))

    def _told(self, directory: TrackDirectory, name: str, value: int, remark: str) -> None:
        self._on_loop(functools.partial(self._take, directory, name, value, remark))

    def _on_loop(self, what: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(what)

    # -- on the loop

    def _take(self, directory: TrackDirectory, name: str, value: int, remark: str) -> None:
        if name in directory.names and directory in self._directories.values():
            self._known.add(name)
            self._on_value(name, value, remark)

    def _look(self) -> None:
        """Say which directories do not answer, and which answer again."""
        self._timer = self._loop.call_later(self._look_s, self._look) if self._directories else None
        for path, directory in self._directories.items():
            if directory.busy_s >= self._patience_s:
                if path not in self._stuck:
                    self._stuck.add(path)
                    self._log(
                        "error",
                        "track_files_hang",
                        directory=path or ".",
                        files=", ".join(directory.names),
                        reason=f"the file system has not answered for {self._patience_s:g} s",
                        remedy="their numbers stay as they are until it answers; see the mounts of this host",
                    )
                for name in directory.names:
                    if name not in self._known:
                        self._known.add(name)
                        self._on_value(name, 0, "the file system does not answer: counts as 0")
            elif path in self._stuck:
                self._stuck.discard(path)
                self._log("info", "track_files_answer", directory=path or ".")
