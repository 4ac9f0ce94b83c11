"""What a speaker is told that takes the place of a dead one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Succession:
    """An instance that the former process was MASTER of until it died, and that no peer can have missed yet."""

    instance: str
    """Its name."""
    until_us: int
    """Monotonic µs. From then on a peer may have waited for its master_down_interval: MASTER is not to be resumed."""
    since_us: int
    """Since when it is MASTER, monotonic µs: the role does not change."""
    reason: str
    """Why it became MASTER."""
    old_checksum: bool = False
    """Its adverts have the checksum of unicast as older keepalived makes it: the peer was found to want it so."""
