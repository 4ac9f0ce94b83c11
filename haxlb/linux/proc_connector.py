"""The kernel's process events connector (Documentation/driver-api/connector.rst, <linux/cn_proc.h>).

A netlink multicast group on which the kernel tells of every fork, exec and exit of the host. It exists only in the
initial network namespace, and speaks only to processes in the initial PID and user namespaces.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from haxlb.model.errors import HostError

_NETLINK_CONNECTOR = 11
_CN_IDX_PROC = 1
_CN_VAL_PROC = 1
_PROC_CN_MCAST_LISTEN = 1
_NLMSG_DONE = 3
_NLMSG = struct.Struct("=IHHII")
_CN_MSG = struct.Struct("=IIIIHH")
_EVENT = struct.Struct("=IIQ")
_PIDS = struct.Struct("=ii")
_FORK = struct.Struct("=iiii")
_RECEIVE_BUFFER = 1 << 20
"""Bytes; some thousand events, until the loop comes back to us."""
_MOST_AT_ONCE = 1024
_ACK_WITHIN_S = 0.2
"""The kernel answers before the request's send returns."""
_WHY_NOT = "/proc is read each second instead"


class Change(Enum):
    """Values of enum proc_cn_event that matter to us."""

    NONE = 0
    FORK = 1
    EXEC = 2
    COMM = 0x200
    EXIT = 0x80000000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEvent:
    """A process (never a mere thread) has begun, is another program now, or has ended."""

    change: Change
    pid: int
    parent: int = 0
    """Of a FORK."""


class ProcConnector:
    """An open connection. Raises HostError where the kernel does not tell us."""

    def __init__(self) -> None:
        try:
            self._socket = socket.socket(
                socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC, _NETLINK_CONNECTOR
            )
        except OSError as problem:
            raise HostError(f"no process events: {problem.strerror}", remedy=_WHY_NOT) from problem
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
            self._socket.bind((0, _CN_IDX_PROC))
            self._socket.send(_request())
        except OSError as problem:
            self._socket.close()
            raise HostError(f"no process events: {problem.strerror}", remedy=_WHY_NOT) from problem
        # In a container the request is dropped without a word (drivers/connector/cn_proc.c).
        if not select.select([self._socket], [], [], _ACK_WITHIN_S)[0]:
            self._socket.close()
            raise HostError("no process events: the kernel does not answer in this namespace", remedy=_WHY_NOT)

    def fileno(self) -> int:
        """Readable when there are events."""
        return self._socket.fileno()

    def read(self) -> Iterator[ProcessEvent]:
        """What has happened, a thousand events at most. Raises BufferError where events were lost."""
        for _ in range(_MOST_AT_ONCE):
            try:
                datagram, sender = self._socket.recvfrom(4096)
            except BlockingIOError:
                return
            except OSError as problem:  # ENOBUFS
                raise BufferError(problem.strerror) from problem
            if sender[0] == 0:  # the kernel's own port
                event = decode(datagram)
                if event is not None:
                    yield event

    def close(self) -> None:
        """Hear no more."""
        self._socket.close()


def decode(datagram: bytes) -> ProcessEvent | None:
    """The event of one message; None for those that mean nothing here, threads among them."""
    offset = _NLMSG.size + _CN_MSG.size
    if len(datagram) < offset + _EVENT.size + _FORK.size:
        return None
    if _CN_MSG.unpack_from(datagram, _NLMSG.size)[:2] != (_CN_IDX_PROC, _CN_VAL_PROC):
        return None
    what = _EVENT.unpack_from(datagram, offset)[0]
    offset += _EVENT.size
    if what == Change.FORK.value:
        _, parent, child, group = _FORK.unpack_from(datagram, offset)
        return ProcessEvent(change=Change.FORK, pid=child, parent=parent) if child == group else None
    if what in (Change.EXEC.value, Change.COMM.value, Change.EXIT.value):
        pid, group = _PIDS.unpack_from(datagram, offset)
        return ProcessEvent(change=Change(what), pid=pid) if pid == group else None
    return None


def _request() -> bytes:
    operation = struct.pack("=I", _PROC_CN_MCAST_LISTEN)
    body = _CN_MSG.pack(_CN_IDX_PROC, _CN_VAL_PROC, 0, 0, len(operation), 0) + operation
    return _NLMSG.pack(_NLMSG.size + len(body), _NLMSG_DONE, 0, 0, os.getpid()) + body
