"""What is said about a configuration file: for the log, and in brief for the status.

A reload by SIGHUP has nobody who waits for its answer: what is wrong with the file must be found where people look.
"""

from __future__ import annotations

from typing import Any, Final

from haxlb.daemon.supervisor_ports import Findings, LogPort

MOST_SHOWN: Final = 10
"""Errors named in a status: it is one message, and of a file with more `haxlb check` is what is needed."""
_LEVELS = {"note": "info", "warning": "warning"}


def log_complaints(log: LogPort, findings: Findings) -> None:
    """One event for each. Who reads JSON lines must not meet anything else among them."""
    for each in findings:
        log.log(_LEVELS.get(each.get("severity", ""), "error"), "config_complaint", **each)


def errors_in_brief(findings: Findings) -> tuple[str, ...]:
    """`FILE:LINE: MESSAGE` of every error: what it names is not in force."""
    errors = [_brief(each) for each in _errors(findings)]
    further = len(errors) - MOST_SHOWN
    return (*errors[:MOST_SHOWN], f"and {further} more") if further > 0 else tuple(errors)


def first_fatal(findings: Findings) -> tuple[str, ...]:
    """`FILE:LINE: MESSAGE` of the first complaint for which a file is refused; empty where there is none."""
    return tuple(_brief(each) for each in findings if each.get("severity") == "fatal")[:1]


def errors_counted(findings: Findings) -> tuple[str, ...]:
    """How many there are, as a part of a sentence; empty when there is none."""
    match len(_errors(findings)):
        case 0:
            return ()
        case 1:
            return ("1 error: what it names is left out",)
        case count:
            return (f"{count} errors: what they name is left out",)


def _errors(findings: Findings) -> list[dict[str, Any]]:
    return [each for each in findings if each.get("severity") in ("error", "fatal")]


def _brief(finding: dict[str, Any]) -> str:
    return f"{finding.get('file', '')}:{finding.get('line', '')}: {finding.get('message', '')}"
