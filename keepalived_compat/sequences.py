"""`~SEQ(var, …)` and `~LST(var, …)`: the values that a variable takes, one after the other."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from keepalived_compat.values import Unusable
from keepalived_compat.values_line import whole_number

BEGINS = re.compile(r"~(?P<kind>SEQx|SEQ|LST)\s*\(")
"""How a line that repeats the rest of itself begins."""
_HEAD = re.compile(r"~(?P<kind>SEQx|SEQ|LST)\s*\((?P<inner>[^()]*)\)")
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ITEM = re.compile(r"\s*(?:\{(?P<tuple>[^{}]*)\}|(?P<plain>[^\s,{}]*))\s*(?P<end>,|$)")
_SEQ_FORMS = (1, 3)
"""Numbers that ~SEQ takes, at least and at most."""
_HINTS = {
    "SEQ": "~SEQ(name, last), ~SEQ(name, first, last) or ~SEQ(name, first, step, last)",
    "SEQx": "~SEQx(name, first, last): whole numbers from 0 on, written in hexadecimal",
    "LST": "~LST(name, a, b, …) or ~LST({name1, name2}, {a, b}, {c, d}, …); no blanks in a value",
}


class Sequence(NamedTuple):
    """What to repeat a text for."""

    names: tuple[str, ...]
    rows: Iterable[tuple[str, ...]]
    """The values of all names, for each repetition."""
    repetitions: int


def head_end(text: str) -> int:
    """Where the text begins that is to be repeated, 0 when the parentheses are not closed."""
    return text.find(")") + 1


def parse_head(text: str) -> Sequence:
    """`~SEQ(…)` without what follows. Raises Unusable."""
    found = _HEAD.fullmatch(text)
    if found is None:
        kind = text[1:5].rstrip("( \t")
        raise Unusable(f"`{text}` is no list of values in parentheses", _HINTS.get(kind, _HINTS["SEQ"]))
    kind, inner = found["kind"], found["inner"]
    return _listed(inner) if kind == "LST" else _counted(inner, kind)


def _counted(inner: str, kind: str) -> Sequence:
    name, *texts = (each.strip() for each in inner.split(","))
    numbers = [whole_number(each.removeprefix("+")) for each in texts]
    least, most = _SEQ_FORMS
    if _NAME.fullmatch(name) is None or not least <= len(numbers) <= most or None in numbers:
        raise Unusable(f"`{inner.strip()}` is not a name and one to three whole numbers", _HINTS[kind])
    known = [each for each in numbers if each is not None]
    last = known[-1]
    first = known[0] if len(known) > 1 else (-1 if last < 0 else 1)
    step = known[1] if len(known) == most else (1 if last >= first else -1)
    if step == 0 or (last - first) * step < 0:
        raise Unusable(f"steps of {step} never lead from {first} to {last}", _HINTS[kind])
    if kind == "SEQx" and min(first, last) < 0:
        raise Unusable("~SEQx counts from 0 on", _HINTS[kind])
    values = range(first, last + (1 if step > 0 else -1), step)
    form = "x" if kind == "SEQx" else "d"
    return Sequence((name,), ((format(each, form),) for each in values), len(values))


def _listed(inner: str) -> Sequence:
    items: list[tuple[str, ...]] = []
    place = 0
    while True:
        found = _ITEM.match(inner, place)
        if found is None:
            raise Unusable(f"`{inner[place:].strip()}` is no list of values", _HINTS["LST"])
        within = found["tuple"]
        items.append((found["plain"],) if within is None else tuple(each.strip() for each in within.split(",")))
        place = found.end()
        if not found["end"]:
            break
    names, rows = items[0], items[1:]
    if not rows or any(_NAME.fullmatch(each) is None for each in names):
        raise Unusable(f"`{inner.strip()}` is not a name, or names in braces, and values", _HINTS["LST"])
    if any(len(row) > len(names) for row in rows):
        raise Unusable(f"a value has more parts than there are names ({len(names)})", _HINTS["LST"])
    padded = [row + ("",) * (len(names) - len(row)) for row in rows]
    return Sequence(names, padded, len(padded))
