"""`$NAME=value` definitions and their use.

Substitution is textual and recursive; an undefined name stays as it is, which is hardly ever meant and therefore said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from keepalived_compat.diagnostics import UNDEFINED, Complaints
from keepalived_compat.lexer import Line, uncommented
from keepalived_compat.nearest import did_you_mean

EXPANSION_LIMIT = 16_384
"""Characters a line may grow to; keepalived stops at 1023."""
STEP_LIMIT = 200
"""Substitutions in one line: more is a definition that uses itself."""

_DEFINITION = re.compile(r"\$(?P<name>[A-Za-z_]\w*)=\s*", re.ASCII)
_REFERENCE = re.compile(r"\$(?:\{(?P<braced>[^{}\s]*)(?P<argument>[^{}]*)\}|(?P<bare>[A-Za-z_]\w*))", re.ASCII)
_MAY_FOLLOW = " \t,)"
"""Characters that may follow a bare `$NAME`, besides the end of the line."""


class Definitions:
    """What was defined so far."""

    def __init__(self, *, complaints: Complaints, config_id: str) -> None:
        self._complaints = complaints
        self._builtin = {"_INSTANCE": config_id, "_HASH": "#", "_BANG": "!"}
        self._values: dict[str, list[Line]] = {}
        self._name = ""

    def begins(self, line: Line) -> bool:
        """The line is a definition."""
        return line.text[0] == "$" and _DEFINITION.match(line.text) is not None

    def begin(self, line: Line) -> list[Line] | None:
        """Take a definition's first line; returns what is there so far when it goes on on the next line."""
        found = _DEFINITION.match(line.text)
        if found is None:
            return None
        self._name = found["name"]
        return self.go_on([], line.without_prefix(found.end()))

    def go_on(self, so_far: list[Line], line: Line) -> list[Line] | None:
        """Take a further line; returns None when the definition is complete."""
        if line.text.endswith("\\"):
            so_far.append(line.cut(len(line.text[:-1].rstrip())))
            return so_far
        so_far.append(line)
        self.end(so_far)
        return None

    def end(self, so_far: list[Line]) -> None:
        """The definition is complete."""
        self._values[self._name] = so_far

    def expand(self, line: Line, directory: Path) -> Iterator[Line]:
        """The line with every defined name replaced; several lines where a definition has several."""
        waiting = [line]
        steps = 0
        while waiting:
            current = waiting.pop()
            start = 0
            while (found := _REFERENCE.search(current.text, start)) is not None:
                value = self._value(current, found, directory)
                if value is None:
                    start = found.end()
                    continue
                steps += 1
                if steps > STEP_LIMIT or len(current.text) > EXPANSION_LIMIT:
                    self._complaints.error(
                        "endless-definition",
                        line.span(0, len(line.text)),
                        f"replacing `{found.group()}` does not end; the line is dropped",
                        "a definition must not use itself",
                    )
                    return
                if len(value) > 1:
                    waiting += reversed(value[1:])
                current = _replaced(current, found.start(), found.end(), value[0])
                start = found.start()
            current = uncommented(current)
            if current.text:
                yield current

    def _value(self, line: Line, found: re.Match[str], directory: Path) -> list[Line] | None:
        """What to put in place of a reference; None = leave it, which was complained of where it is a mistake."""
        name = found["braced"] if found["bare"] is None else found["bare"]
        builtin = {**self._builtin, "_PWD": str(directory)}
        if name in builtin and not found["argument"]:
            return [Line(builtin[name], line.file, line.number)]
        value = self._values.get(name)
        delimited = found["bare"] is None or line.text[found.end() : found.end() + 1] in _MAY_FOLLOW
        if value is None or found["argument"]:
            if delimited:
                self._complain_of_undefined(found, name, line)
            return None
        if not delimited or (len(value) > 1 and line.text[found.end() :].strip()):
            self._complain_of_glue(found, name, line, delimited=delimited)
            return None
        return value or [Line("", line.file, line.number)]

    def _complain_of_glue(self, found: re.Match[str], name: str, line: Line, *, delimited: bool) -> None:
        where = line.span(found.start(), found.end())
        if delimited:
            self._complaints.error(
                "glued-definition",
                where,
                f"`${name}` has several lines and is not replaced, because something follows on this line",
                "put what follows on a line of its own",
            )
            return
        self._complaints.warning(
            "glued-definition",
            where,
            f"`${name}` is not replaced, because `{line.text[found.end()]}` follows",
            f"write `${{{name}}}`",
        )

    def _complain_of_undefined(self, found: re.Match[str], name: str, line: Line) -> None:
        if name in ("_RANDOM", "_ENV"):
            where = line.span(found.start(), found.end())
            self._complaints.error("not-supported-yet", where, f"`{name}` is not supported yet", "write the value")
            return
        hint = did_you_mean(name, [*self._values, *self._builtin, "_PWD"])
        if found["bare"] is None and not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
            hint = "default values as in a shell do not exist here: if this is a template, fill it in first"
        self._complaints.error(
            UNDEFINED,
            line.span(found.start(), found.end()),
            f"`{found.group()}` is not defined and stays as it is",
            hint or f"define it before its use: ${name}=value",
        )


def _replaced(line: Line, start: int, end: int, value: Line) -> Line:
    """The line with a stretch replaced; the new characters all stand where the stretch stood."""
    if start == 0 and end == len(line.text) and (value.file, value.number) != (line.file, line.number):
        # The whole line is one definition's line: complaints are of more use at that line than at its use.
        return value
    size = len(line.text)
    starts = line.starts if line.starts is not None else tuple(range(1 + line.shift, 1 + line.shift + size))
    ends = line.ends if line.ends is not None else tuple(range(2 + line.shift, 2 + line.shift + size))
    where = line.span(start, end)
    count = len(value.text)
    return Line(
        line.text[:start] + value.text + line.text[end:],
        line.file,
        line.number,
        0,
        starts[:start] + (where.column,) * count + starts[end:],
        ends[:start] + (where.end_column,) * count + ends[end:],
    )
