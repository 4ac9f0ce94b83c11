"""Directors that have fallen silent: looked after for as long as they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from haxlb.daemon.standing import Standing
from haxlb.daemon.supervisor_ports import PeerProbePort
from haxlb.model.addresses import IPAddress

PERIOD_S = 1.0
"""Between two looks whether the host of one is there."""


class Silence:
    """A silent director's forwarder knows its flows, and works while its host does."""

    def __init__(
        self,
        probe: PeerProbePort,
        standing: Standing,
        *,
        spawn: Callable[[Coroutine[None, None, None]], None],
        on_peers: Callable[[], None],
    ) -> None:
        """`on_peers` is called when another director is to be asked for flows than before."""
        self._probe = probe
        self._standing = standing
        self._spawn = spawn
        self._on_peers = on_peers
        self._looked_after: set[tuple[str, IPAddress]] = set()
        """By interface."""

    def look(self) -> None:
        """Begin with those that have just fallen silent."""
        new = self._standing.silenced - self._looked_after
        self._looked_after |= new
        for each in new:
            self._spawn(self._look_after(each))

    async def _look_after(self, silenced: tuple[str, IPAddress]) -> None:
        try:
            while silenced in self._standing.silenced:
                answers = await self._probe.is_up(*silenced)
                if self._standing.take_answer(silenced, answers=answers):
                    self._on_peers()
                await asyncio.sleep(PERIOD_S)
        finally:
            self._looked_after.discard(silenced)
