"""print → parse → print is a fixed point."""

from __future__ import annotations

from pathlib import Path

import pytest

from keepalived_compat.printer import canonical
from keepalived_compat.reading import read

CORPUS = Path(__file__).parents[3] / "shared" / "corpus"
FILES = sorted(each for each in CORPUS.glob("*/*") if each.is_file())


def shape(body):
    return [
        (tuple(word.text for word in each.words), None if each.body is None else shape(each.body))
        for each in body.statements
    ]


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("", ""),
        ("a{b c}", "a {\n    b c\n}\n"),
        ("a\n{\n}\n# c\nb   c\t d ! e", "a {\n}\nb c d\n"),
        ('x "a b" "" "#" "plain"', 'x "a b" "" "#" "plain"\n'),
        ('x "open', 'x "open"\n'),
        ("$A=one two\nx $A", "x one two\n"),
        ("$A=@a b\n$A", '"@a" b\n'),
        ("~SEQ(i,2) x$i", "x1\nx2\n"),
        ("x ${UNKNOWN} ${VAR:-a b}", "x ${UNKNOWN} ${VAR:-a b}\n"),
        ("x {{ name }} {", "x {{ name }} {\n}\n"),
        ("{ x }", "{\n    x\n}\n"),
        ("a { } { x }", "a {\n}\n{\n    x\n}\n"),
        ("vrrp_instance A", "vrrp_instance A {\n}\n"),
        ('"{" x', '"{" x\n'),
        ("vrrp_instance A {\n interface eth0\nvirtual_server 1.2.3.4 80 {\n}\n", None),
    ],
)
def test_canonical_text(reading, text, printed):
    once = canonical(reading(text).tree)
    if printed is not None:
        assert once == printed
    assert canonical(reading(once).tree) == once


def test_text_grows_with_the_depth_of_nesting_not_with_its_square(reading):
    """Seed 404, mutation 18847 of the fuzz: 24 GB of blanks."""
    printed = [canonical(reading("x {\n" * depth + "}\n" * depth).tree) for depth in (1000, 2000)]
    assert len(printed[1]) < 2.1 * len(printed[0])
    assert canonical(reading(printed[1]).tree) == printed[1]


def test_deep_nesting_is_no_recursion(reading):
    once = canonical(reading("a {\n" * 5000).tree)
    assert once.count("}") == 5000


@pytest.mark.skipif(not FILES, reason="the corpus is not beside this repository")
@pytest.mark.parametrize("path", FILES, ids=[each.name for each in FILES])
def test_a_corpus_file_is_printed_read_and_printed(path, tmp_path):
    first = read(path, config_id="high")
    once = canonical(first.tree)
    (tmp_path / "k.conf").write_text(once)
    second = read(tmp_path / "k.conf", config_id="high")
    assert canonical(second.tree) == once
    assert shape(second.tree) == shape(first.tree)
