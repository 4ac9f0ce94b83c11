"""The short-lived process that builds the forwarder: bcc compiles, the kernel verifies, the result is pinned.

Run by the system's Python, which alone sees Debian's python3-bpfcc:
`/usr/bin/python3 -m haxlb.linux.compiler --directory /run/haxlb/bpf/ABI`. Prints one JSON object, `{"program": path}`
or `{"problem": …, "remedy": …, "code": exit code}`, and exits with 0 or 1. bcc is the compiler and nothing else
(ADR 2): maps are made by haxlb.linux.maps and the program is loaded by haxlb.linux.bpf. Standard library and bcc only.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Final

import haxlb
from haxlb.forwarding.layout import SHAPES_DIGEST, Sizes, shapes_digest
from haxlb.linux import bpf
from haxlb.linux.bpf_call import closing
from haxlb.linux.bpffs import ensure_bpffs
from haxlb.linux.maps import Maps, verify_version
from haxlb.model.errors import HaxlbError, HostError

_FUNCTION: Final = "haxlb_forward"
_HEADERS: Final = Path("/usr/include")
_ERROR_LINES: Final = 4


def build(directory: Path, sizes: Sizes, name: str) -> Path:
    """Make what is missing in `directory`, compile and pin the program; return its pin. Raises HostError."""
    # The daemon that names the directory may be older than what is on disk.
    verify_version(directory)
    _verify_sources(sources())
    ensure_bpffs(directory.parent)
    directory.mkdir(exist_ok=True)
    (directory / "links").mkdir(exist_ok=True)
    with Maps.create(directory, sizes) as maps, closing(bpf.prog_load(_compile(maps), name=name)) as program:
        pin = directory / f"prog-{bpf.program_info(program).tag}"
        # Pinned aside and renamed over: the path of an identical program that is attached never vanishes.
        aside = directory / "new"
        aside.unlink(missing_ok=True)
        bpf.obj_pin(program, aside)
        aside.rename(pin)
    _prune(directory, pin)
    return pin


def sources() -> Path:
    """Where the C lies: beside the package in a source tree, inside it when installed. Raises HostError."""
    package = Path(haxlb.__file__).parent
    for place in (package / "bpf", package.parent / "bpf"):
        if (place / "forward.c").is_file():
            return place
    raise HostError("bpf/forward.c is missing", remedy="install haxlb anew")


def _verify_sources(place: Path) -> None:
    """Refuse C whose shapes are not those of haxlb.forwarding.layout: an installation that is half exchanged."""
    try:
        found = shapes_digest(*((place / name).read_text(encoding="utf-8") for name in ("abi.h", "maps.h")))
    except OSError as problem:
        raise HostError(f"cannot read {place}: {problem.strerror}", remedy="install haxlb anew") from problem
    if found != SHAPES_DIGEST:
        raise HostError(
            f"the forwarder's source in {place} and the rest of haxlb are of different versions",
            remedy="install haxlb anew, or wait for its installation to end",
        )


def _compile(maps: Maps) -> bytes:
    """Bytecode with the descriptors of `maps` in it."""
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    if not (_HEADERS / "linux" / "if_ether.h").is_file():
        raise HostError("there are no C headers of Linux", remedy="apt install linux-libc-dev")
    place = sources()
    # bcc would compile against the running kernel's headers, which need not be installed: these few are enough.
    os.environ["BCC_KERNEL_SOURCE"] = str(place / "shim")
    try:
        from bcc import BPF
    except ImportError as problem:
        raise HostError(
            f"{sys.executable} has no bcc: {problem}", remedy="apt install python3-bpfcc (never `pip install bcc`)"
        ) from problem
    constants = {
        # The tick of this kernel: CLOCK_MONOTONIC_COARSE has its resolution.
        "TICKS_PER_SECOND": round(1 / time.clock_getres(6)),
        "FLOW_BUCKETS": maps.sizes.flow_buckets,
        "FLOW_SEED": _seed(maps),
        **{f"FD_{name}": fd for name, fd in maps.fds.items()},
    }
    flags = [
        f"-I{place}",
        f"-isystem{_HEADERS}",
        f"-isystem{_HEADERS / multiarch}",
        *(f"-D{name}={value}" for name, value in constants.items()),
    ]
    with _stderr_caught() as caught:
        try:
            module = BPF(text=(place / "forward.c").read_text(encoding="utf-8"), cflags=flags)
            code: bytes = module.dump_func(_FUNCTION)
        except Exception as problem:  # bcc raises bare Exception
            lines = [line for line in caught() if "error" in line or "rror:" in line] or caught()
            raise HostError(
                f"bcc cannot compile {place / 'forward.c'}: {' | '.join(lines[:_ERROR_LINES]) or problem}",
                remedy="report this with the versions of python3-bpfcc and linux-libc-dev",
            ) from problem
    return code


def _seed(maps: Maps) -> int:
    """What an outsider cannot know and a later program on the same flow table finds again: the way to a bucket."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    table = bpf.map_info(maps.fds["flows"]).id
    return int.from_bytes(blake2b(boot + str(table).encode(), digest_size=4).digest(), "big")


@contextlib.contextmanager
def _stderr_caught() -> Iterator[Callable[[], list[str]]]:
    """Collect what C++ writes to descriptor 2 meanwhile; yields a function that reads its lines."""
    kept = os.dup(2)
    with tempfile.TemporaryFile() as sink:

        def lines() -> list[str]:
            sink.seek(0)
            return [line for line in sink.read().decode(errors="replace").splitlines() if line.strip()]

        os.dup2(sink.fileno(), 2)
        try:
            yield lines
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _prune(directory: Path, newest: Path) -> None:
    """Unpin programs that no link of ours runs."""
    attached = set()
    for pin in (directory / "links").iterdir():
        with closing(bpf.obj_get(pin)) as link:
            attached.add(bpf.link_info(link).program_id)
    for pin in directory.glob("prog-*"):
        with closing(bpf.obj_get(pin)) as program:
            identity = bpf.program_info(program).id
        if pin != newest and identity not in attached:
            pin.unlink()


def main(argv: list[str] | None = None) -> int:
    """Build as the arguments say; one line of JSON on stdout."""
    parser = argparse.ArgumentParser(prog="haxlb.linux.compiler")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--services", type=int, default=Sizes().services)
    parser.add_argument("--backends", type=int, default=Sizes().backends)
    parser.add_argument("--flow-buckets-log2", type=int, default=Sizes().flow_buckets_log2)
    parser.add_argument("--name", default="haxlb")
    asked = parser.parse_args(argv)
    sizes = Sizes(services=asked.services, backends=asked.backends, flow_buckets_log2=asked.flow_buckets_log2)
    answer: dict[str, str | int]
    try:
        answer = {"program": str(build(asked.directory, sizes, asked.name))}
    except HaxlbError as problem:
        answer = {"problem": problem.message, "remedy": problem.remedy, "code": problem.exit_code}
    print(json.dumps(answer), flush=True)  # noqa: T201 - the protocol with the parent
    return 0 if "program" in answer else 1


if __name__ == "__main__":
    sys.exit(main())
