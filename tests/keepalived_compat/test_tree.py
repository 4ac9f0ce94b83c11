"""Words of the tree are made when they are asked for, with the places that they have in the file."""

from pathlib import Path

import pytest

from keepalived_compat.lexer import cut, plain_pieces
from keepalived_compat.reading import read
from keepalived_compat.source import Span


class Files:
    """Files of a test, by name."""

    def __init__(self, files: dict[str, str]) -> None:
        self._files = files

    def read(self, path: Path) -> bytes:
        return self._files[str(path)].encode()

    def match(self, pattern: str, directory: Path) -> list[Path]:
        return [directory / pattern]

    def refusal(self, path: Path) -> str:
        return "" if str(path) in self._files else "it does not exist"

    def identity(self, path: Path) -> str:
        return str(path)


def tree(**files: str):
    return read(Path("main"), config_id="x", reader=Files(files)).tree


def test_lines_of_the_same_text_have_places_of_their_own():
    first, second = tree(main="virtual_server 192.0.2.1 80 {\n}\nvirtual_server 192.0.2.1 80 {\n}\n").statements
    assert [each.text for each in first.words] == [each.text for each in second.words]
    assert first.pieces is second.pieces
    assert [each.span for each in second.arguments] == [Span("main", 3, 16, 25), Span("main", 3, 26, 28)]
    assert (first.keyword.line, first.body.opening.line, first.body.closing.line) == (1, 1, 2)
    assert (second.keyword.line, second.body.opening.line, second.body.closing.line) == (3, 3, 4)


def test_a_block_may_end_in_another_file():
    (block,) = tree(main="global_defs {\ninclude rest\n", rest="router_id a\n}\n").statements
    assert (block.body.opening.file, block.body.closing.file, block.body.closing.line) == ("main", "rest", 2)


def test_a_block_without_its_braces_has_none():
    (block,) = tree(main="global_defs {\nrouter_id a\n").statements
    assert block.body.closing is None
    (block,) = tree(main="global_defs\nrouter_id a\n}\n").statements
    assert block.body.opening is None


@pytest.mark.parametrize(
    ("text", "parts", "opened"),
    [
        ("", [], 0),
        ("a b", [("", "a b")], 0),
        ("a {", [("", "a"), ("{", "{")], 1),
        ("} a", [("}", "}"), ("", "a")], -1),
        ("a{b c}}d", [("", "a"), ("{", "{"), ("", "b c"), ("}", "}"), ("}", "}"), ("", "d")], -1),
    ],
)
def test_a_line_is_cut_at_its_braces(text, parts, opened):
    found = cut(plain_pieces(text))
    assert [(brace, " ".join(each[0] for each in pieces)) for brace, pieces in found.parts] == parts
    assert found.opened == opened


def test_words_that_a_definition_puts_in_are_told_apart_though_they_have_one_place():
    """The second `global_defs` opens a block, and so ends the one that is open; the first does not."""
    reading = read(Path("main"), config_id="x", reader=Files({"main": MISSING_BRACE}))
    assert [(each.keyword.text, len(each.body.statements)) for each in reading.tree.statements] == [
        ("vrrp_instance", 1),
        ("global_defs", 0),
    ]
    assert "missing-brace" in {each.code for each in reading.complaints.all}


MISSING_BRACE = "$D=global_defs } global_defs {\nvrrp_instance V {\nnotify_x {\na { $D\n}\n"


def test_a_quoted_brace_is_a_word():
    found = cut((("a", 1, 2, False), ("{", 3, 6, True), ("}", 7, 8, False)))
    assert [brace for brace, _ in found.parts] == ["", "}"]
    assert found.opened == -1
