"""Words and braces to a tree, whatever is wrong with the braces.

A brace that is missing is reported once, where its block began, and the tree goes on as if it were there: a statement
that cannot stand where it is but could in a block further out shows which block was not closed.
"""

from __future__ import annotations

from dataclasses import dataclass

from keepalived_compat.diagnostics import Complaints
from keepalived_compat.grammar import ROOT, Block, Grammar
from keepalived_compat.lexer import PlacedCut
from keepalived_compat.source import Piece, Pieces, Word
from keepalived_compat.tree import Body, Statement


@dataclass(slots=True)
class _Frame:
    """A block that is open."""

    owner: Statement | None
    body: Body
    block: str | None
    """Its name in the grammar; None = a block that the grammar does not know."""
    rows: Block
    """What the grammar knows in it."""
    awaits: bool = False
    """The last statement has to open a block, and has not yet."""


class Parser:
    """Builds the tree of one configuration."""

    def __init__(self, *, grammar: Grammar, complaints: Complaints) -> None:
        self._grammar = grammar
        self._complaints = complaints
        self._root = Body()
        self._stack = [_Frame(None, self._root, ROOT, grammar[ROOT])]
        self._lines: list[PlacedCut] = []
        self._missing = 0
        """Closing braces that the whole file lacks; below 0: it has too many."""
        self._closed_early = 0
        """Blocks closed by recovery whose brace may still come."""

    def parse(self, lines: list[PlacedCut]) -> Body:
        """The tree. Complaints about braces have been filed."""
        self._lines = lines
        self._missing = sum([cut[1] for cut, _, _ in lines])
        for number, (cut, file, line) in enumerate(lines):
            for place, (brace, pieces) in enumerate(cut[0]):
                if not brace:
                    self._statement(Statement(pieces, file, line), number, place)
                elif brace == "{":
                    self._open(pieces, file, line)
                else:
                    self._close(pieces[0], file, line, first=not place)
        self._lines = []
        self._expect_body()
        self._finish()
        return self._root

    def _statement(self, statement: Statement, number: int, place: int) -> None:
        """Take a statement, which is the part at this place of the line of this number."""
        frame = self._stack[-1]
        if frame.awaits:
            self._expect_body()
            frame = self._stack[-1]
        text = statement.pieces[0][0]
        keyword = frame.rows.get(text)
        if keyword is None:
            self._resynchronise(statement.keyword, opens=self._opens_after(number, place))
            frame = self._stack[-1]
            keyword = frame.rows.get(text)
        frame.body.statements.append(statement)
        frame.awaits = keyword is not None and keyword.body is not None

    def _opens_after(self, number: int, place: int) -> bool:
        """An opening brace comes next."""
        parts = self._lines[number][0].parts
        place += 1
        if place == len(parts):
            if number + 1 == len(self._lines):
                return False
            parts, place = self._lines[number + 1][0].parts, 0
        return place < len(parts) and parts[place][0] == "{"

    def _open(self, brace: Pieces, file: str, line: int) -> None:
        statements = self._stack[-1].body.statements
        owner = statements[-1] if statements else None
        if owner is None or owner.body is not None:
            owner = Statement(brace, file, line)
            self._complaints.fatal(
                "unexpected-brace",
                owner.keyword,
                "this `{` belongs to no keyword",
                "write `keyword … {`, or delete the brace",
            )
            statements.append(owner)
        self._push(owner, Body(brace[0], file, line))

    def _push(self, owner: Statement, body: Body) -> None:
        owner.body = body
        frame = self._stack[-1]
        frame.awaits = False
        keyword = frame.rows.get(owner.pieces[0][0])
        block = keyword.body if keyword else None
        rows = _NOTHING if block is None else self._grammar.get(block, _NOTHING)
        self._stack.append(_Frame(owner, body, block, rows))

    def _close(self, brace: Piece, file: str, line: int, *, first: bool) -> None:
        if self._stack[-1].awaits:
            self._expect_body()
        if first and self._missing > 0 and self._stack[-1].block is not None:
            self._trust_indentation(Word.of(brace, file, line))
        if len(self._stack) > 1:
            self._stack.pop().body.close(brace, file, line)
        elif self._closed_early:
            self._closed_early -= 1
        else:
            self._missing += 1
            self._complaints.fatal(
                "surplus-brace",
                Word.of(brace, file, line),
                "this `}` closes nothing",
                "delete it, or see which block above was closed too early",
            )

    def _trust_indentation(self, brace: Word) -> None:
        """In a file that lacks braces, one that is indented as an outer block ends that block, not the inner one."""
        columns = [each.owner.keyword.column for each in self._stack if each.owner]
        if len(columns) < 2 or columns[-1] <= brace.column:  # noqa: PLR2004 - an outer and an inner block
            return
        for depth in range(len(columns) - 1, 0, -1):
            if columns[depth - 1] == brace.column and self._missing >= len(columns) - depth:
                self._close_unclosed(depth, f"the `}}` that ends `{self._title(depth)}`", brace)
                return

    def _title(self, depth: int) -> str:
        owner = self._stack[depth].owner
        return owner.title() if owner else ""

    def _expect_body(self) -> None:
        """The last statement opened no block; complain if it had to, and open it where a closing brace will come."""
        frame = self._stack[-1]
        if not frame.awaits:
            return
        frame.awaits = False
        last = frame.body.statements[-1]
        if self._missing < 0:
            self._missing += 1
            self._complaints.fatal(
                "missing-brace",
                last.keyword,
                f"`{last.title()}` lacks its opening brace",
                "end the line with `{`",
            )
            self._push(last, Body())
        else:
            self._complaints.error(
                "missing-block", last.keyword, f"`{last.title()}` has no block", f"write `{last.title()} {{ … }}`"
            )
            last.body = Body()

    def _resynchronise(self, first: Word, *, opens: bool) -> None:
        """Close the blocks that this statement shows to be over."""
        depth = self._depth_of(first, opens=opens)
        if depth is None:
            return
        self._close_unclosed(depth, f"`{first.text}`", first)

    def _close_unclosed(self, depth: int, sign: str, word: Word) -> None:
        """Close the blocks inside of this one, which the word shows to be over, and say so."""
        unclosed = self._stack[depth + 1 :]
        inner = unclosed[-1].owner
        if inner is None:
            return
        names = " and ".join(f"`{each.owner.title()}`" for each in unclosed[: -_SHOWN - 1 : -1] if each.owner)
        self._complaints.fatal(
            "missing-brace",
            inner.keyword,
            f"{names} {'is' if len(unclosed) == 1 else 'are'} not closed before {sign} at {word.span}",
            f"put {_braces(len(unclosed))} before line {word.line}",
        )
        self._closed_early += max(len(unclosed) - max(self._missing, 0), 0)
        self._missing -= len(unclosed)
        del self._stack[depth + 1 :]

    def _depth_of(self, first: Word, *, opens: bool) -> int | None:
        """Index of the open block that this statement belongs to when it is not the innermost one."""
        inner = self._stack[-1]
        if len(self._stack) == 1 or first.quoted or first.text in inner.rows:
            return None
        # Inside of an unknown block only the top level can be told; blocks may be nested there without bound.
        for depth in range(len(self._stack) - 2, -1, -1) if inner.block is not None else (0,):
            keyword = self._stack[depth].rows.get(first.text)
            if keyword is None:
                continue
            certain = depth == 0 and opens and keyword.body is not None
            lacking = inner.block is not None and self._missing >= len(self._stack) - 1 - depth
            return depth if certain or lacking else None
        return None

    def _finish(self) -> None:
        """Complain once of all that is open at the end."""
        unclosed = self._stack[:0:-1]
        owners = [each.owner for each in unclosed if each.owner is not None]
        if not owners:
            return
        shown = owners[:_SHOWN]
        names = ", ".join(f"`{each.title()}` (line {each.keyword.line})" for each in shown)
        more = f" and {len(owners) - _SHOWN} more" if len(owners) > _SHOWN else ""
        self._complaints.fatal(
            "missing-brace",
            owners[0].keyword,
            f"not closed at the end of the file: {names}{more}",
            f"put {_braces(len(owners))} where the block ends",
        )


_SHOWN = 4
_NOTHING: Block = {}


def _braces(count: int) -> str:
    return "`}`" if count == 1 else f"{count} closing braces"
