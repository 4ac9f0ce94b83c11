"""Errors, named by whose fault they are. Only a `Bug` may reach the user as a traceback."""

from __future__ import annotations


class HaxlbError(Exception):
    """Base of every error that haxlb raises on purpose."""

    exit_code = 1

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} ({self.remedy})" if self.remedy else self.message


class ConfigError(HaxlbError):
    """The operator's: a file that cannot be used. `diagnostics` holds every complaint, with spans.

    The elements are `keepalived_compat.diagnostics.Diagnostic`; the model does not import them.
    """

    exit_code = 4

    def __init__(self, message: str, *, remedy: str = "", diagnostics: tuple[object, ...] = ()) -> None:
        super().__init__(message, remedy=remedy)
        self.diagnostics = diagnostics


class PeerError(HaxlbError):
    """The wire's: a frame, packet or reply that breaks its protocol. `reason` is a stable counter name."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class HostError(HaxlbError):
    """The kernel's or the environment's: always says the remedy."""

    exit_code = 71


class Unreachable(HostError):
    """No daemon answers on the control socket."""

    exit_code = 69


class NotPermitted(HostError):
    """The caller lacks a capability or the right to talk to the control socket."""

    exit_code = 77


class Bug(HaxlbError):
    """Ours: an invariant is broken."""

    exit_code = 70
