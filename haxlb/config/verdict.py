"""The exit code of `keepalived -t`, from haxlb's complaints.

keepalived tells harmless complaints from fatal ones no better than this. What it does not complain of (a truncated
password, surplus words) is no complaint here either; what haxlb does not use is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

from haxlb.config.load import Loaded
from haxlb.model.tracking import TrackScript
from keepalived_compat.diagnostics import Diagnostic, Severity
from keepalived_compat.grammar import Kind
from keepalived_compat.section import Section


class Verdict(Enum):
    """The value is the exit code of keepalived 2.2.7."""

    FINE = 0
    MISSING_ARGUMENT = 2
    """A keyword without its argument: keepalived exits at once."""
    NO_FILE = 4
    """keepalived 2.2.7 says 0 where the configuration does not exist, later ones and haxlb 4."""
    COMPLAINTS = 5
    SCRIPTS = 6
    """Scripts run although enable_script_security is not set."""


INCLUDE_CODES = ("include-problem", "include-loop")
_SAID_BY_KEEPALIVED = frozenset(
    {
        "inexact-value",
        "old-spelling",
        "obsolete",
        "byte-order-mark",
        "long-line",
        "unterminated-quote",
        "unfilled-template",
        "rounded-interval",
        "useless-nopreempt",
        "useless-preempt-delay",
        "unused-authentication",
        "missing-protocol",
        "missing-scheduler",
        "missing-method",
        "forced-persistence",
        "port-reset",
        "useless-flag",
        "no-vip",
        "self-peer",
        "unreachable-quorum",
        "no-such-interface",
        "untracked-route",
        "no-preference",
        "strict-conflict",
        "sync-group-weight",
        "lonely-member",
        "useless-option",
    }
)
"""Codes of warnings that keepalived has, too."""


def verdict(loaded: Loaded, *, runnable: Callable[[tuple[str, ...]], bool], strict_includes: bool = False) -> Verdict:
    """What `-t` ends with; `runnable` says whether a command exists on this host, `strict_includes` is `-e`."""
    severities = {(each.severity, each.code) for each in loaded.diagnostics}
    if (Severity.FATAL, "unreadable-file") in severities:
        return Verdict.NO_FILE
    if (Severity.FATAL, "missing-argument") in severities:
        return Verdict.MISSING_ARGUMENT
    if any(_counts(each, strict_includes=strict_includes) for each in loaded.diagnostics):
        return Verdict.COMPLAINTS
    if missing_scripts(loaded, runnable):
        return Verdict.COMPLAINTS
    if not _secured(loaded.written) and any(map(runnable, _commands(loaded.written))):
        return Verdict.SCRIPTS
    return Verdict.FINE


def missing_scripts(loaded: Loaded, runnable: Callable[[tuple[str, ...]], bool]) -> tuple[TrackScript, ...]:
    """Tracked scripts that this host does not have: keepalived does not track them, and says so."""
    scripts = () if loaded.config is None else loaded.config.track_scripts
    return tuple(each for each in scripts if not runnable(each.run.argv))


def _counts(diagnostic: Diagnostic, *, strict_includes: bool) -> bool:
    if diagnostic.code in INCLUDE_CODES and diagnostic.severity is not Severity.FATAL:
        return strict_includes
    if diagnostic.severity in (Severity.FATAL, Severity.ERROR):
        return True
    return diagnostic.code == "zero-value" or (
        diagnostic.severity is Severity.WARNING and diagnostic.code in _SAID_BY_KEEPALIVED
    )


def _secured(root: Section) -> bool:
    return any(
        each.section is not None
        and (each.section.has("enable_script_security") or "enable_script_security" in each.section.refused)
        for each in root.all("global_defs")
    )


def _commands(section: Section) -> Iterator[tuple[str, ...]]:
    """Every command that the configuration runs."""
    for entry in section.entries:
        if entry.keyword.argument.kind is Kind.SCRIPT and entry.value:
            yield entry.value.argv
        if entry.section is not None:
            yield from _commands(entry.section)
