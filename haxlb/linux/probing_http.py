"""One HTTP request of HTTP_GET or SSL_GET and what its url's criteria need of the answer; h11 reads it."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import quote

import h11

from haxlb import __version__
from haxlb.health.judge import HttpAnswer, accepts, judge, needs_body
from haxlb.health.outcome import Outcome, failed
from haxlb.linux.probing_regex import search
from haxlb.linux.probing_stream import Stream
from haxlb.model.node import Check, HttpUrl

BODY_LIMIT = 1 << 20
"""Bytes of a body that a digest or regex is applied to; more fails the probe. Without either, reading ends here."""
HEAD_LIMIT = 16 * 1024
_SAMPLE = 32
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


async def fetch(stream: Stream, check: Check, url: HttpUrl, progress: Progress) -> Outcome:
    """Ask once and judge the answer. Redirects are answers like any other. Raises OSError."""
    connection = h11.Connection(our_role=h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)
    try:
        data = _request(connection, check, url)
    except h11.LocalProtocolError as problem:
        return failed(f"cannot ask for {url.path!r}: {problem}")
    progress.lacks = "answer"
    await stream.send(data)
    status, body = 0, _Body(keep=url.regex is not None)
    try:
        async for event in _events(connection, stream):
            if isinstance(event, h11.Response):
                status = event.status_code
                progress.lacks = "end of the answer"
                if not accepts(url, status):
                    return judge(url, HttpAnswer(status=status))
            elif isinstance(event, h11.Data):
                body.add(bytes(event.data))
                if body.size > BODY_LIMIT:
                    break
    except h11.RemoteProtocolError as problem:
        return failed(f"the answer breaks off: {problem}" if status else f"no HTTP answer: {problem}")
    if not status:
        return failed(_unfinished(connection.trailing_data[0]))
    if body.size > BODY_LIMIT and needs_body(url):
        return failed(f"body longer than {BODY_LIMIT >> 20} MiB")
    return judge(url, HttpAnswer(status=status, digest=body.digest, body=bytes(body.kept)), search)


def _request(connection: h11.Connection, check: Check, url: HttpUrl) -> bytes:
    """The bytes of the request. Raises h11.LocalProtocolError where the configuration's words cannot be sent."""
    host = url.virtualhost or check.virtualhost or f"{check.address}:{check.port}"
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
    data = (connection.send(head) or b"") + (connection.send(h11.EndOfMessage()) or b"")
    if check.http_protocol == "1.0":
        # As a client h11 speaks 1.1 only. It reads the answer of a 1.0 server all the same.
        data = data.replace(b" HTTP/1.1\r\n", b" HTTP/1.0\r\n", 1)
    return data


def _unfinished(received: bytes) -> str:
    if not received:
        return "closed without an answer"
    if received.startswith(b"HTTP/"):
        return "closed within the head of its answer"
    return f"no HTTP answer: begins with {received[:_SAMPLE].decode('latin-1')!r}"


async def _events(connection: h11.Connection, stream: Stream) -> AsyncIterator[h11.Event]:
    """What h11 finds in the answer, to its end. Raises OSError, h11.RemoteProtocolError."""
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            data = await stream.receive()
            if not data and connection.their_state is h11.SEND_RESPONSE:
                return  # h11 would name its states, not what has happened
            connection.receive_data(data)
        elif isinstance(event, h11.EndOfMessage | h11.ConnectionClosed) or event is h11.PAUSED:
            return
        else:
            assert not isinstance(event, type)
            yield event
