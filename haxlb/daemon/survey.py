"""Asking the children for their status: a ticket each, an answer within a second, else what was known last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count

from haxlb.daemon.messages import AskStatus, CheckerStatus, SpeakerStatus, TrackerStatus
from haxlb.model.status import DataPlaneStatus, InstanceStatus, LoopLag, TrackedStatus, VirtualServerStatus

PATIENCE_S = 1.0


class Survey:
    """The last known status of the children, and the questions that are open.

    Questions that are asked while one is open share its answer: any number of clients cost a child one answer.
    """

    def __init__(self, send: Callable[[str, AskStatus], None]) -> None:
        self._send = send
        self._tickets = count(1)
        self._open: dict[str, tuple[int, asyncio.Future[None]]] = {}
        self.instances: tuple[InstanceStatus, ...] = ()
        self.lag = LoopLag()
        self.virtual_servers: tuple[VirtualServerStatus, ...] = ()
        self.data_plane = DataPlaneStatus()
        self.tracked: tuple[TrackedStatus, ...] = ()

    async def ask(self, name: str) -> bool:
        """Bring what is known of this child up to date; False when it did not answer in time."""
        if name not in self._open:
            ticket = next(self._tickets)
            self._open[name] = (ticket, asyncio.get_running_loop().create_future())
            self._send(name, AskStatus(ticket=ticket))
        ticket, answered = self._open[name]
        try:
            await asyncio.wait_for(asyncio.shield(answered), PATIENCE_S)
        except TimeoutError:
            if self._open.get(name, (0, None))[0] == ticket:
                del self._open[name]
            return False
        return True

    def take_speaker(self, status: SpeakerStatus) -> None:
        """The speaker has sent its status, asked or not."""
        self.instances = status.instances
        self.lag = status.lag
        self._close("speaker", status.ticket)

    def take_checker(self, status: CheckerStatus) -> None:
        """The checker has sent its status."""
        self.virtual_servers = status.virtual_servers
        self.data_plane = status.data_plane
        self._close("checker", status.ticket)

    def take_tracker(self, status: TrackerStatus) -> None:
        """The tracker has sent its status."""
        self.tracked = status.tracked
        self._close("tracker", status.ticket)

    def _close(self, name: str, ticket: int) -> None:
        if name in self._open and self._open[name][0] == ticket:
            answered = self._open.pop(name)[1]
            if not answered.done():
                answered.set_result(None)
