"""`$NAME=value` definitions, what is built in, and the lines that come of them and of `~SEQ` and `~LST`.

Substitution is textual and recursive; an undefined name stays as it is, which is hardly ever meant and therefore said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

from keepalived_compat.chance import LARGEST, Chance
from keepalived_compat.conditions import selected
from keepalived_compat.diagnostics import UNDEFINED, Complaints
from keepalived_compat.lexer import Line, uncommented
from keepalived_compat.nearest import Hints
from keepalived_compat.sequences import BEGINS, Sequence, head_end, parse_head
from keepalived_compat.values import Unusable

EXPANSION_LIMIT = 16_384
"""Characters a line may grow to; keepalived stops at 1023."""
STEP_LIMIT = 200
"""Substitutions in one line: more is a definition that uses itself."""
GENERATED_LIMIT = 200_000
"""Lines that all `~SEQ` and `~LST` of a configuration may make."""
NESTING_LIMIT = 8
"""`~SEQ` within `~SEQ`: more is a definition that uses itself."""

_DEFINITION = re.compile(r"\$(?P<name>[A-Za-z_]\w*)=\s*", re.ASCII)
_REFERENCE = re.compile(r"\$(?:\{(?P<braced>[^{}\s]*)(?P<argument>[^{}]*)\}|(?P<bare>[A-Za-z_]\w*))", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_MAY_FOLLOW = " \t,)"
"""Characters that may follow a bare `$NAME`, besides the end of the line."""
_BUILT_IN_LINE = 0
"""Number of the line of a value that stands in no file."""
BUILT_IN = ("_PWD", "_INSTANCE", "_HASH", "_BANG", "_RANDOM", "_ENV")


class Definitions:
    """What was defined so far."""

    def __init__(
        self, *, complaints: Complaints, config_id: str, environment: Mapping[str, str], chance: Chance
    ) -> None:
        self._complaints = complaints
        self._config_id = config_id
        self._environment = environment
        self._chance = chance
        self._values: dict[str, list[Line]] = {}
        self._name = ""
        self._generated = 0
        self._hints = Hints()
        self._endless: set[str] = set()
        """Names that were found to use themselves: to find it out takes long, once is enough."""

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

    def expand(self, line: Line, directory: Path, depth: int = 0) -> Iterator[Line]:
        """The line with every defined name replaced; several lines where a definition or a sequence makes several."""
        if line.text[0] == "~" and BEGINS.match(line.text):
            yield from self._repeat(line, directory, depth)
            return
        for each in self._replace(line, directory):
            if each.text[0] == "~" and BEGINS.match(each.text):
                yield from self._repeat(each, directory, depth)
            else:
                yield each

    def _repeat(self, line: Line, directory: Path, depth: int) -> Iterator[Line]:
        """What `~SEQ(…) text` or `~LST(…) text` makes. The variables keep their last values, as in keepalived."""
        end = head_end(line.text)
        where = line.span(0, end or len(line.text))
        try:
            sequence = self._sequence(line.cut(end) if end else line, directory, depth)
        except Unusable as problem:
            self._complaints.error(
                "bad-sequence", where, f"{problem.message}; nothing is made of the line", problem.hint
            )
            return
        text = line.without_prefix(end + len(line.text[end:]) - len(line.text[end:].lstrip()))
        if not text.text:
            self._complaints.warning(
                "bad-sequence", where, "nothing follows the parentheses, so nothing is made", "~SEQ(i, 1, 3) TEXT"
            )
            return
        for row in sequence.rows:
            self._generated += 1
            if self._generated > GENERATED_LIMIT:
                self._complaints.error("bad-sequence", where, f"more than {GENERATED_LIMIT} lines: the rest is missing")
                return
            for name, value in zip(sequence.names, row, strict=True):
                columns = (where.column,) * len(value), (where.end_column,) * len(value)
                self._values[name] = [Line(value, line.file, line.number, where.column - 1, *columns)]
            chosen = selected(text, self._config_id, self._complaints)
            if chosen is not None and chosen.text:
                yield from self.expand(chosen, directory, depth + 1)

    def _sequence(self, head: Line, directory: Path, depth: int) -> Sequence:
        """What a head says. Raises Unusable."""
        if depth >= NESTING_LIMIT:
            raise Unusable(f"sequences within sequences, more than {NESTING_LIMIT} deep", "one uses itself")
        heads = list(self._replace(head, directory))
        sequence = parse_head(heads[0].text if len(heads) == 1 else head.text)
        if self._generated + sequence.repetitions > GENERATED_LIMIT:
            raise Unusable(f"more than {GENERATED_LIMIT} lines would be made", "see its first and last number")
        return sequence

    def _replace(self, line: Line, directory: Path) -> Iterator[Line]:
        """The line with every defined name replaced; several lines where a definition has several."""
        waiting = [line]
        steps = 0
        while waiting:
            current = waiting.pop()
            start = 0
            while (found := _REFERENCE.search(current.text, start)) is not None:
                if current.text[0] == "~" and BEGINS.match(current.text) and found.start() >= head_end(current.text):
                    # What a sequence repeats is replaced when its variables are set.
                    break
                value = self._value(current, found, directory)
                if value is None:
                    start = found.end()
                    continue
                steps += 1
                if steps > STEP_LIMIT or len(current.text) > EXPANSION_LIMIT:
                    self._endless.add(found["bare"] or found["braced"])
                    self._complaints.error(
                        "endless-definition",
                        line.span(0, len(line.text)),
                        f"replacing `{found.group()}` does not end; the line is dropped",
                        "a definition must not use itself",
                    )
                    return
                if len(value) > 1:
                    for each in value[1:]:
                        self._say_origin(current, found, each)
                    waiting += reversed(value[1:])
                current = self._replaced(current, found, value[0])
                start = found.start()
            current = uncommented(current)
            if current.text:
                yield current

    def _value(self, line: Line, found: re.Match[str], directory: Path) -> list[Line] | None:
        """What to put in place of a reference; None = leave it, which was complained of where it is a mistake."""
        name = found["braced"] if found["bare"] is None else found["bare"]
        argument = (found["argument"] or "").strip()
        delimited = found["bare"] is None or line.text[found.end() : found.end() + 1] in _MAY_FOLLOW
        if name in BUILT_IN and name not in self._values and delimited:
            text = self._built_in(name, argument, directory)
            if text is not None:
                return [Line(text, line.file, _BUILT_IN_LINE)]
            self._complain_of_built_in(found, name, argument, line)
            return None
        if name in self._endless:
            where = line.span(found.start(), found.end())
            self._complaints.error("endless-definition", where, f"`{name}` uses itself and is not replaced")
            return None
        value = self._values.get(name)
        if value is None or argument:
            if delimited:
                self._complain_of_undefined(found, name, line)
            return None
        if not delimited or (len(value) > 1 and line.text[found.end() :].strip()):
            self._complain_of_glue(found, name, line, delimited=delimited)
            return None
        return value or [Line("", line.file, _BUILT_IN_LINE)]

    def _built_in(self, name: str, argument: str, directory: Path) -> str | None:
        """The text of a name that needs no definition, None when its argument makes no sense."""
        if name == "_RANDOM":
            bounds = argument.split()
            if len(bounds) > 2 or not all(each.isascii() and each.isdigit() and len(each) < 11 for each in bounds):  # noqa: PLR2004 - MIN and MAX, 32 bits
                return None
            low = int(bounds[0]) if bounds else 0
            high = int(bounds[1]) if len(bounds) > 1 else LARGEST
            return str(self._chance.draw(low, high)) if low <= high else None
        if name == "_ENV":
            return self._environment.get(argument)
        if argument:
            return None
        return {"_PWD": str(directory), "_INSTANCE": self._config_id, "_HASH": "#", "_BANG": "!"}[name]

    def _replaced(self, line: Line, found: re.Match[str], value: Line) -> Line:
        """The line with a reference replaced; the new characters all stand where the reference stood."""
        self._say_origin(line, found, value)
        start, end = found.span()
        own_line = value.number != _BUILT_IN_LINE and (value.file, value.number) != (line.file, line.number)
        if start == 0 and end == len(line.text) and own_line:
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

    def _say_origin(self, line: Line, found: re.Match[str], value: Line) -> None:
        """Remember, for the complaints, what stands where because of a definition."""
        if not value.text or value.number == _BUILT_IN_LINE:
            return
        use, definition = line.span(*found.span()), value.span(0, len(value.text))
        self._complaints.expanded(use, definition, f"`{found.group()}` gets its value here")
        if found.end() == len(line.text):
            self._complaints.expanded(definition, use, f"this line is put in here, by `{found.group()}`")

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

    def _complain_of_built_in(self, found: re.Match[str], name: str, argument: str, line: Line) -> None:
        hints = {
            "_RANDOM": "${_RANDOM}, ${_RANDOM MIN} or ${_RANDOM MIN MAX}",
            "_ENV": f"start it with {argument or 'NAME'} in its environment; keepalived knows ${{_ENV NAME}} since 2.3",
        }
        self._complaints.error(
            UNDEFINED,
            line.span(found.start(), found.end()),
            f"`{found.group()}` has no value and stays as it is",
            hints.get(name, f"write `${{{name}}}`"),
        )

    def _complain_of_undefined(self, found: re.Match[str], name: str, line: Line) -> None:
        hint = self._hints.did_you_mean(name, chain(self._values, BUILT_IN))
        if found["bare"] is None and not _NAME.fullmatch(name):
            hint = "default values as in a shell do not exist here: if this is a template, fill it in first"
        self._complaints.error(
            UNDEFINED,
            line.span(found.start(), found.end()),
            f"`{found.group()}` is not defined and stays as it is",
            hint or f"define it before its use: ${name}=value",
        )
