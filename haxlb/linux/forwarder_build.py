"""Have the forwarder built: runs haxlb.linux.compiler by the system's Python and reads its answer."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import haxlb
from haxlb.forwarding.features import ALL, Features, Lifetimes
from haxlb.forwarding.layout import Sizes
from haxlb.linux.lacks import remedy_for
from haxlb.linux.short_lived import communicate, refuse_killed
from haxlb.model.errors import HostError, NotPermitted

PYTHON: Final = "/usr/bin/python3"
"""The one whose bcc Debian's python3-bpfcc is; a virtual environment's does not see it."""

_TIMEOUT_S: Final = 180.0
"""A build of everything is ten seconds of a CPU, which a host that is busy may give it late."""
_ERROR_LINES: Final = 3


async def compile_forwarder(
    directory: Path,
    *,
    services: int = Sizes().services,
    frontends: int = Sizes().frontends,
    backends: int = Sizes().backends,
    rings: int = Sizes().rings,
    flow_buckets_log2: int = Sizes().flow_buckets_log2,
    features: Features = ALL,
    lifetimes: Lifetimes | None = None,
    frags: bool = False,
    python: str = PYTHON,
) -> str:
    """Make maps and program in `directory` (<runtime>/bpf/<layout.ABI>); return the path of the pinned program.

    `frags`: the program takes frames of several buffers. Takes a second and 130 MB while it lasts. Raises HostError,
    NotPermitted.
    """
    command = (
        python,
        "-P",  # as root, never import what lies in the current directory
        "-m",
        "haxlb.linux.compiler",
        f"--directory={_absolute(directory)}",
        f"--services={services}",
        f"--frontends={frontends}",
        f"--backends={backends}",
        f"--rings={rings}",
        f"--flow-buckets-log2={flow_buckets_log2}",
        f"--features={features.text}",
        *(f"--lifetime-{name}={seconds}" for name, seconds in asdict(lifetimes or Lifetimes()).items()),
        *(("--frags",) if frags else ()),
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(haxlb.__file__).parent.parent)}
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            # Ours may have been removed since, and bcc looks for it.
            cwd="/",
        )
    except OSError as problem:
        raise HostError(
            f"cannot run {python}: {problem.strerror}", remedy=remedy_for(problem, "apt install python3 python3-bpfcc")
        ) from problem
    try:
        said, complaints = await communicate(process, None, _TIMEOUT_S)
    except TimeoutError as problem:
        raise HostError(
            f"building the forwarder took more than {_TIMEOUT_S:.0f} s",
            remedy="give the machine some rest and try again",
        ) from problem
    refuse_killed(process.returncode, "building the forwarder")
    return _program(said, complaints, process.returncode)


def _absolute(directory: Path) -> Path:
    return directory.absolute()


def _program(said: bytes, complaints: bytes, code: int | None) -> str:
    try:
        answer: dict[str, Any] = json.loads(said)
    except ValueError as problem:
        lines = complaints.decode(errors="replace").strip().splitlines()
        last = " | ".join(line.strip() for line in lines[-_ERROR_LINES:])
        raise HostError(
            f"building the forwarder ended with {code}: {last or 'no word'}",
            remedy=f"apt install python3-bpfcc linux-libc-dev, and see that {PYTHON} is Debian's",
        ) from problem
    if "program" in answer:
        return str(answer["program"])
    kind = NotPermitted if answer.get("code") == NotPermitted.exit_code else HostError
    raise kind(str(answer.get("problem")), remedy=str(answer.get("remedy", "")))
