"""The retained status on MQTT: soon after each change, and regularly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

from haxlb.daemon.supervisor_ports import BrokerPort
from haxlb.model.status import NodeStatus

PERIOD_S = 30.0
"""It is renewed this often, so that its reader can tell a stale one."""
PAUSE_S = 0.1
"""Changes that come together are published together."""


class Snapshots:
    """Publishes what `status` says."""

    def __init__(
        self,
        broker: BrokerPort,
        status: Callable[[], Awaitable[NodeStatus]],
        *,
        spawn: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        self._broker = broker
        self._status = status
        self._spawn = spawn
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def changed(self) -> None:
        """Something that the status shows is another."""
        if self._timer is None and self._broker.state != "off" and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(PAUSE_S, self._publish_now)

    async def renew(self) -> None:
        """As long as it runs: one is never older than the period."""
        while True:
            await asyncio.sleep(PERIOD_S)
            self.changed()

    def close(self) -> None:
        """Publish nothing any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def _publish_now(self) -> None:
        self._timer = None
        self._spawn(self._publish())

    async def _publish(self) -> None:
        self._broker.publish_status(await self._status())
