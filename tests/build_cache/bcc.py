"""Before Debian's bcc in the compilers that tests start: what one of them has compiled, the others read.

Linked into a directory that the system's Python searches first (tests/build_cache/place.py). It knows what
haxlb.linux.compiler asks of bcc and nothing more. Map descriptors and the seed of a flow table, which differ from build
to build, are compiled as stand-ins and written into the instructions afterwards.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import struct
import sys
from hashlib import blake2b
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent  # of the link
OTHERS = [each for each in sys.path if Path(each) != HERE]
LD_IMM64 = 0x18
PSEUDO_MAP_FD = 1
FIRST_STAND_IN = 1_000_000
"""More descriptors than a process has."""
STAND_IN_SEEDS = (0x5EED_C0DE, 0xDEED_C0DE)
"""An operand that is sign-extended takes another instruction: one seed of either kind."""

Code = dict[str, bytes]

# An empty directory is found, too, and is no bcc.
if (spec := PathFinder.find_spec("bcc", OTHERS)) is None or spec.origin is None:
    raise ImportError("No module named 'bcc'", name="bcc")


class BPF:
    """A module that is compiled."""

    def __init__(self, *, text: str, cflags: list[str]) -> None:
        given = dict(each[2:].split("=") for each in cflags if each.startswith("-D"))
        descriptors = {name: int(value) for name, value in given.items() if name.startswith("FD_")}
        stand_ins = {name: FIRST_STAND_IN + at for at, name in enumerate(sorted(descriptors))}
        seed = int(given["FLOW_SEED"])
        stand_in_seed = STAND_IN_SEEDS[seed >> 31]
        general = {**given, **stand_ins, "FLOW_SEED": stand_in_seed}
        flags = [each for each in cflags if not each.startswith("-D")]
        compiled = _compiled(text, [*flags, *(f"-D{name}={value}" for name, value in general.items())])
        actual = {stand_ins[name]: descriptors[name] for name in descriptors}
        self._code = {name: written(code, actual, stand_in_seed, seed) for name, code in compiled.items()}
        self.module = list(self._code)

    def dump_func(self, name: str) -> bytes:
        return self._code[name]


class lib:  # noqa: N801 - bcc's name
    @staticmethod
    def bpf_num_functions(module: list[str]) -> int:
        return len(module)

    @staticmethod
    def bpf_function_name(module: list[str], at: int) -> bytes:
        return module[at].encode()


def written(code: bytes, descriptors: dict[int, int], stand_in_seed: int, seed: int) -> bytes:
    """The instructions with these values in the place of stand-ins."""
    found = bytearray(code)
    for at in range(0, len(code), 8):
        (operand,) = struct.unpack_from("<I", code, at + 4)
        if code[at] == LD_IMM64 and code[at + 1] >> 4 == PSEUDO_MAP_FD:
            struct.pack_into("<I", found, at + 4, descriptors[operand])
        elif operand == stand_in_seed:
            struct.pack_into("<I", found, at + 4, seed)
    return bytes(found)


def _compiled(text: str, flags: list[str]) -> Code:
    file = HERE / f"{_digest(text, flags)}.json"
    with file.with_suffix(".lock").open("w") as lock:
        # Who needs the same meanwhile waits for it. The lock goes with the process.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            made = {name: code.hex() for name, code in by_bcc(text, flags).items()}
            unfinished = file.with_suffix(".new")
            unfinished.write_text(json.dumps(made))
            unfinished.rename(file)
    return {name: bytes.fromhex(code) for name, code in json.loads(file.read_text()).items()}


def _digest(text: str, flags: list[str]) -> str:
    """Of all that a build depends on. Two copies of the same headers are the same."""
    whole = blake2b(text.encode(), digest_size=16)
    for flag in flags:
        if not flag.startswith("-I"):
            whole.update(flag.encode() + b"\0")
            continue
        directory = Path(flag[2:])
        for header in sorted(directory.rglob("*.h")):
            whole.update(f"{header.relative_to(directory)}\0".encode() + header.read_bytes())
    return whole.hexdigest()


def by_bcc(text: str, flags: list[str]) -> Code:
    """What bcc makes of it; raises what it raises."""
    real = _real()
    module = real.BPF(text=text, cflags=flags)
    count = real.lib.bpf_num_functions(module.module)
    names = [real.lib.bpf_function_name(module.module, at).decode() for at in range(count)]
    return {name: module.dump_func(name) for name in names}


def _real() -> Any:
    """Debian's, which finds its own parts by its name."""
    before = sys.path[:]
    sys.modules.pop("bcc", None)
    sys.path[:] = OTHERS
    try:
        return importlib.import_module("bcc")
    finally:
        sys.path[:] = before
