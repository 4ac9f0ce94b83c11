"""What a probe found: the only thing that the machines of this package learn of the network."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Finding(Enum):
    """What one probe says of its target."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    """Nothing: this host lacked a file descriptor or memory, which is no fault of the server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one probe."""

    finding: Finding
    reason: str
    """In words: `connection refused`, `HTTP 503, wanted 200-299`."""


def passed(reason: str) -> Outcome:
    """The target answered as it should."""
    return Outcome(finding=Finding.PASSED, reason=reason)


def failed(reason: str) -> Outcome:
    """The target did not answer, or not as it should."""
    return Outcome(finding=Finding.FAILED, reason=reason)


def inconclusive(reason: str) -> Outcome:
    """The probe could not be made, and not by the target's fault."""
    return Outcome(finding=Finding.INCONCLUSIVE, reason=reason)


def seconds(duration_us: int) -> str:
    """A duration as the reasons print it: `3 s`, `0.25 s`."""
    return f"{duration_us / 1_000_000:.3f}".rstrip("0").rstrip(".") + " s"
