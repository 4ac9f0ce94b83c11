"""Processes that build something and end: whoever gives up waiting for one ends it, too."""

from __future__ import annotations

import asyncio


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
        await process.wait()
        raise
