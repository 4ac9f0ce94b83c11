"""The demo's client: continuous HTTP load on one address, every request written down.

Two kinds of traffic: a new connection for each request at a fixed pace, whatever became of the earlier ones; and
long-lived connections that send a request every 100 ms. One thread, non-blocking sockets, standard library only:
the two cores that it runs on are also the directors' and the servers'.

`python -m demo.load ADDRESS PORT JOURNAL PATIENCE_US` runs until SIGTERM, then waits for what is under way. The
patience is how much longer than on a machine with nothing else to do an answer may take.
"""

from __future__ import annotations

import errno
import gc
import heapq
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from demo.records import KEPT, NEW, OK, Break, Request, encode

PACE_US = 5_000
NEW_TIMEOUT_US = 1_000_000
KEPT_CONNECTIONS = 20
KEPT_PACE_US = 100_000
KEPT_TIMEOUT_US = 10_000_000
"""Longer than any fail-over and the retransmission that follows it: a user's connection counts as broken when it is
reset or stays dead, not while TCP is still repairing it."""
FLUSH_US = 100_000
LATEST_BODY = 65_536

REASONS = {
    errno.ECONNREFUSED: "refused",
    errno.ECONNRESET: "reset",
    errno.EPIPE: "reset",
    errno.ETIMEDOUT: "timeout",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
}


def now_us() -> int:
    """Monotonic time, the same clock in every process of the host."""
    return time.monotonic_ns() // 1000


def reason_of(number: int) -> str:
    """Name of a socket error in the journal."""
    return REASONS.get(number) or errno.errorcode.get(number, str(number)).lower()


def answer_of(buffer: bytes) -> tuple[int, bytes] | None:
    """Status code and body once the answer is whole, None before. Raises ValueError for what is not HTTP."""
    head, end, rest = buffer.partition(b"\r\n\r\n")
    if not end:
        if len(buffer) > LATEST_BODY:
            raise ValueError("no end of the header")
        return None
    status_line, *lines = head.split(b"\r\n")
    version, code, *_ = [*status_line.split(b" ", 2), b""]
    if not version.startswith(b"HTTP/1.") or not code.isdigit():
        raise ValueError(f"not a status line: {status_line[:40]!r}")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
    length = int(headers[b"content-length"]) if b"content-length" in headers else 0
    return (int(code), rest[:length]) if len(rest) >= length else None


class Loop:
    """Sockets and timers."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0

    def at(self, when_us: int, call: Callable[[], None]) -> None:
        """Call once at this time or as soon as possible after it; a call that came too late checks that itself."""
        self._sequence += 1
        heapq.heappush(self._timers, (when_us, self._sequence, call))

    def turn(self) -> None:
        """Wait for the next event or timer, and handle what is due."""
        pause = max(0, self._timers[0][0] - now_us()) / 1e6 if self._timers else 1.0
        for key, _ in self.selector.select(min(pause, 1.0)):
            key.data()
        while self._timers and self._timers[0][0] <= now_us():
            heapq.heappop(self._timers)[2]()


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How a request ended, or (`idle`) that the connection was lost between two requests."""

    outcome: str
    started_us: int
    server: str = ""
    idle: bool = False


class Connection:
    """A TCP connection on which one request after the other is sent; says how each of them ended."""

    def __init__(self, loop: Loop, target: tuple[str, int], request: bytes, ended: Callable[[End], None]) -> None:
        self._loop = loop
        self._request = request
        self._ended = ended
        self._buffer = b""
        self._ticket = 0
        self.busy = False
        self.started_us = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._target = target

    def open(self, timeout_us: int) -> None:
        """Connect, and send the first request as soon as that is done."""
        self._begin(timeout_us)
        number = self._socket.connect_ex(self._target)
        if number not in {0, errno.EINPROGRESS}:
            self.fail(reason_of(number))
            return
        self._loop.selector.register(self._socket, selectors.EVENT_WRITE, self._connected)

    def send(self, timeout_us: int) -> None:
        """Send the next request on the open connection."""
        self._begin(timeout_us)
        self._write()

    def close(self) -> None:
        """Close without a word; nothing is reported any more."""
        self._ticket += 1
        self.busy = False
        if self._socket.fileno() >= 0:
            if self._socket.fileno() in self._loop.selector.get_map():
                self._loop.selector.unregister(self._socket)
            self._socket.close()

    def fail(self, outcome: str) -> None:
        """Close and report."""
        idle = not self.busy
        self.close()
        self._ended(End(outcome=outcome, started_us=now_us() if idle else self.started_us, idle=idle))

    def _begin(self, timeout_us: int) -> None:
        self.started_us = now_us()
        self.busy = True
        self._buffer = b""
        self._ticket += 1
        ticket = self._ticket

        def expired() -> None:
            if self._ticket == ticket:
                self.fail("timeout")

        self._loop.at(self.started_us + timeout_us, expired)

    def _connected(self) -> None:
        number = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self.fail(reason_of(number))
            return
        self._loop.selector.modify(self._socket, selectors.EVENT_READ, self._readable)
        self._write()

    def _write(self) -> None:
        try:
            # Some hundred bytes into an empty send buffer: taken whole or not at all.
            self._socket.send(self._request)
        except OSError as problem:
            self.fail(reason_of(problem.errno or 0))

    def _readable(self) -> None:
        try:
            data = self._socket.recv(LATEST_BODY)
        except BlockingIOError:
            return
        except OSError as problem:
            self.fail(reason_of(problem.errno or 0))
            return
        if not data:
            self.fail("closed")
            return
        self._buffer += data
        try:
            answer = answer_of(self._buffer)
        except ValueError:
            self.fail("malformed")
            return
        if answer is None:
            return
        self._ticket += 1
        self.busy = False
        status, body = answer
        outcome = OK if status == 200 else f"http-{status}"
        self._ended(End(outcome=outcome, started_us=self.started_us, server=body.decode("latin-1").strip()))


class Load:
    """Both kinds of traffic, until `stop`."""

    def __init__(self, loop: Loop, target: tuple[str, int], journal: TextIO, *, patience_us: int = 0) -> None:
        self._loop = loop
        self._target = target
        self._journal = journal
        self._patience_us = patience_us
        host = f"Host: {target[0]}\r\n".encode()
        self._new_request = b"GET / HTTP/1.1\r\n" + host + b"Connection: close\r\n\r\n"
        self._kept_request = b"GET / HTTP/1.1\r\n" + host + b"\r\n"
        self._under_way: set[Connection] = set()
        self._kept: list[KeptConnection] = []
        self._stopping = False

    def start(self) -> None:
        """Begin both kinds; the long-lived connections spread over their period."""
        start_us = now_us()
        self._loop.at(start_us, lambda: self._tick(start_us))
        for number in range(KEPT_CONNECTIONS):
            kept = KeptConnection(
                self._loop, self._target, self._kept_request, self.write, patience_us=self._patience_us
            )
            self._kept.append(kept)
            self._loop.at(start_us + number * KEPT_PACE_US // KEPT_CONNECTIONS, kept.open)
        self._flush()

    def stop(self) -> None:
        """Start nothing more."""
        self._stopping = True
        for kept in self._kept:
            kept.stop()

    @property
    def done(self) -> bool:
        """Stopped, and nothing is under way."""
        return self._stopping and not self._under_way and not any(kept.busy for kept in self._kept)

    def write(self, record: Request | Break) -> None:
        """Into the journal."""
        self._journal.write(encode(record))

    def _flush(self) -> None:
        self._journal.flush()
        self._loop.at(now_us() + FLUSH_US, self._flush)

    def _tick(self, due_us: int) -> None:
        if self._stopping:
            return
        self._visit()
        # A generator that was held up goes on from now: a burst would measure itself.
        next_us = max(due_us + PACE_US, now_us())
        self._loop.at(next_us, lambda: self._tick(next_us))

    def _visit(self) -> None:
        def ended(end: End) -> None:
            self._under_way.discard(connection)
            connection.close()
            self.write(request_of(NEW, end))

        connection = Connection(self._loop, self._target, self._new_request, ended)
        self._under_way.add(connection)
        connection.open(NEW_TIMEOUT_US + self._patience_us)


class KeptConnection:
    """One long-lived connection; when it is lost, that is written down and another one is opened."""

    def __init__(
        self,
        loop: Loop,
        target: tuple[str, int],
        request: bytes,
        write: Callable[[Request | Break], None],
        *,
        pace_us: int = KEPT_PACE_US,
        patience_us: int = 0,
    ) -> None:
        self._pace_us = pace_us
        self._patience_us = patience_us
        self._loop = loop
        self._target = target
        self._request = request
        self._write = write
        self._connection: Connection | None = None
        self._established = False
        self._stopping = False

    @property
    def busy(self) -> bool:
        """A request is under way."""
        return self._connection is not None and self._connection.busy

    def open(self) -> None:
        """Connect and send the first request."""
        if self._stopping:
            return
        self._established = False
        self._connection = Connection(self._loop, self._target, self._request, self._ended)
        self._connection.open(NEW_TIMEOUT_US + self._patience_us)

    def stop(self) -> None:
        """Send nothing more; what is under way may end."""
        self._stopping = True

    def _send(self, connection: Connection | None) -> None:
        # Between two requests the connection may have been lost and replaced.
        if connection is not None and connection is self._connection and not self._stopping:
            connection.send(KEPT_TIMEOUT_US + self._patience_us)

    def _ended(self, end: End) -> None:
        if not end.idle:
            self._write(request_of(KEPT, end))
        if end.outcome == OK:
            self._established = True
            connection = self._connection
            self._loop.at(end.started_us + self._pace_us, lambda: self._send(connection))
            return
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._established:
            self._write(Break(started_us=end.started_us, ended_us=now_us(), outcome=end.outcome))
        self._established = False
        self._loop.at(now_us() + (0 if end.idle else self._pace_us), self.open)


def request_of(kind: str, end: End) -> Request:
    """The journal's line for a request that has just ended."""
    return Request(kind=kind, started_us=end.started_us, ended_us=now_us(), outcome=end.outcome, server=end.server)


def main(arguments: list[str]) -> int:
    """Run until SIGTERM, then until nothing is under way."""
    address, port, path, patience_us = arguments
    # An instrument that shares two cores with what it measures must not be the last one served.
    os.setpriority(os.PRIO_PROCESS, 0, -10)
    gc.disable()
    with Path(path).open("w", encoding="ascii") as journal:
        loop = Loop()
        load = Load(loop, (address, int(port)), journal, patience_us=int(patience_us))
        signal.signal(signal.SIGTERM, lambda *_: load.stop())
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        load.start()
        while not load.done:
            loop.turn()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
