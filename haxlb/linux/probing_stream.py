"""One TCP connection of a probe, plain or TLS; waits by `probing_turns.ready`.

asyncio's own streams cost more than the probe itself, and its TLS takes a buffer of 256 KiB for each connection: a
thousand servers that hang would cost 256 MB.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import ssl
import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol, TypeVar

from haxlb.linux.probing_source import ProbeSources
from haxlb.linux.probing_turns import BROKEN, READABLE, WRITABLE, ready
from haxlb.model.addresses import IPAddress
from haxlb.model.check import Check

CHUNK = 16 * 1024
_IP_BIND_ADDRESS_NO_PORT = 24  # <linux/in.h>
_RST_ON_CLOSE = struct.pack("=ii", 1, 0)
_WORDS = {
    errno.ECONNREFUSED: "connection refused",
    errno.ECONNRESET: "connection reset by the server",
    errno.EPIPE: "connection reset by the server",
    errno.EHOSTUNREACH: "no route to the host, or no answer from it on the link",
    errno.ENETUNREACH: "no route to the network",
    errno.ETIMEDOUT: "connection timed out",
}
OUR_LACK = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL)
"""This host is out of file descriptors, memory or local ports: that says nothing about the server."""

T = TypeVar("T")


class BindRefused(Exception):
    """The source address or port of the check cannot be used on this host."""


class Stream(Protocol):
    """Bytes both ways."""

    async def send(self, data: bytes) -> None:
        """Hand all of it to the kernel. Raises OSError."""
        ...

    async def receive(self) -> bytes:
        """What has come, at least one byte; empty at the end. Raises OSError."""
        ...

    def close(self) -> None:
        """End the connection without waiting."""
        ...


def in_words(problem: OSError) -> str:
    """What the kernel said of a connection, as a reason."""
    if isinstance(problem, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "TLS failed: closed by the server"
    if isinstance(problem, ssl.SSLError):
        return f"TLS failed: {(problem.reason or str(problem)).lower().replace('_', ' ')}"
    number = problem.errno or 0
    return _WORDS.get(number) or (os.strerror(number).lower() if number else str(problem))


async def connect(check: Check, sources: ProbeSources) -> Plain:
    """Connect to the check's target from its source, or else from that of `sources`. Raises OSError, BindRefused."""
    family = socket.AF_INET6 if check.address.version == 6 else socket.AF_INET  # noqa: PLR2004 - the family
    connection = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        chosen = sources.of(check.address) if check.bind_address is None else None
        try:
            _bind(connection, check.bind_address or chosen, check.bind_port)
        except BindRefused:
            if chosen is None:
                raise
            sources.forget(check.address)
            _bind(connection, None, check.bind_port)
        number = connection.connect_ex(_target(check))
        if number == errno.EINPROGRESS:
            events = await ready(connection.fileno(), WRITABLE)
            number = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if events & BROKEN else 0
        _raise_for(number)
    except BaseException:
        connection.close()
        raise
    return Plain(connection)


def _raise_for(number: int) -> None:
    if number:
        raise OSError(number, os.strerror(number))


@lru_cache(maxsize=1 << 14)
def _target(check: Check) -> tuple[str, int]:
    return str(check.address), check.port


def _bind(connection: socket.socket, address: IPAddress | None, port: int) -> None:
    if address is None and not port:
        return
    if port:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # The next probe has the same four numbers: TIME_WAIT of this one would refuse it.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_ON_CLOSE)
    else:
        connection.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
    source = str(address) if address else ""
    try:
        connection.bind((source, port))
    except OSError as problem:
        shown = f"[{source}]" if ":" in source else source or "*"
        raise BindRefused(f"cannot bind to {shown}:{port}: {os.strerror(problem.errno or 0)}") from problem


class Plain:
    """TCP."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    async def send(self, data: bytes) -> None:
        """Hand all of it to the kernel. Raises OSError."""
        rest = memoryview(data)
        while True:
            with contextlib.suppress(BlockingIOError):
                rest = rest[self._socket.send(rest) :]
            if not rest:
                return
            await ready(self._socket.fileno(), WRITABLE)

    async def receive(self) -> bytes:
        """What has come, at least one byte; empty at the end. Raises OSError."""
        while True:
            # Always by a wait: a server that sends without end must not keep the other probes from their turns.
            await ready(self._socket.fileno(), READABLE)
            with contextlib.suppress(BlockingIOError):
                return self._socket.recv(CHUNK)

    def send_now(self, data: bytes) -> None:
        """Send what the kernel takes at once; for a farewell that nobody waits for."""
        with contextlib.suppress(OSError):
            self._socket.send(data)

    def close(self) -> None:
        """A FIN, as keepalived's checkers send; a RST only where `bind_port` asks for it."""
        self._socket.close()


class Tls:
    """TLS over a connection; nothing of the certificate is verified, as in keepalived."""

    def __init__(self, below: Plain, context: ssl.SSLContext, server_name: str | None) -> None:
        self._below = below
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)

    async def handshake(self) -> None:
        """Agree on keys. Raises OSError (of which ssl.SSLError is one)."""
        await self._drive(self._tls.do_handshake)

    async def send(self, data: bytes) -> None:
        """Hand all of it to the kernel. Raises OSError."""
        await self._drive(lambda: self._tls.write(data))

    async def receive(self) -> bytes:
        """What has come, at least one byte; empty at the end, with close_notify or without. Raises OSError."""
        try:
            return await self._drive(lambda: self._tls.read(CHUNK))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""

    def close(self) -> None:
        """Say close_notify and end the connection without waiting for the server's."""
        with contextlib.suppress(ssl.SSLError, ValueError):
            self._tls.unwrap()
        self._below.send_now(self._outgoing.read())
        self._below.close()

    async def _drive(self, step: Callable[[], T]) -> T:
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                await self._flush()
                data = await self._below.receive()
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            else:
                await self._flush()
                return result

    async def _flush(self) -> None:
        data = self._outgoing.read()
        if data:
            await self._below.send(data)


def tls_context() -> ssl.SSLContext:
    """One for all probes: the system's OpenSSL defaults, any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
