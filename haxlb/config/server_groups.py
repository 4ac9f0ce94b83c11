"""`virtual_server_group` blocks to values. Planned: virtual servers that use them are left out."""

from __future__ import annotations

from collections.abc import Iterator

from haxlb.model.groups import AddressRange, FirewallMark, VirtualServerGroup
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.source import Span
from keepalived_compat.tree import Body, Statement
from keepalived_compat.values_groups import GroupMark, GroupRange, read_group


def read_server_groups(tree: Body, complaints: Complaints) -> tuple[VirtualServerGroup, ...]:
    """The groups in file order, without those that keepalived removes."""
    found: dict[str, VirtualServerGroup] = {}
    heads: dict[str, Span] = {}
    for group in _blocks(tree, "virtual_server_group"):
        if not group.arguments or group.body is None:
            continue
        name = group.arguments[0]
        first = heads.setdefault(name.text, name.span)
        if first != name.span:
            complaints.error(
                "duplicate-name",
                name,
                f"a second virtual_server_group is called {name.text}; its entries are not used",
                f"the first stands at {first}; one block holds any number of entries",
            )
            continue
        entries = read_group((line.words for line in group.body.statements), Complaints())
        ranges = [each for each in entries if isinstance(each, GroupRange)]
        marks = [each for each in entries if isinstance(each, GroupMark)]
        # A mark without a family takes that of the real servers, which cannot be of both.
        mixed = len({each.first.version for each in ranges}) > 1 and any(not each.family for each in marks)
        if entries and not mixed:
            found[name.text] = VirtualServerGroup(
                name=name.text,
                ranges=tuple(
                    AddressRange(first=str(each.first), last=str(each.last), port=each.port) for each in ranges
                ),
                marks=tuple(FirewallMark(mark=each.fwmark, family=each.family) for each in marks),
            )
    return tuple(found.values())


def _blocks(tree: Body, name: str) -> Iterator[Statement]:
    return (each for each in tree.statements if each.keyword.text == name)
