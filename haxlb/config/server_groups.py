"""`virtual_server_group` blocks: which addresses a `virtual_server group` or `fwmark` serves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import ip_address

from haxlb.model.addresses import IPAddress
from haxlb.model.groups import AddressRange, FirewallMark, VirtualServerGroup
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.section import Entry, Section
from keepalived_compat.source import Span
from keepalived_compat.values_groups import GroupMark, GroupRange, read_group

MOST_ENDPOINTS = 65_535
"""Of all virtual servers: frontends have numbers of 16 bits (bpf/abi.h)."""


class ServerGroups:
    """All groups of a configuration."""

    def __init__(self, root: Section, complaints: Complaints) -> None:
        """Read them; those that keepalived removes are left out, with a complaint."""
        self._groups: dict[str, VirtualServerGroup] = {}
        self._written: dict[str, Span] = {}
        for entry in root.all("virtual_server_group"):
            self._read(entry, complaints)

    @property
    def all(self) -> tuple[VirtualServerGroup, ...]:
        """In file order."""
        return tuple(self._groups.values())

    @property
    def written(self) -> Iterable[str]:
        """The names of all that stand in the file, also of those that are left out."""
        return self._written

    def get(self, name: str) -> VirtualServerGroup | None:
        """The group of this name, None when it is none or was left out."""
        return self._groups.get(name)

    def with_mark(self, mark: int, family: int | None = None) -> tuple[AddressRange, ...]:
        """The addresses of every group that has a line `fwmark MARK`; of one family where the line or `family` says so.

        XDP sees a packet before the packet filter could mark it, so what the mark stands for has to be said.
        """
        return tuple(
            span
            for group in self._groups.values()
            for each in group.marks
            if each.mark == mark
            for span in group.ranges
            if {each.family, family or 0} <= {0, _family(span)}
        )

    def _read(self, entry: Entry, complaints: Complaints) -> None:
        name = entry.words[1]
        first = self._written.setdefault(name.text, name.span)
        if first != name.span:
            complaints.error(
                "duplicate-name",
                name,
                f"a second virtual_server_group is called {name.text}; its entries are not used",
                f"the first stands at {first}; one block holds any number of entries",
            )
            return
        entries = read_group(entry.section.lines if entry.section is not None else (), complaints)
        ranges = [each for each in entries if isinstance(each, GroupRange)]
        marks = [each for each in entries if isinstance(each, GroupMark)]
        if not entries:
            complaints.warning(
                "empty-group",
                name,
                f"virtual_server_group {name.text} has no usable entry and is left out, as in keepalived",
                "add `ADDRESS PORT`, one a line",
            )
            return
        if len({each.first.version for each in ranges}) > 1 and any(not each.family for each in marks):
            complaints.error(
                "mixed-family",
                name,
                f"virtual_server_group {name.text} has IPv4, IPv6 and a fwmark without a family, and is left out,"
                " as in keepalived",
                "write `fwmark MARK inet` or `fwmark MARK inet6`",
            )
            return
        self._groups[name.text] = VirtualServerGroup(
            name=name.text,
            ranges=tuple(AddressRange(first=str(each.first), last=str(each.last), port=each.port) for each in ranges),
            marks=tuple(FirewallMark(mark=each.fwmark, family=each.family) for each in marks),
        )


def size(span: AddressRange) -> int:
    """How many addresses it holds."""
    return int(ip_address(span.last)) - int(ip_address(span.first)) + 1


def addresses(span: AddressRange) -> Iterator[IPAddress]:
    """Each of them."""
    first = ip_address(span.first)
    kind = type(first)
    return (kind(each) for each in range(int(first), int(first) + size(span)))


def _family(span: AddressRange) -> int:
    return ip_address(span.first).version
