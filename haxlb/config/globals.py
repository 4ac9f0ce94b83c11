"""All `global_defs` blocks of a configuration as one."""

from __future__ import annotations

from typing import Any

from keepalived_compat.section import Entry, Section
from keepalived_compat.source import Word


class Globals:
    """Of several blocks the last value of a keyword counts, or the first where keepalived takes that."""

    def __init__(self, root: Section) -> None:
        self._found: dict[str, Entry] = {}
        self._sections = [each.section for each in root.all("global_defs") if each.section is not None]
        for section in self._sections:
            for each in section.entries:
                name = each.keyword.canonical
                if name not in self._found or not each.keyword.first_counts:
                    self._found[name] = each

    def entry(self, name: str) -> Entry | None:
        """The use of a keyword that counts."""
        return self._found.get(name)

    def value(self, name: str, default: Any = None) -> Any:
        """Its value."""
        found = self._found.get(name)
        return default if found is None else found.value

    def has(self, name: str) -> bool:
        """The keyword is there and used."""
        return name in self._found

    def section(self, name: str) -> Section:
        """One section with the use of this keyword that counts, for readers of sections."""
        section = Section("global_defs")
        found = self._found.get(name)
        if found is not None:
            section.add(found)
        return section

    def words(self, name: str) -> list[Word]:
        """All words in the blocks of lines of this name."""
        return [
            word
            for section in self._sections
            for each in section.all(name)
            if each.section is not None
            for line in each.section.lines
            for word in line
        ]
