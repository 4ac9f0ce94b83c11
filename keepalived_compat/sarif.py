"""Complaints as SARIF 2.1.0 (OASIS), which code hosts show beside the lines."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath
from typing import Any

from keepalived_compat.diagnostics import Diagnostic, Severity
from keepalived_compat.rendering import printable
from keepalived_compat.source import Span

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LEVELS = {
    Severity.FATAL: "error",
    Severity.ERROR: "error",
    Severity.WARNING: "warning",
    Severity.NOTE: "note",
}


def as_sarif(diagnostics: Iterable[Diagnostic], *, tool: str, version: str) -> dict[str, Any]:
    """One log with one run; which of the four severities a result has is kept in its `properties`."""
    found = list(diagnostics)
    codes = sorted({each.code for each in found})
    index = {code: number for number, code in enumerate(codes)}
    driver = {"name": tool, "version": version, "rules": [{"id": code} for code in codes]}
    results = [_result(each, index) for each in found]
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _result(diagnostic: Diagnostic, index: dict[str, int]) -> dict[str, Any]:
    hint = f" ({printable(diagnostic.hint)})" if diagnostic.hint else ""
    result: dict[str, Any] = {
        "ruleId": diagnostic.code,
        "ruleIndex": index[diagnostic.code],
        "level": _LEVELS[diagnostic.severity],
        "message": {"text": printable(diagnostic.message) + hint},
        "locations": [_location(diagnostic.span)],
        "properties": {"severity": diagnostic.severity.value},
    }
    if diagnostic.related:
        result["relatedLocations"] = [
            _location(each.span) | {"message": {"text": printable(each.message)}} for each in diagnostic.related
        ]
    return result


def _location(span: Span) -> dict[str, Any]:
    path = PurePath(span.file)
    uri = path.as_uri() if path.is_absolute() else path.as_posix()
    return {
        "physicalLocation": {
            "artifactLocation": {"uri": uri},
            "region": {"startLine": span.line, "startColumn": span.column, "endColumn": span.end_column},
        }
    }
