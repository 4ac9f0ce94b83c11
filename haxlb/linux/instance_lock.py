"""One haxlb per runtime directory: an exclusive lock that ends with its process, however that ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from haxlb.model.errors import HostError, NotPermitted

NAME = "haxlb.pid"


class InstanceLock:
    """Held from construction until the process ends. Raises HostError when another haxlb holds it."""

    def __init__(self, runtime_dir: Path) -> None:
        path = runtime_dir / NAME
        try:
            runtime_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except PermissionError as problem:
            raise NotPermitted(
                f"cannot write in the runtime directory {runtime_dir}: {problem.strerror}",
                remedy="run as root, or name another one with --runtime-dir",
            ) from problem
        except OSError as problem:
            raise HostError(
                f"cannot use the runtime directory {runtime_dir}: {problem.strerror}",
                remedy="name a directory with --runtime-dir",
            ) from problem
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._fd)
            raise HostError(
                f"another haxlb (pid {pid}) runs in {runtime_dir}",
                remedy="stop it, or give this one a directory of its own with --runtime-dir",
            ) from None
        # Not unlinked at the end: whoever opened it before would then hold a lock on a file that nobody sees.
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Give the lock up before the process ends."""
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
            os.close(self._fd)
