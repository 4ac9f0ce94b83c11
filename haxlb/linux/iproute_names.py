"""Names of routing tables, protocols, scopes and realms, as ip(8) looks them up in /etc/iproute2."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from haxlb.model.errors import HostError

_DIRECTORIES = (Path("/usr/share/iproute2"), Path("/usr/lib/iproute2"), Path("/etc/iproute2"))
"""Later ones win."""
_KNOWN = {
    "rt_tables": {"unspec": 0, "default": 253, "main": 254, "local": 255},
    "rt_protos": {"unspec": 0, "redirect": 1, "kernel": 2, "boot": 3, "static": 4, "ra": 9, "keepalived": 18},
    "rt_scopes": {"global": 0, "universe": 0, "site": 200, "link": 253, "host": 254, "nowhere": 255},
    "rt_realms": {},
    "rt_dsfield": {},
    "group": {"default": 0},
}
"""What the kernel itself defines (<linux/rtnetlink.h>), for a host without iproute2."""
_HIGHEST = {"rt_tables": 2**32 - 1, "rt_realms": 0xFFFF, "group": 2**31 - 1}


def number_of(kind: str, text: str, *, directories: tuple[Path, ...] = _DIRECTORIES) -> int:
    """The number of a name, or the number that the text is; `kind` is the file's name.

    Raises HostError for a name that no file has, and for a number out of range.
    """
    try:
        number = int(text, 0)
    except ValueError:
        found = _names(kind, directories).get(text)
        if found is None:
            raise HostError(
                f"`{text}` is not in /etc/iproute2/{kind}", remedy=f"add a line `NUMBER {text}` there, or use a number"
            ) from None
        number = found
    highest = _HIGHEST.get(kind, 255)
    if not 0 <= number <= highest:
        raise HostError(f"{text} is out of range", remedy=f"0 to {highest}, or a name of /etc/iproute2/{kind}")
    return number


def _names(kind: str, directories: tuple[Path, ...]) -> dict[str, int]:
    names = dict(_KNOWN[kind])
    for directory in directories:
        for path in (directory / kind, *sorted((directory / f"{kind}.d").glob("*.conf"))):
            names.update(_lines(path))
    return names


def _lines(path: Path) -> Iterator[tuple[str, int]]:
    """`NUMBER NAME` on each line, `#` begins a comment; what is not of this form is no name."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if len(words) == 2:  # noqa: PLR2004 - a number and a name
            try:
                yield words[1], int(words[0], 0)
            except ValueError:
                continue
