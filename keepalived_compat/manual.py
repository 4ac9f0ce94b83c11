"""The keyword table as a page of the documentation: `python -m keepalived_compat.manual > keepalived-conf.md`."""

from __future__ import annotations

import sys

from keepalived_compat.grammar import LINES
from keepalived_compat.table import Row, Status, blocks, opened_by, rows

_HEAD = """\
# keepalived.conf

Every keyword of keepalived up to 2.4.3, by block, and what becomes of it. This page is made from the table that the
parser uses: `python -m keepalived_compat.manual > docs/reference/keepalived-conf.md`.

| | |
|---|---|
| **supported** | it does what keepalived does; what is planned within it is named behind |
| **old spelling** | taken as the keyword that is named, with a warning |
| **ignored** | needs no doing; the reason is given, as a note |
| **planned** | not done yet; what is missing by it is given, as a note, a warning or an error |
| **not supported** | cannot be done; the reason is given, as a warning or an error that says what to write instead |
| **refused** | a configuration with it is not used; the reason is given |
| **obsolete** | means nothing to today's keepalived either; a warning |

A value in the column "argument" is a range that is checked; where keepalived has a default, it is named. "Since" is the
release of keepalived in which the keyword came, 1.0.3 standing for "always"; Debian 12 has 2.2.7. `haxlb keywords`
prints the same table, and `haxlb keywords --json` for programs.

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
    return _HEAD + "".join(_block(each) for each in blocks())


def _block(name: str) -> str:
    title = f"`{name}`" if name else "The top level"
    within = ", ".join(f"`{each}`" if each else "the top level" for each in opened_by(name))
    lines = [f"\n## {title}\n"]
    if within:
        lines.append(f"Stands in {within}.\n")
    lines += ["| keyword | argument | default | since | status |", "|---|---|---|---|---|"]
    lines += [_row(each) for each in rows(name)]
    return "\n".join(lines) + "\n"


def _row(row: Row) -> str:
    cells = (f"`{row.keyword}`", _argument(row), row.default, row.since, _status(row))
    return f"| {' | '.join(each.replace('|', chr(92) + '|') for each in cells)} |"


def _argument(row: Row) -> str:
    body = "{ lines }" if row.opens == LINES else "{ }" if row.opens else ""
    return " ".join(each for each in (row.argument, body) if each)


def _status(row: Row) -> str:
    planned = f"; **planned**: {row.planned}" if row.planned else ""
    match row.status:
        case Status.SUPPORTED:
            limit = f"; {row.limit}" if row.limit else ""
            return f"**supported**{limit}{planned}"
        case Status.ALIAS:
            return f"same as `{row.alias_of}`{planned}"
        case Status.OLD_SPELLING:
            return f"**old spelling** of `{row.alias_of}`"
        case Status.PLANNED if row.severity is not None:
            return f"**planned** ({row.severity.value}): {row.reason}"
        case status:
            return f"**{status.value}**: {row.reason}"


if __name__ == "__main__":
    sys.stdout.write(page())
