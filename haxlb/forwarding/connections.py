"""The flow tables as lists of connections: one line of text for each, from the raw buckets.

A table may hold millions: what is the same for many flows (names, states, whether they are wanted at all) is found out
once and kept, and there is no object for a flow. haxlb.forwarding.flows has one, for tests.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import IPv4Network, IPv6Network
from itertools import compress
from typing import Final, NamedTuple

from haxlb.forwarding.flows import FLOW_BYTES, SPILLED, WIDE_FLOW_BYTES, FlowState
from haxlb.forwarding.records import FrontendFlag
from haxlb.forwarding.remembered import Remembered
from haxlb.model.addresses import IPAddress, Protocol

_FLOW: Final = struct.Struct("=BBBBBB6sI")
_WIDE: Final = struct.Struct("=2x2sBB6sI16s")
_KIND: Final = struct.Struct("=2sHHBB")
"""Port of the endpoint, frontend, backend, incarnation, state."""
_STATE_AT: Final = 11
"""Offset of the state in a way of either kind."""
_LIVE: Final = bytes(FlowState.CLAIMED < octet & ~SPILLED <= max(FlowState) for octet in range(256))
"""Whether a way is one of a flow, by its state's byte."""
_MAPPED: Final = bytes(12)
"""What a wide key has in front of an IPv4 address."""
_OCTETS: Final = [f"{octet}." for octet in range(256)]
_LAST_OCTETS: Final = [f"{octet}:" for octet in range(256)]
_STATE_WIDTH: Final = 11
_SOURCE_WIDTH: Final = 18
_VIRTUAL_WIDTH: Final = 18
_LONGEST: Final = len("[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535")
_KEPT: Final = 1 << 16
"""Of one sort of text: clients of an endpoint for all ports choose how many there are."""
_STATES: Final = {
    FlowState.TCP_NEW: "SYN_RECV",
    FlowState.TCP_ESTABLISHED: "ESTABLISHED",
    FlowState.TCP_CLOSING: "FIN_WAIT",
    FlowState.UDP_NEW: "UDP",
    FlowState.UDP: "UDP",
    FlowState.TEMPLATE: "NONE",
    FlowState.TEMPLATE_NEW: "NONE",
}
_SCTP_STATES: Final = {
    FlowState.TCP_NEW: "INIT1",
    FlowState.TCP_ESTABLISHED: "ESTABLISHED",
    FlowState.TCP_CLOSING: "SHUTDOWN_SENT",
    FlowState.TEMPLATE: "NONE",
    FlowState.TEMPLATE_NEW: "NONE",
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

    heads: Remembered[int, str]
    """What stands before the source, by whole seconds since the last packet; empty when the flow is over."""
    tail: str
    """What stands behind it."""


class Listing:
    """Makes lines of buckets."""

    def __init__(self, book: Book, wanted: Wanted, form: Form, text_of_ipv6: Callable[[bytes], str]) -> None:
        """`text_of_ipv6` writes 16 bytes as people do; the standard library's own object is too slow for it."""
        self._book = book
        self._wanted = wanted
        self._form = form
        self._text_of_ipv6 = text_of_ipv6
        self._kinds: Remembered[bytes, _Kind | None] = Remembered(self._kind, most=_KEPT)
        self._narrow_kinds: Remembered[bytes, _Kind | None] = Remembered(self._narrow_kind, most=_KEPT)
        self._heads: dict[tuple[str, str, int], Remembered[int, str]] = {}
        width = _SOURCE_WIDTH if form is Form.TABLE else 0
        self._pads = [" " * (width - length) for length in range(_LONGEST + 1)]
        client = wanted.client
        self._family = client.version if client is not None else 0
        network, mask = (client.network_address.packed, client.netmask.packed) if client is not None else (b"", b"")
        self._network, self._mask = int.from_bytes(network, "little"), int.from_bytes(mask, "little")
        self._leading = network[: client.prefixlen // 8] if client is not None else b""
        """Where these bytes are not there is no flow of the client."""

    def lines(self, buckets: bytes) -> list[str]:
        """Of buckets of `flows` or `overflow`: one line for each flow that is wanted and not over."""
        live: Sequence[int] = buckets[_STATE_AT::FLOW_BYTES].translate(_LIVE)
        if 1 not in live or self._family == 6 or self._leading not in buckets:  # noqa: PLR2004 - the family
            return []
        if self._family:
            network, mask = self._network, self._mask
            sources = memoryview(buckets).cast("I")[:: FLOW_BYTES // 4].tolist()
            live = [source & mask == network and there for source, there in zip(sources, live, strict=True)]
        now, ticks, kinds, pads = self._book.now, self._book.ticks_per_second, self._narrow_kinds, self._pads
        octets, last = _OCTETS, _LAST_OCTETS
        # The port is spelt anew each time: a table of all of them would not stay in the CPU's caches.
        return [
            f"{head}{(source := f'{octets[a]}{octets[b]}{octets[c]}{last[d]}{high << 8 | low}')}"
            f"{pads[len(source)]}{kind.tail}"
            for a, b, c, d, high, low, kind_of, stamp in compress(_FLOW.iter_unpack(buckets), live)
            if (kind := kinds[kind_of]) and (head := kind.heads[(now - stamp & 0xFFFFFFFF) // ticks])
        ]

    def wide_lines(self, buckets: bytes) -> list[str]:
        """The same of buckets of `wide_flows` or `wide_overflow`."""
        live = buckets[_STATE_AT::WIDE_FLOW_BYTES].translate(_LIVE)
        if 1 not in live or self._leading not in buckets:
            return []
        now, ticks, kinds, pads = self._book.now, self._book.ticks_per_second, self._kinds, self._pads
        octets, last, text_of_ipv6 = _OCTETS, _LAST_OCTETS, self._text_of_ipv6
        network, mask, family = self._network, self._mask, self._family
        found: list[str] = []
        for target, high, low, kind_of, stamp, address in compress(_WIDE.iter_unpack(buckets), live):
            kind = kinds[target + kind_of]
            if not kind or not (head := kind.heads[(now - stamp & 0xFFFFFFFF) // ticks]):
                continue
            narrow = address.startswith(_MAPPED)
            if (
                family
                and (
                    narrow is (family == 6)  # noqa: PLR2004 - the family
                    or int.from_bytes(address[12:] if narrow else address, "little") & mask != network
                )
            ):
                continue
            if narrow:
                _, _, _, _, _, _, _, _, _, _, _, _, a, b, c, d = address
                source = f"{octets[a]}{octets[b]}{octets[c]}{last[d]}{high << 8 | low}"
            else:
                source = f"[{text_of_ipv6(address)}]:{high << 8 | low}"
            found.append(f"{head}{source}{pads[len(source)]}{kind.tail}")
        return found

    def _narrow_kind(self, kind_of: bytes) -> _Kind | None:
        return self._kind(bytes(2) + kind_of)

    def _kind(self, kind_of: bytes) -> _Kind | None:
        """What is the same for all flows of this kind; None = they are not wanted."""
        target, index, backend, incarnation, number = _KIND.unpack(kind_of)
        state = FlowState(number & ~SPILLED)
        server = self._book.backends.get(backend)
        if state.of_client:
            # Of a whole service, not of one of its endpoints.
            frontend = next((each for each in self._book.frontends.values() if each.service == index), None)
        else:
            frontend = self._book.frontends.get(index)
        # Of a server that is no more, or an endpoint: nobody would go on in such a flow.
        if frontend is None or server is None or server.incarnation != incarnation:
            return None
        named = (_SCTP_STATES if frontend.protocol is Protocol.SCTP else _STATES).get(state, "NONE")
        if not self._is_wanted(index, frontend, backend, named):
            return None
        lifetime_s = (
            self._book.persistence_s.get(frontend.service, 0) if state.of_client else self._book.lifetimes_s[state]
        )
        port = frontend.port or int.from_bytes(target, "big")
        virtual, destination = _place(frontend.address, port), _place(server.address, server.port or port)
        tail = (
            f" {virtual:<{_VIRTUAL_WIDTH}} {destination}"
            if self._form is Form.TABLE
            else f'","virtual":{json.dumps(virtual)},"destination":{json.dumps(destination)}}}'
        )
        return _Kind(self._heads_of(frontend.protocol.value, named, lifetime_s), tail)

    def _heads_of(self, protocol: str, state: str, lifetime_s: int) -> Remembered[int, str]:
        """Those of all kinds that have this in common."""
        ahead = _AHEAD // self._book.ticks_per_second

        def head(age_s: int) -> str:
            left = lifetime_s - age_s if age_s < ahead else lifetime_s
            if left <= 0:
                return ""
            if self._form is Form.TABLE:
                return f"{protocol:<3} {left // 60:02}:{left % 60:02}  {state:<{_STATE_WIDTH}} "
            return f'{{"protocol":{json.dumps(protocol)},"expires_s":{left},"state":{json.dumps(state)},"source":"'

        return self._heads.setdefault((protocol, state, lifetime_s), Remembered(head, most=_KEPT))

    def _is_wanted(self, index: int, frontend: FrontendName, backend: int, state: str) -> bool:
        wanted = self._wanted
        return (
            (wanted.services is None or frontend.service in wanted.services)
            and (wanted.frontends is None or index in wanted.frontends)
            and (wanted.servers is None or backend in wanted.servers)
            and (not wanted.states or state in wanted.states)
        )


def header() -> tuple[str, str]:
    """What stands above a table: haxlb's own first line, so that nobody takes it for the kernel's."""
    return (
        "haxlb connection entries",
        f"pro expire {'state':<{_STATE_WIDTH}} {'source':<{_SOURCE_WIDTH}} {'virtual':<{_VIRTUAL_WIDTH}} destination",
    )


def _place(address: IPAddress, port: int) -> str:
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"  # noqa: PLR2004 - the family
