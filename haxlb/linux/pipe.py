"""The pipe between the supervisor and a child: messages both ways over a UNIX stream socket pair, never blocking."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable

from haxlb.daemon.messages import (
    AskStatus,
    CheckerStatus,
    Happened,
    Logged,
    Message,
    Notify,
    SpeakerStatus,
    TrackerStatus,
    decode,
    encode,
)
from haxlb.daemon.notifications import STATES
from haxlb.model.errors import PeerError

QUEUE_LIMIT = 1024
"""Messages waiting to be written before the oldest expendable one is dropped."""
READ_AHEAD = 4096
"""Lines waiting to be taken before reading pauses: then the other end's queue fills, and drops."""
CHUNK = 1 << 18

# What may be lost when the other end does not read: reports, and questions that somebody waits for only so long.
# Orders and their answers (Configure…, HandOver, Stop, Ready) are never dropped; they are few. Nor is what an operator
# must be told of a state; that a lower advert was heard may be told a hundred times a second.
_EXPENDABLE = (Logged, Happened, AskStatus, SpeakerStatus, CheckerStatus, TrackerStatus)


class Pipe:
    """One end of the pipe, on the running loop; `async for message in pipe` ends when the other end is gone.

    `send` hands over what the kernel takes at once and queues the rest: a stuck supervisor must not be able to
    stall the speaker, nor a stuck child the supervisor.
    """

    def __init__(
        self,
        end: socket.socket | int,
        *,
        on_malformed: Callable[[PeerError], None] | None = None,
        on_unheard: Callable[[str], None] | None = None,
    ) -> None:
        """`on_unheard` gets what would have been logged as a warning or worse, when the other end is gone."""
        self._socket = end if isinstance(end, socket.socket) else socket.socket(fileno=end)
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._on_malformed = on_malformed
        self._on_unheard = on_unheard
        self._incoming: deque[bytes] = deque()
        self._partial = bytearray()
        self._outgoing: deque[tuple[bytes, bool]] = deque()
        self._arrived = asyncio.Event()
        self._emptied = asyncio.Event()
        self._emptied.set()
        self._reading = False
        self._writing = False
        self._writable = True
        self.eof = False
        """The other end is gone; what it sent before is still to be taken."""
        self.dropped = 0
        """Expendable messages lost because the other end did not read."""
        self.malformed = 0
        """Lines that were no message; each was given to `on_malformed`."""
        self._resume_reading()

    def send(self, message: Message) -> None:
        """Write now or queue. Never blocks and never raises; after the other end is gone it does nothing."""
        if not self._writable:
            return
        if len(self._outgoing) >= QUEUE_LIMIT:
            self._make_room()
        self._outgoing.append((encode(message), _is_expendable(message)))
        if not self._writing:
            self._flush()

    def log(self, level: str, event: str, **fields: object) -> None:
        """Send a line for the supervisor's log."""
        if self.eof and self._on_unheard is not None and level in ("warning", "error"):
            said = " ".join((level, event, *(f"{name}={str(value)!r}" for name, value in fields.items())))
            self._on_unheard(f"haxlb: {said}\n")
        self.send(Logged(level=level, event=event, fields={name: str(value) for name, value in fields.items()}))

    async def drained(self, timeout_s: float) -> bool:
        """Wait until everything queued has been written, at most `timeout_s`; whether it has."""
        try:
            await asyncio.wait_for(self._emptied.wait(), timeout_s)
        except TimeoutError:
            return False
        return self._writable

    def close(self) -> None:
        """Close this end; the iteration ends, what is still queued is lost."""
        self._end_of_input()
        self._end_of_output()
        self._socket.close()

    def __aiter__(self) -> Pipe:
        return self

    async def __anext__(self) -> Message:
        while True:
            while not self._incoming:
                if self.eof:
                    raise StopAsyncIteration
                self._arrived.clear()
                await self._arrived.wait()
            line = self._incoming.popleft()
            if not self._reading and not self.eof and len(self._incoming) < READ_AHEAD:
                self._resume_reading()
            try:
                return decode(line)
            except PeerError as problem:
                self.malformed += 1
                if self._on_malformed:
                    self._on_malformed(problem)

    def _resume_reading(self) -> None:
        self._loop.add_reader(self._socket.fileno(), self._readable)
        self._reading = True

    def _readable(self) -> None:
        try:
            chunk = self._socket.recv(CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # ECONNRESET: the other end died with our messages unread
            chunk = b""
        if not chunk:
            self._end_of_input()
            return
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = bytes(self._partial) + lines[0]
            self._partial.clear()
            self._incoming.extend(lines)
            self._arrived.set()
        self._partial += rest
        if len(self._incoming) >= READ_AHEAD:
            self._loop.remove_reader(self._socket.fileno())
            self._reading = False

    def _end_of_input(self) -> None:
        if self._reading:
            self._loop.remove_reader(self._socket.fileno())
            self._reading = False
        self.eof = True
        self._arrived.set()

    def _make_room(self) -> None:
        # The first entry may be half written: it must be completed.
        for index in range(1, len(self._outgoing)):
            if self._outgoing[index][1]:
                del self._outgoing[index]
                self.dropped += 1
                return

    def _flush(self) -> None:
        while self._outgoing:
            line, expendable = self._outgoing[0]
            try:
                written = self._socket.send(line)
            except (BlockingIOError, InterruptedError):
                written = 0
            except OSError:  # EPIPE, ECONNRESET
                self._end_of_output()
                return
            if written < len(line):
                self._outgoing[0] = (line[written:], expendable)
                if not self._writing:
                    self._loop.add_writer(self._socket.fileno(), self._flush)
                    self._writing = True
                    self._emptied.clear()
                return
            self._outgoing.popleft()
        self._stop_writing()

    def _stop_writing(self) -> None:
        if self._writing:
            self._loop.remove_writer(self._socket.fileno())
            self._writing = False
        self._emptied.set()

    def _end_of_output(self) -> None:
        self._writable = False
        self._outgoing.clear()
        self._stop_writing()


def _is_expendable(message: Message) -> bool:
    if isinstance(message, Notify):
        return message.due.state not in STATES
    return isinstance(message, _EXPENDABLE)
