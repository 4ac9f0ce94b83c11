"""TrackProcessPort: how many of the tracked processes are running.

The kernel's process events tell at once; where there are none (in a network namespace, in a container), /proc is read
each second. What either costs: docs/reference/tracking.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from haxlb.linux.log import Log
from haxlb.linux.proc_connector import Change, ProcConnector
from haxlb.linux.process_table import ProcessTable
from haxlb.model.errors import HostError
from haxlb.model.tracking import TrackProcess

SCAN_EVERY_S = 1.0
"""Without events."""
RESCAN_EVERY_S = 60.0
"""With events: whatever they have not told (a fork whose parent is given as another one) does not stay for good."""


class TrackProcesses:
    """All tracked processes of a node."""

    def __init__(
        self,
        on_count: Callable[[str, int], None],
        log: Log,
        *,
        connect: Callable[[], ProcConnector] = ProcConnector,
        scan_every_s: float = SCAN_EVERY_S,
    ) -> None:
        """`on_count` hears the name of the definition and the number."""
        self._on_count = on_count
        self._log = log
        self._connect = connect
        self._scan_every_s = scan_every_s
        self._loop = asyncio.get_running_loop()
        self._connector: ProcConnector | None = None
        self._table = ProcessTable(())
        self._told: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._sweep: Iterator[None] = iter(())
        self._step: asyncio.Handle | None = None
        self._once_more = False
        """Events were lost during the sweep that is under way."""

    def watch(self, processes: Iterable[TrackProcess]) -> None:
        """Count exactly these; each is reported soon."""
        wanted = tuple(processes)
        self._told = {}
        self._cancel()
        self._table = ProcessTable(wanted)
        if not wanted:
            self.close()
            return
        if self._connector is None:
            self._listen()
        self._scan()

    def close(self) -> None:
        """Count nothing any more."""
        self._cancel()
        if self._connector is not None:
            self._loop.remove_reader(self._connector.fileno())
            self._connector.close()
            self._connector = None

    def _listen(self) -> None:
        try:
            self._connector = self._connect()
        except HostError as problem:
            self._log("info", "processes_polled", reason=problem.message, every_s=self._scan_every_s)
            return
        self._loop.add_reader(self._connector.fileno(), self._readable)

    def _scan(self) -> None:
        pause = self._scan_every_s if self._connector is None else RESCAN_EVERY_S
        self._timer = self._loop.call_later(pause, self._scan)
        self._begin()

    def _begin(self) -> None:
        """Look at all processes, a few at each turn of the loop."""
        self._once_more = False
        self._sweep = self._table.sweep()
        if self._step is not None:
            self._step.cancel()
        self._step = self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        for _ in self._sweep:
            self._step = self._loop.call_soon(self._go_on)
            return
        self._step = None
        self._tell()
        if self._once_more:
            self._begin()

    def _cancel(self) -> None:
        for handle in (self._timer, self._step):
            if handle is not None:
                handle.cancel()
        self._timer = self._step = None

    def _readable(self) -> None:
        assert self._connector is not None
        try:
            for event in self._connector.read():
                if event.change is Change.EXIT:
                    self._table.forget(event.pid)
                elif event.change is Change.FORK:
                    self._table.inherit(event.parent, event.pid)
                else:
                    self._table.examine(event.pid)
        except BufferError:
            # A sweep that each loss began anew would never end on a host that starts processes all the time.
            if self._step is None:
                self._begin()
            else:
                self._once_more = True
        if self._told:
            self._tell()

    def _tell(self) -> None:
        for name, count in self._table.counts().items():
            if self._told.get(name) != count:
                self._told[name] = count
                self._on_count(name, count)
