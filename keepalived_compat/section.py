"""What of a block can be used: its statements with their values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from keepalived_compat.grammar import Keyword
from keepalived_compat.source import Span, Word
from keepalived_compat.tree import Statement


class Entry(NamedTuple):
    """A statement that is used: a named tuple, as a large file has a hundred thousand of them."""

    keyword: Keyword
    statement: Statement
    value: Any = None
    """By the kind of its argument: int, µs, bool, str, address, (address, port), Script; None without."""
    section: Section | None = None
    """What is in its block."""

    @property
    def texts(self) -> list[str]:
        """Of its words."""
        return [each[0] for each in self.statement.pieces]

    @property
    def words(self) -> tuple[Word, ...]:
        """Of its line, the keyword first."""
        return tuple(self.statement.words)

    @property
    def argument(self) -> Word:
        """The first argument, or the keyword where there is none."""
        statement = self.statement
        pieces = statement.pieces
        return Word.of(pieces[1] if len(pieces) > 1 else pieces[0], statement.file, statement.line)

    @property
    def span(self) -> Span:
        """From the keyword to the last word of its line."""
        statement = self.statement
        return Span(statement.file, statement.line, statement.pieces[0][1], statement.pieces[-1][2])

    @property
    def argument_span(self) -> Span:
        """The first argument, or the keyword where there is none."""
        return self.argument.span


class Section:
    """A block that is used."""

    __slots__ = ("_all", "_last", "_refused", "_several", "_unknown", "block", "lines")

    def __init__(self, block: str) -> None:
        self.block = block
        self.lines: Sequence[list[Word]] = ()
        """Of a block without keywords: its lines."""
        self._last: dict[str, Entry] = {}
        self._all: list[Entry] | None = None
        """Every one, as soon as a keyword stands there twice."""
        self._several: dict[str, list[Entry]] | None = None
        self._refused: set[str] | None = None
        self._unknown: list[Word] | None = None

    def add(self, entry: Entry) -> None:
        """Take a statement into the section."""
        keyword = entry[0]
        name = keyword.means or keyword.name
        last = self._last
        if name in last:
            self._repeat(name, entry)
        elif self._all is not None:
            self._all.append(entry)
        last[name] = entry

    def _repeat(self, name: str, entry: Entry) -> None:
        if self._all is None or self._several is None:
            self._all = list(self._last.values())
            self._several = {}
        self._several.setdefault(name, [self._last[name]]).append(entry)
        self._all.append(entry)

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
    def entries(self) -> Sequence[Entry]:
        """Every statement that is used, in file order."""
        return tuple(self._last.values()) if self._all is None else self._all

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
