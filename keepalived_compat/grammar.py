"""The shape of the keyword table: what a keyword takes, and what becomes of it. The table itself is in `keywords`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from keepalived_compat.diagnostics import Severity

LINES = "lines"
"""Body of a block that holds one entry a line (addresses, routes, names), no keywords."""
ROOT = ""
"""The block outside of all blocks."""

Block = Mapping[str, "Keyword"]
Grammar = Mapping[str, Block]
"""Blocks by name."""


class Kind(Enum):
    """What stands after a keyword."""

    FLAG = "flag"
    BOOL = "bool"
    """true on yes false off no; nothing at all = true."""
    INTEGER = "integer"
    SECONDS = "seconds"
    """Decimal seconds, read as whole microseconds."""
    MILLISECONDS = "milliseconds"
    """Decimal milliseconds, read as whole microseconds."""
    CHOICE = "choice"
    TEXT = "text"
    """One word."""
    WORDS = "words"
    """Any number of words, to be looked into by the user of the table."""
    ADDRESS = "address"
    """An IPv4 or IPv6 address."""
    ENDPOINT = "endpoint"
    """ADDRESS [PORT]."""
    SCRIPT = "script"
    """A command, quoted when it has arguments, then maybe a user and a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """What a keyword takes, and its range."""

    kind: Kind
    low: float = 0
    high: float = 2**32 - 1
    choices: tuple[str, ...] = ()
    offered: tuple[str, ...] = ()
    """Of the choices those that do something here, which hints name; empty = all do."""
    optional: bool = False
    strict: bool = False
    """Trailing garbage (`5s`) is refused; elsewhere keepalived takes the number with a warning."""
    any_case: bool = False
    """Words may be written in any case."""
    exact_case: bool = False
    """Words in another case are refused, because to take them would break the talk with a keepalived."""
    unit: str = ""
    """Of a number."""
    syntax: str = ""
    """How an argument of several words is written."""

    @property
    def range(self) -> str:
        """`1 to 255`, without exponents."""
        low, high = (f"{each:.6f}".rstrip("0").rstrip(".") for each in (self.low, self.high))
        return f"{low} to {high}"

    def __str__(self) -> str:
        if self.syntax:
            return self.syntax
        match self.kind:
            case Kind.FLAG:
                return ""
            case Kind.BOOL:
                return "[true|false]"
            case Kind.INTEGER | Kind.SECONDS | Kind.MILLISECONDS:
                unit = f" {self.unit}" if self.unit else ""
                text = f"{self.kind.value} {self.range}{unit}"
            case Kind.CHOICE:
                text = " | ".join(self.choices)
            case _:
                text = self.kind.value
        return f"[{text}]" if self.optional else text


class Support(Enum):
    """What becomes of a keyword."""

    SUPPORTED = "supported"
    IGNORED = "ignored"
    """Needs no doing; the reason says why."""
    NOT_YET = "not supported yet"
    """Not done; the reason says what is missing by it."""
    UNSUPPORTED = "not supported"
    """Cannot be done; the reason says why, the remedy what to do instead."""
    REFUSED = "refused"
    """A configuration with it is not used; the reason says why."""
    OLD_SPELLING = "old spelling"
    """Taken as another keyword, with a warning."""
    OBSOLETE = "obsolete"
    """Means nothing to today's keepalived either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyword:
    """One row of the table: a keyword in one block."""

    name: str
    argument: Argument
    support: Support = Support.SUPPORTED
    severity: Severity = Severity.NOTE
    """How much it matters that it is not done."""
    reason: str = ""
    remedy: str = ""
    """What to write instead of a keyword that is not done."""
    means: str = ""
    """The keyword that it is another name of."""
    body: str | None = None
    """Name of the block that it opens, None when it opens none."""
    default: str = ""
    many: bool = False
    """May stand several times; else the last one counts, and a repetition is said."""
    first_counts: bool = False
    """Of several the first counts."""
    missing: Severity = Severity.FATAL
    """When its argument is missing: keepalived exits for most keywords, and skips some."""
    bad: Severity = Severity.ERROR
    """When its argument cannot be used."""
    secret: bool = False
    """Its argument is never shown."""
    zero: str = ""
    """What 0 means where keepalived refuses it, though it stands in many files."""
    partly: str = ""
    """Of a keyword that is done, what of it is not done yet; empty = it is done as a whole."""
    limit: str = ""
    """What is taken instead of a value that is in its range, and too large all the same; empty = nothing."""
    since: str = ""
    """First keepalived release that knows it, empty where none does."""

    @property
    def canonical(self) -> str:
        """The name under which its value is found."""
        return self.means or self.name


def integer(low: int, high: int = 2**32 - 1, *, strict: bool = False, optional: bool = False) -> Argument:
    """A whole number, base 10."""
    return Argument(kind=Kind.INTEGER, low=low, high=high, strict=strict, optional=optional)


def seconds(low: float = 0, high: float = 4294.967295, *, optional: bool = False) -> Argument:
    """Decimal seconds; the default range is keepalived's, 2^32 µs."""
    return Argument(kind=Kind.SECONDS, low=low, high=high, optional=optional)


def milliseconds(low: float, high: float = 4294967) -> Argument:
    """Decimal milliseconds."""
    return Argument(kind=Kind.MILLISECONDS, low=low, high=high)


def choice(*words: str, any_case: bool = False, exact_case: bool = False, offered: tuple[str, ...] = ()) -> Argument:
    """One of some words."""
    return Argument(kind=Kind.CHOICE, choices=words, any_case=any_case, exact_case=exact_case, offered=offered)


FLAG = Argument(kind=Kind.FLAG)
BOOL = Argument(kind=Kind.BOOL, optional=True)
TEXT = Argument(kind=Kind.TEXT)
MAYBE_TEXT = Argument(kind=Kind.TEXT, optional=True)
WORDS = Argument(kind=Kind.WORDS)
MAYBE_WORDS = Argument(kind=Kind.WORDS, optional=True)
ADDRESS = Argument(kind=Kind.ADDRESS)
ENDPOINT = Argument(kind=Kind.ENDPOINT)
SCRIPT = Argument(kind=Kind.SCRIPT)
MAYBE_SCRIPT = Argument(kind=Kind.SCRIPT, optional=True)
NAME = Argument(kind=Kind.TEXT)


def supported(
    name: str,
    argument: Argument = FLAG,
    *,
    body: str | None = None,
    default: str = "",
    many: bool = False,
    first_counts: bool = False,
    missing: Severity = Severity.FATAL,
    bad: Severity = Severity.ERROR,
    means: str = "",
    secret: bool = False,
    zero: str = "",
) -> Keyword:
    """A keyword that is done."""
    return Keyword(
        name=name,
        argument=argument,
        body=body,
        default=default,
        many=many,
        first_counts=first_counts,
        missing=missing,
        bad=bad,
        means=means,
        secret=secret,
        zero=zero,
    )


def ignored(name: str, argument: Argument, reason: str, *, body: str | None = None) -> Keyword:
    """A keyword that needs no doing."""
    return Keyword(
        name=name,
        argument=argument,
        support=Support.IGNORED,
        reason=reason,
        body=body,
        many=True,
        missing=Severity.WARNING,
        bad=Severity.WARNING,
    )


def not_yet(name: str, argument: Argument, severity: Severity, reason: str, *, body: str | None = None) -> Keyword:
    """A keyword that is not done, and what is missing by it."""
    return Keyword(
        name=name,
        argument=argument,
        support=Support.NOT_YET,
        severity=severity,
        reason=reason,
        body=body,
        many=True,
        missing=Severity.ERROR,
    )


def unsupported(name: str, argument: Argument, severity: Severity, reason: str, *, remedy: str) -> Keyword:
    """A keyword that cannot be done, why, and what to write instead."""
    return Keyword(
        name=name,
        argument=argument,
        support=Support.UNSUPPORTED,
        severity=severity,
        reason=reason,
        remedy=remedy,
        many=True,
        missing=Severity.ERROR,
    )


def refused(name: str, argument: Argument, reason: str, *, body: str | None = None) -> Keyword:
    """A keyword without which the configuration would mean something else."""
    return Keyword(
        name=name,
        argument=argument,
        support=Support.REFUSED,
        severity=Severity.FATAL,
        reason=reason,
        body=body,
        many=True,
        missing=Severity.ERROR,
    )


def old_spelling(name: str, argument: Argument, means: str) -> Keyword:
    """Another name, out of use, of a keyword that is done."""
    return Keyword(
        name=name,
        argument=argument,
        support=Support.OLD_SPELLING,
        severity=Severity.WARNING,
        means=means,
        missing=Severity.ERROR,
    )


def obsolete(name: str, reason: str, *, body: str | None = None) -> Keyword:
    """A word that means nothing any more, or never did, but stands in many files."""
    return Keyword(
        name=name,
        argument=MAYBE_WORDS,
        support=Support.OBSOLETE,
        severity=Severity.WARNING,
        reason=reason,
        body=body,
        many=True,
    )


def block(*keywords: Keyword) -> Block:
    """A block's rows by keyword."""
    return {each.name: each for each in keywords}
