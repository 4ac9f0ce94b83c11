"""A line of text to words and braces.

Rules: `#` and `!` begin a comment anywhere outside double quotes, even inside a word; a word that begins with a double
quote runs to the next one; every brace outside quotes stands for itself wherever it is glued on.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from keepalived_compat.diagnostics import Complaints
from keepalived_compat.source import Pieces, Span, Word


class Line(NamedTuple):
    """A logical line, and where its characters stand in the file."""

    text: str
    file: str
    number: int
    shift: int = 0
    """Columns before `text` on the physical line."""
    starts: tuple[int, ...] | None = None
    """Column of each character where a definition was put in, else None."""
    ends: tuple[int, ...] | None = None

    def span(self, start: int, end: int) -> Span:
        """The place of `text[start:end]`."""
        if self.starts is None or self.ends is None or not self.starts:
            return Span(self.file, self.number, start + 1 + self.shift, end + 1 + self.shift)
        last = len(self.starts) - 1
        return Span(self.file, self.number, self.starts[min(start, last)], self.ends[min(max(end - 1, 0), last)])

    def cut(self, end: int) -> Line:
        """The line up to a character."""
        return self._replace(text=self.text[:end])

    def without_prefix(self, start: int) -> Line:
        """The line from a character on."""
        if self.starts is None or self.ends is None:
            return self._replace(text=self.text[start:], shift=self.shift + start)
        return self._replace(text=self.text[start:], starts=self.starts[start:], ends=self.ends[start:])


_QUOTED_OR_COMMENT = re.compile(r'"[^"]*"?|[#!]')

# What a template engine would have replaced is kept in one piece: taken apart at its braces it would look like blocks.
_WORD = re.compile(
    r'"(?P<quoted>[^"]*)(?P<closing>"?)'
    r"|(?P<template>\{\{[^\n]*?\}\}|\{%[^\n]*?%\}|<%[^\n]*?%>)"
    r"|(?P<brace>[{}])"
    r'|(?P<plain>(?:\$\{[^{}"]*\}|[^\s"{}])+)'
)

# A quote, a name, a sequence, a condition, an include, what a template engine left.
_NOT_PLAIN = ('"', "$", "~", "@", "include", "{{", "{%", "<%")
_LONGEST_PLAIN = 255
_BRACES = {"{": 1, "}": -1}

_FOREIGN_BLANK = re.compile("[\u00a0\u1680\u2000-\u200b\u202f\u205f\u3000\ufeff]")


def uncommented(line: Line) -> Line:
    """The line without its comment and trailing blanks."""
    text = line.text
    if "#" in text or "!" in text:
        for found in _QUOTED_OR_COMMENT.finditer(text):
            if found.group() in "#!":
                text = text[: found.start()]
                break
    text = text.rstrip()
    return line if text is line.text else line.cut(len(text))


Part = tuple[str, Pieces]
"""`{` or `}` with that brace, or nothing with the words of a statement."""


class Cut(NamedTuple):
    """A line in parts: what stands before, between and after its braces, and these. Lines of the same text share it."""

    parts: tuple[Part, ...]
    opened: int
    """Opening braces less closing ones."""


PlacedCut = tuple[Cut, str, int]
"""With file and line number."""


def cut(pieces: Pieces) -> Cut:
    """The pieces of a line in parts."""
    parts: list[Part] = []
    start = opened = 0
    for index, piece in enumerate(pieces):
        text = piece[0]
        if text in _BRACES and not piece[3]:
            if start < index:
                parts.append(("", pieces[start:index]))
            parts.append((text, (piece,)))
            opened += _BRACES[text]
            start = index + 1
    if start < len(pieces):
        parts.append(("", pieces[start:]))
    return Cut(tuple(parts), opened)


def plain_pieces(text: str) -> Pieces | None:
    """A physical line that has nothing but words, braces and a comment; None where it needs a closer look.

    Nearly every line is such a one: to split it by a simpler expression, and only once when it stands in the file a
    thousand times, is what makes large files bearable.
    """
    if len(text) > _LONGEST_PLAIN or not text.isascii():
        return None
    for sign in _NOT_PLAIN:
        if sign in text:
            return None
    for sign in "#!":
        if sign in text:
            text = text[: text.index(sign)]
    found, end = [], 0
    for word in text.replace("{", " { ").replace("}", " } ").split():
        start = text.index(word, end)
        end = start + len(word)
        found.append((word, start + 1, end + 1, False))
    return tuple(found)


def words(line: Line, complaints: Complaints) -> list[Word]:
    """Words and braces of a line that has no comment any more."""
    text = line.text
    if not text.isascii():
        text = _plain_blanks(line, complaints)
    found: list[Word] = []
    for match in _WORD.finditer(text):
        kind = match.lastgroup
        start, end = match.span()
        if kind == "closing":
            if not match["closing"]:
                complaints.error(
                    "unterminated-quote",
                    line.span(start, end),
                    "this double quote is not closed on its line",
                    'close it: a string ends on the line where it begins; there is no escape for `"`',
                )
            content = match["quoted"]
        else:
            content = match.group()
        found.append(Word(content, *line.span(start, end), kind == "closing"))
        if kind == "template":
            _complain_of_template(found[-1], complaints)
    return found


def _plain_blanks(line: Line, complaints: Complaints) -> str:
    found = _FOREIGN_BLANK.search(line.text)
    if found is None:
        return line.text
    complaints.warning(
        "odd-blank",
        line.span(found.start(), found.end()),
        f"character U+{ord(found.group()):04X} looks like a blank but is none for keepalived; taken as a blank",
        "replace it by an ordinary blank",
    )
    return _FOREIGN_BLANK.sub(" ", line.text)


def _complain_of_template(word: Word, complaints: Complaints) -> None:
    complaints.fatal(
        "unfilled-template",
        word,
        f"`{word.text}` is a place-holder of a template engine that was not filled in",
        "render the template first, and check its result",
    )
