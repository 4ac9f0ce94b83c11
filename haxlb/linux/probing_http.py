"""One HTTP request of HTTP_GET or SSL_GET and what its url's criteria need of the answer; h11 reads it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote

import h11

from haxlb import __version__
from haxlb.health.judge import HttpAnswer, accepts, judge, needs_body
from haxlb.health.outcome import Outcome, failed
from haxlb.linux.probing_regex import search
from haxlb.linux.probing_stream import Stream
from haxlb.model.check import Check, HttpUrl

BODY_LIMIT = 1 << 20
"""Bytes of a body that a digest or regex is applied to; more fails the probe. Without either, reading ends here."""
HEAD_LIMIT = 16 * 1024
_SAMPLE = 32
_END = h11.EndOfMessage()
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))


@dataclass(slots=True)
class Progress:
    """How far a probe has come, for the reason when its time is up."""

    lacks: str = "connection"


class _Body:
    """A body as it comes in."""

    def __init__(self, *, keep: bool) -> None:
        self._keep = keep
        self._digest = hashlib.md5(usedforsecurity=False)
        self.size = 0
        self.kept = bytearray()

    def add(self, data: bytes) -> None:
        """The next piece; kept only where a regex wants it."""
        self.size += len(data)
        self._digest.update(data)
        if self._keep:
            self.kept += data

    @property
    def digest(self) -> str:
        """md5, hexadecimal."""
        return self._digest.hexdigest()


class _Answer:
    """What h11 has found of an answer so far."""

    def __init__(self, connection: h11.Connection, url: HttpUrl, progress: Progress) -> None:
        self._connection = connection
        self._url = url
        self._progress = progress
        self.status = 0
        self.body = _Body(keep=url.regex is not None)

    def complete(self) -> bool:
        """Whether what has come is all that is needed, or all that there will be. Raises h11.RemoteProtocolError."""
        while True:
            event = self._connection.next_event()
            if event is h11.NEED_DATA:
                return False
            if isinstance(event, h11.Response):
                self.status = event.status_code
                self._progress.lacks = "end of the answer"
                if not accepts(self._url, self.status):
                    return True
            elif isinstance(event, h11.Data):
                self.body.add(bytes(event.data))
                if self.body.size > BODY_LIMIT:
                    return True
            elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed) or event is h11.PAUSED:
                return True


async def fetch(stream: Stream, check: Check, url: HttpUrl, progress: Progress) -> Outcome:
    """Ask once and judge the answer. Redirects are answers like any other. Raises OSError."""
    connection = h11.Connection(our_role=h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)
    try:
        head, data = _request(check, url)
    except h11.LocalProtocolError as problem:
        return failed(f"cannot ask for {url.path!r}: {problem}")
    connection.send(head)
    connection.send(_END)
    progress.lacks = "answer"
    await stream.send(data)
    answer = _Answer(connection, url, progress)
    try:
        while not answer.complete():
            data = await stream.receive()
            if not data and connection.their_state is h11.SEND_RESPONSE:
                break  # h11 would name its states, not what has happened
            connection.receive_data(data)
    except h11.RemoteProtocolError as problem:
        return failed(f"the answer breaks off: {problem}" if answer.status else f"no HTTP answer: {problem}")
    if not answer.status:
        return failed(_unfinished(connection.trailing_data[0]))
    if answer.body.size > BODY_LIMIT and needs_body(url):
        return failed(f"body longer than {BODY_LIMIT >> 20} MiB")
    body = answer.body
    return judge(url, HttpAnswer(status=answer.status, digest=body.digest, body=bytes(body.kept)), search)


@lru_cache(maxsize=1 << 12)
def _request(check: Check, url: HttpUrl) -> tuple[h11.Request, bytes]:
    """The request, and its bytes. Raises h11.LocalProtocolError where the configuration's words cannot be sent."""
    host = url.virtualhost or check.virtualhost or check.target
    head = h11.Request(
        method="GET",
        # Spaces and letters beyond ASCII cannot stand in a request line; everything else is sent as it is written.
        target=quote(url.path, safe=_PRINTABLE) or "/",
        headers=[
            (b"Host", host.encode()),
            (b"User-Agent", f"haxlb/{__version__}".encode()),
            (b"Accept", b"*/*"),
            (b"Connection", b"close"),
        ],
    )
    connection = h11.Connection(our_role=h11.CLIENT)
    data = (connection.send(head) or b"") + (connection.send(_END) or b"")
    if check.http_protocol == "1.0":
        # As a client h11 speaks 1.1 only. It reads the answer of a 1.0 server all the same.
        data = data.replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1)
    return head, data


def _unfinished(received: bytes) -> str:
    if not received:
        return "closed without an answer"
    if received.startswith(b"HTTP/"):
        return "closed within the head of its answer"
    return f"no HTTP answer: begins with {received[:_SAMPLE].decode('latin-1')!r}"
