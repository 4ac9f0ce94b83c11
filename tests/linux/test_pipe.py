from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Coroutine
from typing import Any

from haxlb.daemon.messages import AskStatus, HandOver, Logged, Message, Notify, Ready, Stop, encode
from haxlb.linux import pipe as pipe_module
from haxlb.linux.pipe import Pipe
from haxlb.model.errors import PeerError
from haxlb.model.notification import NotifyDue


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 60))


def ends() -> tuple[Pipe, Pipe]:
    left, right = socket.socketpair()
    return Pipe(left), Pipe(right.detach())


async def everything(pipe: Pipe) -> list[Message]:
    return [message async for message in pipe]


def test_messages_arrive_in_order_both_ways() -> None:
    async def test() -> None:
        supervisor, child = ends()
        orders = [AskStatus(ticket=n) for n in range(300)]
        for order in orders:
            supervisor.send(order)
        child.send(Ready(of="ConfigureSpeaker"))
        received = [await anext(child) for _ in orders]
        assert received == orders
        assert await anext(supervisor) == Ready(of="ConfigureSpeaker")
        supervisor.close()
        child.close()

    run(test())


def test_iteration_ends_after_the_last_message_when_the_other_end_is_gone() -> None:
    async def test() -> None:
        supervisor, child = ends()
        supervisor.send(Stop(reason="shutdown"))
        supervisor.close()
        assert await everything(child) == [Stop(reason="shutdown")]
        assert child.eof
        child.send(Ready(of="Stop"))  # nobody is there: nothing happens
        child.close()

    run(test())


def test_iteration_ends_when_the_other_end_dies_with_our_messages_unread() -> None:
    async def test() -> None:
        left, right = socket.socketpair()
        pipe = Pipe(left)
        pipe.send(Ready(of="x"))
        right.close()
        assert await everything(pipe) == []
        pipe.close()

    run(test())


def test_what_a_dead_supervisor_cannot_log_is_said_elsewhere() -> None:
    async def test() -> None:
        left, right = socket.socketpair()
        said: list[str] = []
        child = Pipe(right, on_unheard=said.append)
        child.log("error", "heard", reason="no doubt")
        left.close()
        assert await everything(child) == []
        child.log("info", "notify_ended", pid=7)
        child.log("warning", "notify_dropped", queue="VI_1", command="/bin/tell me")
        assert said == ["haxlb: warning notify_dropped queue='VI_1' command='/bin/tell me'\n"]
        child.close()

    run(test())


def test_closing_ends_our_own_iteration() -> None:
    async def test() -> None:
        supervisor, child = ends()
        taking = asyncio.create_task(everything(child))
        await asyncio.sleep(0)
        child.close()
        assert await taking == []
        supervisor.close()

    run(test())


def test_a_reader_that_sleeps_costs_reports_but_no_orders() -> None:
    async def test() -> None:
        left, right = socket.socketpair()
        pipe = Pipe(left)
        text = "x" * 4000
        first = HandOver(instances=(), reason="first")
        pipe.send(first)
        for n in range(3 * pipe_module.QUEUE_LIMIT):
            pipe.send(Logged(level="info", event=str(n), fields={"text": text}))
        last = HandOver(instances=(), reason="last")
        pipe.send(last)
        assert pipe.dropped > 0
        assert not await pipe.drained(0.01)
        reader = Pipe(right)
        received = []
        async for message in reader:
            received.append(message)
            if message == last:
                break
        assert received[0] == first
        events = [int(m.event) for m in received if isinstance(m, Logged)]
        assert events == sorted(events)
        assert events[-1] == 3 * pipe_module.QUEUE_LIMIT - 1, "the newest must survive"
        assert len(events) + pipe.dropped == 3 * pipe_module.QUEUE_LIMIT
        assert await pipe.drained(1)
        pipe.close()
        reader.close()

    run(test())


def test_a_supervisor_that_sleeps_is_told_of_every_state_but_not_of_every_event() -> None:
    def notify(state: str, priority: int) -> Notify:
        return Notify(due=NotifyDue(subject="INSTANCE", name="VI_1", state=state, priority=priority))

    async def test() -> None:
        left, right = socket.socketpair()
        pipe = Pipe(left)
        number = 0
        while pipe.dropped < 2 * pipe_module.QUEUE_LIMIT:
            number += 1
            pipe.send(notify("MASTER_RX_LOWER_PRI", 1))
            if number % 100 == 0:
                pipe.send(notify("BACKUP", number))
        assert pipe.dropped >= 2 * pipe_module.QUEUE_LIMIT
        pipe.send(Stop())
        reader = Pipe(right)
        states = []
        async for message in reader:
            if isinstance(message, Stop):
                break
            assert isinstance(message, Notify)
            if message.due.state == "BACKUP":
                states.append(message.due.priority)
        assert states == list(range(100, number + 1, 100))
        pipe.close()
        reader.close()

    run(test())


def test_reading_pauses_while_nobody_takes_and_loses_nothing() -> None:
    async def test() -> None:
        left, right = socket.socketpair()
        reader = Pipe(right)
        count = 3 * pipe_module.READ_AHEAD
        data = b"".join(encode(AskStatus(ticket=n)) for n in range(count))

        def write() -> None:
            left.sendall(data)
            left.close()

        writing = asyncio.get_running_loop().run_in_executor(None, write)
        received = await everything(reader)
        await writing
        assert [m.ticket for m in received if isinstance(m, AskStatus)] == list(range(count))
        reader.close()

    run(test())


def test_a_message_in_pieces_and_a_malformed_line() -> None:
    async def test() -> None:
        left, right = socket.socketpair()
        problems: list[PeerError] = []
        reader = Pipe(right, on_malformed=problems.append)
        line = encode(HandOver(instances=("VI_1",), reason="planned"))
        for byte in b"nonsense\n" + b'{"type": "Unheard"}\n' + line:
            os.write(left.fileno(), bytes([byte]))
            await asyncio.sleep(0)
        assert await anext(reader) == HandOver(instances=("VI_1",), reason="planned")
        assert reader.malformed == 2
        assert [p.reason for p in problems] == ["malformed_message"] * 2
        left.close()
        reader.close()

    run(test())
