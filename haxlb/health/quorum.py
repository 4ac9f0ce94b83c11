"""The quorum of one virtual server, with hysteresis (keepalived's `quorum` and `hysteresis`)."""

from __future__ import annotations

from haxlb.model.virtual_server import VirtualServer


class Quorum:
    """Up while enough weight is alive.

    It is gained at `quorum + hysteresis` and lost below `quorum - hysteresis`, or when nothing is alive at all: between
    the two it stays what it was. It starts down and is gained at once by a healthy pool, as keepalived's does, so
    `quorum_up` runs at start.
    """

    def __init__(self) -> None:
        self.up = False
        self.reason = "nothing is up yet"

    def handle(self, virtual_server: VirtualServer, alive_weight: int) -> bool:
        """Take in the total weight of the servers that are alive; whether the quorum changed."""
        gain = virtual_server.quorum + virtual_server.hysteresis
        lose = virtual_server.quorum - virtual_server.hysteresis
        if not self.up and alive_weight >= max(gain, 1):
            self.up = True
            self.reason = f"weight {alive_weight} alive, {gain} needed"
            return True
        if self.up and (alive_weight < lose or alive_weight == 0):
            self.up = False
            self.reason = f"weight {alive_weight} alive, {max(lose, 1)} needed"
            return True
        return False
