from __future__ import annotations

import pytest

from keepalived_compat.diagnostics import Complaints
from keepalived_compat.lexer import Line, uncommented, words


def lexed(text: str) -> list[tuple[str, int, int]]:
    line = uncommented(Line(text, "f", 1))
    return [(each.text, each.column, each.end_column) for each in words(line, Complaints())]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("priority 100", [("priority", 1, 9), ("100", 10, 13)]),
        ("  a\tb", [("a", 3, 4), ("b", 5, 6)]),
        ("priority 100 # foo", [("priority", 1, 9), ("100", 10, 13)]),
        ("priority 10#c", [("priority", 1, 9), ("10", 10, 12)]),
        ("priority 100!x", [("priority", 1, 9), ("100", 10, 13)]),
        ("! all of it", []),
        ('auth_pass "ab#cd"', [("auth_pass", 1, 10), ("ab#cd", 11, 18)]),
        ('"a b" c', [("a b", 1, 6), ("c", 7, 8)]),
        ('a"b"', [("a", 1, 2), ("b", 2, 5)]),
        ('x ""', [("x", 1, 2), ("", 3, 5)]),
        ("vrrp_instance A{", [("vrrp_instance", 1, 14), ("A", 15, 16), ("{", 16, 17)]),
        ("}{", [("}", 1, 2), ("{", 2, 3)]),
        ('"{"', [("{", 1, 4)]),
        # keepalived strips comments twice, so the escape does not survive.
        (r"auth_pass ab\#cd", [("auth_pass", 1, 10), ("ab\\", 11, 14)]),
        ("interface ${IF}x", [("interface", 1, 10), ("${IF}x", 11, 17)]),
        ("vip {{ vip }} x", [("vip", 1, 4), ("{{ vip }}", 5, 14), ("x", 15, 16)]),
        ("", []),
    ],
)
def test_a_line_is_split(text, expected):
    assert lexed(text) == expected


def test_a_quoted_brace_opens_nothing():
    (word,) = words(Line('"{"', "f", 1), Complaints())
    assert not word.opens
    assert word.quoted


def test_a_quote_that_is_not_closed_takes_the_rest_of_the_line():
    complaints = Complaints()
    found = words(uncommented(Line('script "/bin/true # no comment', "f", 7)), complaints)
    assert [each.text for each in found] == ["script", "/bin/true # no comment"]
    (complaint,) = complaints.all
    assert complaint.code == "unterminated-quote"
    assert complaint.span == ("f", 7, 8, 31)


def test_a_no_break_space_is_a_blank_and_is_said():
    complaints = Complaints()
    found = words(Line("priority\u00a0100", "f", 1), complaints)
    assert [each.text for each in found] == ["priority", "100"]
    assert [each.code for each in complaints.all] == ["odd-blank"]


def test_columns_count_characters_not_bytes():
    assert lexed("组 b") == [("组", 1, 2), ("b", 3, 4)]
