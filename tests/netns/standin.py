"""For tests: a stand-in for the supervisor, an ear on the wire, and names of what to wait for."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path
from typing import Any, Self, TypeVar

from lab import Host

from haxlb.daemon.messages import (
    AskStatus,
    ConfigureSpeaker,
    GarpFrame,
    Happened,
    Message,
    Ready,
    SpeakerStatus,
    decode,
    encode,
)
from haxlb.linux.announcer import garp_request
from haxlb.linux.present_addresses import parse_address
from haxlb.linux.rtnetlink import RTM_NEWADDR, RTMGRP_IPV4_IFADDR, split
from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.facts import Fact, RoleChanged
from haxlb.model.instance import Role, VrrpInstance

T = TypeVar("T")
LIMIT_S = 60.0
"""A machine that compiles the forwarder for other tests at the same time takes half of it."""
_CLONE_NEWNET = 0x40000000
_SO_TIMESTAMPNS = 35
_SO_RCVBUFFORCE = 33
_EAR_BUFFER = 16 << 20
"""Bytes: what comes in the seconds in which a busy machine does not let the ear listen."""
_libc = ctypes.CDLL(None, use_errno=True)


@contextlib.contextmanager
def inside(namespace: str) -> Iterator[None]:
    """Run the block with this thread in a network namespace; sockets opened there stay there."""
    with Path("/proc/thread-self/ns/net").open("rb") as home, Path(f"/run/netns/{namespace}").open("rb") as there:
        if _libc.setns(there.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
        try:
            yield
        finally:
            _libc.setns(home.fileno(), _CLONE_NEWNET)


def eventually(look: Callable[[], T], what: str, limit_s: float = LIMIT_S) -> T:
    """What `look` returns as soon as that is true; fails when it is not within the limit."""
    deadline = time.monotonic() + limit_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit_s:g} s: {what}")
        time.sleep(0.01)


def whole_lines(path: Path) -> list[str]:
    """Of a file that may be amid a write: the last line counts when it has its end. None where there is no file."""
    text = path.read_bytes() if path.exists() else b""
    return text[: text.rfind(b"\n") + 1].decode().splitlines()


def addresses(host: Host, interface: str = "eth0") -> set[IPv4Address]:
    """IPv4 addresses of an interface, as the kernel says."""
    lines = host.run("ip", "-o", "-4", "address", "show", "dev", interface, check=False).stdout.splitlines()
    return {IPv4Interface(line.split()[3]).ip for line in lines}


@dataclass(frozen=True, slots=True)
class Heard:
    """One frame that the ear heard."""

    at_ns: int
    """The kernel's stamp, CLOCK_REALTIME."""
    frame: bytes

    @property
    def source_mac(self) -> str:
        return self.frame[6:12].hex(":")

    @property
    def is_arp(self) -> bool:
        return self.frame[12:14] == b"\x08\x06"

    @property
    def is_advert(self) -> bool:
        return self.frame[12:14] == b"\x08\x00" and self.frame[23] == 112

    @property
    def source(self) -> IPv4Address:
        return IPv4Address(self.frame[26:30])

    @property
    def destination(self) -> IPv4Address:
        return IPv4Address(self.frame[30:34])

    @property
    def ttl(self) -> int:
        return self.frame[22]

    @property
    def tos(self) -> int:
        return self.frame[15]

    @property
    def vrrp(self) -> bytes:
        return self.frame[34 : 14 + int.from_bytes(self.frame[16:18])]

    @property
    def priority(self) -> int:
        return self.vrrp[2]

    @property
    def arp_target(self) -> IPv4Address:
        return IPv4Address(self.frame[38:42])


class Ear:
    """Hears every frame that reaches an interface, with the kernel's time stamps."""

    def __init__(self, namespace: str, interface: str = "eth0") -> None:
        with inside(namespace):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0003))
            self._socket.bind((interface, 0x0003))
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _EAR_BUFFER)
        self._socket.settimeout(0.1)
        self._frames: list[Heard] = []
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        self._socket.close()

    def frames(self, since_ns: int = 0) -> list[Heard]:
        return [each for each in list(self._frames) if each.at_ns >= since_ns]

    def adverts(self, since_ns: int = 0) -> list[Heard]:
        return [each for each in list(self._frames) if each.is_advert and each.at_ns >= since_ns]

    def adverts_of(self, source: IPv4Address, priority: int | None = None, *, since_ns: int = 0) -> list[Heard]:
        return [each for each in self.adverts(since_ns) if each.source == source and priority in (None, each.priority)]

    def garps(self, vip: IPv4Address, since_ns: int = 0) -> list[Heard]:
        return [
            each
            for each in list(self._frames)
            if each.is_arp and each.at_ns >= since_ns and each.arp_target == vip and each.frame[28:32] == vip.packed
        ]

    def _listen(self) -> None:
        while not self._closing.is_set():
            try:
                frame, ancillary, _, _ = self._socket.recvmsg(2048, 64)
            except OSError as problem:  # nothing for a while, or the interface has gone down
                if problem.errno in (None, errno.EAGAIN, errno.ENETDOWN):
                    continue
                raise
            for level, kind, data in ancillary:
                if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
                    seconds, nanoseconds = struct.unpack("=qq", data)
                    self._frames.append(Heard(seconds * 1_000_000_000 + nanoseconds, frame))


class AddressWatch:
    """Hears of every IPv4 address that is put on an interface of a namespace, also of one that goes at once."""

    def __init__(self, namespace: str) -> None:
        with inside(namespace):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
            self._socket.bind((0, RTMGRP_IPV4_IFADDR))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def added(self) -> set[IPAddress]:
        """Those since the last call."""
        found: set[IPAddress] = set()
        with contextlib.suppress(BlockingIOError):
            while True:
                for kind, _, message in split(self._socket.recv(1 << 16, socket.MSG_DONTWAIT)):
                    present = parse_address(message) if kind == RTM_NEWADDR else None
                    if present is not None:
                        found.add(present.address)
        return found


class SpeakerHandle:
    """A speaker process in a namespace, and the supervisor's end of its pipe."""

    def __init__(self, host: Host, *, wrapper: tuple[str, ...] = ()) -> None:
        self.host = host
        ours, theirs = socket.socketpair()
        self._socket = ours
        self.process: subprocess.Popen[Any] = host.start(
            *wrapper,
            sys.executable,
            "-m",
            "haxlb.linux.speaker_main",
            "--fd",
            str(theirs.fileno()),
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        self.messages: list[Message] = []
        self._news = threading.Condition()
        self._tickets = 0
        self.eof = False
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def send(self, message: Message) -> None:
        self._socket.sendall(encode(message))

    def configure(self, *instances: VrrpInstance, limit_s: float = LIMIT_S) -> str:
        """Configure and wait for the answer: the problem, empty when there is none."""
        mac = self.host.mac()
        frames = tuple(
            GarpFrame(interface=vip.interface, mac=mac, vip=vip.address, frame_hex=garp_request(mac, vip.address).hex())
            for each in instances
            for vip in each.vips
        )
        before = len(self.messages)
        self.send(ConfigureSpeaker(instances=instances, garp_frames=frames))
        return self.wait_for(lambda m: isinstance(m, Ready), "Ready", limit_s=limit_s, start=before).problem

    def wait_for(
        self, matches: Callable[[Message], bool], what: str, *, limit_s: float = LIMIT_S, start: int = 0
    ) -> Any:
        """The first message from index `start` on that matches."""

        def found() -> Message | None:
            return next((each for each in self.messages[start:] if matches(each)), None)

        with self._news:
            self._news.wait_for(lambda: found() or self.eof, limit_s)
            message = found()
        if message is None:
            raise AssertionError(f"no {what} within {limit_s:g} s; got {self.messages[start:][-12:]}")
        return message

    def becomes(self, role: Role, *, instance: str = "VI_1", limit_s: float = LIMIT_S, start: int = 0) -> RoleChanged:
        """Wait for the instance to change to this role; the fact."""

        def matches(message: Message) -> bool:
            fact = message.fact if isinstance(message, Happened) else None
            return isinstance(fact, RoleChanged) and fact.instance == instance and fact.after is role

        happened: Happened = self.wait_for(matches, f"{instance} {role.value}", limit_s=limit_s, start=start)
        assert isinstance(happened.fact, RoleChanged)
        return happened.fact

    def facts(self, kind: type[T]) -> list[T]:
        facts: Iterable[Fact] = (each.fact for each in list(self.messages) if isinstance(each, Happened))
        return [each for each in facts if isinstance(each, kind)]

    def status(self, limit_s: float = LIMIT_S) -> SpeakerStatus:
        self._tickets += 1
        ticket = self._tickets
        self.send(AskStatus(ticket=ticket))
        status: SpeakerStatus = self.wait_for(
            lambda m: isinstance(m, SpeakerStatus) and m.ticket == ticket, "status", limit_s=limit_s
        )
        return status

    def kill(self) -> None:
        """SIGKILL; what it leaves behind is left behind."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(timeout=LIMIT_S)

    def hang_up(self) -> None:
        """Close the supervisor's end, as its death does."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the pipe and wait for the reader; once or more often."""
        with contextlib.suppress(OSError):  # ENOTCONN, EBADF: the other end, or ours, is closed already
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.kill()
        self.close()

    def _read(self) -> None:
        partial = b""
        while True:
            try:
                chunk = self._socket.recv(1 << 16)
            except OSError:
                chunk = b""
            *lines, partial = (partial + chunk).split(b"\n")
            with self._news:
                self.messages += [decode(line) for line in lines]
                self.eof = not chunk
                self._news.notify_all()
            if not chunk:
                return


def vip(address: str, prefix_length: int = 32, interface: str = "eth0") -> Vip:
    return Vip(address=IPv4Address(address), prefix_length=prefix_length, interface=interface)
