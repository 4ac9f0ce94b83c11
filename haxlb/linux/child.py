"""What the speaker's and the checker's processes have in common: the pipe, signals, the end, and the crash."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, Protocol

from haxlb.daemon.messages import Message, Ready, Stop
from haxlb.linux.pipe import Pipe
from haxlb.model.errors import Bug, HostError

FLUSH_TIMEOUT_S = 1.0
_PIECE = 1024
"""Characters: at most 4096 bytes, PIPE_BUF."""


class Child(Protocol):
    """The wiring of one process."""

    def handle(self, message: Message) -> None:
        """Take one order of the supervisor; `Stop` is not among them."""
        ...

    async def leave(self, reason: str) -> None:
        """Put things in order before the process ends."""
        ...


def main(
    name: str, module: str, first_order: type, build: Callable[..., Child], about: str, *, recorded: bool = False
) -> int:
    """Parse `--fd N` and run the child until it is told to leave; the exit code.

    `build` gets the pipe; if `recorded` also the descriptor of its flight recorder, None where it was given none.

    `build` raises HostError where a capability is missing; the supervisor hears of it as the answer to `first_order`.
    """
    parser = argparse.ArgumentParser(prog=module, description=about)
    parser.add_argument("--fd", type=int, required=True, help="our end of the supervisor's socket pair")
    if recorded:
        parser.add_argument("--recorder", type=int, help="memory that outlives this process")
    given = vars(parser.parse_args())
    descriptors = [given["fd"], *([given["recorder"]] if recorded else [])]
    for each in descriptors:
        if each is not None:
            os.set_inheritable(each, False)  # scripts that are started by posix_spawn have no business with it
    return asyncio.run(_serve(given["fd"], name, first_order, lambda pipe: build(pipe, *descriptors[1:])))


async def _serve(fd: int, name: str, first_order: type, build: Callable[[Pipe], Child]) -> int:
    # What the last scripts come to is to be found somewhere.
    pipe = Pipe(fd, on_unheard=_write_at_once)
    loop = asyncio.get_running_loop()
    ending: asyncio.Future[str] = loop.create_future()

    def end(reason: str) -> None:
        if not ending.done():
            ending.set_result(reason)

    loop.set_exception_handler(_crash(pipe, name))
    loop.add_signal_handler(signal.SIGTERM, end, "SIGTERM")
    # ^C and the end of a terminal reach the whole process group; the supervisor says what they mean for us.
    # Whoever asks keepalived for dumps by SIGUSR1 or 2 means no harm. Handled, not SIG_IGN: scripts would inherit that.
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        loop.add_signal_handler(number, _disregard)
    try:
        child = build(pipe)
    except HostError as problem:
        pipe.send(Ready(of=first_order.__name__, problem=str(problem)))
        await pipe.drained(FLUSH_TIMEOUT_S)
        pipe.close()
        return problem.exit_code
    taking = asyncio.create_task(_take(pipe, child.handle, end))
    taking.add_done_callback(_raise)
    reason = await ending
    taking.cancel()
    await child.leave(reason)
    return 0


def _disregard() -> None:
    """Nothing is to be done."""


async def _take(pipe: Pipe, handle: Callable[[Message], None], end: Callable[[str], None]) -> None:
    async for message in pipe:
        if isinstance(message, Stop):
            end(message.reason)
            return
        handle(message)
    end("the supervisor is gone")


def _raise(task: asyncio.Task[None]) -> None:
    """Bring a task's error to the loop's exception handler now, not when the task is collected."""
    if not task.cancelled():
        task.result()


def _write_at_once(text: str) -> None:
    """To stderr, as far as it takes it: whoever reads the log slowly must not keep a dead speaker's addresses on."""
    with contextlib.suppress(OSError, ValueError):
        # A pipe that is writable takes PIPE_BUF bytes at once (pipe(7)).
        for start in range(0, len(text), _PIECE):
            if not select.select([], [sys.stderr], [], 0)[1]:
                return
            os.write(sys.stderr.fileno(), text[start : start + _PIECE].encode())


def _crash(pipe: Pipe, name: str) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """End at once: half a speaker must not stay MASTER, nor half a checker leave dead servers in the pool.

    The supervisor does what is left undone, and starts a new one.
    """

    def handler(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        problem = context.get("exception")
        if problem is None:
            pipe.log("warning", "asyncio_complains", detail=context.get("message"))
            return
        text = "".join(traceback.format_exception(problem))
        pipe.log("error", f"{name}_crashed", traceback=text)
        _write_at_once(text)
        os._exit(Bug.exit_code)

    return handler
