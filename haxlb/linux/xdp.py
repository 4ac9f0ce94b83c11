"""XDP as rtnetlink knows it: which program an interface carries, in which mode; attaching without a link.

Two short messages by struct instead of pyroute2, whose import would be most of the memory of the processes that ask.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from haxlb.linux.bpf_call import BpfError
from haxlb.model.errors import HostError, NotPermitted

FLAGS_UPDATE_IF_NOEXIST: Final = 1 << 0
FLAGS_SKB_MODE: Final = 1 << 1
FLAGS_DRV_MODE: Final = 1 << 2

# include/uapi/linux/rtnetlink.h, if_link.h
_RTM_NEWLINK, _RTM_GETLINK, _RTM_SETLINK = 16, 18, 19
_NLMSG_ERROR = 2
_NLM_F_REQUEST, _NLM_F_ACK = 1, 4
_NLA_F_NESTED, _NLA_TYPE_MASK = 1 << 15, 0x3FFF
_IFLA_ADDRESS, _IFLA_LINKINFO, _IFLA_EXT_MASK, _IFLA_XDP = 1, 18, 29, 43
_IFLA_INFO_KIND = 1
_IFLA_XDP_FD, _IFLA_XDP_ATTACHED, _IFLA_XDP_FLAGS, _IFLA_XDP_PROG_ID = 1, 2, 3, 4
_MODES: Final = {0: "none", 1: "native", 2: "generic", 3: "hardware", 4: "several"}
_ATTRIBUTE_HEAD: Final = 4
_CLONE_NEWNET = 0x40000000

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """The XDP program of an interface."""

    mode: str
    """native, generic, hardware, several (of different modes) or none."""
    program_id: int
    """0 = none."""
    mac: str
    """The interface's own."""
    kind: str
    """Of a virtual interface: veth, bridge, …; empty for a device."""


def attach_by_netlink(prog_fd: int, interface: str, *, namespace: Path | None = None) -> None:
    """Attach natively, replacing nothing; the program stays until the interface goes. Raises HostError."""

    def attach() -> None:
        index = interface_index(interface)
        xdp = _attribute(_IFLA_XDP_FD, struct.pack("=i", prog_fd)) + _attribute(
            _IFLA_XDP_FLAGS, struct.pack("=I", FLAGS_DRV_MODE | FLAGS_UPDATE_IF_NOEXIST)
        )
        body = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, 0, 0) + _attribute(_IFLA_XDP | _NLA_F_NESTED, xdp)
        with _netlink() as channel:
            _ask(channel, _RTM_SETLINK, body, f"attach an XDP program to {interface}")

    if namespace is None:
        attach()
    else:
        in_namespace(namespace, attach)


def attachment(index: int) -> Attachment:
    """What XDP program the interface carries now. Raises HostError when there is no such interface."""
    with _netlink() as channel:
        # RTEXT_FILTER_SKIP_STATS: we read no counters.
        body = struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, 0, 0) + _attribute(
            _IFLA_EXT_MASK, struct.pack("=I", 1 << 3)
        )
        answer = _ask(channel, _RTM_GETLINK, body, f"ask for interface {index}")
    link = dict(_attributes(answer[16:]))
    xdp = dict(_attributes(link.get(_IFLA_XDP, b"")))
    mode = xdp.get(_IFLA_XDP_ATTACHED, b"\0")[0]
    (program,) = struct.unpack("=I", xdp.get(_IFLA_XDP_PROG_ID, bytes(4)))
    kind = dict(_attributes(link.get(_IFLA_LINKINFO, b""))).get(_IFLA_INFO_KIND, b"")
    return Attachment(
        mode=_MODES.get(mode, str(mode)),
        program_id=program,
        mac=link.get(_IFLA_ADDRESS, bytes(6))[:6].hex(":"),
        kind=kind.rstrip(b"\0").decode(errors="replace"),
    )


def interface_index(interface: str) -> int:
    """Index of an interface by name. Raises HostError."""
    try:
        return socket.if_nametoindex(interface)
    except OSError as problem:
        raise HostError(
            f"there is no interface {interface}", remedy="name one that `ip link` lists, or create it first"
        ) from problem


def interface_name(index: int) -> str:
    """Name of an interface by index. Raises HostError."""
    try:
        return socket.if_indextoname(index)
    except OSError as problem:
        raise HostError(f"there is no interface with index {index}", remedy="see `ip link`") from problem


def in_namespace(path: Path, work: Callable[[], T]) -> T:
    """Run `work` in another network namespace, in a thread of its own that ends with it.

    Raises HostError where the namespace cannot be entered, and whatever `work` raises.
    """
    results: list[T] = []
    problems: list[BaseException] = []

    def visit() -> None:
        try:
            _enter(path)
            results.append(work())
        except BaseException as problem:  # noqa: BLE001 - handed to the caller's thread
            problems.append(problem)

    thread = threading.Thread(target=visit, name="netns")
    thread.start()
    thread.join()
    if problems:
        raise problems[0]
    return results[0]


def _enter(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if ctypes.CDLL(None, use_errno=True).setns(handle, _CLONE_NEWNET):
                number = ctypes.get_errno()
                raise OSError(number, os.strerror(number), str(path))
        finally:
            os.close(handle)
    except OSError as problem:
        raise HostError(
            f"cannot enter the network namespace {path}: {problem.strerror}",
            remedy="run as root, and name a namespace that `ip netns` lists",
        ) from problem


def _netlink() -> socket.socket:
    channel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
    channel.bind((0, 0))
    return channel


def _ask(channel: socket.socket, kind: int, body: bytes, action: str) -> bytes:
    """Send one request; return the body of the first answer that is not an acknowledgement."""
    flags = _NLM_F_REQUEST | (_NLM_F_ACK if kind == _RTM_SETLINK else 0)
    channel.send(struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body)
    answer = channel.recv(1 << 16)
    length, answered = struct.unpack_from("=IH", answer)
    if answered == _NLMSG_ERROR:
        (number,) = struct.unpack_from("=i", answer, 16)
        if number:
            raise _refusal(action, -number)
        return b""
    return answer[16:length]


def _refusal(action: str, number: int) -> HostError:
    message = f"cannot {action}: {os.strerror(number)}"
    if number == errno.EPERM:
        return NotPermitted(message, remedy="run it as root, or with CAP_NET_ADMIN")
    remedy = {
        errno.EBUSY: "detach the XDP program that is there",
        errno.EEXIST: "detach the XDP program that is there",
        errno.EOPNOTSUPP: "the driver has no native XDP: use forwarding.mode generic",
        errno.ERANGE: "lower the MTU (of a veth, its peer's)",
    }.get(number, "see `ip -details link`")
    return BpfError(message, number=number, remedy=remedy)


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, at)
        if length < _ATTRIBUTE_HEAD:
            return
        yield kind & _NLA_TYPE_MASK, data[at + 4 : at + length]
        at += length + (-length % 4)
