"""The writes that a change consists of, and the order that they must keep."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from haxlb.forwarding.layout import INDEX

_ONE: Final = INDEX.size


@dataclass(frozen=True, slots=True)
class Write:
    """One element of a map; of a per-CPU map the same value for each CPU."""

    map: str
    key: bytes
    value: bytes


@dataclass(frozen=True, slots=True)
class Fill:
    """Consecutive elements of an array."""

    map: str
    first: int
    content: bytes
    """Whole elements."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove one element of a map."""

    map: str
    key: bytes


Step = Write | Fill | Delete


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Writes that belong together: between any two of them, too, every packet finds a live server if there is one."""

    steps: tuple[Step, ...]
    wait: bool = False
    """Before it, every packet that is being handled must have been: some of what is written it may still be reading."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The phases of a change, in their order."""

    phases: tuple[Phase, ...] = ()
    complete: bool = True
    """False = there is room for some of what is wanted only after these steps: plan once more."""
    renamed: frozenset[int] = frozenset()
    """Indices of servers that are given to others: what NAT keeps of the former ones is to be forgotten after it."""

    @property
    def steps(self) -> Iterator[Step]:
        """All writes."""
        for phase in self.phases:
            yield from phase.steps


def write_at(name: str, index: int, value: bytes) -> Write:
    """One element of an array."""
    return Write(name, index.to_bytes(_ONE, "little"), value)
