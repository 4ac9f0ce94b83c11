"""`@ID` and `@^ID` before a line: whether it is for this director."""

from __future__ import annotations

import re

from keepalived_compat.diagnostics import Complaints
from keepalived_compat.lexer import Line

_CONDITIONAL = re.compile(r"@(?P<negated>\^?)(?P<name>\S+)(?P<blank>\s+)?")


def selected(line: Line, config_id: str, complaints: Complaints) -> Line | None:
    """The rest of an `@ID` line when it is for `config_id`, None when it is not; other lines as they are."""
    if line.text[:1] != "@":
        return line
    found = _CONDITIONAL.match(line.text)
    if found is None or found["blank"] is None:
        complaints.error(
            "bad-condition",
            line.span(0, len(line.text)),
            f"`{line.text}` has nothing after its config-id; the line is dropped",
            "write `@ID keyword …` on one line",
        )
        return None
    wanted = (found["name"] == config_id) != bool(found["negated"])
    return line.without_prefix(found.end()) if wanted else None
