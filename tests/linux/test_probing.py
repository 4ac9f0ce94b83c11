"""Probes against real sockets on the loopback: what a server does, and the outcome in words."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import hashlib
import os
import random
import re
import resource
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import replace
from functools import partial
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haxlb.health.outcome import Finding, Outcome, failed, passed
from haxlb.health.timetable import StartProbe
from haxlb.linux.probing import Prober
from haxlb.linux.probing_http import BODY_LIMIT, Progress, fetch
from haxlb.model.check import Check, CheckKind, HttpUrl
from tests.linux.loop_clock import put_forward, run_unhurried

LOOPBACK = IPv4Address("127.0.0.1")
BODY = b"<html>it works</html>"
MD5 = hashlib.md5(BODY).hexdigest()

Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def run(test: Coroutine[Any, Any, None], *, unhurried: bool = False) -> None:
    """`unhurried`: limits are reached where nothing more comes, and not where this process gets no CPU."""
    (run_unhurried if unhurried else asyncio.run)(asyncio.wait_for(test, 90))


class Server:
    """A server that treats each connection as `behave` does, and keeps the requests."""

    def __init__(self, behave: Behaviour, context: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self.host = host
        self.behave = behave
        self.context = context
        self.requests: list[bytes] = []
        self.sources: list[tuple[str, int]] = []
        self.port = 0
        self._serving: list[asyncio.Task[Any]] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, self.host, 0, ssl=self.context)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await asyncio.gather(*self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.sources.append(writer.get_extra_info("peername"))
        task = asyncio.current_task()
        assert task is not None
        self._serving.append(task)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await self.behave(reader, writer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def request(self, reader: asyncio.StreamReader) -> bytes:
        request = await reader.readuntil(b"\r\n\r\n")
        self.requests.append(request)
        return request


def answering(*parts: bytes, hang: bool = False) -> Behaviour:
    """Read the request, write the parts, then close or hang."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for part in parts:
            writer.write(part)
            await writer.drain()
        if hang:
            await reader.read()

    return behave


def response(status: str = "200 OK", body: bytes = BODY, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - the condition belongs to code that knows no event
        await asyncio.sleep(0.001)


def http(server: Server | int, *urls: HttpUrl, kind: CheckKind = CheckKind.HTTP, **changes: Any) -> Check:
    port = server if isinstance(server, int) else server.port
    values: dict[str, Any] = {
        "kind": kind,
        "address": LOOPBACK,
        "port": port,
        "urls": urls or (HttpUrl(path="/"),),
        "connect_timeout_us": 20_000_000,
    }
    return Check(**(values | changes))


def tcp(port: int, **changes: Any) -> Check:
    return http(port, kind=CheckKind.TCP, **({"urls": ()} | changes))


async def probe(check: Check) -> Outcome:
    found: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    prober = Prober(lambda results: found.set_result(results[0][1]))
    prober.start(StartProbe(ticket=1, check=check, deadline_us=0))
    try:
        return await found
    finally:
        prober.close()


def outcome_of(behave: Behaviour, *urls: HttpUrl, unhurried: bool = False, **changes: Any) -> Outcome:
    found: list[Outcome] = []

    async def test() -> None:
        async with Server(behave) as server:
            found.append(await probe(http(server, *urls, **changes)))

    run(test(), unhurried=unhurried)
    return found[0]


@contextlib.contextmanager
def refusing_port() -> Iterator[int]:
    """A port that was given to us and where nobody listens."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    """A port whose queue of connections is full: SYNs are not answered."""
    with socket.socket() as listener, contextlib.ExitStack() as stack:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


# TCP_CHECK


def test_tcp_passes_when_the_connection_is_accepted_and_ends_it_with_a_fin() -> None:
    read: list[bytes] = []

    async def behave(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        read.append(await reader.read())  # a RST would raise

    async def test() -> None:
        async with Server(behave) as server:
            assert await probe(tcp(server.port)) == passed("connected")
            await until(lambda: read)

    run(test())
    assert read == [b""]


def test_tcp_refused_and_silent() -> None:
    async def test() -> None:
        with refusing_port() as port:
            assert await probe(tcp(port)) == failed("connection refused")
        with silent_port() as port:
            begun = time.monotonic()
            assert await probe(tcp(port, connect_timeout_us=250_000)) == failed("no connection in 0.25 s")
            assert time.monotonic() - begun >= 0.25

    run(test())


def test_a_probe_comes_from_its_bind_address_and_port_again_and_again() -> None:
    async def test() -> None:
        async with Server(answering(response())) as server:
            with refusing_port() as free:
                pass
            check = http(server, bind_address=IPv4Address("127.0.0.5"), bind_port=free)
            for _ in range(3):
                assert await probe(check) == passed("HTTP 200")
            assert server.sources == [("127.0.0.5", free)] * 3
            only_address = http(server, bind_address=IPv4Address("127.0.0.6"))
            assert await probe(only_address) == passed("HTTP 200")
            assert server.sources[-1][0] == "127.0.0.6"

    run(test())


def test_probes_of_ipv6() -> None:
    loopback = IPv6Address("::1")

    async def test() -> None:
        host: list[bytes] = []

        async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            host.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(response())

        async with Server(behave, host="::1") as server:
            assert await probe(tcp(server.port, address=loopback)) == passed("connected")
            check = http(server, address=loopback, bind_address=loopback)
            assert await probe(check) == passed("HTTP 200")
            assert f"Host: [::1]:{server.port}\r\n".encode() in host[-1]
            assert server.sources[-1][0] == "::1"
            with refusing_port() as free:
                pass
            again = replace(check, bind_port=free)
            for _ in range(2):
                assert await probe(again) == passed("HTTP 200")
            assert server.sources[-1][1] == free
            other = replace(check, bind_address=IPv6Address("2001:db8::7"))
            assert await probe(other) == failed("cannot bind to [2001:db8::7]:0: Cannot assign requested address")
        assert await probe(tcp(server.port, address=loopback)) == failed("connection refused")

    run(test())


def test_a_bind_address_of_another_host_is_named() -> None:
    async def test() -> None:
        outcome = await probe(tcp(1, bind_address=IPv4Address("192.0.2.7")))
        assert outcome == failed("cannot bind to 192.0.2.7:0: Cannot assign requested address")

    run(test())


def test_out_of_file_descriptors_says_nothing_of_the_server() -> None:
    async def test() -> None:
        async with Server(answering(response())) as server:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            found: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
            prober = Prober(lambda results: found.set_result(results[0][1]))
            with contextlib.ExitStack() as stack:
                stack.callback(prober.close)
                stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
                gc.collect()  # what other tests have left would make room later
                lowest_free = os.dup(0)
                os.close(lowest_free)
                resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
                prober.start(StartProbe(ticket=1, check=http(server), deadline_us=0))
                outcome = await found
        assert outcome == Outcome(
            finding=Finding.INCONCLUSIVE, reason=f"this host cannot probe: {os.strerror(errno.EMFILE).lower()}"
        )

    run(test())


# What HTTP_GET asks


def test_the_request_of_each_protocol_version() -> None:
    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.request(reader)
        writer.write(response())

    server = Server(behave)

    async def test() -> None:
        async with server:
            assert await probe(http(server, HttpUrl(path="/health?a=b&c"))) == passed("HTTP 200")
            check = http(server, HttpUrl(path="/x"), http_protocol="1.1", virtualhost="www.example.org")
            assert await probe(check) == passed("HTTP 200")
            check = http(server, HttpUrl(path="/ä b", virtualhost="url.example.org"), virtualhost="www.example.org")
            assert await probe(check) == passed("HTTP 200")

    run(test())
    first, second, third = (each.decode().split("\r\n") for each in server.requests)
    assert first[0] == "GET /health?a=b&c HTTP/1.0"
    assert f"Host: 127.0.0.1:{server.port}" in first
    assert "Connection: close" in first
    assert any(re.fullmatch(r"User-Agent: haxlb/[0-9.a-z]+", line) for line in first)
    assert second[0] == "GET /x HTTP/1.1"
    assert "Host: www.example.org" in second
    assert third[0] == "GET /%C3%A4%20b HTTP/1.0"
    assert "Host: url.example.org" in third


def test_words_of_the_configuration_that_cannot_be_sent() -> None:
    outcome = outcome_of(answering(response()), HttpUrl(path="/", virtualhost="a\r\nb"))
    assert outcome.finding is Finding.FAILED
    assert outcome.reason.startswith("cannot ask for '/': ")


def test_several_urls_are_asked_in_order_on_connections_of_their_own_until_one_fails() -> None:
    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await server.request(reader)
        writer.write(response("503 Down") if b"/second" in request else response())

    server = Server(behave)

    async def test() -> None:
        async with server:
            urls = [HttpUrl(path="/first"), HttpUrl(path="/second"), HttpUrl(path="/third")]
            assert await probe(http(server, *urls)) == failed("HTTP 503, wanted 200-299 (/second)")
            assert [each.split()[1] for each in server.requests] == [b"/first", b"/second"]
            server.requests.clear()
            assert await probe(http(server, urls[0], urls[2])) == passed("HTTP 200 (/third)")
            assert [each.split()[1] for each in server.requests] == [b"/first", b"/third"]
            assert len(server.sources) == 4

    run(test())


# What HTTP_GET is answered


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n<html\r\n10\r\n>it works</html>\r\n0\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.0 200 OK\r\n\r\n" + BODY
HALF_A_HEAD = b"HTTP/1.1 200 OK\r\nContent-"
MD5_OF_X = hashlib.md5(b"x").hexdigest()
MATCHED = passed("HTTP 200, body matches")
ANSWERS: list[tuple[str, Behaviour, dict[str, Any], Outcome]] = [
    ("plain", answering(response()), {}, passed("HTTP 200")),
    ("digest", answering(response()), {"digest": MD5}, passed("HTTP 200")),
    ("digest of a body until close", answering(UNTIL_CLOSE), {"digest": MD5}, passed("HTTP 200")),
    ("digest of chunks", answering(CHUNKED), {"digest": MD5}, passed("HTTP 200")),
    ("byte by byte", answering(*(bytes([each]) for each in response())), {"digest": MD5}, passed("HTTP 200")),
    ("wrong digest", answering(response(body=b"x")), {"digest": MD5}, failed(f"digest {MD5_OF_X} differs from {MD5}")),
    ("regex over pieces", answering(response()[:-8], response()[-8:]), {"regex": "works</html>$"}, MATCHED),
    ("no match", answering(response()), {"regex": "maintenance"}, failed("body does not match 'maintenance'")),
    ("redirect", answering(response("302 Found", b"", "Location: /other")), {}, failed("HTTP 302, wanted 200-299")),
    ("redirect wanted", answering(response("302 Found", b"")), {"status_codes": ((302, 302),)}, passed("HTTP 302")),
    ("bad status, no end", answering(b"HTTP/1.1 500 Oops\r\n\r\n", hang=True), {}, failed("HTTP 500, wanted 200-299")),
    ("informational first", answering(b"HTTP/1.1 103 Early Hints\r\n\r\n", response()), {}, passed("HTTP 200")),
    ("more than announced", answering(response() + b"surplus"), {"digest": MD5}, passed("HTTP 200")),
    ("immediate close", answering(), {}, failed("closed without an answer")),
    ("half a head, then close", answering(HALF_A_HEAD), {}, failed("closed within the head of its answer")),
    ("half a head, then silence", answering(HALF_A_HEAD, hang=True), {}, failed("no answer in 1 s")),
    ("silence", answering(hang=True), {}, failed("no answer in 1 s")),
    ("no end", answering(response()[:-1], hang=True), {}, failed("no end of the answer in 1 s")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("behave", "criteria", "expected"), [each[1:] for each in ANSWERS], ids=[a[0] for a in ANSWERS]
)
def test_answers(behave: Behaviour, criteria: dict[str, Any], expected: Outcome) -> None:
    silent = " in 1 s" in expected.reason
    limit = 1_000_000 if silent else 60_000_000
    outcome = outcome_of(behave, HttpUrl(path="/", **criteria), unhurried=silent, connect_timeout_us=limit)
    assert outcome == expected


BROKEN = [
    ("garbage", answering(random.Random(1).randbytes(300).replace(b"H", b"h")), "no HTTP answer: "),
    ("another protocol", answering(b"220 mail.example.org ESMTP\r\n"), "no HTTP answer: "),
    ("a head without end", answering(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, hang=True), "no HTTP answer: "),
    ("less than announced", answering(response()[:-3]), "the answer breaks off: "),
    (
        "bad chunks",
        answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        "the answer breaks off: ",
    ),
]


@pytest.mark.parametrize(("behave", "begins"), [each[1:] for each in BROKEN], ids=[each[0] for each in BROKEN])
def test_broken_answers_fail_with_what_is_wrong(behave: Behaviour, begins: str) -> None:
    outcome = outcome_of(behave, HttpUrl(path="/", digest=MD5))
    assert outcome.finding is Finding.FAILED
    assert outcome.reason.startswith(begins)
    assert len(outcome.reason) > len(begins)


class Said:
    """A stream that says what it was given, then ends."""

    def __init__(self, chunks: list[bytes]) -> None:
        self.chunks = [each for each in chunks if each]

    async def send(self, data: bytes) -> None:
        assert data.endswith(b"\r\n\r\n")

    async def receive(self) -> bytes:
        return self.chunks.pop(0) if self.chunks else b""

    def close(self) -> None:
        pass


PIECES = [
    b"HTTP/1.1 200 OK\r\n",
    b"HTTP/1.0 503\r\n",
    b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"\r\n",
]
PIECES += [
    b"5\r\nabcde\r\n0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    b"\n\n",
    b"\0",
]


@given(
    st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=40)), max_size=12), st.sampled_from(["1.0", "1.1"])
)
def test_whatever_comes_is_an_outcome(chunks: list[bytes], version: str) -> None:
    url = HttpUrl(path="/", digest=MD5)
    check = http(80, url, http_protocol=version)
    outcome = asyncio.run(fetch(Said(chunks), check, url, Progress()))
    assert outcome.finding is Finding.FAILED, "the digest never matches"
    assert outcome.reason


def test_a_reset_is_named() -> None:
    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
        writer.transport.abort()

    assert outcome_of(behave) == failed("connection reset by the server")


def test_a_dribbling_server_cannot_go_beyond_the_deadline() -> None:
    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.02)

    outcome = outcome_of(behave, unhurried=True, connect_timeout_us=1_500_000)
    assert outcome == failed("no end of the answer in 1.5 s")


def endless(sent: list[int]) -> Behaviour:
    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            sent[0] += 65536
            await writer.drain()

    return behave


def test_an_endless_body_is_read_to_the_limit_and_judged_by_its_status_where_that_is_all() -> None:
    sent = [0]
    assert outcome_of(endless(sent)) == passed("HTTP 200")
    assert sent[0] >= BODY_LIMIT


def test_a_regex_that_backtracks_for_ever_ends_and_the_next_one_is_judged() -> None:
    # A minute and more of backtracking for this one; each further letter doubles it.
    slow = HttpUrl(path="/", regex="(a+)+$")
    begin = time.process_time()
    outcome = outcome_of(answering(response(body=b"a" * 30 + b"!")), slow)
    assert outcome == failed("regex '(a+)+$' takes too long on this body")
    assert time.process_time() - begin < 10
    assert outcome_of(answering(response(body=b"aaa")), slow).finding is Finding.PASSED
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)


def test_an_endless_body_fails_a_digest_or_a_regex() -> None:
    assert outcome_of(endless([0]), HttpUrl(path="/", digest=MD5)) == failed("body longer than 1 MiB")
    assert outcome_of(endless([0]), HttpUrl(path="/", regex="y")) == failed("body longer than 1 MiB")


# SSL_GET


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Self-signed, for another name, long expired on purpose: nothing of it is looked at."""
    path = tmp_path_factory.mktemp("tls") / "server.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(path), "-out", f"{path}.crt"]
    done = subprocess.run([*command, "-days", "1", "-subj", "/CN=wrong.example"], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    with path.open("ab") as file:
        file.write(Path(f"{path}.crt").read_bytes())
    return path


def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


def test_tls_with_any_certificate_and_a_server_name_only_where_one_is_configured(certificate: Path) -> None:
    names: list[str | None] = []
    context = tls(certificate)
    context.sni_callback = lambda _, name, __: names.append(name)

    async def test() -> None:
        async with Server(answering(response()), context) as server:
            url = HttpUrl(path="/", digest=MD5)
            assert await probe(http(server, url, kind=CheckKind.SSL)) == passed("HTTP 200")
            assert await probe(http(server, url, kind=CheckKind.SSL, sni="www.example.org")) == passed("HTTP 200")

    run(test())
    assert names == [None, "www.example.org"]


def test_tls_carries_a_large_answer_and_an_end_without_close_notify(certificate: Path) -> None:
    large = os.urandom(900_000)

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + large)
        await writer.drain()
        raw = writer.get_extra_info("socket")
        await until(lambda: not writer.transport.get_write_buffer_size())
        raw.shutdown(socket.SHUT_WR)

    async def test() -> None:
        async with Server(behave, tls(certificate)) as server:
            url = HttpUrl(path="/", digest=hashlib.md5(large).hexdigest())
            assert await probe(http(server, url, kind=CheckKind.SSL)) == passed("HTTP 200")

    run(test())


def test_tls_to_ipv6(certificate: Path) -> None:
    async def test() -> None:
        async with Server(answering(response()), tls(certificate), host="::1") as server:
            check = http(server, kind=CheckKind.SSL, address=IPv6Address("::1"))
            assert await probe(check) == passed("HTTP 200")

    run(test())


def test_tls_says_goodbye(certificate: Path) -> None:
    read: list[bytes] = []

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(response())
        read.append(await reader.read())  # close_notify: an end without one, or a RST, would raise

    async def test() -> None:
        async with Server(behave, tls(certificate)) as server:
            assert await probe(http(server, kind=CheckKind.SSL)) == passed("HTTP 200")
            await until(lambda: read)

    run(test())
    assert read == [b""]


def test_tls_failures() -> None:
    def ssl_outcome(behave: Behaviour, **changes: Any) -> Outcome:
        return outcome_of(behave, kind=CheckKind.SSL, **changes)

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    spoken = ssl_outcome(plain)
    assert spoken.finding is Finding.FAILED
    assert spoken.reason.startswith("TLS failed: ")
    assert "wrong version number" in spoken.reason or "packet length" in spoken.reason
    assert ssl_outcome(close) == failed("TLS failed: closed by the server")
    assert ssl_outcome(hang, unhurried=True, connect_timeout_us=1_000_000) == failed("no TLS handshake in 1 s")


# The prober


def test_outcomes_come_with_their_tickets_and_abandoned_ones_do_not() -> None:
    async def test() -> None:
        outcomes: dict[int, Outcome] = {}
        prober = Prober(outcomes.update)
        async with Server(answering(response())) as server, Server(answering(hang=True)) as mute:
            prober.start(StartProbe(ticket=1, check=http(server), deadline_us=0))
            prober.start(StartProbe(ticket=2, check=http(mute), deadline_us=0))
            prober.start(StartProbe(ticket=3, check=http(mute, connect_timeout_us=100_000), deadline_us=0))
            prober.abandon(2)
            prober.abandon(99)
            await until(lambda: len(outcomes) == 2)
            prober.close()
        assert outcomes == {1: passed("HTTP 200"), 3: failed("no answer in 0.1 s")}

    run(test(), unhurried=True)


def test_whatever_breaks_inside_is_an_outcome() -> None:
    async def test() -> None:
        outcomes: dict[int, Outcome] = {}
        prober = Prober(outcomes.update)
        async with Server(answering(response())) as server:
            impossible = http(server, kind=CheckKind.SSL, sni=".")
            prober.start(StartProbe(ticket=1, check=impossible, deadline_us=0))
            await until(lambda: outcomes)
            prober.close()
        assert outcomes[1].finding is Finding.FAILED
        assert outcomes[1].reason.startswith("the probe itself broke: ")

    run(test())


def test_what_fails_at_once_is_told_from_the_loop_and_not_within_the_call() -> None:
    async def test() -> None:
        outcomes: dict[int, Outcome] = {}
        prober = Prober(outcomes.update)
        for ticket in (1, 2):
            check = tcp(9, bind_address=IPv4Address("192.0.2.1"))
            prober.start(StartProbe(ticket=ticket, check=check, deadline_us=0))
        assert outcomes == {}
        await until(lambda: len(outcomes) == 2)
        prober.start(StartProbe(ticket=3, check=check, deadline_us=0))
        prober.close()
        prober.start(StartProbe(ticket=4, check=check, deadline_us=0))
        await asyncio.sleep(0)
        assert set(outcomes) == {1, 2}
        assert outcomes[1].reason.startswith("cannot bind to 192.0.2.1:0: ")

    run(test())


def test_a_server_that_never_stops_sending_holds_up_nobody_and_has_its_limit() -> None:
    def flood(listener: socket.socket) -> None:
        with contextlib.suppress(OSError), listener.accept()[0] as connection:
            while True:
                connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)

    async def test() -> None:
        outcomes: dict[int, Outcome] = {}
        prober = Prober(outcomes.update)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            flooding = threading.Thread(target=flood, args=(listener,))
            flooding.start()
            port = listener.getsockname()[1]
            prober.start(StartProbe(ticket=1, check=http(port, connect_timeout_us=3600_000_000), deadline_us=0))
            async with Server(answering(response())) as server:
                prober.start(StartProbe(ticket=2, check=http(server), deadline_us=0))
                await until(lambda: outcomes)
                assert outcomes == {2: passed("HTTP 200")}
                put_forward(3600)
                await until(lambda: len(outcomes) == 2)
            prober.close()
            flooding.join(10)
        assert outcomes[1] == failed("no answer in 3600 s")

    asyncio.run(test())


def test_the_deadlines_of_probes_that_have_ended_do_not_pile_up() -> None:
    async def test() -> None:
        outcomes: dict[int, Outcome] = {}
        prober = Prober(outcomes.update)

        def all_of(ticket: int) -> bool:
            return len(outcomes) > ticket

        with refusing_port() as port:
            for ticket in range(2500):
                prober.start(StartProbe(ticket=ticket, check=tcp(port, connect_timeout_us=60_000_000), deadline_us=0))
                if ticket % 100 == 0:
                    await until(partial(all_of, ticket))
        await until(lambda: len(outcomes) == 2500)
        assert len(prober._turns._deadlines) < 1500
        prober.close()

    run(test())


def open_files() -> int:
    gc.collect()  # what other tests have left is not closed between two counts
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_socket_is_left_open() -> None:
    async def test() -> None:
        before = open_files()
        async with Server(answering(hang=True)) as mute, Server(answering(response())) as server:
            prober = Prober(lambda *_: None)
            for ticket in range(20):
                prober.start(StartProbe(ticket=ticket, check=http(mute), deadline_us=0))
            await probe(http(server))
            await probe(http(mute, connect_timeout_us=50_000))
            with refusing_port() as port:
                await probe(tcp(port))
            prober.close()
        assert open_files() == before

    run(test())


def test_a_thousand_hanging_tls_probes_stay_small() -> None:
    """asyncio's own TLS would take 256 KiB for each: 250 MB."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    async def test() -> None:
        loop = asyncio.get_running_loop()
        outcomes: dict[int, Outcome] = {}
        prober = Prober(outcomes.update)
        with socket.socket() as listener, contextlib.ExitStack() as accepted:
            listener.bind(("127.0.0.1", 0))
            listener.listen(2000)
            listener.setblocking(False)
            before = resident()
            for ticket in range(1000):
                check = http(listener.getsockname()[1], kind=CheckKind.SSL, connect_timeout_us=60_000_000)
                prober.start(StartProbe(ticket=ticket, check=check, deadline_us=0))
            for _ in range(1000):
                connection, _ = await loop.sock_accept(listener)
                accepted.enter_context(connection)
                assert await loop.sock_recv(connection, 1) == b"\x16", "the handshake has begun"
            grown = resident() - before
            prober.close()
        assert outcomes == {}
        assert grown < 100_000_000, grown

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        run(test())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
