"""Complaints: what is wrong, how badly, where, and what to do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from keepalived_compat.source import Span, Word


class Severity(Enum):
    """How much a complaint matters, the worst first."""

    FATAL = "fatal"
    """The configuration cannot be used."""
    ERROR = "error"
    """The statement, or the block, is not used; the rest is."""
    WARNING = "warning"
    """It is used, but not as it reads."""
    NOTE = "note"
    """Worth knowing."""

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return _RANKS[self.value]


_RANKS = {each.value: rank for rank, each in enumerate(Severity)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Related:
    """Another place that a complaint has to do with."""

    span: Span
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One complaint."""

    code: str
    """Stable, in kebab case: `unknown-keyword`."""
    severity: Severity
    span: Span
    message: str
    hint: str = ""
    """What to do about it; empty when the message says it all."""
    related: tuple[Related, ...] = ()
    """Where it comes from, when it stands in the text of a definition, or is put in by one."""


UNDEFINED = "undefined-name"
UNREADABLE = "unreadable-file"
_BAD_VALUE = "bad-value"
_SAID_ONCE = (_BAD_VALUE, "missing-argument")
"""A value that cannot be used may be looked at by several; the first reason is enough."""
_MOST_ORIGINS = 32
"""Origins, and names without a value, that are remembered of one line: there may be ten thousand of them."""
_MOST_RELATED = 3
"""Of them shown with a complaint."""


class Complaints:
    """Collects diagnostics; the same is said once per place."""

    def __init__(self) -> None:
        self._found: dict[tuple[Span, str], Diagnostic] = {}
        self._undefined: dict[Span, tuple[Span, str]] = {}
        self._undefined_in: dict[tuple[str, int], list[Span]] = {}
        self._bad: dict[tuple[Span, str], str] = {}
        self._origins: dict[tuple[str, int], dict[tuple[Span, Span], str]] = {}

    def expanded(self, where: Span, origin: Span, message: str) -> None:
        """Remember that what stands at `where` has to do with `origin`: complaints about it will say so."""
        known = self._origins.setdefault((where.file, where.line), {})
        if len(known) < _MOST_ORIGINS:
            known.setdefault((where, origin), message)

    def add(self, severity: Severity, code: str, where: Span | Word, message: str, hint: str = "") -> None:
        """File a complaint."""
        span = where.span if isinstance(where, Word) else where
        undefined = self._undefined_at(code, span) if self._undefined else None
        if undefined is not None:
            # The value is bad because the name has none: one complaint, as severe as the consequence.
            earlier = self._found[undefined]
            if severity.rank < earlier.severity.rank:
                self._found[undefined] = replace(earlier, severity=severity)
            return
        if code == UNDEFINED:
            self._undefined[span] = (span, message)
            known = self._undefined_in.setdefault((span.file, span.line), [])
            if len(known) < _MOST_ORIGINS:
                known.append(span)
        if code in _SAID_ONCE and self._bad.setdefault((span, code), message) != message:
            return
        diagnostic = Diagnostic(code=code, severity=severity, span=span, message=message, hint=hint)
        self._found.setdefault((span, message), diagnostic)

    def _undefined_at(self, code: str, span: Span) -> tuple[Span, str] | None:
        """What was said of a name without a value: at this very place, or within a value that is bad for it."""
        exact = self._undefined.get(span)
        if exact is not None or code != _BAD_VALUE:
            return exact
        for each in self._undefined_in.get((span.file, span.line), ()):
            if span.column <= each.column and each.end_column <= span.end_column:
                return self._undefined[each]
        return None

    def escalate(self, where: Span | Word) -> None:
        """What is said of this place turns out to be fatal."""
        span = where.span if isinstance(where, Word) else where
        for key, each in self._found.items():
            if key[0] == span:
                self._found[key] = replace(each, severity=Severity.FATAL)

    def fatal(self, code: str, where: Span | Word, message: str, hint: str = "") -> None:
        """The configuration cannot be used."""
        self.add(Severity.FATAL, code, where, message, hint)

    def error(self, code: str, where: Span | Word, message: str, hint: str = "") -> None:
        """The statement is not used."""
        self.add(Severity.ERROR, code, where, message, hint)

    def warning(self, code: str, where: Span | Word, message: str, hint: str = "") -> None:
        """The statement is used, but not as it reads."""
        self.add(Severity.WARNING, code, where, message, hint)

    def note(self, code: str, where: Span | Word, message: str, hint: str = "") -> None:
        """Worth knowing."""
        self.add(Severity.NOTE, code, where, message, hint)

    @property
    def all(self) -> tuple[Diagnostic, ...]:
        """Everything, in the order of finding."""
        if not self._origins:
            return tuple(self._found.values())
        return tuple(self._with_origins(each) for each in self._found.values())

    def _with_origins(self, diagnostic: Diagnostic) -> Diagnostic:
        span = diagnostic.span
        known = self._origins.get((span.file, span.line))
        if known is None:
            return diagnostic
        related = [
            Related(span=origin, message=message)
            for (where, origin), message in known.items()
            if where.column < max(span.end_column, span.column + 1) and span.column < where.end_column
        ]
        return replace(diagnostic, related=tuple(related[:_MOST_RELATED])) if related else diagnostic

    @property
    def usable(self) -> bool:
        """Nothing fatal was found."""
        return all(each.severity is not Severity.FATAL for each in self._found.values())
