"""`vrrp_sync_group` blocks to values."""

from __future__ import annotations

from collections.abc import Iterator

from haxlb.config.commands import notify_scripts
from haxlb.config.defaults import Defaults
from haxlb.config.tracking import Tracking
from haxlb.config.vips import lines_of
from haxlb.model.groups import SyncGroup
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.nearest import Hints
from keepalived_compat.section import Section
from keepalived_compat.source import Span


def read_sync_groups(
    root: Section, tracking: Tracking, defaults: Defaults, complaints: Complaints
) -> tuple[SyncGroup, ...]:
    """The groups in file order; members that do not exist are complained of and left out, as in keepalived."""
    return _Reader(root, tracking, defaults, complaints).read()


class _Reader:
    def __init__(self, root: Section, tracking: Tracking, defaults: Defaults, complaints: Complaints) -> None:
        self._root = root
        self._tracking = tracking
        self._defaults = defaults
        self._complaints = complaints
        self._known = {str(each.value) for each in root.all("vrrp_instance")}
        self._hints = Hints()
        self._grouped: dict[str, tuple[str, Span]] = {}

    def read(self) -> tuple[SyncGroup, ...]:
        found: dict[str, SyncGroup] = {}
        for entry in self._root.all("vrrp_sync_group"):
            name, section = str(entry.value), entry.section
            if section is None:
                continue
            if name in found:
                self._complaints.error(
                    "duplicate-name",
                    entry.argument_span,
                    f"a second vrrp_sync_group is called {name}; it is not used, as in keepalived",
                )
                continue
            members = tuple(dict.fromkeys(self._members(section, name)))
            if not members:
                if "group" not in section.refused and not lines_of(section, "group"):
                    self._complaints.error(
                        "missing-keyword",
                        entry.argument_span,
                        f"vrrp_sync_group {name} has no instance and is not used, as in keepalived",
                        "add `group { INSTANCE … }`",
                    )
                continue
            if sum(map(len, lines_of(section, "group"))) == 1:
                self._complaints.warning(
                    "lonely-member",
                    entry.argument_span,
                    f"vrrp_sync_group {name} has {members[0]} only: there is nothing to fail over together with",
                    "name two instances at least",
                )
            found[name] = SyncGroup(
                name=name,
                members=members,
                tracks=tuple(each.track for each in self._tracking.of(entry.words[0].span)),
                tracking_weight=section.has("sync_group_tracking_weight"),
                notify=notify_scripts(section),
                notify_priority_changes=section.value("notify_priority_changes", self._defaults.priority_changes),
                smtp_alert=section.value("smtp_alert", self._defaults.smtp_alert),
            )
        return tuple(found.values())

    def _members(self, section: Section, group: str) -> Iterator[str]:
        for word in (word for line in lines_of(section, "group") for word in line):
            if word.text not in self._known:
                self._complaints.error(
                    "undefined-member",
                    word,
                    f"vrrp_sync_group: there is no vrrp_instance {word.text}; it is left out, as in keepalived",
                    self._hints.did_you_mean(word.text, self._known),
                )
                continue
            other, first = self._grouped.setdefault(word.text, (group, word.span))
            if other == group:
                yield word.text
                continue
            self._complaints.error(
                "duplicate-name",
                word,
                f"{word.text} is in vrrp_sync_group {other} already; it is not taken into {group}, as in keepalived",
                f"there at {first}; an instance can be in one group",
            )
