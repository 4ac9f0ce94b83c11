"""A synchronous rtnetlink socket: pyroute2's messages, a socket of our own.

pyroute2 0.9 is asyncio inside; its synchronous classes run a loop of their own and cannot be called from a running
one. The ports are synchronous by contract (a VIP is off before the next line runs), and the kernel answers an rtnetlink
request before `send` returns, so nothing is won by waiting for it on a loop.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Any, cast

from haxlb.model.errors import HostError

# <linux/netlink.h>, <linux/rtnetlink.h>
NLM_F_REQUEST = 0x1
NLM_F_ACK = 0x4
NLM_F_REPLACE = 0x100
NLM_F_EXCL = 0x200
NLM_F_CREATE = 0x400
NLM_F_DUMP = 0x300
RTM_NEWLINK = 16
RTM_DELLINK = 17
RTM_GETLINK = 18
RTM_NEWADDR = 20
RTM_DELADDR = 21
RTM_GETADDR = 22
RTM_NEWROUTE = 24
RTM_DELROUTE = 25
RTM_NEWRULE = 32
RTM_DELRULE = 33
RTMGRP_LINK = 0x1
RTMGRP_IPV4_IFADDR = 0x10
RTMGRP_IPV6_IFADDR = 0x100
IFA_ADDRESS = 1
IFA_LOCAL = 2
IFA_FLAGS = 8
IFLA_ADDRESS = 1
IFLA_IFNAME = 3
IFLA_MTU = 4
_NLA_TYPE_MASK = 0x3FFF
_NLMSG_ERROR = 2
_NLMSG_DONE = 3
_SOL_NETLINK = 270
_NETLINK_GET_STRICT_CHK = 12
_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_BATCH = 64
"""Requests per `send`: their answers must fit into the receive buffer."""
_ANSWER_TIMEOUT_S = 5.0


def import_narrowly() -> None:
    """Let pyroute2's modules be imported one by one, without `pyroute2/__init__.py`, which imports all of them.

    Saves 10 MB and 0.1 s of the start. For a process that uses nothing of pyroute2 but its messages: `import pyroute2`
    finds an empty package afterwards.
    """
    spec = importlib.util.find_spec("pyroute2")
    if spec is not None and "pyroute2" not in sys.modules:
        sys.modules["pyroute2"] = importlib.util.module_from_spec(spec)


def encode(message: Any, kind: int, flags: int) -> bytes:
    """The bytes of a pyroute2 message as a request of this kind; its sequence number is set when it is sent."""
    message["header"]["type"] = kind
    message["header"]["flags"] = flags | NLM_F_REQUEST
    message.encode()
    return bytes(message.data)


def request(kind: int, flags: int, body: bytes) -> bytes:
    """A request of this kind around what follows its header; its sequence number is set when it is sent."""
    return _HEADER.pack(_HEADER.size + len(body), kind, flags | NLM_F_REQUEST, 0, 0) + body


def attach(kind: int, value: bytes) -> bytes:
    """One attribute, padded to four bytes (netlink(7)); nested ones are the concatenation of others."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value + bytes(-len(value) % 4)


def split(datagram: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(kind, port id, whole message) of each message of a datagram."""
    offset = 0
    while offset + _HEADER.size <= len(datagram):
        length, kind, _, _, port = _HEADER.unpack_from(datagram, offset)
        if length < _HEADER.size:
            return
        yield kind, port, datagram[offset : offset + length]
        offset += (length + 3) & ~3


def attribute(message: bytes, fixed: int, wanted: int) -> bytes | None:
    """The value of the first attribute of this type; `fixed` is the size of what stands before the attributes.

    For the events of a busy host: pyroute2 takes half a millisecond to decode a link.
    """
    offset = _HEADER.size + fixed
    while offset + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, offset)
        if length < _ATTRIBUTE.size:
            return None
        if kind & _NLA_TYPE_MASK == wanted:
            return message[offset + _ATTRIBUTE.size : offset + length]
        offset += (length + 3) & ~3
    return None


def nested(nest: bytes, wanted: int) -> bytes | None:
    """The same of the attributes inside of an attribute."""
    return attribute(bytes(_HEADER.size) + nest, 0, wanted)


class Rtnetlink:
    """Requests and their answers, one after the other."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.bind((0, 0))
        self._socket.settimeout(_ANSWER_TIMEOUT_S)
        # Dumps honour the filter in their request (an interface's index) only with this.
        self._socket.setsockopt(_SOL_NETLINK, _NETLINK_GET_STRICT_CHK, 1)
        self.port: int = self._socket.getsockname()[0]
        """Stands in the notifications of every change that was asked for here."""
        self._sequence = 0

    def change(self, requests: Sequence[bytes]) -> list[int]:
        """Carry out all requests (made with NLM_F_ACK) in order; the errno of each, 0 where it went well."""
        results = []
        for start in range(0, len(requests), _BATCH):
            results += self._change(requests[start : start + _BATCH])
        return results

    def get(self, request: bytes) -> list[bytes]:
        """The messages that answer one request, a dump or not. Raises OSError with the kernel's errno."""
        numbered = self._number(request)
        self._socket.send(numbered)
        flags = _HEADER.unpack_from(request)[2]
        dump = flags & NLM_F_DUMP == NLM_F_DUMP
        answers: list[bytes] = []
        while True:
            for kind, _, message in split(self._receive()):
                if _HEADER.unpack_from(message)[3] != self._sequence:
                    continue
                if kind in (_NLMSG_ERROR, _NLMSG_DONE):
                    number = -cast("int", struct.unpack_from("=i", message, _HEADER.size)[0])
                    if number:
                        raise OSError(number, os.strerror(number))
                    return answers
                answers.append(message)
            if not dump and answers:
                return answers

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _change(self, requests: Sequence[bytes]) -> list[int]:
        first = self._sequence + 1
        self._socket.send(b"".join(self._number(each) for each in requests))
        results: list[int | None] = [None] * len(requests)
        while None in results:
            for kind, _, message in split(self._receive()):
                index = _HEADER.unpack_from(message)[3] - first
                if kind == _NLMSG_ERROR and 0 <= index < len(results):
                    results[index] = -struct.unpack_from("=i", message, _HEADER.size)[0]
        return [number or 0 for number in results]

    def _number(self, request: bytes) -> bytes:
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        numbered = bytearray(request)
        struct.pack_into("=I", numbered, 8, self._sequence)
        return bytes(numbered)

    def _receive(self) -> bytes:
        try:
            return self._socket.recv(1 << 18)
        except TimeoutError as problem:
            raise HostError(
                f"the kernel did not answer an rtnetlink request within {_ANSWER_TIMEOUT_S:.0f} s",
                remedy="look for a process that holds the rtnl lock (dmesg: hung task)",
            ) from problem
