"""inotify(7), which the standard library does not have: names of files that have changed in directories."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from haxlb.model.errors import HostError

# <sys/inotify.h>
CLOSE_WRITE = 0x8
MOVED_FROM = 0x40
MOVED_TO = 0x80
CREATE = 0x100
DELETE = 0x200
DELETE_SELF = 0x400
MOVE_SELF = 0x800
OVERFLOW = 0x4000
IGNORED = 0x8000
ONLYDIR = 0x1000000

_EVENT = struct.Struct("=iIII")
_CHUNK = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)
_libc.inotify_init1.argtypes = (ctypes.c_int,)
_libc.inotify_add_watch.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
_libc.inotify_rm_watch.argtypes = (ctypes.c_int, ctypes.c_int)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something has happened to `name` in the directory of this watch."""

    watch: int
    """-1 where events were lost."""
    mask: int
    name: str
    """Empty = to the directory itself."""


class Inotify:
    """One instance. Raises HostError where the host allows no more of them."""

    def __init__(self) -> None:
        self._fd = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd < 0:
            raise HostError(
                f"inotify: {os.strerror(ctypes.get_errno())}", remedy="raise the sysctl fs.inotify.max_user_instances"
            )

    def fileno(self) -> int:
        """Readable when there are events."""
        return int(self._fd)

    def add(self, directory: str, mask: int) -> int:
        """Watch a directory, or change what is watched of it; its number. Raises OSError."""
        watch = _libc.inotify_add_watch(self._fd, os.fsencode(directory), mask)
        if watch < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), directory)
        return int(watch)

    def remove(self, watch: int) -> None:
        """Watch it no more; one that the kernel has removed is no error."""
        _libc.inotify_rm_watch(self._fd, watch)

    def read(self) -> Iterator[Event]:
        """All that has happened."""
        while True:
            try:
                chunk = os.read(self._fd, _CHUNK)
            except BlockingIOError:
                return
            offset = 0
            while offset < len(chunk):
                watch, mask, _, length = _EVENT.unpack_from(chunk, offset)
                offset += _EVENT.size
                name = os.fsdecode(chunk[offset : offset + length].rstrip(b"\0"))
                offset += length
                yield Event(watch=watch, mask=mask, name=name)

    def close(self) -> None:
        """Watch nothing any more."""
        os.close(self._fd)
