"""The tree as canonical text: one statement a line, four blanks a block, definitions and includes put in.

Comments are not in the tree and are lost; what was misread because of a missing brace is printed as it was understood.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from keepalived_compat.source import Word
from keepalived_compat.tree import Body, Statement

_INDENT = "    "
_DEEPEST = 64
"""Nested further, blocks are not indented more: the text would grow with the square of the depth."""
_NEEDS_QUOTES = re.compile(r"[\s#!{}]|^$")
_RAW = re.compile(r"\$\{[^{}\"]*\}|\{\{.*?\}\}|\{%.*?%\}|<%.*?%>")
"""What the lexer keeps in one piece without quotes: names without a value, place-holders of templates."""
_SAYS_SOMETHING = re.compile(r"[@~$]|include[rmwba]?$")
"""At the beginning of a line these are no words."""


def canonical(root: Body) -> str:
    """The text of a tree; it reads as the same tree, and prints as the same text again."""
    return "".join(line + "\n" for line in _lines(root))


def _lines(root: Body) -> Iterator[str]:
    # With a stack of its own: blocks may be nested deeper than Python's calls.
    waiting: list[tuple[Iterator[Statement], str]] = [(iter(root.statements), "")]
    while waiting:
        statements, indent = waiting[-1]
        statement = next(statements, None)
        if statement is None:
            waiting.pop()
            if waiting:
                yield waiting[-1][1] + "}"
            continue
        text = _statement(statement)
        if statement.body is None:
            yield indent + text
        else:
            yield f"{indent}{text} {{" if text else f"{indent}{{"
            deeper = indent + _INDENT if len(waiting) < _DEEPEST else indent
            waiting.append((iter(statement.body.statements), deeper))


def _statement(statement: Statement) -> str:
    if statement.keyword.opens:
        return ""
    first, *rest = statement.words
    head = f'"{first.text}"' if _SAYS_SOMETHING.match(first.text) else _word(first)
    return " ".join([head, *(_word(each) for each in rest)])


def _word(word: Word) -> str:
    if word.quoted or _NEEDS_QUOTES.search(_RAW.sub("x", word.text)):
        return f'"{word.text}"'
    return word.text
