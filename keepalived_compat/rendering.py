"""Complaints for people (source line and caret) and for programs (JSON)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from typing import Any

from keepalived_compat.diagnostics import Diagnostic, Severity
from keepalived_compat.source import Sources, Span

_COLOURS = {Severity.FATAL: "1;31", Severity.ERROR: "31", Severity.WARNING: "33", Severity.NOTE: "36"}
_WIDEST = 160
"""Columns of a source line that are shown: a caret below a line that wraps points nowhere."""


def as_text(diagnostic: Diagnostic, sources: Sources, *, colour: bool = False) -> str:
    """`file:line:column: severity[code]: message`, the source line, a caret, the hint; no newline at the end."""

    def paint(text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if colour else text

    hue = _COLOURS[diagnostic.severity]
    label = paint(f"{diagnostic.severity.value}[{diagnostic.code}]", hue)
    rows = [f"{printable(str(diagnostic.span))}: {label}: {paint(printable(diagnostic.message), '1')}"]
    source = sources.line(diagnostic.span.file, diagnostic.span.line)
    number = "1"
    if source is not None and source.strip():
        shown, pointer = _caret(source, diagnostic.span)
        number = str(diagnostic.span.line)
        rows += [f" {number} | {shown}", f" {' ' * len(number)} | {paint(pointer, hue)}"]
    if diagnostic.hint:
        rows.append(f" {' ' * len(number)} = {printable(diagnostic.hint)}")
    for each in diagnostic.related:
        rows.append(f"   > {printable(str(each.span))}: {printable(each.message)}")
        source = sources.line(each.span.file, each.span.line)
        if source is not None and source.strip():
            rows.append(f"     {_caret(source, each.span)[0].strip()}")
    return "\n".join(rows)


def as_json(diagnostics: Iterable[Diagnostic]) -> list[dict[str, Any]]:
    """The `diagnostics` list of `haxlb.check/1`."""
    return [
        {
            "code": each.code,
            "severity": each.severity.value,
            **_place(each.span),
            "message": printable(each.message),
            "hint": printable(each.hint),
            **_related(each),
        }
        for each in diagnostics
    ]


def _related(diagnostic: Diagnostic) -> dict[str, Any]:
    """The optional field `related`: it is there when there is something in it."""
    places = [_place(each.span) | {"message": printable(each.message)} for each in diagnostic.related]
    return {"related": places} if places else {}


def _place(span: Span) -> dict[str, Any]:
    return {"file": printable(span.file), "line": span.line, "column": span.column, "end_column": span.end_column}


def summary(diagnostics: Iterable[Diagnostic]) -> str:
    """`1 fatal, 2 errors, 1 warning`; empty when there is nothing to say."""
    found = list(diagnostics)
    parts = []
    for severity in Severity:
        count = sum(each.severity is severity for each in found)
        plural = "" if count == 1 or severity is Severity.FATAL else "s"
        if count:
            parts.append(f"{count} {severity.value}{plural}")
    return ", ".join(parts)


def summary_by_file(diagnostics: Iterable[Diagnostic]) -> str:
    """`a.conf: 1 warning; b.yml: 1 fatal`, in the order of the diagnostics; empty when there is nothing to say."""
    files: dict[str, list[Diagnostic]] = {}
    for each in diagnostics:
        files.setdefault(each.span.file, []).append(each)
    return "; ".join(f"{printable(file)}: {summary(found)}" for file, found in files.items())


def printable(text: str) -> str:
    """Control characters and lone surrogates as escapes: a file name or a word may hold anything."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)


def _caret(source: str, span: Span) -> tuple[str, str]:
    """The line, cut around the span, and the row of carets below it."""
    start = min(span.column - 1, len(source))
    end = max(min(span.end_column - 1, len(source)), start + 1)
    left = 0 if end <= _WIDEST else max(start - _WIDEST // 2, 0)
    right = left + _WIDEST
    if source.isascii() and source.isprintable():
        lead = "…" if left else ""
        carets = "^" * max(min(end, right) - start, 1)
        return lead + source[left:right].rstrip(), " " * (len(lead) + max(start - left, 0)) + carets
    before = _blank_out(source[left:start])
    carets = "^" * max(sum(_width(each) for each in source[start : min(end, right)]), 1)
    shown = "".join(each if each.isprintable() else " " for each in source[left:right].replace("\t", " "))
    lead = "…" if left else ""
    return lead + shown.rstrip(), " " * len(lead) + before + carets


def _blank_out(text: str) -> str:
    return " " * sum(_width(each) for each in text)


def _width(character: str) -> int:
    """Cells on a terminal: East Asian wide characters take two (UAX #11)."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
