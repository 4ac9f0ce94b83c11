"""BrokerPort: MQTT by aiomqtt, which is imported only when a broker is configured.

Everything that others say is kept at arm's length: malformed or oversized payloads are ignored, memory is bounded, and
no connection is no evidence of anything. aiomqtt connects in an executor's thread and then lives on the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from haxlb.daemon.ports import ClockPort
from haxlb.daemon.supervisor_ports import WallClockPort
from haxlb.linux.log import Log
from haxlb.linux.mqtt_outbox import Outbox, Topics, level
from haxlb.model.facts import Fact, PeerClaimed
from haxlb.model.instance import Role
from haxlb.model.settings import MqttSettings
from haxlb.model.status import NodeStatus
from haxlb.model.units import SECOND_US
from haxlb.splitbrain.claimant import PublishClaim

if TYPE_CHECKING:
    import aiomqtt

FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 30.0
TIMEOUT_S = 5.0
CLOSE_PATIENCE_S = 1.0
MOST_INCOMING = 1024
LONGEST_PAYLOAD = 1 << 16
MOST_NODES = 256
MOST_CLAIMS = 1024
"""Anybody may publish: what is remembered is bounded."""
_ONLINE, _OFFLINE = b"online", b"offline"
_HIGHEST_VRID = 255

Claim = tuple[str, int, str]
"""Node, VRID, and the instance's name there, names as levels of a topic."""


class Broker:
    """On the running loop; what others claim goes to `on_fact`."""

    def __init__(self, clock: ClockPort, wall: WallClockPort, on_fact: Callable[[Fact], None], log: Log) -> None:
        self._clock = clock
        self._wall = wall
        self._on_fact = on_fact
        self._log = log
        self._settings: MqttSettings | None = None
        self._outbox = Outbox("")
        self._session: _Session | None = None
        self._former: set[asyncio.Task[None]] = set()

    def configure(self, settings: MqttSettings | None, node: str) -> None:
        """Use this broker under this name, or none."""
        if settings == self._settings and node == self._outbox.node:
            return
        if self._session is not None:
            task = asyncio.get_running_loop().create_task(self._session.close())
            self._former.add(task)
            task.add_done_callback(self._former.discard)
            self._session = None
        self._settings = settings
        self._outbox = self._outbox.successor(node)
        if settings is not None:
            self._session = _Session(settings, node, self._outbox, self._take, self._log)

    def publish(self, fact: Fact) -> None:
        """An event, and the retained topics that follow from it."""
        self._outbox.put_fact(fact, self._wall.wall() - (self._clock.now() - fact.at_us) / SECOND_US)
        self._wake()

    def claim(self, claim: PublishClaim) -> None:
        """The retained claim of a VRID."""
        self._outbox.put_claim(claim, self._wall.wall())
        self._wake()

    def publish_status(self, status: NodeStatus) -> None:
        """The retained snapshot."""
        self._outbox.put_status(status)
        self._wake()

    def evidence(self, vrid: int) -> str:
        """A sentence that names a living peer for this VRID, empty when MQTT knows of none."""
        if self._session is None or self._session.state != "connected":
            return ""
        return self._session.others.evidence(vrid)

    @property
    def state(self) -> str:
        """`off`, `connected`, or why not."""
        return "off" if self._session is None else self._session.state

    async def close(self) -> None:
        """Say offline and leave; gives up after a second."""
        if self._session is not None:
            await self._session.close()
            self._session = None
        await asyncio.gather(*self._former)

    def _wake(self) -> None:
        if self._session is not None:
            self._session.wake()

    def _take(self, claim: Claim, *, master: bool) -> None:
        node, vrid, instance = claim
        self._on_fact(PeerClaimed(node=node, vrid=vrid, master=master, at_us=self._clock.now(), instance=instance))


class _Session:
    """One broker, connected again and again until closed."""

    def __init__(
        self, settings: MqttSettings, node: str, outbox: Outbox, on_claim: Callable[..., None], log: Log
    ) -> None:
        self.state = "not connected yet"
        self._settings = settings
        self._topics = Topics(settings.site, node)
        self._outbox = outbox
        self.others = Others(level(node), on_claim)
        self._log = log
        self._more = asyncio.Event()
        self._closing = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        """There is something to publish."""
        self._more.set()

    async def close(self) -> None:
        """Deliver what waits, say offline, disconnect."""
        self._closing = True
        self._more.set()
        if self.state == "connected":
            await asyncio.wait({self._task}, timeout=CLOSE_PATIENCE_S)
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        self.state = "off"

    async def _run(self) -> None:
        import aiomqtt

        retry_s, said = FIRST_RETRY_S, ""
        while not self._closing:
            try:
                async with self._client() as client:
                    retry_s, said, self.state = FIRST_RETRY_S, "", "connected"
                    self._log("info", "mqtt_connected", host=self._settings.host, port=self._settings.port)
                    try:
                        await self._converse(client)
                    except asyncio.CancelledError:
                        await self._say_offline_at_once(client)
                        raise
            except (aiomqtt.MqttError, OSError, ValueError) as problem:
                reason = str(problem) or type(problem).__name__
                self.state = f"not connected: {reason}"
                self._log("debug" if reason == said else "warning", "mqtt_disconnected", reason=reason)
                said = reason
            except Exception as problem:  # noqa: BLE001 - whatever a library does: MQTT must not stop a director
                self.state = f"not connected: {problem!r}"
                self._log("error", "bug", reason=repr(problem))
            finally:
                self.others.forget()
            if not self._closing:
                await asyncio.sleep(retry_s)
                retry_s = min(retry_s * 2, LONGEST_RETRY_S)

    async def _say_offline_at_once(self, client: aiomqtt.Client) -> None:
        """We leave before the broker has confirmed all.

        The DISCONNECT that follows makes it discard our will (MQTT 3.1.1 section 3.14.4), and we would be online for
        ever.
        """
        import aiomqtt

        with contextlib.suppress(aiomqtt.MqttError, OSError, ValueError):
            await client.publish(f"{self._topics.own}/availability", _OFFLINE, qos=1, retain=True, timeout=0)

    def _client(self) -> aiomqtt.Client:
        import aiomqtt

        quiet = logging.getLogger("haxlb.mqtt")
        quiet.addHandler(logging.NullHandler())
        quiet.propagate = False
        settings = self._settings
        return aiomqtt.Client(
            settings.host,
            settings.port,
            username=settings.username,
            password=settings.password,
            identifier=f"haxlb-{level(settings.site)}-{self._topics.node}",
            will=aiomqtt.Will(f"{self._topics.own}/availability", _OFFLINE, qos=1, retain=True),
            keepalive=settings.keepalive_s,
            timeout=TIMEOUT_S,
            tls_context=ssl.create_default_context() if settings.tls else None,
            max_queued_incoming_messages=MOST_INCOMING,
            logger=quiet,
        )

    async def _converse(self, client: aiomqtt.Client) -> None:
        """Both directions at once; the first that fails ends the connection."""
        topics = self._topics
        await client.publish(f"{topics.own}/availability", _ONLINE, qos=1, retain=True)
        self._outbox.put_all()
        self._more.set()
        await client.subscribe(
            [
                (f"{topics.shared}/+/availability", 1),
                (f"{topics.shared}/vrrp/+/claims/+/+", 1),
                (f"{topics.own}/alarms/#", 1),
                (f"{topics.own}/vrrp/+/state", 1),
            ]
        )
        tasks = {asyncio.ensure_future(self._read(client)), asyncio.ensure_future(self._write(client))}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            await client.publish(f"{topics.own}/availability", _OFFLINE, qos=1, retain=True)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self, client: aiomqtt.Client) -> None:
        while True:
            message = self._outbox.take()
            if message is None:
                if self._closing:
                    return
                self._more.clear()
                await self._more.wait()
                continue
            topic, payload, retained = message
            try:
                await client.publish(self._topics.absolute(topic), payload, qos=1, retain=retained)
            except BaseException:
                self._outbox.give_back(topic, payload, retained=retained)
                raise
            if retained:
                self._outbox.confirm(topic, payload)

    async def _read(self, client: aiomqtt.Client) -> None:
        async for message in client.messages:
            payload = message.payload
            if not isinstance(payload, bytes | bytearray) or len(payload) > LONGEST_PAYLOAD:
                continue
            self._hear(str(message.topic), bytes(payload), retained=bool(message.retain))

    def _hear(self, topic: str, payload: bytes, *, retained: bool) -> None:
        levels = topic.removeprefix(f"{self._topics.shared}/").split("/")
        if levels[:1] == ["vrrp"] and levels[3:4] == [level(self._topics.node)]:
            if retained and payload:
                self._outbox.clear_stale("/".join(levels))
                self._more.set()
            return
        own = f"{self._topics.own}/"
        if topic.startswith(own):
            rest = topic.removeprefix(own)
            # Only what the broker had kept from before: what we publish now comes back without the retain flag.
            if retained and payload and rest != "availability":
                self._outbox.clear_stale(f"~/{rest}")
                self._more.set()
            return
        self.others.hear(levels, payload)


class Others:
    """What the other nodes of the site say of themselves."""

    def __init__(self, own: str, on_claim: Callable[..., None]) -> None:
        self._own = own
        self._on_claim = on_claim
        self._online: dict[str, bool] = {}
        self._roles: dict[Claim, str] = {}

    def hear(self, levels: list[str], payload: bytes) -> None:
        """A message below the site's prefix."""
        match levels:
            case [node, "availability"]:
                self._hear_availability(node, payload)
            case ["vrrp", vrid, "claims", node, instance] if node != self._own and vrid.isascii() and vrid.isdecimal():
                self._hear_claim((node, int(vrid[:4]), instance), payload)

    def forget(self) -> None:
        """The connection is lost: what they say from now on is not heard, and silence is no evidence."""
        self._online.clear()
        for claim, role in self._roles.items():
            if role == Role.MASTER.value:
                self._on_claim(claim, master=False)
        self._roles.clear()

    def evidence(self, vrid: int) -> str:
        """A living node that has an instance of this VRID and can take part in an election."""
        for (node, of, _), role in self._roles.items():
            if of == vrid and self._online.get(node) and role in (Role.BACKUP.value, Role.MASTER.value):
                return f"{node} is online on MQTT and {role} of VRID {vrid}"
        return ""

    def _hear_availability(self, node: str, payload: bytes) -> None:
        if len(self._online) >= MOST_NODES and node not in self._online:
            return
        self._online[node] = payload == _ONLINE
        if payload == _ONLINE:
            return
        # The broker's last will speaks for a node that is gone: so are its claims.
        for key in [key for key in self._roles if key[0] == node]:
            del self._roles[key]
            self._on_claim(key, master=False)

    def _hear_claim(self, claim: Claim, payload: bytes) -> None:
        if not 1 <= claim[1] <= _HIGHEST_VRID:
            return
        said = _parsed(payload)
        master, role = said.get("master", False), said.get("role", "")
        if not isinstance(master, bool) or not isinstance(role, str):
            return
        if len(self._roles) >= MOST_CLAIMS and claim not in self._roles:
            return
        self._roles[claim] = Role.MASTER.value if master else role
        self._on_claim(claim, master=master)


def _parsed(payload: bytes) -> dict[str, Any]:
    try:
        said = json.loads(payload) if payload else {}
    except (ValueError, RecursionError):
        return {"master": None}
    return said if isinstance(said, dict) else {"master": None}
