"""The nearest known word to a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST = 64
"""Words beyond this are no misspelling of a keyword; comparing them would cost time."""

_TOO_SHORT = 2
"""Letters of a word that is another word with one letter changed."""

_BEGINNING = 4
"""Letters with which only one known word begins: that one was meant."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, None when none is near."""
    if not 1 < len(word) <= _LONGEST:
        return None
    candidates = sorted(set(known))
    lowered = {each.lower(): each for each in reversed(candidates)}
    exact = lowered.get(word.lower()) or lowered.get(word.lower().replace("-", "_"))
    if exact:
        return exact
    beginnings = (word.lower(), word.lower().replace("-", "_"))
    begun = [each for each in lowered if each.startswith(beginnings)] if len(word) >= _BEGINNING else []
    if len(begun) == 1:
        # What is missing is its end: that is nearer than a word of which every letter counts.
        return lowered[begun[0]]
    found = difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.75)
    if not found:
        # In a short word a single mistake is already much: `wwr` has but two thirds of `wrr`.
        found = [each for each in lowered if _one_mistake(word.lower(), each)]
    return lowered[found[0]] if found else None


def _one_mistake(word: str, meant: str) -> bool:
    """Two neighbours changed places, or one letter of at least three is another."""
    if len(word) != len(meant):
        return False
    wrong = [place for place in range(len(word)) if word[place] != meant[place]]
    if len(wrong) == 1:
        return len(word) > _TOO_SHORT
    first = wrong[0] if wrong else 0
    return wrong == [first, first + 1] and word[first : first + 2] == meant[first + 1] + meant[first]


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean "…"?`, or nothing."""
    found = nearest(word, known)
    return f"did you mean `{found}`?" if found else ""


COMPARISONS = 50_000
"""With known words, that are made for hints: a fifth of a second."""


class Hints:
    """`did you mean "…"?` for the first of many misspelt words.

    To look for the nearest of thousands of words takes milliseconds, and a file with thousands of mistakes is no
    configuration.
    """

    def __init__(self) -> None:
        self._left = COMPARISONS

    def did_you_mean(self, word: str, known: Iterable[str]) -> str:
        """As the function of this name; nothing, and `known` not looked at, when enough has been compared."""
        if self._left <= 0:
            return ""
        candidates = tuple(known)
        self._left -= len(candidates)
        return did_you_mean(word, candidates)
