import contextlib
import io
import selectors
import socket
import time
from collections.abc import Callable, Iterator

import pytest
from demo.load import Connection, KeptConnection, Load, Loop, answer_of
from demo.records import KEPT, NEW, Break, Request, decode

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nweb1\n"


class Server:
    """A listener in the same loop; `script` says what becomes of the n-th request of the n-th connection."""

    def __init__(self, loop: Loop, script: Callable[[int, int], bytes | None]) -> None:
        self._loop = loop
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setblocking(False)
        self.target = self._listener.getsockname()
        self.sockets = [self._listener]
        loop.selector.register(self._listener, selectors.EVENT_READ, self._accept)

    def _accept(self) -> None:
        peer, _ = self._listener.accept()
        peer.setblocking(False)
        self.sockets.append(peer)
        number, requests = len(self.sockets) - 1, iter(range(1, 1_000_000))

        def readable() -> None:
            data = b""
            with contextlib.suppress(ConnectionResetError):
                data = peer.recv(4096)
            answer = self._script(number, next(requests)) if data else None
            if answer is None:
                self._loop.selector.unregister(peer)
                peer.close()
            else:
                peer.send(answer)

        self._loop.selector.register(peer, selectors.EVENT_READ, readable)


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    for key in list(loop.selector.get_map().values()):
        key.fileobj.close()
    loop.selector.close()


def run_until(loop: Loop, fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not fact():
        assert time.monotonic() < deadline
        loop.turn()


PATIENCE_US = 60_000_000


def ask_once(loop: Loop, target: tuple[str, int], timeout_us: int = PATIENCE_US) -> list:
    ends: list = []
    connection = Connection(loop, target, b"GET / HTTP/1.1\r\n\r\n", ends.append)
    connection.open(timeout_us)
    run_until(loop, lambda: bool(ends))
    connection.close()
    return ends


@pytest.mark.parametrize("cut", range(len(ANSWER)))
def test_an_answer_counts_when_it_is_whole(cut):
    assert answer_of(ANSWER[:cut]) is None


def test_a_whole_answer():
    assert answer_of(ANSWER) == (200, b"web1\n")


@pytest.mark.parametrize("junk", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 2oo OK\r\n\r\n", b"x" * 70_000])
def test_what_is_not_http_is_an_error(junk):
    with pytest.raises(ValueError):
        answer_of(junk)


@pytest.mark.parametrize(
    ("answer", "outcome", "server"),
    [
        (ANSWER, "ok", "web1"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", "http-503", ""),
        (None, "closed", ""),
        (b"junk\r\n\r\n", "malformed", ""),
    ],
)
def test_outcome_of_one_request(loop, answer, outcome, server):
    (end,) = ask_once(loop, Server(loop, lambda *_: answer).target)
    assert (end.outcome, end.server, end.idle) == (outcome, server, False)


def test_refused(loop):
    # Bound, so that nobody else gets the port meanwhile, but not listening.
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        (end,) = ask_once(loop, nobody.getsockname())
    assert end.outcome == "refused"


def test_no_answer_in_time(loop):
    (end,) = ask_once(loop, Server(loop, lambda *_: b"").target, timeout_us=10_000)
    assert end.outcome == "timeout"


def keep(loop: Loop, target: tuple[str, int], records: list[Request | Break], pace_us: int = 100_000) -> None:
    """Open a long-lived connection there."""
    request = b"GET / HTTP/1.1\r\n\r\n"
    KeptConnection(loop, target, request, records.append, pace_us=pace_us, patience_us=PATIENCE_US).open()


def test_a_lost_long_lived_connection_is_one_break_and_is_opened_again(loop):
    server = Server(loop, lambda connection, request: None if (connection, request) == (1, 2) else ANSWER)
    records: list[Request | Break] = []
    keep(loop, server.target, records)
    run_until(loop, lambda: len(records) >= 4)
    kinds = [each.outcome if isinstance(each, Request) else f"break: {each.outcome}" for each in records]
    assert kinds == ["ok", "closed", "break: closed", "ok"]
    assert records[1].started_us == records[2].started_us
    assert len(server.sockets) == 3


def test_a_long_lived_connection_lost_while_idle_fails_no_request(loop):
    server = Server(loop, lambda *_: ANSWER)
    records: list[Request | Break] = []
    # With a next request that is far away.
    keep(loop, server.target, records, pace_us=PATIENCE_US)
    run_until(loop, lambda: len(records) == 1)
    loop.selector.unregister(server.sockets[1])
    server.sockets[1].close()
    run_until(loop, lambda: len(records) == 3)
    assert [type(each) for each in records] == [Request, Break, Request]
    assert {each.outcome for each in records if isinstance(each, Request)} == {"ok"}


def test_a_connection_that_never_answered_does_not_count_as_broken(loop):
    records: list[Request | Break] = []
    keep(loop, Server(loop, lambda *_: None).target, records)
    run_until(loop, lambda: len(records) == 2)
    assert [(type(each), each.outcome) for each in records] == [(Request, "closed")] * 2


def test_load_writes_both_kinds_and_ends_when_nothing_is_under_way(loop):
    journal = io.StringIO()
    load = Load(loop, Server(loop, lambda *_: ANSWER).target, journal, patience_us=PATIENCE_US)
    load.start()

    def kinds() -> set[str]:
        return {each.kind for each in decode(journal.getvalue().splitlines(keepends=True)).requests}

    run_until(loop, lambda: journal.getvalue().count("\n") >= 60 and kinds() == {NEW, KEPT})
    load.stop()
    run_until(loop, lambda: load.done)
    seen = decode(journal.getvalue().splitlines(keepends=True))
    assert {each.kind for each in seen.requests} == {NEW, KEPT}
    assert {(each.outcome, each.server) for each in seen.requests} == {("ok", "web1")}
    assert seen.breaks == ()
