"""The syntax tree: statements, some with a body. It knows no keyword."""

from __future__ import annotations

from dataclasses import dataclass, field

from keepalived_compat.source import Word


@dataclass(slots=True)
class Body:
    """What stands between two braces."""

    opening: Word | None
    """None for the file itself, and where the brace was missing."""
    statements: list[Statement] = field(default_factory=list, repr=False)
    closing: Word | None = None
    """None where the brace was missing."""


@dataclass(slots=True)
class Statement:
    """One line, or the part of it between braces."""

    words: list[Word]
    """Never empty; the first is the keyword."""
    body: Body | None = None

    @property
    def keyword(self) -> Word:
        """The first word."""
        return self.words[0]

    @property
    def arguments(self) -> list[Word]:
        """The words after the keyword."""
        return self.words[1:]

    def title(self) -> str:
        """How a message names it: `vrrp_instance VI_1`."""
        text = " ".join(each.text for each in self.words)
        return text if len(text) <= _TITLE else text[:_TITLE] + "…"


_TITLE = 60
