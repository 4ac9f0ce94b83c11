"""For tests: BFD runners inside hosts, on the loop of the test."""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from lab import Host

from haxlb.bfd.packet import ControlPacket, State, decode
from haxlb.bfd.session import Session
from haxlb.daemon.messages import AskStatus, ConfigureTracker, Message, Ready, Tracked, TrackerStatus
from haxlb.linux.bfd_runner import BfdRunner
from haxlb.linux.pipe import Pipe
from haxlb.linux.timerfd import MonotonicClock
from haxlb.model.errors import HaxlbError
from haxlb.model.status import TrackedStatus
from haxlb.model.tracking import BfdSession, TrackResult
from tests.netns.standin import LIMIT_S, inside

T = TypeVar("T")


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 250))


async def until(look: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> None:
    """Let the loop run until that is so."""
    deadline = asyncio.get_running_loop().time() + limit_s
    while not look():
        assert asyncio.get_running_loop().time() < deadline, f"not within {limit_s:g} s: {what}"
        await asyncio.sleep(0.005)


class Director:
    """A BfdRunner whose sockets are in a host."""

    def __init__(self, host: Host, *sessions: BfdSession) -> None:
        self.host = host
        self.results: list[TrackResult] = []
        self.lines: list[tuple[str, dict[str, Any]]] = []
        self.changed_at: list[tuple[int, State, State]] = []
        self.runner = BfdRunner(MonotonicClock(), self.results.extend, self._log)
        self.problems = self.configure(*sessions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.vanish()

    def configure(self, *sessions: BfdSession) -> dict[str, HaxlbError]:
        with inside(self.host.namespace):
            return self.runner.configure(sessions)

    def vanish(self) -> None:
        """Die without a word."""
        self.runner._sockets.close()
        self.runner._watch()
        self.runner._table.configure({}, 0)
        self.runner._wake.wake_at(None)

    @property
    def sessions(self) -> list[Session]:
        table = self.runner._table
        return [table.session(each) for each in table.keys]

    @property
    def up(self) -> bool:
        return bool(self.sessions) and all(each.state is State.UP for each in self.sessions)

    def states(self) -> list[State]:
        """That the sessions have entered, in order."""
        return [after for _, _, after in self.changed_at]

    def reasons(self) -> list[str]:
        return [fields["reason"] for event, fields in self.lines if event == "bfd_session"]

    def _log(self, level: str, event: str, **fields: Any) -> None:
        self.lines.append((event, fields))
        if event == "bfd_session":
            self.changed_at.append((MonotonicClock().now(), fields["before"], fields["after"]))


@dataclass(frozen=True, slots=True)
class Overheard:
    source: str
    source_port: int
    port: int
    ttl: int
    packet: ControlPacket


class BfdEar:
    """All BFD packets that leave or reach `eth0` of a host, in the order of the wire; IPv4 without options."""

    def __init__(self, host: Host) -> None:
        with inside(host.namespace):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0003))
            self._socket.bind(("eth0", 0x0003))
        self._socket.settimeout(0.1)
        self.heard: list[Overheard] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()
        self._socket.close()

    def of(self, source: str, since: int = 0) -> list[Overheard]:
        return [each for each in self.heard[since:] if each.source == source]

    def _listen(self) -> None:
        while not self._closing.is_set():
            try:
                frame = self._socket.recv(2048)
            except OSError as problem:
                if problem.errno in (None, errno.EAGAIN, errno.ENETDOWN):
                    continue
                raise
            if len(frame) < 52 or frame[0] != 0x45 or frame[9] != socket.IPPROTO_UDP:
                continue
            port = int.from_bytes(frame[22:24])
            if port in (3784, 4784):
                self.heard.append(
                    Overheard(
                        socket.inet_ntoa(frame[12:16]),
                        int.from_bytes(frame[20:22]),
                        port,
                        frame[8],
                        decode(frame[28:]),
                    )
                )


class TrackerHandle:
    """A tracker process in a host, and the supervisor's end of its pipe, on the loop of the test."""

    def __init__(self, host: Host) -> None:
        ours, theirs = socket.socketpair()
        argv = (sys.executable, "-m", "haxlb.linux.tracker_main", "--fd", str(theirs.fileno()))
        self.process: subprocess.Popen[Any] = host.start(*argv, pass_fds=(theirs.fileno(),))
        theirs.close()
        self.messages: list[Message] = []
        self._pipe = Pipe(ours)
        self._taking = asyncio.create_task(self._take())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._taking.cancel()
        self._pipe.close()
        await asyncio.to_thread(self.process.wait, LIMIT_S)

    async def configure(self, orders: ConfigureTracker) -> str:
        """The problem, empty when there is none."""
        before = len(self.of(Ready))
        self._pipe.send(orders)
        await until(lambda: len(self.of(Ready)) > before, "Ready")
        return self.of(Ready)[-1].problem

    async def status(self) -> tuple[TrackedStatus, ...]:
        before = len(self.of(TrackerStatus))
        self._pipe.send(AskStatus(ticket=7))
        await until(lambda: len(self.of(TrackerStatus)) > before, "a status")
        return self.of(TrackerStatus)[-1].tracked

    def of(self, kind: type[T]) -> list[T]:
        return [each for each in self.messages if isinstance(each, kind)]

    def values(self, name: str) -> list[int | None]:
        """That were told, in order."""
        return [each.value for told in self.of(Tracked) for each in told.results if each.name == name]

    async def _take(self) -> None:
        async for message in self._pipe:
            self.messages.append(message)


def names(results: Iterable[TrackResult]) -> list[tuple[str, int | None]]:
    return [(each.name, each.value) for each in results]
