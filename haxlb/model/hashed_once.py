"""Values that are keys of many dictionaries: their hash is computed once."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, ClassVar


class HashedOnce:
    """A base of frozen slotted dataclasses, which say `__hash__ = HashedOnce.__hash__`.

    The hash that a dataclass makes walks through all fields each time. A checker looks a `Check` up ten times per
    probe: that was 10 µs of the 60 that a probe of TCP_CHECK takes.
    """

    __slots__ = ("_hash",)
    _hash: int
    __dataclass_fields__: ClassVar[dict[str, Any]]

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            value = hash(tuple(getattr(self, each.name) for each in fields(self)))
            object.__setattr__(self, "_hash", value)
            return value
