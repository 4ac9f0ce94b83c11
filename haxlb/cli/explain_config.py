"""What a configuration means, as text and as JSON: `haxlb check --explain`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from haxlb.config import Loaded
from haxlb.config.meaning import Meaning, meaning
from haxlb.config.meaning_value import Origin, Value
from haxlb.model.wire import to_json

SCHEMA = "haxlb.explain/1"
_WIDEST = 48


def explain(loaded: Loaded) -> str:
    """The explanation for people; one line that says so when the configuration cannot be used."""
    found = meaning(loaded)
    if not found:
        return "It cannot be used as it is, so there is nothing to explain: mend what is fatal first."
    return "\n\n".join("\n".join(_lines(each)) for each in found)


def explain_json(loaded: Loaded) -> dict[str, Any]:
    """The same as values: `meanings` is empty when the configuration cannot be used."""
    return {"schema": SCHEMA, "meanings": to_json(meaning(loaded))}


def _lines(what: Meaning) -> Iterator[str]:
    yield f"{what.kind} {what.name}"
    names = max((len(each.name) for each in what.values), default=0)
    texts = min(max((len(each.text) for each in what.values), default=0), _WIDEST)
    for each in what.values:
        yield f"    {each.name.ljust(names)}  {each.text.ljust(texts)}  {_mark(each)}".rstrip()
    yield from (f"  * {each}" for each in what.sentences)


def _mark(value: Value) -> str:
    return "" if value.origin is Origin.WRITTEN else f"({value.origin.value})"
