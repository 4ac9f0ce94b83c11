"""A command of the operator: what to run, and as whom."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """An argument vector that is executed without a shell; false when there is none."""

    argv: tuple[str, ...] = ()
    user: str = ""
    """Empty = `script_user`."""
    group: str = ""
    """Empty = the user's own."""

    def __bool__(self) -> bool:
        return bool(self.argv)

    def __str__(self) -> str:
        return " ".join(self.argv)


NO_COMMAND = Command()
