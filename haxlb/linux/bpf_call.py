"""One bpf(2) call by ctypes: its buffers and its errors."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
from collections.abc import Iterator
from typing import Final, TypeVar

from haxlb.model.errors import Bug, HostError, NotPermitted

_SYSCALL_NUMBER: Final = {"x86_64": 321, "aarch64": 280}
_NAME_BYTES: Final = 15


class BpfError(HostError):
    """bpf(2) refused; `number` is its errno."""

    def __init__(self, message: str, *, number: int, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy)
        self.number = number


_REMEDY: Final = {
    errno.EPERM: "run it as root, or with CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON",
    errno.ENOSYS: "this kernel has no bpf(2): use one with CONFIG_BPF_SYSCALL",
    errno.ENOMEM: "free memory, raise the memory limit of the service, or lower forwarding.flow_buckets_log2",
    errno.E2BIG: "see forwarding.max_services and forwarding.flow_buckets_log2: a table is full, or too large to make",
    errno.ENOENT: "start haxlb, which makes it",
    errno.EROFS: "mount it writable: mount -o remount,rw DIRECTORY",
}

_libc: Final = ctypes.CDLL(None, use_errno=True)


_Fd = TypeVar("_Fd", int, int | None)
Buffer = ctypes.Array[ctypes.c_char]


def buffer(content: bytes) -> Buffer:
    """A C buffer that holds exactly this."""
    return ctypes.create_string_buffer(content, len(content))


def call(command: int, attributes: Buffer) -> tuple[int, int]:
    """Return the result and the errno (0 = success). Retried while a signal interrupts it."""
    try:
        number = _SYSCALL_NUMBER[platform.machine()]
    except KeyError as unknown:
        raise HostError(
            f"no bpf(2) number is known for {platform.machine()}", remedy="use an x86_64 or aarch64 machine"
        ) from unknown
    while True:
        result: int = _libc.syscall(number, command, attributes, ctypes.c_uint(len(attributes)))
        if result >= 0:
            return result, 0
        problem = ctypes.get_errno()
        if problem not in (errno.EINTR, errno.EAGAIN):
            return result, problem


def failure(action: str, number: int, remedy: str = "") -> HostError:
    """The error to raise for an errno."""
    remedy = remedy or _REMEDY.get(number, "")
    message = f"cannot {action}: {os.strerror(number)}"
    if number == errno.EPERM:
        return NotPermitted(message, remedy=remedy)
    return BpfError(message, number=number, remedy=remedy)


def do(action: str, command: int, attributes: bytes) -> int:
    """Result of a command that must succeed. Raises HostError."""
    result, number = call(command, buffer(attributes))
    if number:
        raise failure(action, number)
    return result


def address(content: Buffer | None) -> int:
    """Where it lies; 0 (NULL) for None."""
    return 0 if content is None else ctypes.addressof(content)


@contextlib.contextmanager
def closing(fd: _Fd) -> Iterator[_Fd]:
    """The descriptor meanwhile; closed in the end. None stays None."""
    try:
        yield fd
    finally:
        if fd is not None:
            os.close(fd)


def text(raw: bytes) -> str:
    """What stands before the first NUL."""
    return raw.split(b"\0", 1)[0].decode(errors="replace")


def object_name(name: str) -> bytes:
    """A BPF object's name as the kernel takes it."""
    if len(name) > _NAME_BYTES:
        raise Bug(f"BPF object names hold {_NAME_BYTES} bytes: {name}")
    return name.encode()
