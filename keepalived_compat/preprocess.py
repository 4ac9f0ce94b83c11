"""Physical lines to the words of logical ones: comments, `@config-id` lines, `$definitions`, sequences, includes."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path

from keepalived_compat.chance import Chance, seed_of
from keepalived_compat.conditions import selected
from keepalived_compat.definitions import Definitions
from keepalived_compat.diagnostics import UNREADABLE, Complaints, Severity
from keepalived_compat.lexer import Cut, Line, PlacedCut, cut, plain_pieces, uncommented, words
from keepalived_compat.source import Reader, Sources, Span

LINE_LIMIT = 1023
"""Bytes in a line that keepalived reads; newer releases drop a longer one, 2.2.7 cuts it in two."""
LINE_REFUSED = 65_536
"""Characters beyond which a line is dropped here too: no configuration has one."""
_MOST_KNOWN = 20_000
"""Different lines that are remembered, so that one that stands there a thousand times is split once."""
FILE_LIMIT = 10_000
"""Files that one configuration may include: more is a mistake that multiplies."""
NESTING_LIMIT = 100
"""Files that may include one another in a chain: nobody means more, and the reader's stack is not endless."""

_INCLUDE = re.compile(r"include(?P<kind>[rmwba]?)(?:\s+(?P<pattern>.*))?$")
_BLANKS = " \t\r\n\v\f"
"""No others: keepalived takes a no-break space for a part of a word, which is said."""
_REFUSING = {"name": ("m", "w", "a"), "wildcard": ("w", "a"), "alternative": ("b", "a")}
"""Which includes refuse the configuration when a form of pattern matches nothing, as keepalived 2.2.7 does."""


class Preprocessor:
    """Reads a file and all that it includes into one stream of lines."""

    def __init__(
        self,
        *,
        reader: Reader,
        config_id: str,
        complaints: Complaints,
        sources: Sources,
        environment: Mapping[str, str] | None = None,
        seed: int | None = None,
    ) -> None:
        self._reader = reader
        self._config_id = config_id
        self._complaints = complaints
        self._sources = sources
        self._definitions = Definitions(
            complaints=complaints,
            config_id=config_id,
            environment=environment or {},
            chance=Chance(seed_of(config_id) if seed is None else seed),
        )
        self._open: list[str] = []
        self._known: dict[str, Cut] = {}
        self._lines: list[PlacedCut] = []
        self._files = 0

    def lines(self, path: Path) -> list[PlacedCut]:
        """Each logical line, cut, of the configuration that begins in `path`.

        A file that cannot be read is a fatal complaint.
        """
        try:
            content = self._reader.read(path)
        except OSError as problem:
            self._complaints.fatal(
                UNREADABLE,
                whole_file(path),
                f"cannot read the configuration: {problem.strerror or problem}",
                "give its path with -f, and see that it may be read",
            )
            return []
        except ValueError as problem:
            self._complaints.fatal(UNREADABLE, whole_file(path), f"not a path: {problem}")
            return []
        self._lines = []
        self._file(path, content)
        lines, self._lines = self._lines, []
        return lines

    def _file(self, path: Path, content: bytes) -> None:
        self._files += 1
        self._open.append(self._reader.identity(path))
        physical = self._decoded(path, content)
        self._sources.add(str(path), physical)
        for line in self._not_plain(path, physical):
            if line.text[0] in "~i" or "$" in line.text:
                for each in self._definitions.expand(line, path.parent):
                    self._include_or_keep(each, path)
            else:
                self._keep(line)
        self._open.pop()

    def _keep(self, line: Line) -> None:
        found = words(line, self._complaints)
        if found:
            pieces = tuple([(each.text, each.column, each.end_column, each.quoted) for each in found])
            self._lines.append((cut(pieces), line.file, line.number))

    def _not_plain(self, path: Path, physical: list[str]) -> Iterator[Line]:
        """Lines that say something to this director and are not plain; those that are have been kept.

        Definitions are remembered on the way.
        """
        file = str(path)
        continued: list[Line] | None = None
        known, lines = self._known, self._lines
        for number, text in enumerate(physical, 1):
            if continued is not None:
                bare = self._bare(text, file, number)
                if bare is None:
                    self._definitions.end(continued)
                continued = None if bare is None else self._definitions.go_on(continued, bare)
                continue
            parts = known.get(text)
            if parts is None:
                pieces = plain_pieces(text)
                if pieces is None:
                    continued = yield from self._logical(self._bare(text, file, number))
                    continue
                parts = cut(pieces)
                if len(known) < _MOST_KNOWN:
                    known[text] = parts
            if parts[0]:
                lines.append((parts, file, number))
        if continued is not None:
            self._definitions.end(continued)

    def _logical(self, bare: Line | None) -> Generator[Line, None, list[Line] | None]:
        """The line when it is for this director; returns a definition that goes on on the next line."""
        line = None if bare is None else selected(bare, self._config_id, self._complaints)
        if line is None:
            return None
        if self._definitions.begins(line):
            return self._definitions.begin(line)
        yield line
        return None

    def _bare(self, text: str, file: str, number: int) -> Line | None:
        """The line without comment and outer blanks, None when nothing is left of it."""
        stripped = text.strip(_BLANKS)
        if not stripped or stripped[0] in "#!":
            return None
        line = Line(stripped, file, number, text.index(stripped[0]))
        if "#" in stripped or "!" in stripped:
            line = uncommented(line)
            if not line.text:
                # Blanks that keepalived takes for none, before a comment.
                return None
        return line if len(line.text) <= LINE_LIMIT // 4 or self._fits(line) else None

    def _decoded(self, path: Path, content: bytes) -> list[str]:
        """The physical lines of a file; none when it is no text."""
        where = whole_file(path)
        if b"\0" in content:
            number = content[: content.index(b"\0")].count(b"\n") + 1
            self._complaints.fatal(
                "not-text",
                where._replace(line=number),
                "the file holds a NUL byte: it is not a text file, or it is damaged",
                "restore the file; keepalived drops such lines",
            )
            return []
        if content.startswith(b"\xef\xbb\xbf"):
            content = content[3:]
            self._complaints.warning(
                "byte-order-mark",
                where,
                "the file begins with a UTF-8 byte order mark, which is skipped; keepalived takes it for a keyword",
                "save the file without it",
            )
        try:
            text = content.decode()
        except UnicodeDecodeError as problem:
            number = content[: problem.start].count(b"\n") + 1
            self._complaints.warning(
                "not-utf-8",
                where._replace(line=number),
                "the file is not UTF-8 from here on; what cannot be read is replaced",
                "matters only outside comments",
            )
            text = content.decode(errors="replace")
        lines = text.split("\n")
        return [each.rstrip("\r") for each in lines] if "\r" in text else lines

    def _fits(self, line: Line) -> bool:
        length = len(line.text)
        if length > LINE_REFUSED:
            self._complaints.error(
                "long-line",
                line.span(0, 1),
                f"a line of {length} characters is dropped",
                "split it; an include may help",
            )
            return False
        if len(line.text.encode(errors="replace")) > LINE_LIMIT:
            self._complaints.warning(
                "long-line",
                line.span(0, 1),
                f"the line is longer than {LINE_LIMIT} bytes: read whole here, dropped or cut in two by keepalived",
                "split it if keepalived shall read it too",
            )
        return True

    def _include_or_keep(self, line: Line, path: Path) -> None:
        text = line.text
        found = _INCLUDE.match(text) if text.startswith("include") else None
        if found is None:
            self._keep(line)
            return
        pattern = found["pattern"]
        where = line.span(0, len(text))
        if not pattern:
            self._complaints.fatal(
                "missing-argument", where, "`include` names no file", "include /etc/keepalived/conf.d/*.conf"
            )
            return
        self._include(pattern, where, path, found["kind"])

    def _include(self, pattern: str, where: Span, path: Path, kind: str) -> None:
        try:
            alternatives = [(each, self._reader.match(each, path.parent)) for each in expand_braces(pattern)]
        except (OSError, ValueError, RuntimeError) as problem:
            complain = self._complaints.fatal if kind else self._complaints.error
            complain("include-problem", where, f"cannot look for `{pattern}`: {problem}")
            return
        self._complain_of_missing(pattern, alternatives, where, kind)
        for _, names in alternatives:
            for name in names:
                content = self._admitted(name, where, strict=bool(kind))
                if content is not None:
                    self._file(name, content)

    def _complain_of_missing(
        self, pattern: str, alternatives: list[tuple[str, list[Path]]], where: Span, kind: str
    ) -> None:
        """Say what matched nothing; how bad that is depends on the kind of include and of pattern (`_REFUSING`)."""
        nothing_at_all = not any(names for _, names in alternatives)
        for each, names in alternatives:
            if names:
                continue
            wild = any(sign in each for sign in "*?[")
            if wild and not nothing_at_all:
                continue
            form = "alternative" if each != pattern and not wild else "wildcard" if wild else "name"
            hint = "see the path; it is relative to this file"
            if '"' in pattern:
                hint = "include takes no quotes: they are part of the name"
            if kind in _REFUSING[form]:
                severity = Severity.FATAL
                hint += f"; `include{kind}` refuses the configuration, `include` does not"
            else:
                severity = Severity.NOTE if wild else Severity.ERROR
            self._complaints.add(severity, "include-problem", where, f"no file matches `{each}`", hint)

    def _admitted(self, name: Path, where: Span, *, strict: bool) -> bytes | None:
        """The content of a file to include, None (with a complaint) when it is not to be read."""
        complain = self._complaints.fatal if strict else self._complaints.error
        if self._reader.identity(name) in self._open:
            self._complaints.fatal(
                "include-loop",
                where,
                f"`{name}` is included again while it is being read",
                "break the loop of includes",
            )
            return None
        if len(self._open) >= NESTING_LIMIT:
            self._complaints.fatal(
                "include-problem",
                where,
                f"`{name}` is not read: includes are nested {NESTING_LIMIT} deep",
                "include it from a file further up",
            )
            return None
        if self._files >= FILE_LIMIT:
            self._complaints.fatal("include-problem", where, f"more than {FILE_LIMIT} files are included")
            return None
        refusal = self._reader.refusal(name)
        if refusal:
            complain(
                "include-problem",
                where,
                f"`{name}` is not read: {refusal}",
                "keepalived takes regular files that are not executable",
            )
            return None
        try:
            return self._reader.read(name)
        except OSError as problem:
            complain("include-problem", where, f"cannot read `{name}`: {problem.strerror or problem}")
            return None


def whole_file(path: Path) -> Span:
    """The place that stands for a file as such."""
    return Span(str(path), 1, 1, 1)


def expand_braces(pattern: str, limit: int = 256) -> list[str]:
    """`a{b,c}` to `ab`, `ac`, as GLOB_BRACE of glob(3) does; more than `limit` alternatives raise ValueError."""
    ready: list[str] = []
    waiting = [pattern]
    while waiting:
        if len(ready) + len(waiting) > limit:
            raise ValueError(f"more than {limit} alternatives")
        each = waiting.pop()
        inner = re.search(r"\{([^{}]*)\}", each)
        if inner is None or inner[1] == "":
            ready.append(each)
            continue
        waiting += [each[: inner.start()] + one + each[inner.end() :] for one in reversed(inner[1].split(","))]
    return ready
