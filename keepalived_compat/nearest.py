"""The nearest known word to a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_LONGEST = 64
"""Words beyond this are no misspelling of a keyword; comparing them would cost time."""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant, None when none is near."""
    if not 1 < len(word) <= _LONGEST:
        return None
    candidates = sorted(set(known))
    lowered = {each.lower(): each for each in reversed(candidates)}
    exact = lowered.get(word.lower()) or lowered.get(word.lower().replace("-", "_"))
    if exact:
        return exact
    found = difflib.get_close_matches(word.lower(), lowered, n=1, cutoff=0.75)
    return lowered[found[0]] if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean "…"?`, or nothing."""
    found = nearest(word, known)
    return f"did you mean `{found}`?" if found else ""
