"""The table of NAT as user space reads it: struct answer and struct reply of bpf/abi.h. Only the program writes it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from haxlb.model.addresses import IPAddress, Protocol

_ANSWER: Final = struct.Struct("=16s16s2s2sB3x")
_REPLY: Final = struct.Struct("=8x16s2sHHHBBHI6s6sI")
ANSWER_BYTES: Final = _ANSWER.size
REPLY_BYTES: Final = _REPLY.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a packet of a server to a client says."""

    client: IPAddress
    client_port: int
    server: IPAddress
    server_port: int
    protocol: Protocol

    def pack(self) -> bytes:
        """Key of `replies`."""
        return _ANSWER.pack(
            self.client.packed,
            self.server.packed,
            self.client_port.to_bytes(2, "big"),
            self.server_port.to_bytes(2, "big"),
            self.protocol.number,
        )

    @classmethod
    def unpack(cls, raw: bytes) -> Answer:
        """Of such a key."""
        client, server, client_port, server_port, protocol = _ANSWER.unpack(raw)
        # Of two hosts' IPv6 addresses not both are 32 bits and zeros from there on.
        narrow = not any(client[4:] + server[4:])
        return cls(
            client=_address(client, narrow=narrow),
            client_port=int.from_bytes(client_port, "big"),
            server=_address(server, narrow=narrow),
            server_port=int.from_bytes(server_port, "big"),
            protocol=Protocol.of(protocol),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the client knows instead, and the way to it."""

    address: IPAddress
    port: int
    frontend: int
    service: int
    backend: int
    incarnation: int
    any_port: bool
    client_mac: str
    own_mac: str
    interface: int

    @classmethod
    def unpack(cls, raw: bytes, *, version: int) -> Reply:
        """Of a value of `replies`, whose key says the family."""
        address, port, frontend, service, backend, incarnation, flags, _, _, client, own, interface = _REPLY.unpack(raw)
        return cls(
            address=_address(address, narrow=version == 4),  # noqa: PLR2004 - the family
            port=int.from_bytes(port, "big"),
            frontend=frontend,
            service=service,
            backend=backend,
            incarnation=incarnation,
            any_port=bool(flags & 1),
            client_mac=client.hex(":"),
            own_mac=own.hex(":"),
            interface=interface,
        )


def unpack_replies(keys: bytes, values: bytes) -> Iterator[tuple[Answer, Reply]]:
    """Entries that were read in one batch."""
    for number in range(len(keys) // ANSWER_BYTES):
        answer = Answer.unpack(keys[number * ANSWER_BYTES : (number + 1) * ANSWER_BYTES])
        raw = values[number * REPLY_BYTES : (number + 1) * REPLY_BYTES]
        yield answer, Reply.unpack(raw, version=answer.server.version)


def keys_of_former(keys: bytes, values: bytes, incarnations: dict[int, int]) -> list[bytes]:
    """The keys of entries whose server had one of these indices before it got its present incarnation."""
    return [
        keys[number * ANSWER_BYTES : (number + 1) * ANSWER_BYTES]
        for number, (_, _, _, _, backend, incarnation, *_) in enumerate(_REPLY.iter_unpack(values))
        if incarnations.get(backend, incarnation) != incarnation
    ]


def _address(packed: bytes, *, narrow: bool) -> IPAddress:
    return IPv4Address(packed[:4]) if narrow else IPv6Address(packed)
