"""Which processes of this host are the ones that are tracked, read from /proc.

Names are compared as keepalived does: with the kernel's name of the process (15 bytes at most), or, where arguments
count or the full command is asked for, with its argument vector. Zombies are no processes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from haxlb.model.tracking import TrackProcess

PROC = Path("/proc")
_COMM_LENGTH = 15
"""TASK_COMM_LEN of <linux/sched.h> without the zero."""
_AT_ONCE = 64
"""Processes between two looks at other duties: about a millisecond."""


class ProcessTable:
    """For each tracked process the pids of those that match it."""

    def __init__(self, processes: Iterable[TrackProcess], *, proc: Path = PROC) -> None:
        self._processes = tuple(processes)
        self._proc = proc
        self._by_comm: dict[bytes, list[TrackProcess]] = {}
        self._by_command: list[TrackProcess] = []
        for each in self._processes:
            if _by_command(each):
                self._by_command.append(each)
            else:
                self._by_comm.setdefault(_comm(each), []).append(each)
        self._pids = self._nobody()
        self._next: dict[str, set[int]] | None = None
        """Those of a sweep that is under way."""

    def counts(self) -> dict[str, int]:
        """How many there are, by name of the definition."""
        return {name: len(pids) for name, pids in self._pids.items()}

    def sweep(self) -> Iterator[None]:
        """Look at every process of the host, a few between two values; the counts are the new ones after the last.

        What is told of processes meanwhile counts, too.
        """
        found = self._next = self._nobody()
        for number, pid in enumerate(self._all(), start=1):
            for each in self._matching(pid):
                found[each.name].add(pid)
            if number % _AT_ONCE == 0:
                yield
                if self._next is not found:
                    return  # another sweep has begun
        self._pids, self._next = found, None

    def scan(self) -> None:
        """Look at every process of the host in one go."""
        for _ in self.sweep():
            pass

    def examine(self, pid: int) -> None:
        """This process is new, or is another program now."""
        self.forget(pid)
        matching = [each.name for each in self._matching(pid)]
        for known in self._known():
            for name in matching:
                known[name].add(pid)

    def inherit(self, parent: int, child: int) -> None:
        """A process has forked: the child is what its parent is."""
        known = self._known()
        for name in self._pids:
            if any(parent in each[name] for each in known):
                for each in known:
                    each[name].add(child)

    def forget(self, pid: int) -> None:
        """This process has ended."""
        for known in self._known():
            for pids in known.values():
                pids.discard(pid)

    def _nobody(self) -> dict[str, set[int]]:
        return {each.name: set() for each in self._processes}

    def _known(self) -> tuple[dict[str, set[int]], ...]:
        return (self._pids,) if self._next is None else (self._pids, self._next)

    def _all(self) -> Iterator[int]:
        with os.scandir(self._proc) as entries:
            for entry in entries:
                if entry.name.isdigit():
                    yield int(entry.name)

    def _matching(self, pid: int) -> Iterator[TrackProcess]:
        status = _read(self._proc / str(pid) / "stat")
        # pid (comm) state …: the name may hold blanks and parentheses.
        start, end = status.find(b"("), status.rfind(b")")
        if end < 0 or status[end + 2 : end + 3] in (b"Z", b"X"):
            return
        yield from self._by_comm.get(status[start + 1 : end], ())
        if not self._by_command:
            return
        command = _read(self._proc / str(pid) / "cmdline")
        if command:
            words = command.removesuffix(b"\0").split(b"\0")
            yield from (each for each in self._by_command if _is_command(each, words))


def _by_command(process: TrackProcess) -> bool:
    return process.full_command or bool(process.match) or "/" in process.process


def _comm(process: TrackProcess) -> bytes:
    return os.fsencode(process.process)[:_COMM_LENGTH]


def _is_command(process: TrackProcess, words: list[bytes]) -> bool:
    if words[0] != os.fsencode(process.process):
        return False
    wanted = [os.fsencode(each) for each in process.parameters]
    found = words[1:]
    match process.match:
        case "exact":
            return found == wanted
        case "partial" if wanted:
            return found[: len(wanted)] == wanted
        case "initial" if wanted:
            count = len(wanted)
            return found[: count - 1] == wanted[:-1] and len(found) >= count and found[count - 1].startswith(wanted[-1])
        case "partial" | "initial":
            return not found  # keepalived: a match without parameters asks for a command without any
        case _:
            return True


def _read(path: Path) -> bytes:
    """Empty when the process is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 1 << 16)
    except OSError:  # ESRCH
        return b""
    finally:
        os.close(fd)
