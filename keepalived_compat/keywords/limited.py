"""What becomes of values that keepalived takes as they are, and that are larger than there is room for here."""

from __future__ import annotations

from collections.abc import Mapping

_WEIGHT = "more than 65535 is taken as 65535"

LIMITED: Mapping[str, Mapping[str, str]] = {
    "global_defs": {"lvs_timeouts": "more than 65535 s is taken as 65535 s"},
    "virtual_server": {"weight": _WEIGHT, "persistence_timeout": "more than 65535 s is taken as 65535 s"},
    "real_server": {"weight": _WEIGHT},
}
