from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest

from haxlb.linux.forwarder_build import compile_forwarder
from haxlb.linux.short_lived import communicate
from haxlb.model.errors import HostError


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def sleeper() -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec("sleep", "600", stdout=asyncio.subprocess.PIPE)


def test_what_a_process_says_is_returned() -> None:
    async def test() -> None:
        process = await asyncio.create_subprocess_exec(
            "cat", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
        assert await communicate(process, b"word", 60) == (b"word", b"")

    asyncio.run(test())


def test_one_that_takes_too_long_is_ended() -> None:
    async def test() -> None:
        process = await sleeper()
        with pytest.raises(TimeoutError):
            await communicate(process, None, 0.01)
        assert process.returncode == -9

    asyncio.run(test())


def test_its_end_is_awaited_however_often_the_caller_is_cancelled() -> None:
    """By the supervisor, and by asyncio.run when it is done."""

    async def test() -> None:
        process = await sleeper()
        task = asyncio.create_task(communicate(process, None, 60))
        while not task.done():
            await asyncio.sleep(0)
            task.cancel()
        assert task.cancelled()
        assert process.returncode == -9

    asyncio.run(test())


def test_a_compilation_that_nobody_waits_for_any_more_ends(tmp_path: Path) -> None:
    """As at SIGTERM during the start."""
    compiler = tmp_path / "python3"
    compiler.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/new\nmv {tmp_path}/new {tmp_path}/pid\nexec sleep 600\n")
    compiler.chmod(0o755)

    async def test() -> None:
        task = asyncio.create_task(compile_forwarder(tmp_path / "bpf" / "1", python=str(compiler)))
        async with asyncio.timeout(60):
            while not (tmp_path / "pid").exists():
                assert not task.done()
                await asyncio.sleep(0.005)
        pid = int((tmp_path / "pid").read_text())
        assert alive(pid)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, HostError):
            await task
        assert not alive(pid)

    asyncio.run(test())


def test_a_compiler_that_is_killed_is_no_missing_package(tmp_path: Path) -> None:
    compiler = tmp_path / "python3"
    compiler.write_text("#!/bin/sh\nkill -9 $$\n")
    compiler.chmod(0o755)
    with pytest.raises(HostError, match=r"^building the forwarder was ended by signal 9 \(try again"):
        asyncio.run(compile_forwarder(tmp_path / "bpf" / "1", python=str(compiler)))
