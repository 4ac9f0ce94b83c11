"""What of a block can be used: its statements with their values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from keepalived_compat.grammar import Keyword
from keepalived_compat.source import Span, Word


class Entry(NamedTuple):
    """A statement that is used: a named tuple, as a large file has a hundred thousand of them."""

    keyword: Keyword
    words: tuple[Word, ...]
    value: Any = None
    """By the kind of its argument: int, µs, bool, str, address, (address, port), Script; None without."""
    section: Section | None = None
    """What is in its block."""

    @property
    def span(self) -> Span:
        """From the keyword to the last word of its line."""
        first, last = self.words[0], self.words[-1]
        if (first.file, first.line) != (last.file, last.line):
            return first.span
        return Span(first.file, first.line, first.column, last.end_column)

    @property
    def argument_span(self) -> Span:
        """The first argument, or the keyword where there is none."""
        return self.words[min(1, len(self.words) - 1)].span


class Section:
    """A block that is used."""

    __slots__ = ("_last", "_refused", "_several", "_unknown", "block", "entries", "lines")

    def __init__(self, block: str) -> None:
        self.block = block
        self.entries: list[Entry] = []
        self.lines: Sequence[list[Word]] = ()
        """Of a block without keywords: its lines."""
        self._last: dict[str, Entry] = {}
        self._several: dict[str, list[Entry]] | None = None
        self._refused: set[str] | None = None
        self._unknown: list[Word] | None = None

    def add(self, entry: Entry) -> None:
        """Take a statement into the section."""
        self.entries.append(entry)
        keyword = entry[0]
        name = keyword.means or keyword.name
        earlier = self._last.get(name)
        self._last[name] = entry
        if earlier is not None:
            if self._several is None:
                self._several = {}
            self._several.setdefault(name, [earlier]).append(entry)

    def refuse(self, name: str) -> None:
        """Remember that a keyword stood there but could not be used."""
        if self._refused is None:
            self._refused = set()
        self._refused.add(name)

    def misunderstand(self, word: Word) -> None:
        """Remember a keyword that is not known here."""
        if self._unknown is None:
            self._unknown = []
        self._unknown.append(word)

    @property
    def unknown(self) -> Sequence[Word]:
        """Keywords that are not known here: what seems to be missing may be one of them, misspelt."""
        return self._unknown or ()

    @property
    def refused(self) -> AbstractSet[str]:
        """Keywords that stood there but could not be used: their absence has been complained of."""
        return self._refused or frozenset()

    @property
    def names(self) -> Iterable[str]:
        """Keywords that are there and used, in the order of their first use."""
        return self._last

    def all(self, name: str) -> tuple[Entry, ...]:
        """Every use of a keyword, in file order."""
        last = self._last.get(name)
        if last is None:
            return ()
        several = self._several.get(name) if self._several is not None else None
        return (last,) if several is None else tuple(several)

    def entry(self, name: str) -> Entry | None:
        """The use of a keyword that counts: the last one."""
        return self._last.get(name)

    def value(self, name: str, default: Any = None) -> Any:
        """The value of a keyword that counts."""
        found = self._last.get(name)
        return default if found is None else found[2]

    def has(self, name: str) -> bool:
        """The keyword is there and used."""
        return name in self._last
