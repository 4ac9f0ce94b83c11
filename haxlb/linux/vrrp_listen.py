"""An ear for VRRP on one interface: every advert that comes in or goes out, as the link layer has it.

A packet socket with a filter in the kernel (packet(7), bpf(2) classic), so that a busy link costs nothing. It hears all
multicast, whatever the group, since `vrrp_mcast_group4` may name any.
"""

from __future__ import annotations

import ctypes
import select
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from haxlb.model.errors import HostError, NotPermitted
from haxlb.vrrp.envelope import Layer

_ETH_P_ALL = 0x0003
_SOL_PACKET = 263
_PACKET_ADD_MEMBERSHIP = 1
_PACKET_STATISTICS = 6
_PACKET_AUXDATA = 8
_MR_PROMISCUOUS = 1
_MR_ALL_MULTICAST = 2
_SO_ATTACH_FILTER = 26
_SO_TIMESTAMPNS = 35
_VLAN_VALID = 0x10
_PACKET_OUTGOING = 4
_PACKET_LOOPBACK = 5
_AUXDATA = struct.Struct("=IIIHHHH")
_TIMESPEC = struct.Struct("=qq")
_ETHERNET_TYPES = (1, 772)
"""ARPHRD_ETHER, ARPHRD_LOOPBACK (linux/if_arp.h): those with an Ethernet header; others are heard without."""
_LONGEST = 65535
_BUFFER = 1 << 20
_BATCH = 256

_IPV4, _IPV6, _VLAN, _QINQ = 0x0800, 0x86DD, 0x8100, 0x88A8
_VRRP, _AH = 112, 51
_LOAD_HALF, _LOAD_BYTE, _AND, _EQUAL, _RETURN = 0x28, 0x30, 0x54, 0x15, 0x06

_Instruction = tuple[int, int, int, int]
"""code, jump if true, jump if false, operand (linux/filter.h)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One frame of VRRP."""

    data: bytes
    layer: Layer
    at_us: int
    """The kernel's stamp, µs since the epoch."""
    outgoing: bool
    vlan: int | None
    """Tag that the kernel had already taken off."""


def _protocols(ip: int, *, family_at: int | None) -> list[_Instruction]:
    """Accept VRRP and AH in an IP packet at this offset; `family_at` = offset of its EtherType, None = look at it."""
    if family_at is None:
        family = [(_LOAD_BYTE, 0, 0, ip), (_AND, 0, 0, 0xF0)]
        four, six = 0x40, 0x60
    else:
        family = [(_LOAD_HALF, 0, 0, family_at)]
        four, six = _IPV4, _IPV6
    return [
        *family,
        (_EQUAL, 0, 3, four),
        (_LOAD_BYTE, 0, 0, ip + 9),
        (_EQUAL, 6, 0, _VRRP),
        (_EQUAL, 5, 4, _AH),
        (_EQUAL, 0, 3, six),
        (_LOAD_BYTE, 0, 0, ip + 6),
        (_EQUAL, 2, 0, _VRRP),
        (_EQUAL, 1, 0, _AH),
        (_RETURN, 0, 0, 0),
        (_RETURN, 0, 0, _LONGEST),
    ]


def packet_filter(layer: Layer) -> list[_Instruction]:
    """Only VRRP, with or without an authentication header, tagged or not."""
    if layer is Layer.IP:
        return _protocols(0, family_at=None)
    untagged = _protocols(14, family_at=12)
    tagged = _protocols(18, family_at=16)
    choice = [(_LOAD_HALF, 0, 0, 12), (_EQUAL, 1, 0, _VLAN), (_EQUAL, 0, len(tagged), _QINQ)]
    return [*choice, *tagged, *untagged]


class Ear:
    """Hears VRRP on an interface until it is closed."""

    def __init__(self, interface: str, *, promiscuous: bool = False) -> None:
        """Raises NotPermitted without CAP_NET_RAW, HostError when there is no such interface."""
        self.interface = interface
        try:
            self._index = socket.if_nametoindex(interface)
        except OSError as problem:
            raise HostError(
                f"there is no interface {interface}", remedy="see `ip link`; in a namespace: ip netns exec NAME …"
            ) from problem
        self.layer = Layer.ETHERNET
        self._socket = self._open(socket.SOCK_RAW)
        if self._socket.getsockname()[3] not in _ETHERNET_TYPES:
            self._socket.close()
            self.layer = Layer.IP
            self._socket = self._open(socket.SOCK_DGRAM)
        self._lost = 0
        self._was_down = False
        kinds = (_MR_ALL_MULTICAST, _MR_PROMISCUOUS) if promiscuous else (_MR_ALL_MULTICAST,)
        for kind in kinds:
            membership = struct.pack("=iHH8s", self._index, kind, 0, bytes(8))
            self._socket.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)

    @property
    def lost(self) -> int:
        """Frames that came faster than they were read."""
        statistics = self._socket.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, 8)
        self._lost += struct.unpack("=II", statistics)[1]  # reading it sets it to 0
        return self._lost

    def wait(self, seconds: float) -> None:
        """Until there is something to hear, at most this long."""
        select.select([self._socket], [], [], max(0.0, seconds))

    def frames(self) -> Iterator[Frame]:
        """What has arrived, at most some hundred. Raises HostError when the interface is gone."""
        for _ in range(_BATCH):
            try:
                data, ancillary, _, address = self._socket.recvmsg(_LONGEST, 256)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:
                # ENETDOWN: once, when it goes down; what happens to it then is not told.
                self._was_down = True
                break
            if address[2] == _PACKET_LOOPBACK:
                continue
            yield self._frame(data, ancillary, outgoing=address[2] == _PACKET_OUTGOING)
        if self._was_down:
            self._look_for_interface()

    def close(self) -> None:
        """Stop hearing."""
        self._socket.close()

    def _frame(self, data: bytes, ancillary: list[tuple[int, int, bytes]], *, outgoing: bool) -> Frame:
        at_us, vlan = 0, None
        for level, kind, value in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, _SO_TIMESTAMPNS):
                seconds, nanoseconds = _TIMESPEC.unpack_from(value)
                at_us = seconds * 1_000_000 + nanoseconds // 1000
            elif (level, kind) == (_SOL_PACKET, _PACKET_AUXDATA):
                status, *_, tag, _ = _AUXDATA.unpack_from(value)
                if status & _VLAN_VALID:
                    vlan = tag & 0x0FFF
        return Frame(data=data, layer=self.layer, at_us=at_us, outgoing=outgoing, vlan=vlan)

    def _look_for_interface(self) -> None:
        try:
            there = socket.if_nametoindex(self.interface) == self._index
        except OSError:
            there = False
        if not there:
            raise HostError(f"{self.interface} has gone away", remedy="listen again when it is back")

    def _open(self, kind: socket.SocketKind) -> socket.socket:
        try:
            # Without a protocol it hears nothing until it is bound, when the filter is in place.
            opened = socket.socket(socket.AF_PACKET, kind, 0)
        except PermissionError as problem:
            raise NotPermitted(
                f"may not listen on {self.interface}: CAP_NET_RAW is missing", remedy="use sudo"
            ) from problem
        try:
            opened.setblocking(False)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            opened.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
            opened.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)
            _attach(opened, packet_filter(Layer.ETHERNET if kind == socket.SOCK_RAW else Layer.IP))
            opened.bind((self.interface, _ETH_P_ALL))
        except OSError as problem:
            opened.close()
            raise HostError(
                f"cannot listen on {self.interface}: {problem.strerror}", remedy="see `ip link show`"
            ) from problem
        return opened


def _attach(opened: socket.socket, program: list[_Instruction]) -> None:
    code = b"".join(struct.pack("=HBBI", *each) for each in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("@HP", len(program), ctypes.addressof(buffer)))
