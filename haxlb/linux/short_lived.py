"""Processes that build something and end: whoever gives up waiting for one ends it, too."""

from __future__ import annotations

import asyncio

from haxlb.model.errors import HostError


async def communicate(
    process: asyncio.subprocess.Process, said: bytes | None, patience_s: float
) -> tuple[bytes, bytes]:
    """Give the process its input; what it wrote to stdout and stderr.

    Raises TimeoutError after `patience_s`. Then, and when the caller is cancelled, the process is killed: a compiler
    that outlives a stopped daemon would pin its program beside that of the next one.
    """
    try:
        return await asyncio.wait_for(process.communicate(said), patience_s)
    except BaseException:
        if process.returncode is None:
            process.kill()
        await _ended(process)
        raise


async def _ended(process: asyncio.subprocess.Process) -> None:
    """Wait for a process that was killed, even when cancelled meanwhile, as asyncio.run does once more at the end.

    Without its end noticed the loop would be closed over it, and asyncio write of that to stderr.
    """
    cancelled: asyncio.CancelledError | None = None
    while process.returncode is None:
        try:
            await process.wait()
        except asyncio.CancelledError as problem:
            cancelled = problem
    if cancelled is not None:
        raise cancelled


def refuse_killed(code: int | None, what: str) -> None:
    """Raises HostError where the process was ended by a signal: neither its program nor its input is to blame."""
    if code is not None and code < 0:
        raise HostError(
            f"{what} was ended by signal {-code}", remedy="try again; a host short of memory kills (see dmesg)"
        )
