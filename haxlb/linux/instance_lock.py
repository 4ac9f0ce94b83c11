"""One haxlb per runtime directory, and per virtual router: locks that end with their process, however that ends."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

from haxlb.model.errors import HostError, NotPermitted
from haxlb.model.instance import VrrpInstance

NAME = "haxlb.pid"
_UCRED = struct.Struct("=iII")


class InstanceLock:
    """Held from construction until the process ends. Raises HostError when another haxlb holds it."""

    def __init__(self, runtime_dir: Path) -> None:
        self._path = runtime_dir / NAME
        while True:
            self._fd = self._open(runtime_dir)
            try:
                self._hold(runtime_dir)
                if self._is_seen():
                    return
            except BaseException:
                os.close(self._fd)
                raise
            # Whoever held it has removed it between our opening and our locking.
            os.close(self._fd)

    def release(self) -> None:
        """Give the lock up before the process ends, and leave no file behind."""
        with contextlib.suppress(OSError):
            # Somebody may have removed ours, and another haxlb has one of its own there.
            if self._is_seen():
                self._path.unlink()
        os.close(self._fd)

    def _open(self, runtime_dir: Path) -> int:
        try:
            runtime_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        except PermissionError as problem:
            raise NotPermitted(
                f"cannot write in the runtime directory {runtime_dir}: {problem.strerror}",
                remedy="run as root, or name another one with --runtime-dir",
            ) from problem
        except OSError as problem:
            raise _unusable(runtime_dir, problem) from problem

    def _hold(self, runtime_dir: Path) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip() or "unknown"
            raise HostError(
                f"another haxlb (pid {pid}) runs in {runtime_dir}",
                remedy="stop it, or give this one a directory of its own with --runtime-dir",
            ) from None
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except OSError as problem:
            raise _unusable(runtime_dir, problem) from problem

    def _is_seen(self) -> bool:
        """Whether the file that is locked is the one that others would open."""
        try:
            return os.path.samestat(os.fstat(self._fd), self._path.stat())
        except FileNotFoundError:
            return False


class RouterLocks:
    """One haxlb per interface, VRID and family of a network namespace, whatever the runtime directories.

    Two on one host do not hear each other, and would both be MASTER. An abstract socket belongs to the network
    namespace and goes with its last descriptor (unix(7)). Anybody may bind one: only what root or our own user listens
    by is a haxlb's, or every user of the host could keep the director from starting.
    """

    def __init__(self, instances: Iterable[VrrpInstance]) -> None:
        """Raises HostError as `claim`."""
        self._held: dict[str, socket.socket] = {}
        self.claim(instances)

    def claim(self, instances: Iterable[VrrpInstance]) -> None:
        """Hold these, too. Raises HostError when another haxlb runs one of them; then nothing more is held."""
        gained: dict[str, socket.socket] = {}
        try:
            for each in instances:
                name = _name(each)
                if name not in self._held and name not in gained:
                    lock = _locked(each)
                    if lock is not None:
                        gained[name] = lock
        except HostError:
            for lock in gained.values():
                lock.close()
            raise
        self._held |= gained

    def keep(self, instances: Iterable[VrrpInstance]) -> None:
        """Give up what is held besides these."""
        wanted = set(map(_name, instances))
        for name in self._held.keys() - wanted:
            self._held.pop(name).close()

    def release(self) -> None:
        """Give them up before the process ends."""
        self.keep(())


def _name(instance: VrrpInstance) -> str:
    return f"\0haxlb/{instance.interface}/{instance.vrid}/{instance.family}"


def _locked(instance: VrrpInstance) -> socket.socket | None:
    """None where a user who is not to be heeded listens by that name."""
    name = _name(instance)
    try:
        lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as problem:
        raise HostError(
            f"cannot see whether another haxlb of this host runs VRID {instance.vrid}: {problem.strerror}",
            remedy="see the limits of open files",
        ) from problem
    try:
        lock.bind(name)
        lock.listen()
    except OSError:
        lock.close()
        pid, uid = _listener(name)
        if uid not in (0, os.geteuid()):
            return None
        raise HostError(
            f"another haxlb runs VRID {instance.vrid} on {instance.interface} of this host: pid {pid}",
            remedy="stop it, or take that virtual router out of one of the two configurations",
        ) from None
    return lock


def _listener(name: str) -> tuple[int, int]:
    """Process and user that listen by an abstract socket, by the kernel's word; -1 where that cannot be told."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(name)
        except OSError:
            return -1, -1
        pid, uid, _ = _UCRED.unpack(probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return pid, uid


def _unusable(runtime_dir: Path, problem: OSError) -> HostError:
    return HostError(
        f"cannot use the runtime directory {runtime_dir}: {problem.strerror}",
        remedy="make room there" if problem.errno == errno.ENOSPC else "name a directory with --runtime-dir",
    )
