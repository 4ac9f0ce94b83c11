"""Users and groups of this host."""

from __future__ import annotations

import grp
import pwd


def missing_account(user: str, group: str) -> str:
    """Says which of the two (empty = not named) does not exist on this host, in words; empty = none is missing."""
    try:
        if user:
            pwd.getpwnam(user)
    except KeyError:
        return f"there is no user {user}"
    try:
        if group:
            grp.getgrnam(group)
    except KeyError:
        return f"there is no group {group}"
    return ""
