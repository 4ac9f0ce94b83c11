"""The bpffs in which programs, maps and links stay alive when the process that made them is gone.

It is mounted inside the runtime directory, never used below /sys: `ip netns exec` mounts a new /sys over that.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from haxlb.model.errors import HostError, NotPermitted

_BPF_FS_MAGIC: Final = 0xCAFE4A11  # include/uapi/linux/magic.h
_STATFS_BYTES: Final = 256
_MNT_DETACH: Final = 2
_LOCK_PAUSE_S: Final = 0.02

_libc: Final = ctypes.CDLL(None, use_errno=True)


def is_bpffs(path: Path) -> bool:
    """Whether `path` exists and lies in a bpffs."""
    answer = ctypes.create_string_buffer(_STATFS_BYTES)
    if _libc.statfs(os.fsencode(path), answer):
        return False
    # f_type is the first member and a long on every 64-bit architecture.
    return ctypes.c_ulong.from_buffer(answer).value == _BPF_FS_MAGIC


def ensure_bpffs(path: Path) -> None:
    """Make the directory and mount a bpffs there unless it lies in one already. Raises HostError."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as problem:
        raise _refused(f"make {path}", problem.errno or 0) from problem
    if is_bpffs(path):
        return
    if _libc.mount(b"bpf", os.fsencode(path), b"bpf", ctypes.c_ulong(0), b"mode=0700"):
        raise _refused(f"mount a bpffs at {path}", ctypes.get_errno())


@contextlib.contextmanager
def held(directory: Path, *, patience_s: float = 0.0) -> Iterator[bool]:
    """Nobody else who asks makes or restores pins here meanwhile; False = somebody still does after so long.

    Raises OSError.
    """
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield _lock(fd, time.monotonic() + patience_s)
    finally:
        os.close(fd)


def _lock(fd: int, deadline: float) -> bool:
    """Not by waiting in the kernel, which would have no end where whoever holds it was stopped."""
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOCK_PAUSE_S)
        else:
            return True


def remove_all(directory: Path) -> list[str]:
    """Remove what is pinned in a directory, at any depth, and the directory; names of what was pinned. Raises OSError.

    Other versions of haxlb may have directories there that this one does not.
    """
    removed = []
    for pin in sorted(directory.iterdir()):
        if pin.is_dir() and not pin.is_symlink():
            removed += remove_all(pin)
        else:
            pin.unlink()
            removed.append(pin.name)
    directory.rmdir()
    return removed


def unmount(path: Path) -> None:
    """Take away the bpffs that is mounted at `path`; none there is no error. Raises HostError."""
    if _libc.umount2(os.fsencode(path), _MNT_DETACH):
        number = ctypes.get_errno()
        if number not in (errno.EINVAL, errno.ENOENT):
            raise _refused(f"unmount {path}", number)


def _refused(action: str, number: int) -> HostError:
    message = f"cannot {action}: {os.strerror(number)}"
    if number in (errno.EPERM, errno.EACCES):
        return NotPermitted(message, remedy="run it as root, or with CAP_SYS_ADMIN and a writable --runtime-dir")
    if number == errno.ENODEV:
        return HostError(message, remedy="use a kernel with CONFIG_BPF_SYSCALL")
    return HostError(message, remedy="name another --runtime-dir")
