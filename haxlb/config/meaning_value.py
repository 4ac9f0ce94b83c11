"""A value that counts, and where it comes from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from keepalived_compat.section import Section


class Origin(Enum):
    """Who has said a value."""

    WRITTEN = "written"
    """Its own block, or one around it."""
    GLOBAL = "global_defs"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One effective value."""

    name: str
    """keepalived's keyword."""
    text: str
    origin: Origin = Origin.WRITTEN


def origin(name: str, *sections: Section | None, everywhere: Section | None = None, globally: str = "") -> Origin:
    """Where a keyword stands: in one of these blocks, in global_defs (`globally`, its name there), or nowhere."""
    if any(each is not None and each.has(name) for each in sections):
        return Origin.WRITTEN
    if globally and everywhere is not None:
        for block in everywhere.all("global_defs"):
            if block.section is not None and block.section.has(globally):
                return Origin.GLOBAL
    return Origin.DEFAULT


def counted(*things: tuple[int, str, str]) -> str:
    """Numbers of things with their singular and plural, those that are there: `1 route, 2 rules`."""
    return ", ".join(f"{count} {one if count == 1 else many}" for count, one, many in things if count)
