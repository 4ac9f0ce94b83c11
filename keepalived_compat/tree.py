"""The syntax tree: statements, some with a body. It knows no keyword.

A large file has a hundred thousand statements of which hardly one is ever complained of. So the tree holds the pieces
of each line, which lines of the same text share, and makes words with their places only for those who ask.
"""

from __future__ import annotations

from keepalived_compat.source import Piece, Pieces, Word


class Body:
    """What stands between two braces."""

    __slots__ = ("_closing", "_closing_file", "_closing_line", "_file", "_line", "_opening", "statements")

    def __init__(self, opening: Piece | None = None, file: str = "", line: int = 0) -> None:
        self.statements: list[Statement] = []
        self._opening = opening
        self._file = file
        self._line = line
        self._closing: Piece | None = None
        self._closing_file = ""
        self._closing_line = 0

    def close(self, brace: Piece, file: str, line: int) -> None:
        """It ends here."""
        self._closing = brace
        self._closing_file = file
        self._closing_line = line

    @property
    def opening(self) -> Word | None:
        """None for the file itself, and where the brace was missing."""
        return None if self._opening is None else Word.of(self._opening, self._file, self._line)

    @property
    def closing(self) -> Word | None:
        """None where the brace was missing."""
        if self._closing is None:
            return None
        return Word.of(self._closing, self._closing_file, self._closing_line)


class Statement:
    """One line, or the part of it between braces."""

    __slots__ = ("body", "file", "line", "pieces")

    def __init__(self, pieces: Pieces, file: str, line: int) -> None:
        self.pieces = pieces
        """Never empty; the first is the keyword."""
        self.file = file
        self.line = line
        self.body: Body | None = None

    @property
    def words(self) -> list[Word]:
        """Its words with their places; the first is the keyword."""
        return [Word.of(each, self.file, self.line) for each in self.pieces]

    @property
    def keyword(self) -> Word:
        """The first word."""
        return Word.of(self.pieces[0], self.file, self.line)

    @property
    def arguments(self) -> list[Word]:
        """The words after the keyword."""
        return self.words[1:]

    def title(self) -> str:
        """How a message names it: `vrrp_instance VI_1`."""
        text = " ".join(each[0] for each in self.pieces)
        return text if len(text) <= _TITLE else text[:_TITLE] + "…"


_TITLE = 60
