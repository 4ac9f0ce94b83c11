"""Places in files, the text behind them, and how files are reached."""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol


class Span(NamedTuple):
    """A stretch of one line. Line and columns count characters from 1; `end_column` is exclusive.

    A complaint about a whole file points at 1:1.
    """

    file: str
    line: int
    column: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


Piece = tuple[str, int, int, bool]
"""A word without its file and line: text, column, end column, whether it stood in double quotes."""
Pieces = tuple[Piece, ...]


class Word(NamedTuple):
    """One word of a configuration line, or a brace, with its place."""

    text: str
    """Without the surrounding double quotes."""
    file: str
    line: int
    column: int
    end_column: int
    quoted: bool = False
    """Stood in double quotes: a `{` that is quoted opens no block."""

    @classmethod
    def of(cls, piece: Piece, file: str, line: int) -> Word:
        """A piece of this line."""
        text, column, end_column, quoted = piece
        return cls(text, file, line, column, end_column, quoted)

    @property
    def span(self) -> Span:
        """Where it stands."""
        return Span(self.file, self.line, self.column, self.end_column)

    @property
    def opens(self) -> bool:
        """An opening brace."""
        return self.text == "{" and not self.quoted

    @property
    def closes(self) -> bool:
        """A closing brace."""
        return self.text == "}" and not self.quoted


class Reader(Protocol):
    """How the front end reaches files; a test hands in a dictionary."""

    def read(self, path: Path) -> bytes:
        """The whole file. Raises OSError."""
        ...

    def match(self, pattern: str, directory: Path) -> list[Path]:
        """Files that match a glob pattern without braces, relative to `directory`, sorted. Raises OSError."""
        ...

    def refusal(self, path: Path) -> str:
        """Why an included file may not be read, empty when it may (keepalived: regular and not executable)."""
        ...

    def identity(self, path: Path) -> str:
        """The same for two ways of naming one file."""
        ...


class DiskReader:
    """The real file system."""

    def read(self, path: Path) -> bytes:
        """The whole file. Raises OSError."""
        return path.read_bytes()

    def match(self, pattern: str, directory: Path) -> list[Path]:
        """Files that match, sorted by name."""
        if not re.search(r"[*?\[]", pattern):
            path = directory / pattern
            return [path] if path.exists() else []
        return sorted(directory / name for name in glob.glob(pattern, root_dir=directory))  # noqa: PTH207 - takes absolute patterns too

    def refusal(self, path: Path) -> str:
        """Why an included file is skipped, empty when it is not."""
        try:
            mode = path.stat().st_mode
        except OSError as problem:
            return problem.strerror or str(problem)
        if stat.S_ISDIR(mode):
            return "it is a directory"
        if not stat.S_ISREG(mode):
            return "it is not a regular file"
        if mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH):
            return "it is executable"
        return ""

    def identity(self, path: Path) -> str:
        """The path with symbolic links followed."""
        try:
            return str(path.resolve())
        except (OSError, RuntimeError):
            return str(path)


def process_environment() -> Mapping[str, str]:
    """The environment that this process was started with."""
    return os.environ


class Sources:
    """The text of every file that was read, for carets."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}
        self._order: dict[str, int] = {}
        self._hidden: dict[tuple[str, int], list[tuple[int, int]]] = {}

    def add(self, file: str, lines: list[str]) -> None:
        """Remember a file's physical lines."""
        self._order.setdefault(file, len(self._order))
        self._lines[file] = lines

    def line(self, file: str, number: int) -> str | None:
        """The text of a line as it may be shown: secrets are starred. None when there is none."""
        lines = self._lines.get(file, [])
        if not 1 <= number <= len(lines):
            return None
        text = lines[number - 1]
        for start, end in self._hidden.get((file, number), ()):
            text = text[:start] + "*" * len(text[start:end]) + text[end:]
        return text

    def hide(self, span: Span) -> None:
        """Never show this stretch: it is a password."""
        self._hidden.setdefault((span.file, span.line), []).append((span.column - 1, span.end_column - 1))

    def rank(self, span: Span) -> tuple[int, str, int, int]:
        """Sort key: files in the order of reading, then place."""
        return (self._order.get(span.file, len(self._order)), span.file, span.line, span.column)

    def rest_of_line(self, first: Word, last: Word) -> str | None:
        """The text from one word to another as it stands in the file, None when it was put there by a definition."""
        lines = self._lines.get(first.file, [])
        if (first.file, first.line) != (last.file, last.line) or not 1 <= first.line <= len(lines):
            return None
        return lines[first.line - 1][first.column - 1 : last.end_column - 1]
