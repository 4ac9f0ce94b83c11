"""The short-lived process that builds the forwarder: bcc compiles, the kernel verifies, the result is pinned.

Run by the system's Python, which alone sees Debian's python3-bpfcc:
`/usr/bin/python3 -m haxlb.linux.compiler --directory /run/haxlb/bpf/ABI`. Prints one JSON object, `{"program": path}`
or `{"problem": …, "remedy": …, "code": exit code}`, and exits with 0 or 1. bcc is the compiler and nothing else
(ADR 2): maps are made by haxlb.linux.maps and the program is loaded by haxlb.linux.bpf. Standard library and bcc only.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import signal
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from pathlib import Path
from typing import Final

import haxlb
from haxlb.forwarding.features import ALL, Features, Lifetimes
from haxlb.forwarding.layout import INDEX, PROGRAMS, SHAPES_DIGEST, Sizes, programs_shape, shapes_digest
from haxlb.linux import bpf
from haxlb.linux.bpf_call import closing
from haxlb.linux.bpffs import ensure_bpffs
from haxlb.linux.maps import Maps, create, verify_version
from haxlb.linux.pins import build_of
from haxlb.model.errors import HaxlbError, HostError

_ATTACHED: Final = "forward"
_SWEEP: Final = "sweep"
_SOURCES: Final = ("forward.c", "sweep.c")
_HEADERS: Final = Path("/usr/include")
_ERROR_LINES: Final = 4
_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to build."""

    directory: Path
    sizes: Sizes = field(default_factory=Sizes)
    features: Features = ALL
    lifetimes: Lifetimes = field(default_factory=Lifetimes)
    name: str = "haxlb"
    frags: bool = False
    """The program takes frames of several buffers."""


def build(order: Order) -> Path:
    """Make what is missing in the directory, compile and pin the program; return its pin. Raises HostError."""
    # The daemon that names the directory may be older than what is on disk.
    directory = order.directory
    verify_version(directory)
    _verify_sources(sources())
    ensure_bpffs(directory.parent)
    directory.mkdir(exist_ok=True)
    (directory / "links").mkdir(exist_ok=True)
    with Maps.create(directory, order.sizes) as maps, closing(create(programs_shape())) as parts:
        flags = bpf.F_XDP_HAS_FRAGS if order.frags else 0
        code = _compile(maps, parts, order)
        with closing(bpf.prog_load(code.pop(_ATTACHED), name=order.name, flags=flags)) as program:
            # A name that no other build has had: one that took over the pins of the one that is attached would take its
            # parts away (below) before it takes its place.
            build = build_of(bpf.program_info(program))
            pin = directory / f"prog-{build}"
            with closing(bpf.prog_load(code.pop(_SWEEP), name="haxlb_sweep", kind=bpf.PROG_TYPE_SCHED_CLS)) as sweep:
                for part, instructions in code.items():
                    with closing(bpf.prog_load(instructions, name=f"haxlb_{part}"[:15], flags=flags)) as loaded:
                        bpf.map_update(parts, INDEX.pack(PROGRAMS.index(part)), INDEX.pack(loaded))
                # The kernel empties an array of programs when nobody holds it but programs: it is pinned beside the one
                # that goes on in it, and for as long.
                for fd, path in (
                    (parts, directory / f"parts-{build}"),
                    (sweep, directory / f"sweep-{build}"),
                    (program, pin),
                ):
                    bpf.obj_pin(fd, path)
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


def _compile(maps: Maps, parts: int, order: Order) -> dict[str, bytes]:
    """Bytecode of the parts that are built, by their names, with the descriptors of `maps` and `parts` in it."""
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    if not (_HEADERS / "linux" / "if_ether.h").is_file():
        raise HostError("there are no C headers of Linux", remedy="apt install linux-libc-dev")
    place = sources()
    # bcc would compile against the running kernel's headers, which need not be installed: these few are enough.
    os.environ["BCC_KERNEL_SOURCE"] = str(place / "shim")
    try:
        from bcc import BPF, lib
    except ImportError as problem:
        raise HostError(
            f"{sys.executable} has no bcc: {problem}", remedy="apt install python3-bpfcc (never `pip install bcc`)"
        ) from problem
    constants = {
        # The tick of this kernel: CLOCK_MONOTONIC_COARSE has its resolution.
        "TICKS_PER_SECOND": round(1 / time.clock_getres(6)),
        "FLOW_BUCKETS": maps.sizes.flow_buckets,
        "OVERFLOW_BUCKETS": maps.sizes.overflow_buckets,
        "WIDE_FLOW_BUCKETS": maps.sizes.wide_flow_buckets,
        "WIDE_OVERFLOW_BUCKETS": maps.sizes.wide_overflow_buckets,
        "FLOW_SEED": _seed(maps),
        "FD_programs": parts,
        **{f"FD_{name}": fd for name, fd in maps.fds.items()},
        **order.features.defines(),
        **order.lifetimes.defines(),
    }
    flags = [
        f"-I{place}",
        f"-isystem{_HEADERS}",
        f"-isystem{_HEADERS / multiarch}",
        *(f"-D{name}={value}" for name, value in constants.items()),
    ]
    with _stderr_caught() as caught:
        try:
            # One module: bcc takes what is in its main file only, and half a second for each.
            text = "".join((place / name).read_text(encoding="utf-8") for name in _SOURCES)
            module = BPF(text=text, cflags=flags)
            built = {lib.bpf_function_name(module.module, each) for each in range(lib.bpf_num_functions(module.module))}
            names = [name for name in (_ATTACHED, _SWEEP, *PROGRAMS) if f"haxlb_{name}".encode() in built]
            code: dict[str, bytes] = {name: module.dump_func(f"haxlb_{name}") for name in names}
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
    """Unpin builds that no link of ours runs."""
    attached = set()
    for pin in (directory / "links").iterdir():
        with closing(bpf.obj_get(pin)) as link:
            attached.add(bpf.link_info(link).program_id)
    kept = {_build_of(newest)}
    for pin in directory.glob("prog-*"):
        with closing(bpf.obj_get(pin)) as program:
            if bpf.program_info(program).id in attached:
                kept.add(_build_of(pin))
    # What a build that was ended amid its pins has left has no program.
    for pin in (each for kind in ("prog", "parts", "sweep") for each in directory.glob(f"{kind}-*")):
        if _build_of(pin) not in kept:
            pin.unlink()


def _build_of(pin: Path) -> str:
    return pin.name.partition("-")[2]


def main(argv: list[str] | None = None) -> int:
    """Build as the arguments say; one line of JSON on stdout."""
    parser = argparse.ArgumentParser(prog="haxlb.linux.compiler")
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--services", type=int, default=Sizes().services)
    parser.add_argument("--backends", type=int, default=Sizes().backends)
    parser.add_argument("--frontends", type=int, default=Sizes().frontends)
    parser.add_argument("--rings", type=int, default=Sizes().rings)
    parser.add_argument("--flow-buckets-log2", type=int, default=Sizes().flow_buckets_log2)
    parser.add_argument("--replies", type=int, default=Sizes().replies)
    parser.add_argument("--features", type=Features.parse, default=ALL)
    for each in fields(Lifetimes):
        parser.add_argument(f"--lifetime-{each.name}", type=int, default=each.default)
    parser.add_argument("--frags", action="store_true")
    parser.add_argument("--name", default="haxlb")
    asked = parser.parse_args(argv)
    # One that outlived a daemon that was killed would pin its program beside that of the next one, and remove that.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    order = Order(
        directory=asked.directory,
        sizes=Sizes(
            services=asked.services,
            frontends=asked.frontends,
            backends=asked.backends,
            rings=asked.rings,
            flow_buckets_log2=asked.flow_buckets_log2,
            replies=asked.replies,
        ),
        features=asked.features,
        lifetimes=Lifetimes(**{each.name: getattr(asked, f"lifetime_{each.name}") for each in fields(Lifetimes)}),
        name=asked.name,
        frags=asked.frags,
    )
    answer: dict[str, str | int]
    try:
        answer = {"program": str(build(order))}
    except HaxlbError as problem:
        answer = {"problem": problem.message, "remedy": problem.remedy, "code": problem.exit_code}
    except OSError as problem:
        answer = {
            "problem": f"cannot build the forwarder in {order.directory}: {problem.strerror or problem}",
            "remedy": "see that it can be written, and that the host has room for temporary files and memory",
            "code": HostError.exit_code,
        }
    print(json.dumps(answer), flush=True)  # noqa: T201 - the protocol with the parent
    return 0 if "program" in answer else 1


if __name__ == "__main__":
    sys.exit(main())
