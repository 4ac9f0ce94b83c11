"""The number in a tracked file."""

from __future__ import annotations

import os
import re
import stat

_READ = 127
"""Bytes of a file that are looked at, as in keepalived."""
_MOST = 2**31 - 1
_NUMBER = re.compile(rb"\s*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")


def read(path: str) -> tuple[int, str]:
    """The number in a file, and what there is to say; 0 where there is none (keepalived)."""
    try:
        # Not blocking, or a FIFO in the file's place would stop us.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        return 0, "there is no such file: counts as 0"
    except OSError as problem:
        return 0, f"{problem.strerror}: counts as 0"
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return 0, "not a file: counts as 0"
        content = os.read(fd, _READ)
    except OSError as problem:
        return 0, f"{problem.strerror}: counts as 0"
    finally:
        os.close(fd)
    return parse(content)


def parse(content: bytes) -> tuple[int, str]:
    """The number that a text begins with, read as strtol(3) with base 0 does, and what there is to say about it."""
    found = _NUMBER.match(content)
    if found is None:
        return 0, "no number in it: counts as 0" if content.strip() else "empty: counts as 0"
    digits = found[2]
    base = 16 if digits[:2] in (b"0x", b"0X") else 8 if digits[:1] == b"0" else 10
    number = min(int(digits, base), _MOST) * (-1 if found[1] == b"-" else 1)
    rest = content[found.end() :].strip()
    return number, f"{number}, and more text that is not looked at" if rest else str(number)
