"""The tree held against the keyword table: what can be used, as values, and a complaint for all the rest."""

from __future__ import annotations

from keepalived_compat.diagnostics import Complaints
from keepalived_compat.grammar import LINES, ROOT, Argument, Grammar, Keyword, Kind, Support
from keepalived_compat.nearest import Hints
from keepalived_compat.section import Entry, Section
from keepalived_compat.source import Sources, Word
from keepalived_compat.tree import Body, Statement
from keepalived_compat.values import (
    UNSURE,
    Script,
    Taken,
    Unusable,
    address,
    boolean,
    chosen,
    command,
    endpoint_address,
    microseconds,
    number,
    plain_value,
    plausible_account,
    port,
)
from keepalived_compat.values_blocks import LINE_JUDGES, WEIGHT_LIMITS
from keepalived_compat.values_tracking import read_weight


class Judge:
    """Walks the tree."""

    def __init__(self, *, grammar: Grammar, complaints: Complaints, sources: Sources) -> None:
        self._grammar = grammar
        self._complaints = complaints
        self._sources = sources
        self._hints = Hints()

    def judge(self, root: Body) -> Section:
        """The configuration's root section."""
        return self._section(root, ROOT, read=True)

    def _section(self, body: Body, block: str, *, read: bool) -> Section:
        """What is in a block. `read` = somebody will read it; else its lines and weights are judged here."""
        section = Section(block)
        rows = self._grammar[block]
        for statement in body.statements:
            first = statement.pieces[0]
            keyword = rows.get(first[0])
            if keyword is not None and keyword.secret:
                self._hide(statement)
            if keyword is None or first[3]:
                section.misunderstand(statement.keyword)
                self._complain_of_unknown(statement, block)
            elif not read or not self._take(statement, keyword, section):
                self._use(statement, keyword, section, read=read)
        return section

    def _lines(self, body: Body, keyword: Keyword, *, read: bool) -> Section:
        """A block of one entry a line."""
        section = Section(LINES)
        section.lines = [each.words for each in body.statements]
        for each in body.statements:
            if each.body is not None:
                self._complaints.error("unexpected-block", each.keyword, "no block may stand in here; it is not read")
        judge = None if read else LINE_JUDGES.get(keyword.name)
        if judge is not None:
            judge(section.lines, self._complaints)
        return section

    def _body(self, statement: Statement, keyword: Keyword, *, read: bool) -> Section | None:
        if statement.body is None or keyword.body is None:
            return None
        if keyword.body == LINES:
            return self._lines(statement.body, keyword, read=read)
        return self._section(statement.body, keyword.body, read=read)

    def _hide(self, statement: Statement) -> None:
        for word in statement.arguments:
            self._sources.hide(word.span)

    def _take(self, statement: Statement, keyword: Keyword, section: Section) -> bool:
        """Take a statement of which there is nothing to say, as there is of hardly any: half the way of `_use`."""
        body = statement.body
        if keyword.support is not _SUPPORTED or keyword.zero or (body is None) is not (keyword.body is None):
            return False
        value = plain_value(statement.pieces, keyword.argument)
        if value is UNSURE or (not keyword.many and section.has(keyword.means or keyword.name)):
            return False
        inner = None if body is None else self._body(statement, keyword, read=True)
        section.add(_new_entry(Entry, (keyword, statement, value, inner)))
        return True

    def _use(self, statement: Statement, keyword: Keyword, section: Section, *, read: bool) -> None:
        name = keyword.means or keyword.name
        if keyword.support is not Support.SUPPORTED and not self._say_support(statement, keyword):
            if keyword.support is not Support.OBSOLETE:
                self._body(statement, keyword, read=False)
            section.refuse(name)
            return
        if statement.body is not None and keyword.body is None:
            self._complain_of_body(statement, keyword, section.block)
        entry = self._entry(statement, keyword, section.block, read=read)
        if entry is None:
            section.refuse(name)
            return
        earlier = None if keyword.many else section.entry(name)
        if earlier is not None:
            first = keyword.first_counts
            self._complaints.warning(
                "given-twice",
                entry.words[0],
                f"`{keyword.name}` stands twice in this block; the {'first' if first else 'last'} one counts",
                f"the {'first' if first else 'other'} stands at {earlier.words[0].span}; keep one",
            )
            if first:
                return
        section.add(entry)

    def _say_support(self, statement: Statement, keyword: Keyword) -> bool:
        """Whether the keyword is used; says so when it is not, or is an old name."""
        word = statement.keyword
        match keyword.support:
            case Support.SUPPORTED:
                return True
            case Support.OLD_SPELLING:
                self._complaints.warning(
                    "old-spelling",
                    word,
                    f"`{word.text}` is an old spelling, taken as `{keyword.means}`",
                    f"write `{keyword.means}`",
                )
                return True
            case Support.NOT_YET:
                self._complaints.add(
                    keyword.severity, "not-supported-yet", word, f"`{word.text}` is not supported yet: {keyword.reason}"
                )
            case Support.UNSUPPORTED:
                self._complaints.add(
                    keyword.severity,
                    "not-supported",
                    word,
                    f"`{word.text}` is not supported: {keyword.reason}",
                    keyword.remedy,
                )
            case Support.REFUSED:
                self._complaints.add(
                    keyword.severity,
                    "refused",
                    word,
                    f"`{word.text}` is refused: {keyword.reason}",
                    "delete it on both directors, or stay with keepalived for this instance",
                )
            case Support.IGNORED:
                self._complaints.add(keyword.severity, "ignored", word, f"`{word.text}` is ignored: {keyword.reason}")
            case Support.OBSOLETE:
                self._complaints.add(
                    keyword.severity, "obsolete", word, f"`{word.text}` has no effect: {keyword.reason}", "delete it"
                )
        return False

    def _complain_of_body(self, statement: Statement, keyword: Keyword, block: str) -> None:
        glued = next((each for each in statement.arguments if self._opens_block(each, block)), None)
        hint = f"begin `{glued.text}` on a line of its own" if glued else "one statement a line; delete the braces"
        self._complaints.error(
            "unexpected-block",
            (statement.body and statement.body.opening) or statement.keyword,
            f"`{keyword.name}` opens no block; what is in the braces is not read",
            hint,
        )

    def _opens_block(self, word: Word, block: str) -> bool:
        keyword = self._grammar[block].get(word.text)
        return keyword is not None and keyword.body is not None

    def _entry(self, statement: Statement, keyword: Keyword, block: str, *, read: bool) -> Entry | None:
        value: object = plain_value(statement.pieces, keyword.argument)
        if value is UNSURE:
            try:
                value = self._value(statement, keyword, block)
            except Unusable as problem:
                self._complain_of_value(statement, keyword, problem)
                return None
        if value == 0 and keyword.zero:
            self._complaints.note(
                "zero-value", statement.words[1], f"`{keyword.name} 0`: {keyword.zero}", "delete the line"
            )
        if not read and keyword.name == "weight" and block in WEIGHT_LIMITS and len(statement.pieces) > 1:
            read_weight(statement.words[1:], self._complaints, block=block, limit=WEIGHT_LIMITS[block])
        section = None if keyword.body is None else self._body(statement, keyword, read=read)
        return Entry(keyword, statement, value, section)

    def _complain_of_value(self, statement: Statement, keyword: Keyword, problem: Unusable) -> None:
        severity, code = keyword.bad, "bad-value"
        if not statement.arguments:
            severity, code = keyword.missing, "missing-argument"
        taken = f"; the default counts: {keyword.default}" if keyword.default else ""
        where = statement.words[min(1, len(statement.words) - 1)]
        self._complaints.add(severity, code, where, f"{keyword.name}: {problem.message}{taken}", problem.hint)
        self._body(statement, keyword, read=False)

    def _value(self, statement: Statement, keyword: Keyword, block: str) -> object:  # noqa: PLR0911 - a dispatch
        """The value of a statement's argument. Raises Unusable."""
        argument, given = keyword.argument, statement.words[1:]
        if argument.kind is Kind.WORDS:
            if not given and not argument.optional:
                raise Unusable("its argument is missing")
            return None
        if argument.kind is Kind.FLAG:
            self._complain_of_surplus(given, keyword, block)
            return True
        if not given:
            if argument.kind is Kind.BOOL:
                return True
            if argument.optional:
                return None
            raise Unusable("its argument is missing", f"it takes: {argument}")
        if argument.kind is Kind.SCRIPT:
            return self._script(given, keyword)
        if argument.kind is Kind.ENDPOINT:
            return self._endpoint(given, keyword, block)
        self._complain_of_surplus(given[1:], keyword, block)
        taken = _read(given[0].text, argument)
        if taken.caveat:
            self._complaints.warning("inexact-value", given[0], taken.caveat, taken.hint)
        return taken.value

    def _endpoint(self, given: list[Word], keyword: Keyword, block: str) -> object:
        self._complain_of_surplus(given[2:], keyword, block)
        taken = endpoint_address(given[0].text)
        if taken.caveat:
            self._complaints.warning("inexact-value", given[0], taken.caveat, taken.hint)
        return taken.value, port(given[1].text) if len(given) > 1 else None

    def _script(self, given: list[Word], keyword: Keyword) -> Script:
        """A command: one word, which is quoted when the command has arguments; then maybe user and group."""
        text, rest = given[0].text, given[1:]
        if text.startswith("'") and not given[0].quoted:
            raw = self._sources.rest_of_line(given[0], given[-1]) or " ".join(each.text for each in given)
            end = raw.find("'", 1)
            text = raw[1:] if end < 0 else raw[1:end]
            rest = [each for each in given if end >= 0 and each.column > given[0].column + end]
        argv = command(text)
        if rest and keyword.name in _WITHOUT_USER:
            self._complaints.warning(
                "surplus-words",
                rest[0],
                f"`{rest[0].text}` is not read: the command is the first word only, as in keepalived",
                f'quote the whole command: {keyword.name} "{text} {rest[0].text}"',
            )
            return Script(argv=argv)
        if rest and not plausible_account(rest[0].text):
            self._complaints.warning(
                "script-user",
                rest[0],
                f"`{rest[0].text}` is read as the user that runs the command, as in keepalived",
                f'if it is an argument, quote the whole command: {keyword.name} "{text} {rest[0].text}"',
            )
        for word in rest[2:3]:
            self._complaints.warning(
                "surplus-words", word, f"`{word.text}` is not read: a command has a user and a group", _QUOTE
            )
        return Script(argv=argv, user=rest[0].text if rest else "", group=rest[1].text if len(rest) > 1 else "")

    def _complain_of_surplus(self, words: list[Word], keyword: Keyword, block: str) -> None:
        if not words:
            return
        if keyword.secret:
            self._complaints.warning(
                "surplus-words",
                words[0],
                f"`{keyword.name}` takes one word; the rest is ignored",
                "quote it if it has blanks",
            )
            return
        rows = self._grammar.get(block, {})
        glued = next((each for each in words if each.text in rows and not each.quoted), None)
        if glued is not None:
            self._complaints.error(
                "glued-statement",
                glued,
                f"`{glued.text}` stands on the line of `{keyword.name}` and is not read",
                "one statement a line: begin it on a line of its own",
            )
            return
        what = "takes no argument" if keyword.argument.kind is Kind.FLAG else "takes no further words"
        self._complaints.warning(
            "surplus-words",
            words[0],
            f"`{keyword.name}` {what}: `{words[0].text}` is ignored",
            _flag_hint(words[0], keyword),
        )

    def _complain_of_unknown(self, statement: Statement, block: str) -> None:
        word = statement.keyword
        if word.text.startswith(("{", "${")):
            return
        where = f"in `{block}`" if block else "outside of blocks"
        elsewhere = sorted(name or "the top level" for name, rows in self._grammar.items() if word.text in rows)
        rest = "; its block is not read" if statement.body is not None else ""
        if elsewhere:
            self._complaints.error(
                "misplaced-keyword",
                word,
                f"`{word.text}` is not known {where}{rest}",
                f"it belongs in {_some(elsewhere)}",
            )
            return
        hint = self._hints.did_you_mean(word.text, self._grammar[block])
        self._complaints.error("unknown-keyword", word, f"unknown keyword `{_short(word.text)}` {where}{rest}", hint)


def _read(text: str, argument: Argument) -> Taken:
    match argument.kind:
        case Kind.BOOL:
            return boolean(text)
        case Kind.INTEGER:
            return number(text, argument)
        case Kind.SECONDS | Kind.MILLISECONDS:
            return microseconds(text, argument)
        case Kind.CHOICE:
            return chosen(text, argument)
        case Kind.ADDRESS:
            return Taken(value=address(text))
        case _:
            return Taken(value=text)


def _flag_hint(word: Word, keyword: Keyword) -> str:
    if keyword.argument.kind is Kind.FLAG and word.text.lower() in ("false", "no", "off", "0"):
        return f"`{keyword.name}` is switched on by standing there; delete the line to switch it off"
    return ""


_WITHOUT_USER = ("script", "misc_path")
"""Commands whose user stands in a line of its own."""
_QUOTE = "quote the whole command if it has arguments"
_new_entry = tuple.__new__
"""A named tuple's own way to be made takes three times as long."""
_SUPPORTED = Support.SUPPORTED
"""Python 3.11 takes longer to look a member up in its class than to compare it."""
_SHOWN = 4
_LONGEST_WORD = 60


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_WORD else text[:_LONGEST_WORD] + "…"
