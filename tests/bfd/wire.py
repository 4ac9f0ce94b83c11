"""For tests: two nodes with one BFD session each, a wire between them that loses and delays, and virtual time."""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass, field
from ipaddress import ip_address

from haxlb.bfd.packet import ControlPacket, State, decode
from haxlb.bfd.session import Session
from haxlb.bfd.table import Arrival, Changed, SessionTable, TableEffect, Transmit, by_ends
from haxlb.model.tracking import BfdSession, TrackResult

ADDRESSES = {"a": ip_address("192.0.2.1"), "b": ip_address("192.0.2.2")}
SECOND = 1_000_000


def settings(name: str, **values: object) -> BfdSession:
    """The session of node `a` or `b` with the other one."""
    other = ADDRESSES["b" if name == "a" else "a"]
    return BfdSession(name=f"to-{other}", neighbor=str(other), source=str(ADDRESSES[name]), **values)  # type: ignore[arg-type]


@dataclass
class Node:
    name: str
    table: SessionTable
    changes: list[tuple[int, Changed]] = field(default_factory=list)
    results: list[tuple[int, TrackResult]] = field(default_factory=list)
    sent: list[tuple[int, ControlPacket]] = field(default_factory=list)
    frozen: bool = False
    queue: list[Arrival] = field(default_factory=list)
    """What arrived while it was frozen."""

    @property
    def session(self) -> Session:
        (key,) = self.table.keys
        return self.table.session(key)

    @property
    def state(self) -> State:
        return self.session.state


class Wire:
    """Runs both nodes; `cut` holds the names of those whose packets are lost."""

    def __init__(self, seed: int = 1, *, loss: float = 0.0, delay: tuple[int, int] = (50, 500)) -> None:
        self.chance = random.Random(seed)
        self.loss = loss
        self.delay = delay
        self.now = 1_000
        self.cut: set[str] = set()
        self.nodes: dict[str, Node] = {}
        self._latest = {"a": 0, "b": 0}
        """When the last packet to each arrives: one hop does not change the order of packets."""
        self._flying: list[tuple[int, int, str, Arrival]] = []
        self._count = 0

    def start(self, name: str, session: BfdSession) -> Node:
        """Power on, or restart with nothing remembered."""
        node = self.nodes[name] = Node(name=name, table=SessionTable(random.Random(self.chance.random()).randint))
        self.configure(name, session)
        return node

    def configure(self, name: str, *sessions: BfdSession) -> None:
        node = self.nodes[name]
        self._execute(node, node.table.configure(by_ends(sessions)[0], self.now))

    def run(self, duration_us: int) -> None:
        """Let this time pass."""
        end = self.now + duration_us
        while (at := self._next()) is not None and at <= end:
            self._step(at)
        self.now = end

    def run_until(self, *states: tuple[str, State], limit_us: int = 30 * SECOND) -> int:
        """Let time pass until the nodes are in these states; how long that took."""
        begin = self.now
        while not all(self.nodes[name].state is state for name, state in states):
            at = self._next()
            assert at is not None
            assert at <= begin + limit_us, [(each.name, str(each.state)) for each in self.nodes.values()]
            self._step(at)
        return self.now - begin

    def thaw(self, name: str) -> None:
        """What has arrived is taken before any timer is looked at."""
        node = self.nodes[name]
        node.frozen = False
        for arrival in node.queue:
            self._execute(node, node.table.receive(arrival, self.now))
        node.queue.clear()

    def _next(self) -> int | None:
        deadlines = [node.table.next_deadline() for node in self.nodes.values() if not node.frozen]
        times = [each for each in deadlines if each is not None] + [each[0] for each in self._flying[:1]]
        return min(times, default=None)

    def _step(self, at: int) -> None:
        self.now = max(self.now, at)
        while self._flying and self._flying[0][0] <= self.now:
            _, _, name, arrival = heapq.heappop(self._flying)
            node = self.nodes.get(name)
            if node is None:
                continue
            if node.frozen:
                node.queue.append(arrival)
            else:
                self._execute(node, node.table.receive(arrival, self.now))
        for node in self.nodes.values():
            deadline = node.table.next_deadline()
            if not node.frozen and deadline is not None and deadline <= self.now:
                self._execute(node, node.table.expire(self.now))

    def _execute(self, node: Node, effects: list[TableEffect]) -> None:
        for each in effects:
            if isinstance(each, Changed):
                node.changes.append((self.now, each))
            elif isinstance(each, Transmit):
                node.sent.append((self.now, decode(each.payload)))
                if node.name in self.cut or self.chance.random() < self.loss:
                    continue
                self._count += 1
                arrival = Arrival(
                    source=ADDRESSES[node.name],
                    destination=each.key.neighbor,
                    ttl=255,
                    multihop=each.key.multihop,
                    payload=each.payload,
                )
                other = "b" if node.name == "a" else "a"
                at = self._latest[other] = max(self._latest[other], self.now + self.chance.randint(*self.delay))
                heapq.heappush(self._flying, (at, self._count, other, arrival))
        node.results += [(self.now, each) for each in node.table.take_results()]


def pair(seed: int = 1, **values: object) -> Wire:
    """Two nodes with these settings, Up, a second later."""
    wire = Wire(seed)
    for name in ("a", "b"):
        wire.start(name, settings(name, **values))
    wire.run_until(("a", State.UP), ("b", State.UP))
    wire.run(SECOND)
    return wire
