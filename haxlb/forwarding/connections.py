"""The flow tables as lists of connections: one line of text for each, from the raw buckets.

A table may hold millions: what is the same for many flows (names, states, whether they are wanted at all) is found out
once and kept, and there is no object for a flow. haxlb.forwarding.flows has one, for tests.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import IPv4Network, IPv6Network
from typing import Final, NamedTuple

from haxlb.forwarding.flows import FlowState
from haxlb.forwarding.records import FrontendFlag
from haxlb.model.addresses import IPAddress, Protocol

_FLOW: Final = struct.Struct("=BBBBHHII")
_WIDE: Final = struct.Struct("=HHHHII16s")
_MAPPED: Final = bytes(12)
"""What a wide key has in front of an IPv4 address."""
_PORTS: Final = [f":{(port & 0xFF) << 8 | port >> 8}" for port in range(1 << 16)]
"""By the number that two bytes on the wire are to a little-endian machine."""
_OCTETS: Final = [f"{octet}." for octet in range(256)]
_LAST_OCTETS: Final = [str(octet) for octet in range(256)]
_STATES: Final = {
    FlowState.TCP_NEW: "SYN_RECV",
    FlowState.TCP_ESTABLISHED: "ESTABLISHED",
    FlowState.TCP_CLOSING: "FIN_WAIT",
    FlowState.UDP_NEW: "UDP",
    FlowState.UDP: "UDP",
    FlowState.TEMPLATE: "NONE",
}
_SCTP_STATES: Final = {
    FlowState.TCP_NEW: "INIT1",
    FlowState.TCP_ESTABLISHED: "ESTABLISHED",
    FlowState.TCP_CLOSING: "SHUTDOWN_SENT",
    FlowState.TEMPLATE: "NONE",
}
STATE_NAMES: Final = tuple(dict.fromkeys((*_STATES.values(), *_SCTP_STATES.values())))
"""As ipvsadm spells them; a template (`persistence_timeout`) has none there either."""
_AHEAD: Final = 1 << 31
"""An age beyond this is a stamp of the future: another CPU has read the clock later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontendName:
    """An endpoint, of which flows remember the number."""

    address: IPAddress
    port: int
    protocol: Protocol
    service: int
    flags: FrontendFlag = FrontendFlag(0)  # noqa: RUF009 - immutable


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendName:
    """A server, of which flows remember number and incarnation."""

    address: IPAddress
    port: int
    """0 = that of the packet."""
    incarnation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """What the numbers in a flow stand for."""

    frontends: Mapping[int, FrontendName]
    backends: Mapping[int, BackendName]
    persistence_s: Mapping[int, int]
    """By service: how long a template lasts."""
    lifetimes_s: tuple[int, ...]
    """By state."""
    now: int
    """jiffies, 32 bits."""
    ticks_per_second: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which connections are listed; what is empty does not limit them."""

    services: frozenset[int] | None = None
    """Their numbers."""
    frontends: frozenset[int] | None = None
    servers: frozenset[int] | None = None
    client: IPv4Network | IPv6Network | None = None
    states: frozenset[str] = field(default_factory=frozenset)


class Form(Enum):
    """How a connection is written."""

    TABLE = "table"
    """As `ipvsadm -Lnc` does."""
    JSON = "json"


class _Kind(NamedTuple):
    """What all flows of one endpoint, server and state have in common."""

    lifetime: int
    """Ticks."""
    head: str
    """What stands before the time that is left."""
    middle: str
    """Between that and the source."""
    tail: str


class Listing:
    """Makes lines of buckets."""

    def __init__(self, book: Book, wanted: Wanted, form: Form, text_of_ipv6: Callable[[bytes], str]) -> None:
        """`text_of_ipv6` writes 16 bytes as people do; the standard library's own object is too slow for it."""
        self._book = book
        self._wanted = wanted
        self._form = form
        self._text_of_ipv6 = text_of_ipv6
        self._kinds: dict[int, _Kind | None] = {}
        self._left: dict[int, str] = {}
        client = wanted.client
        self._mask = int(client.netmask) if client is not None else 0
        self._network = int(client.network_address) if client is not None else 0
        self._family = client.version if client is not None else 0

    def lines(self, buckets: bytes | memoryview) -> list[str]:
        """Of buckets of `flows` or `overflow`: one line for each flow that is wanted and not over."""
        if self._family == 6:  # noqa: PLR2004 - the family
            return []
        now, ticks, kinds, left_text, ports = (
            self._book.now,
            self._book.ticks_per_second,
            self._kinds,
            self._left,
            _PORTS,
        )
        network, mask = self._network, self._mask
        octets, last = _OCTETS, _LAST_OCTETS
        width = 18 if self._form is Form.TABLE else 0
        found: list[str] = []
        append = found.append
        for a, b, c, d, port, frontend, kind_of, stamp in _FLOW.iter_unpack(buckets):
            if kind_of < 0x2000000:  # noqa: PLR2004 - an empty way, or a claim
                continue
            number = frontend << 32 | kind_of
            try:
                kind = kinds[number]
            except KeyError:
                kind = self._kind(number, frontend, kind_of, 0)
            if kind is None:
                continue
            lifetime, head, middle, tail = kind
            age = now - stamp & 0xFFFFFFFF
            left = lifetime - age if age < _AHEAD else lifetime
            if left <= 0:
                continue
            if mask and (a << 24 | b << 16 | c << 8 | d) & mask != network:
                continue
            left = (left + ticks - 1) // ticks
            time_left = left_text.get(left) or self._time(left)
            source = octets[a] + octets[b] + octets[c] + last[d] + ports[port]
            append(f"{head}{time_left}{middle}{source.ljust(width)}{tail}")
        return found

    def wide_lines(self, buckets: bytes | memoryview) -> list[str]:
        """The same of buckets of `wide_flows` or `wide_overflow`."""
        now, ticks, kinds, left_text, ports = (
            self._book.now,
            self._book.ticks_per_second,
            self._kinds,
            self._left,
            _PORTS,
        )
        text_of_ipv6 = self._text_of_ipv6
        network, mask, family = self._network, self._mask, self._family
        width = 18 if self._form is Form.TABLE else 0
        found: list[str] = []
        for _, target, port, frontend, kind_of, stamp, address in _WIDE.iter_unpack(buckets):
            if kind_of < 0x2000000:  # noqa: PLR2004 - an empty way, or a claim
                continue
            number = target << 48 | frontend << 32 | kind_of
            try:
                kind = kinds[number]
            except KeyError:
                kind = self._kind(number, frontend, kind_of, target)
            if kind is None:
                continue
            lifetime, head, middle, tail = kind
            age = now - stamp & 0xFFFFFFFF
            left = lifetime - age if age < _AHEAD else lifetime
            if left <= 0:
                continue
            narrow = address.startswith(_MAPPED)
            if family and (
                narrow is (family == 6) or int.from_bytes(address[12:] if narrow else address, "big") & mask != network  # noqa: PLR2004
            ):
                continue
            left = (left + ticks - 1) // ticks
            time_left = left_text.get(left) or self._time(left)
            if narrow:
                source = f"{address[12]}.{address[13]}.{address[14]}.{address[15]}{ports[port]}"
            else:
                source = f"[{text_of_ipv6(address)}]{ports[port]}"
            found.append(f"{head}{time_left}{middle}{source.ljust(width)}{tail}")
        return found

    def _kind(self, number: int, index: int, kind_of: int, target: int) -> _Kind | None:
        """Find out and keep what is the same for all flows of this kind; None = they are not wanted."""
        backend, incarnation, state = kind_of & 0xFFFF, kind_of >> 16 & 0xFF, FlowState(kind_of >> 24)
        server = self._book.backends.get(backend)
        if state is FlowState.TEMPLATE:
            # Of a whole service, not of one of its endpoints.
            frontend = next((each for each in self._book.frontends.values() if each.service == index), None)
        else:
            frontend = self._book.frontends.get(index)
        made = None
        # Of a server that is no more, or an endpoint: nobody would go on in such a flow.
        if frontend is not None and server is not None and server.incarnation == incarnation:
            states = _SCTP_STATES if frontend.protocol is Protocol.SCTP else _STATES
            named = states.get(state, "NONE")
            if self._is_wanted(index, frontend, backend, named):
                lifetime = (
                    self._book.persistence_s.get(frontend.service, 0)
                    if state is FlowState.TEMPLATE
                    else self._book.lifetimes_s[state]
                )
                port = int(_PORTS[target][1:])
                made = self._written(
                    lifetime * self._book.ticks_per_second,
                    frontend.protocol.value,
                    named,
                    _place(frontend.address, frontend.port or port),
                    _place(server.address, server.port or frontend.port or port),
                )
        self._kinds[number] = made
        return made

    def _written(self, lifetime: int, protocol: str, state: str, virtual: str, destination: str) -> _Kind:
        if self._form is Form.TABLE:
            return _Kind(lifetime, f"{protocol:<3} ", f"  {state:<11} ", f" {virtual:<18} {destination}")
        return _Kind(
            lifetime,
            f'{{"protocol":{json.dumps(protocol)},"expires_s":',
            f',"state":{json.dumps(state)},"source":"',
            f'","virtual":{json.dumps(virtual)},"destination":{json.dumps(destination)}}}',
        )

    def _is_wanted(self, index: int, frontend: FrontendName, backend: int, state: str) -> bool:
        wanted = self._wanted
        return (
            (wanted.services is None or frontend.service in wanted.services)
            and (wanted.frontends is None or index in wanted.frontends)
            and (wanted.servers is None or backend in wanted.servers)
            and (not wanted.states or state in wanted.states)
        )

    def _time(self, left: int) -> str:
        text = f"{left // 60:02}:{left % 60:02}" if self._form is Form.TABLE else str(left)
        self._left[left] = text
        return text


def header() -> tuple[str, str]:
    """What stands above a table: haxlb's own first line, so that nobody takes it for the kernel's."""
    return (
        "haxlb connection entries",
        f"pro expire {'state':<11} {'source':<18} {'virtual':<18} destination",
    )


def _place(address: IPAddress, port: int) -> str:
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"  # noqa: PLR2004 - the family
