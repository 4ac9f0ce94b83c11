"""The keyword table as a page of the documentation: `python -m keepalived_compat.manual > keepalived-conf.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from keepalived_compat.grammar import LINES, ROOT, Keyword, Support
from keepalived_compat.keywords import KEEPALIVED

_HEAD = """\
# keepalived.conf

Every keyword of keepalived up to 2.4.3, by block, and what becomes of it. This page is made from the table that the
parser uses: `python -m keepalived_compat.manual > docs/reference/keepalived-conf.md`.

| | |
|---|---|
| **supported** | it does what keepalived does |
| **old spelling** | taken as the keyword that is named, with a warning |
| **ignored** | needs no doing; the reason is given, as a note |
| **not yet** | not done; what is missing by it is given, as a note, a warning or an error |
| **obsolete** | means nothing to today's keepalived either; a warning |

A value in the column "argument" is a range that is checked; where keepalived has a default, it is named. Keywords that
Debian 12's keepalived (2.2.7) does not know have the release in which they came.

## The language

* `#` and `!` begin a comment anywhere outside of double quotes, even inside of a word. There is no escape: keepalived's
  `\\#` does not survive its second reading.
* Words are separated by blanks. A string in double quotes is one word and ends on its line. Single quotes are ordinary
  characters, but for the command of a script.
* Braces may stand anywhere outside of quotes; what is between two of them on a line is one statement.
* `$NAME=value` defines, `$NAME` (at the end of a word) and `${NAME}` (anywhere) use. A definition goes on on the next
  line after a `\\`. An undefined name is an error.
* Built in: `${_PWD}` (the directory of the file), `${_INSTANCE}` (the config-id), `${_HASH}` (`#`), `${_BANG}` (`!`),
  `${_RANDOM [MIN [MAX]]}` (0 to 32767; drawn from the config-id, so that a reload draws the same), `${_ENV NAME}`.
* `~SEQ(name, last) text`, `~SEQ(name, first, last) text`, `~SEQ(name, first, step, last) text` repeat the text with
  `$name` set; `~SEQx` writes hexadecimal. `~LST(name, a, b) text` and `~LST({x, y}, {1, 2}, {3, 4}) text` do so with
  the values that are listed. The text may be a name of several lines, or another of them. All together make at most
  200,000 lines.
* `@ID line` is for the director of that name, `@^ID line` for all others. The name is the host's, or that of
  `-i, --config-id`.
* `include GLOB` reads files, relative to the file it stands in, in the order of their names. `includer`, `includem`,
  `includew`, `includeb` and `includea` refuse the configuration when a file cannot be read; and, in this order, when a
  name is missing, a name or wildcard, an alternative in braces, any of them. An executable file is never included.
  Includes may not loop.
* A line may have any length that is sensible (65,536 characters); keepalived reads 1023 bytes.
* Numbers are decimal. Seconds have up to six decimals. Trailing letters (`5s`) are dropped with a warning where
  keepalived does so.
"""


def page() -> str:
    """The whole page, in Markdown."""
    used = _used_blocks()
    return _HEAD + "".join(_block(name, rows.values(), used=name in used) for name, rows in KEEPALIVED.items())


def _used_blocks() -> set[str]:
    """Blocks that a supported keyword opens, from the top level down."""
    used, waiting = set(), [ROOT]
    while waiting:
        name = waiting.pop()
        used.add(name)
        bodies = [row.body or ROOT for row in KEEPALIVED[name].values() if row.support is Support.SUPPORTED]
        waiting += [body for body in bodies if body in KEEPALIVED and body not in used]
    return used


def _block(name: str, rows: Iterable[Keyword], *, used: bool) -> str:
    title = f"`{name}`" if name else "The top level"
    if not used:
        known = ", ".join(f"`{each.name}`" for each in rows)
        return (
            f"\n## {title}\n\nNot supported yet. Its keywords are known, so that misspelt ones are found:\n{known}.\n"
        )
    lines = [f"\n## {title}\n", "| keyword | argument | default | status |", "|---|---|---|---|"]
    lines += [_row(each) for each in rows]
    return "\n".join(lines) + "\n"


def _row(row: Keyword) -> str:
    cells = (f"`{row.name}`", _argument(row), row.default, "; ".join(_status(row)))
    return f"| {' | '.join(each.replace('|', chr(92) + '|') for each in cells)} |"


def _argument(row: Keyword) -> str:
    body = "{ lines }" if row.body == LINES else "{ }" if row.body is not None else ""
    return " ".join(each for each in (str(row.argument), body) if each)


def _status(row: Keyword) -> Iterator[str]:
    match row.support:
        case Support.SUPPORTED:
            yield f"same as `{row.means}`" if row.means else "**supported**"
        case Support.OLD_SPELLING:
            yield f"**old spelling** of `{row.means}`"
        case Support.NOT_YET:
            yield f"**not yet** ({row.severity.value}): {row.reason}"
        case Support.IGNORED:
            yield f"**ignored**: {row.reason}"
        case Support.OBSOLETE:
            yield f"**obsolete**: {row.reason}"
    if row.since:
        yield f"since {row.since}"


if __name__ == "__main__":
    sys.stdout.write(page())
