from __future__ import annotations

import asyncio
import errno
import json
import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haxlb.daemon.control import (
    REQUEST_LIMIT,
    Answer,
    Failover,
    Reload,
    Request,
    Show,
    Step,
    decode_reply,
    encode,
)
from haxlb.linux.control_socket import ControlSocket
from haxlb.model.errors import HostError


class Daemon:
    """Answers; `gate` holds commands up."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.finished: list[Request] = []
        self.gate: asyncio.Event | None = None
        self.padding = ""
        self.lack: OSError | None = None
        self.logged: list[str] = []

    async def command(self, request: Request, step: Callable[[Step], None]) -> Answer:
        self.requests.append(request)
        if self.lack is not None:
            raise self.lack
        if isinstance(request, Failover):
            step(Step(subject="VI_1", step="check", ok=True, reason="MASTER here"))
        if self.gate is not None and not isinstance(request, Show):
            await self.gate.wait()
        self.finished.append(request)
        return Answer(ok=True, message=type(request).__name__ + self.padding)

    def log(self, level: str, event: str, **fields: object) -> None:
        self.logged.append(event)


def scene(tmp_path: Path, play: Callable[[Daemon, Path], Awaitable[None]], **options: Any) -> Daemon:
    daemon = Daemon()

    async def whole() -> None:
        server = ControlSocket(tmp_path, daemon.command, daemon.log, **options)
        await server.open()
        try:
            async with asyncio.timeout(60):
                await play(daemon, tmp_path / "control.sock")
        finally:
            await server.close()

    asyncio.run(whole())
    return daemon


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, path: Path) -> Client:
        return cls(*await asyncio.open_unix_connection(str(path), limit=1 << 24))

    async def say(self, line: bytes) -> None:
        self.writer.write(line)
        await self.writer.drain()

    async def hear(self) -> Any:
        line = await self.reader.readline()
        return decode_reply(line) if line else None

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


def test_several_requests_on_one_connection(tmp_path):
    async def play(daemon, path):
        client = await Client.connect(path)
        await client.say(encode(Show()) + encode(Reload()))
        assert (await client.hear()).message == "Show"
        assert (await client.hear()).message == "Reload"
        await client.close()

    scene(tmp_path, play)


def test_a_command_for_which_the_host_lacks_something_is_answered(tmp_path):
    """It used to look like a client that had gone away: no answer, and no line."""

    async def play(daemon, path):
        daemon.lack = OSError(errno.EMFILE, "Too many open files")
        client = await Client.connect(path)
        await client.say(encode(Reload()))
        answer = await client.hear()
        assert (answer.ok, answer.exit_code) == (False, 71)
        assert answer.message == "it could not be carried out: Too many open files"
        daemon.lack = None
        await client.say(encode(Reload()))
        assert (await client.hear()).ok
        await client.close()

    assert scene(tmp_path, play).logged == ["command_failed"]


def test_steps_come_before_their_answer(tmp_path):
    async def play(daemon, path):
        daemon.gate = asyncio.Event()
        client = await Client.connect(path)
        await client.say(encode(Failover()))
        assert (await client.hear()).step == "check"
        assert daemon.finished == []
        daemon.gate.set()
        assert (await client.hear()).message == "Failover"
        await client.close()

    scene(tmp_path, play)


def test_only_its_owner_may_open_it_and_it_goes_with_the_daemon(tmp_path):
    async def play(daemon, path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

    scene(tmp_path, play)
    assert not (tmp_path / "control.sock").exists()


def test_another_user_is_refused(tmp_path):
    async def play(daemon, path):
        client = await Client.connect(path)
        await client.say(encode(Reload()))
        answer = await client.hear()
        assert (answer.ok, answer.exit_code) == (False, 77)
        assert await client.hear() is None
        await client.close()
        assert daemon.logged == ["client_refused"]

    assert scene(tmp_path, play, uid_of=lambda _: 1000).requests == []


def test_root_is_let_in_whoever_runs_the_daemon(tmp_path):
    async def play(daemon, path):
        client = await Client.connect(path)
        await client.say(encode(Show()))
        assert (await client.hear()).ok
        await client.close()

    scene(tmp_path, play, uid_of=lambda _: 0)


def test_a_dead_ones_socket_is_replaced(tmp_path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "control.sock"))

    async def play(daemon, path):
        client = await Client.connect(path)
        await client.say(encode(Show()))
        assert (await client.hear()).ok
        await client.close()

    scene(tmp_path, play)


def test_a_path_that_is_too_long_is_the_hosts_error(tmp_path):
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    with pytest.raises(HostError, match="control socket"):
        asyncio.run(ControlSocket(deep, Daemon().command, Daemon().log).open())


def test_garbage_is_answered_and_the_next_request_is_served(tmp_path):
    async def play(daemon, path):
        client = await Client.connect(path)
        await client.say(b"haxlb, are you there?\n" + encode(Show()))
        answer = await client.hear()
        assert (answer.ok, answer.exit_code) == (False, 2)
        assert (await client.hear()).message == "Show"
        await client.close()

    scene(tmp_path, play)


def test_a_request_without_end_is_cut_off(tmp_path):
    async def play(daemon, path):
        client = await Client.connect(path)
        await client.say(b"x" * (3 * REQUEST_LIMIT))
        assert "the request is longer than" in (await client.hear()).message
        assert await client.hear() is None
        await client.close()

    scene(tmp_path, play)


def test_half_a_request_and_goodbye(tmp_path):
    async def play(daemon, path):
        client = await Client.connect(path)
        await client.say(encode(Reload())[:-1])
        await client.close()
        other = await Client.connect(path)
        await other.say(encode(Show()))
        assert (await other.hear()).ok
        await other.close()

    assert [type(each) for each in scene(tmp_path, play).requests] == [Show]


def test_a_client_that_goes_away_does_not_end_what_it_began(tmp_path):
    async def play(daemon, path):
        daemon.gate = asyncio.Event()
        client = await Client.connect(path)
        await client.say(encode(Failover()))
        await client.hear()
        client.writer.transport.abort()
        daemon.gate.set()
        while not daemon.finished:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    assert [type(each) for each in scene(tmp_path, play).finished] == [Failover]


def test_a_client_that_does_not_read_holds_nobody_up_and_is_cut_off(tmp_path):
    async def play(daemon, path):
        daemon.padding = "x" * (1 << 20)
        slow = socket.socket(socket.AF_UNIX)
        slow.setblocking(False)
        slow.connect(str(path))
        slow.send(encode(Show()) * 3)
        await until(lambda: daemon.finished)
        daemon.padding = ""  # what its socket takes at once: how soon the quick one is given a CPU does not count
        quick = await Client.connect(path)
        await quick.say(encode(Show()))
        assert (await quick.hear()).ok
        await quick.close()
        while True:
            try:
                if not slow.recv(1 << 20):
                    break
            except BlockingIOError:
                await asyncio.sleep(0.05)
            except ConnectionResetError:
                break
            else:
                await asyncio.sleep(0.5)  # reads, but slower than it is given
        slow.close()

    scene(tmp_path, play, unread_limit=1 << 16, write_patience_s=0.2)


def test_many_clients_are_refused_one_by_one(tmp_path):
    async def play(daemon, path):
        clients = [await Client.connect(path) for _ in range(3)]
        for client in clients:
            await client.say(encode(Show()))
            assert (await client.hear()).ok
        refused = await Client.connect(path)
        assert (await refused.hear()).message == "too many clients"
        await refused.close()
        await clients[0].close()
        await clients[1].say(encode(Show()))
        assert (await clients[1].hear()).ok
        for client in clients[1:]:
            await client.close()

    scene(tmp_path, play, most_clients=3)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=200), max_size=8))
def test_nothing_that_a_client_sends_ends_the_service(tmp_path, chunks):
    async def play(daemon, path):
        client = await Client.connect(path)
        for chunk in chunks:
            await client.say(chunk)
        client.writer.write_eof()
        while await client.reader.readline():
            pass
        await client.close()
        other = await Client.connect(path)
        await other.say(encode(Show()))
        assert (await other.hear()).message == "Show"
        await other.close()

    scene(tmp_path, play)


def test_a_running_command_is_answered_when_the_daemon_stops(tmp_path):
    async def whole():
        daemon = Daemon()
        server = ControlSocket(tmp_path, daemon.command, daemon.log)
        await server.open()
        client = await Client.connect(tmp_path / "control.sock")
        await client.say(encode(Show()))
        assert json.loads(await client.reader.readline())["ok"]
        await server.close()
        assert await client.hear() is None
        await client.close()

    asyncio.run(whole())


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - the other side's work
        await asyncio.sleep(0.005)


def test_a_socket_that_somebody_deletes_is_made_anew(tmp_path):
    path = tmp_path / "control.sock"

    async def play(_daemon: Daemon, _path: Path) -> None:
        before = await Client.connect(path)
        path.unlink()
        await until(path.exists)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        # The client of before is still served, and so is a new one.
        for client in (before, await Client.connect(path)):
            await client.say(encode(Show()))
            assert (await client.hear()).message == "Show"
            await client.close()

    daemon = scene(tmp_path, play, look_every_s=0.01)
    assert daemon.logged == ["control_socket_made_anew"]
    assert list(tmp_path.iterdir()) == []


def test_a_removed_directory_is_said_once_and_what_another_daemon_puts_there_stays(tmp_path):
    runtime = tmp_path / "run"
    runtime.mkdir()

    async def play(daemon: Daemon, _path: Path) -> None:
        (runtime / "control.sock").unlink()
        runtime.rmdir()
        await until(lambda: daemon.logged)
        await asyncio.sleep(0.1)
        runtime.mkdir()
        (runtime / "control.sock").touch()

    daemon = scene(runtime, play, look_every_s=0.01)
    assert daemon.logged == ["control_socket_lost"]
    assert (runtime / "control.sock").exists()
