"""`virtual_server ADDRESS [PORT]`, `virtual_server group NAME`, `virtual_server fwmark MARK`: what is served."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from haxlb.config.server_groups import MOST_ENDPOINTS, ServerGroups, addresses, size
from haxlb.model.addresses import Endpoint, IPAddress, Protocol
from haxlb.model.groups import AddressRange
from haxlb.model.made_often import made_often
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.nearest import did_you_mean
from keepalived_compat.section import Entry
from keepalived_compat.source import Span
from keepalived_compat.values import Unusable, endpoint_address, port
from keepalived_compat.values_line import FAMILIES, whole_number

_LARGEST_MARK = 2**32 - 1
_SYNTAX = "virtual_server ADDRESS [PORT], virtual_server group NAME or virtual_server fwmark MARK"


@made_often
@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a `virtual_server` serves, of whatever protocol. Made by `of`."""

    places: tuple[tuple[IPAddress, int], ...]
    """Address and port, at least one; port 0 = all ports."""
    families: frozenset[int]
    """4, 6 or both."""
    ports: frozenset[int]
    port: int
    """The one that all places have; 0 = that of the packet."""
    group: str = ""
    fwmark: int = 0

    @classmethod
    def of(cls, places: tuple[tuple[IPAddress, int], ...], *, group: str = "", fwmark: int = 0) -> Head:
        """From its places, of which there may be many thousands."""
        ports = frozenset([number for _, number in places])
        return cls(
            places=places,
            families=frozenset([address.version for address, _ in places]),
            ports=ports,
            port=places[0][1] if len(ports) == 1 else 0,
            group=group,
            fwmark=fwmark,
        )

    @property
    def one_port(self) -> bool:
        """All places have the same port, or all serve all ports."""
        return len(self.ports) == 1

    @property
    def all_ports(self) -> bool:
        """Some place serves all ports."""
        return 0 in self.ports

    def endpoints(self, protocol: Protocol) -> tuple[Endpoint, ...]:
        """The places with a protocol."""
        return tuple([Endpoint(address=address, port=number, protocol=protocol) for address, number in self.places])


class HeadReader:
    """Reads the line that opens a `virtual_server`."""

    def __init__(self, entry: Entry, groups: ServerGroups, complaints: Complaints) -> None:
        self._entry = entry
        self._texts = entry.texts[1:]
        self._where: Span = entry.argument_span
        self._groups = groups
        self._complaints = complaints

    def read(self, family: str) -> Head | None:
        """What it serves; `family` is ip_family's word or empty. None when it cannot be used: it has been said why."""
        kind = self._texts[0]
        if kind not in ("group", "fwmark"):
            return self._address(family)
        if len(self._texts) == 1:
            self._complaints.error(
                "missing-argument", self._where, f"virtual_server: `{kind}` lacks its argument; it is left out", _SYNTAX
            )
            return None
        self._surplus(2)
        return self._group() if kind == "group" else self._fwmark(FAMILIES.get(family))

    def _address(self, family: str) -> Head | None:
        try:
            taken = endpoint_address(self._texts[0])
            number = port(self._texts[1]) if len(self._texts) > 1 else None
        except Unusable as problem:
            self._complaints.error(
                "bad-value",
                self._where,
                f"virtual_server: {problem.message}; its block is not used",
                problem.hint or _SYNTAX,
            )
            return None
        if taken.caveat:
            self._complaints.warning("inexact-value", self._where, taken.caveat)
        self._surplus(2)
        address: IPAddress = taken.value  # type: ignore[assignment]
        if family and address.version != FAMILIES[family]:
            self._complaints.warning(
                "useless-flag",
                self._where,
                f"ip_family {family} does not fit the address {address} and is ignored, as in keepalived",
            )
        return Head.of(((address, number or 0),))

    def _group(self) -> Head | None:
        word = self._entry.words[2]
        group = self._groups.get(word.text)
        if group is None:
            if word.text not in self._groups.written:
                self._complaints.error(
                    "undefined-group",
                    word,
                    f"there is no virtual_server_group {word.text}: virtual_server group {word.text} is left out",
                    did_you_mean(word.text, self._groups.written)
                    or f"virtual_server_group {word.text} {{ ADDRESS PORT }}",
                )
            return None
        ranges = group.ranges
        if not ranges:
            ranges = tuple(span for each in group.marks for span in self._groups.with_mark(each.mark, each.family))
        if not ranges:
            self._unmapped(f"virtual_server group {group.name}", group.marks[0].mark)
            return None
        if group.marks:
            self._complaints.note(
                "mark-by-address",
                word,
                f"packets are served by their address, not by fwmark {' '.join(str(each.mark) for each in group.marks)}"
                f" of virtual_server_group {group.name}: the forwarder sees them before the packet filter",
            )
        return self._head(ranges, group=group.name)

    def _fwmark(self, family: int | None) -> Head | None:
        word = self._entry.words[2]
        mark = whole_number(word.text)
        if mark is None or not 0 < mark <= _LARGEST_MARK:
            self._complaints.error(
                "bad-value",
                word,
                f"virtual_server: `{word.text}` is no fwmark; its block is not used",
                f"1 to {_LARGEST_MARK}",
            )
            return None
        ranges = self._groups.with_mark(mark, family)
        if not ranges:
            self._unmapped(f"virtual_server fwmark {mark}", mark)
            return None
        return self._head(ranges, fwmark=mark)

    def _head(self, ranges: tuple[AddressRange, ...], *, group: str = "", fwmark: int = 0) -> Head | None:
        number = sum(map(size, ranges))
        if number > MOST_ENDPOINTS:
            self._complaints.error(
                "too-many-endpoints",
                self._where,
                f"virtual_server {self._texts[0]} {self._texts[1]} would serve {number} addresses,"
                f" {MOST_ENDPOINTS} are possible; it is left out",
                "divide the group, and name the addresses that there are",
            )
            return None
        return Head.of(tuple(dict.fromkeys(_places(ranges))), group=group, fwmark=fwmark)

    def _unmapped(self, what: str, mark: int) -> None:
        self._complaints.error(
            "unmapped-mark",
            self._where,
            f"{what} is left out: the forwarder sees packets before the packet filter marks them, and no"
            f" virtual_server_group says which addresses fwmark {mark} stands for",
            f"virtual_server_group mark{mark} {{ ADDRESS PORT (one or more lines), fwmark {mark} }}",
        )

    def _surplus(self, wanted: int) -> None:
        if len(self._texts) > wanted:
            word = self._entry.words[1 + wanted]
            self._complaints.warning(
                "surplus-words", word, f"`virtual_server` takes no further words: `{word.text}` is ignored"
            )


def _places(ranges: Iterable[AddressRange]) -> Iterable[tuple[IPAddress, int]]:
    return ((address, span.port or 0) for span in ranges for address in addresses(span))
