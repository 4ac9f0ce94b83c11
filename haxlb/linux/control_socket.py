"""The control socket: `control.sock` in the runtime directory, for root and for haxlb's own user.

Each client has a task of its own; one that does not read, sends garbage or goes away harms nobody but itself, and a
command that it has begun is carried out to its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

from haxlb.daemon.control import REQUEST_LIMIT, Answer, Reply, Request, Step, command_name, decode_request, encode
from haxlb.linux.log import Log
from haxlb.model.errors import HostError, NotPermitted, PeerError

NAME = "control.sock"
MOST_CLIENTS = 64
UNREAD_LIMIT = 4 << 20
"""Bytes that a client may leave unread before it is cut off: some thousand real servers in one status."""
IDLE_S = 60.0
"""A client that asks nothing for so long is let go."""
WRITE_PATIENCE_S = 10.0
LOOK_EVERY_S = 5.0
"""A socket that somebody has deleted (a cleaner of temporary files) is made anew: else nothing could be asked or told
until the next start."""
_UCRED = struct.Struct("=iII")

Command = Callable[[Request, Callable[[Step], None]], Awaitable[Answer]]


def _uid(client: socket.socket) -> int:
    """Who has connected, by the kernel's word (unix(7), SO_PEERCRED)."""
    _, uid, _ = _UCRED.unpack(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return int(uid)


class ControlSocket:
    """Serves `command` to clients; `open` before use."""

    def __init__(
        self,
        runtime_dir: Path,
        command: Command,
        log: Log,
        *,
        uid_of: Callable[[socket.socket], int] = _uid,
        most_clients: int = MOST_CLIENTS,
        unread_limit: int = UNREAD_LIMIT,
        write_patience_s: float = WRITE_PATIENCE_S,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._path = runtime_dir / NAME
        self._command = command
        self._log = log
        self._uid_of = uid_of
        self._most_clients = most_clients
        self._unread_limit = unread_limit
        self._write_patience_s = write_patience_s
        self._look_every_s = look_every_s
        self._server: asyncio.Server | None = None
        self._identity: os.stat_result | None = None
        """Of our socket's file."""
        self._watch: asyncio.Task[None] | None = None
        self._clients: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        """Listen. The caller holds the instance lock: a socket that is there is a dead one's. Raises HostError."""
        await self._listen()
        self._watch = asyncio.get_running_loop().create_task(self._keep())

    async def _listen(self) -> None:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        former = os.umask(0o177)
        try:
            self._path.unlink(missing_ok=True)
            listener.bind(str(self._path))
            self._identity = self._path.lstat()
        except OSError as problem:
            listener.close()
            raise HostError(
                f"cannot make the control socket {self._path}: {problem.strerror or problem}",
                remedy="name another directory with --runtime-dir; a socket's path has at most 107 bytes",
            ) from problem
        finally:
            os.umask(former)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=REQUEST_LIMIT)

    async def _keep(self) -> None:
        """Listen again where our file is gone; whoever is connected stays so."""
        said = ""
        while True:
            await asyncio.sleep(self._look_every_s)
            if self._path.exists() or self._path.is_symlink():
                continue
            former = self._server
            try:
                await self._listen()
            except HostError as problem:
                if str(problem) != said:
                    said = str(problem)
                    self._log("error", "control_socket_lost", reason=said)
                continue
            if former is not None:
                former.close()
            said = ""
            self._log("warning", "control_socket_made_anew", path=str(self._path))

    async def close(self) -> None:
        """Take no more clients, and let those go that are there."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if self._server is not None:
            self._server.close()
            self._server = None
        # What clients were promised is still delivered: the answer to the command that has ended us.
        for writer in list(self._clients):
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(writer.drain(), 1.0)
            writer.close()
        # Not another daemon's, which has come to a runtime directory that was removed under us.
        with contextlib.suppress(OSError):
            if self._identity is not None and os.path.samestat(self._identity, self._path.lstat()):
                self._path.unlink()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.set_write_buffer_limits(high=self._unread_limit)
        self._clients.add(writer)
        try:
            problem = self._why_not(writer)
            if problem is None:
                await self._converse(reader, writer)
            else:
                answer = Answer(ok=False, exit_code=problem.exit_code, message=problem.message, remedy=problem.remedy)
                await self._put(writer, answer)
        except (OSError, TimeoutError):  # it went away, or does not read
            writer.transport.abort()
        finally:
            writer.close()
            try:
                await asyncio.wait_for(writer.wait_closed(), self._write_patience_s)
            except (OSError, TimeoutError):  # what it has not read by now, it will not
                writer.transport.abort()
            self._clients.discard(writer)

    def _why_not(self, writer: asyncio.StreamWriter) -> HostError | None:
        if len(self._clients) > self._most_clients:
            return HostError("too many clients", remedy="end some of them")
        uid = self._uid_of(writer.get_extra_info("socket"))
        if uid in (0, os.geteuid()):
            return None
        self._log("warning", "client_refused", uid=uid)
        return NotPermitted("only root may talk to haxlb", remedy="use sudo")

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                line = await asyncio.wait_for(reader.readline(), IDLE_S)
            except ValueError:  # longer than the limit: where it ends cannot be told
                said = f"the request is longer than {REQUEST_LIMIT} bytes"
                await self._put(writer, Answer(ok=False, exit_code=2, message=said))
                return
            if not line.endswith(b"\n"):
                return
            try:
                request = decode_request(line)
            except PeerError as problem:
                await self._put(writer, Answer(ok=False, exit_code=2, message=problem.message))
                continue
            await self._put(writer, await self._carry_out(request, writer))

    async def _carry_out(self, request: Request, writer: asyncio.StreamWriter) -> Answer:
        def step(what: Step) -> None:
            if not writer.is_closing():
                writer.write(encode(what))

        # A client that goes away is noticed only when it is answered: a hand-over is never left half done.
        try:
            return await self._command(request, step)
        except OSError as problem:  # not the client's: no descriptor, no memory for what the command needs
            self._log("error", "command_failed", command=command_name(request), reason=problem.strerror or problem)
            return Answer(
                ok=False,
                exit_code=71,
                message=f"it could not be carried out: {problem.strerror or problem}",
                remedy="see the limits of open files, processes and memory",
            )

    async def _put(self, writer: asyncio.StreamWriter, reply: Reply) -> None:
        writer.write(encode(reply))
        await asyncio.wait_for(writer.drain(), self._write_patience_s)
