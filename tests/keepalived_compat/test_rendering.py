from __future__ import annotations

from dataclasses import replace

import pytest

from keepalived_compat.diagnostics import Diagnostic, Related, Severity
from keepalived_compat.rendering import as_json, as_text, summary, summary_by_file
from keepalived_compat.source import Sources, Span


def of(span, severity=Severity.ERROR, hint="do it"):
    return Diagnostic(code="a-code", severity=severity, span=span, message="it is wrong", hint=hint)


@pytest.fixture
def sources():
    made = Sources()
    made.add("f.conf", ["first", "\tpriority  300 # x", "组组 bad", "x" * 400 + " bad " + "y" * 400])
    return made


def test_the_caret_is_below_the_word(sources):
    assert as_text(of(Span("f.conf", 2, 12, 15)), sources).splitlines() == [
        "f.conf:2:12: error[a-code]: it is wrong",
        " 2 |  priority  300 # x",
        "   |            ^^^",
        "   = do it",
    ]


def test_wide_characters_take_two_cells(sources):
    rows = as_text(of(Span("f.conf", 3, 4, 7)), sources).splitlines()
    assert rows[1:3] == [" 3 | 组组 bad", "   |      ^^^"]


def test_a_long_line_is_cut_around_the_word(sources):
    shown, caret = as_text(of(Span("f.conf", 4, 402, 405)), sources).splitlines()[1:3]
    assert len(shown) < 180
    assert shown[caret.index("^") :].startswith("bad")


def test_without_a_source_line_there_is_no_caret(sources):
    assert as_text(of(Span("gone", 1, 1, 1), hint=""), sources) == "gone:1:1: error[a-code]: it is wrong"


def test_a_place_behind_the_line_is_shown_at_its_end(sources):
    assert as_text(of(Span("f.conf", 1, 50, 60)), sources).splitlines()[2] == "   |      ^"


def test_colour_only_when_asked(sources):
    assert "\x1b[" in as_text(of(Span("f.conf", 1, 1, 2)), sources, colour=True)
    assert "\x1b[" not in as_text(of(Span("f.conf", 1, 1, 2)), sources)


def test_control_characters_never_reach_the_terminal():
    sources = Sources()
    sources.add("e\x1b[31m", ["a \x1b[31m b"])
    text = as_text(of(Span("e\x1b[31m", 1, 3, 4)), sources)
    assert "\x1b" not in text


def test_json(sources):
    assert as_json([of(Span("f.conf", 2, 12, 15), Severity.FATAL)]) == [
        {
            "code": "a-code",
            "severity": "fatal",
            "file": "f.conf",
            "line": 2,
            "column": 12,
            "end_column": 15,
            "message": "it is wrong",
            "hint": "do it",
        }
    ]


def test_the_summary_counts():
    where = Span("f", 1, 1, 1)
    found = [of(where, each) for each in (Severity.ERROR, Severity.FATAL, Severity.ERROR, Severity.NOTE)]
    assert summary(found) == "1 fatal, 2 errors, 1 note"
    assert summary([]) == ""


def test_each_file_is_named_with_its_count():
    found = [of(Span("a.conf", 1, 1, 1)), of(Span("b.yml", 1, 1, 1), Severity.FATAL), of(Span("a.conf", 2, 1, 1))]
    assert summary_by_file(found) == "a.conf: 2 errors; b.yml: 1 fatal"
    assert summary_by_file([]) == ""


def test_where_it_comes_from(sources):
    related = (Related(span=Span("f.conf", 1, 1, 6), message="it is defined here"),)
    both = replace(of(Span("f.conf", 2, 12, 15)), related=related)
    assert as_text(both, sources).splitlines()[4:] == ["   > f.conf:1:1: it is defined here", "     first"]
    (row,) = as_json([both])
    assert row["related"] == [
        {"file": "f.conf", "line": 1, "column": 1, "end_column": 6, "message": "it is defined here"}
    ]
