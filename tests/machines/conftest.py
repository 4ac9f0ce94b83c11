"""Speakers on a fake LAN: the real Speaker, hand-written ports, a clock that jumps from event to event.

Far smaller than the simulator on purpose: what fails here is the speaker, not a virtual world.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from ipaddress import IPv4Address
from typing import Any

import pytest

from haxlb.daemon.ports import Datagram, Link
from haxlb.daemon.speaker import Speaker
from haxlb.model.addresses import Vip
from haxlb.model.errors import HostError
from haxlb.model.facts import RoleChanged
from haxlb.model.instance import Role, VrrpInstance
from haxlb.model.notification import NotifyDue

SECOND = 1_000_000
LATENCY_US = 100


def vip(host: int, interface: str = "eth0") -> Vip:
    return Vip(address=IPv4Address(f"192.0.2.{host}"), prefix_length=24, interface=interface)


class Node:
    """One director: all ports of its speaker in one object, and a journal of what the speaker did."""

    def __init__(self, lan: Lan, host: int) -> None:
        self.lan = lan
        self.address = IPv4Address(f"192.0.2.{host}")
        self.alive = True
        self.frozen = False
        self.no_last_word = False
        """Yields without a word, as a keepalived does."""
        self.alarm: int | None = None
        self.alarms_set = 0
        self.inbox: list[Datagram] = []
        self.interfaces: dict[str, Link] = {
            name: Link(interface=name, up=True, mac=f"02:00:00:00:00:{host:02x}", address=self.address)
            for name in ("eth0", "eth1")
        }
        self.held: set[Vip] = set()
        self.accepted: frozenset[tuple[str, str]] = frozenset()
        """Virtual MACs that the forwarder takes frames to."""
        self.refuse_add = self.refuse_remove = False
        self.journal: list[tuple[int, str]] = []
        self.facts: list[Any] = []
        self.sent: list[tuple[int, Datagram]] = []
        self.speaker = Speaker(
            clock=self,
            wake=self,
            adverts=self,
            addresses=self,
            routes=Routes(self),
            announcer=self,
            links=self,
            notify=self,
            reports=self,
            macs=self,
        )

    # ports

    def now(self) -> int:
        return self.lan.now

    def wake_at(self, deadline_us: int | None) -> None:
        self.alarms_set += 1
        self.alarm = deadline_us

    def send(self, datagram: Datagram) -> None:
        if self.no_last_word and self.role() is Role.BACKUP and datagram.payload[2]:
            return
        self.sent.append((self.lan.now, datagram))
        self.write(f"send {datagram.payload[2]}")
        self.lan.carry(self, datagram)

    def receive(self) -> list[Datagram]:
        inbox, self.inbox = self.inbox, []
        return inbox

    def add(self, vips: Any) -> None:
        listed = tuple(vips)
        if self.refuse_add:
            raise HostError("the kernel says no", remedy="ask it nicely")
        self.write("add " + " ".join(map(str, listed)))
        self.held.update(listed)

    def remove(self, vips: Any) -> None:
        listed = tuple(vips)
        if self.refuse_remove:
            raise HostError("the kernel says no", remedy="ask it nicely")
        self.write("remove " + " ".join(map(str, listed)))
        self.held.difference_update(listed)

    def announce(self, vips: Any) -> None:
        listed = tuple(vips)
        self.write("announce " + " ".join(map(str, listed)))
        self.lan.hear_announcement(self, listed)

    def accept(self, macs: frozenset[tuple[str, str]]) -> None:
        self.write("accept " + (" ".join(f"{base}/{mac}" for base, mac in sorted(macs)) or "none"))
        self.accepted = macs

    def link(self, interface: str) -> Link | None:
        return self.interfaces.get(interface)

    def notify(self, due: NotifyDue) -> None:
        self.write(f"notify {due.subject} {due.name} {due.state} {due.priority}")

    def report(self, fact: Any) -> None:
        self.facts.append(fact)

    def write(self, what: str) -> None:
        self.journal.append((self.lan.now, what))

    # what a test does with it

    def role(self, name: str = "VI_1") -> Role:
        return self.status(name).role

    def status(self, name: str = "VI_1") -> Any:
        return next(each for each in self.speaker.status(epoch_us=0) if each.name == name)

    def words(self) -> list[str]:
        """The journal without times; read once."""
        words, self.journal = [what for _, what in self.journal], []
        return words

    def changes(self) -> list[tuple[float, str]]:
        return [
            (fact.at_us / SECOND, f"{fact.before.value} -> {fact.after.value}: {fact.reason}")
            for fact in self.facts
            if isinstance(fact, RoleChanged)
        ]

    def set_link(self, **changes: Any) -> None:
        self.interfaces["eth0"] = dataclasses.replace(self.interfaces["eth0"], **changes)
        self.speaker.on_link(self.interfaces["eth0"])

    def crash(self) -> None:
        self.alive = False
        self.held.clear()


class Routes:
    """The routing table of a node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.held: set[Any] = set()

    def add(self, routes: Any, rules: Any) -> None:
        self._change("route", routes, rules)
        self.held.update(routes, rules)

    def remove(self, routes: Any, rules: Any) -> None:
        self._change("unroute", routes, rules)
        self.held.difference_update(routes, rules)

    def _change(self, what: str, routes: Any, rules: Any) -> None:
        self._node.write(f"{what} {' '.join(each.destination for each in routes)} and {len(rules)} rules")


class Lan:
    """One segment; datagrams arrive after LATENCY_US, in order."""

    def __init__(self) -> None:
        self.now = 0
        self.nodes: list[Node] = []
        self.cut: set[tuple[Node, Node]] = set()
        self.flying: list[tuple[int, Callable[[], None]]] = []
        self.client: Client | None = None
        self.watch: Callable[[], None] = lambda: None

    def node(self, host: int, *instances: VrrpInstance) -> Node:
        node = Node(self, host)
        self.nodes.append(node)
        if instances:
            node.speaker.configure(instances)
        return node

    def carry(self, sender: Node, datagram: Datagram) -> None:
        if not sender.interfaces[datagram.interface].up:
            return
        for node in self.nodes:
            multicast = datagram.destination.is_multicast
            if node is sender or (sender, node) in self.cut or not (multicast or datagram.destination == node.address):
                continue
            at = self.now + LATENCY_US
            arrival = dataclasses.replace(datagram, at_us=at)
            self.flying.append((at, functools.partial(self._arrive, node, arrival)))

    def hear_announcement(self, node: Node, vips: tuple[Vip, ...]) -> None:
        """Cuts are of adverts only: gratuitous ARP reaches the client."""
        if self.client is not None and self.client.vip in vips:
            self.flying.append((self.now + LATENCY_US, functools.partial(self.client.learn, node)))

    def inject(self, node: Node, datagram: Datagram) -> None:
        """Something from outside, at once."""
        node.speaker.on_datagram(dataclasses.replace(datagram, at_us=self.now))

    def run(self, seconds: float) -> None:
        until = self.now + round(seconds * SECOND)
        while True:
            arrivals = self.flying[0][0] if self.flying else None
            alarms = [node.alarm for node in self.nodes if node.alive and not node.frozen and node.alarm is not None]
            upcoming = [at for at in (arrivals, min(alarms, default=None)) if at is not None]
            if not upcoming or min(upcoming) > until:
                break
            self.now = max(self.now, min(upcoming))
            self._deliver()
            for node in self.nodes:
                if node.alive and not node.frozen and node.alarm is not None and node.alarm <= self.now:
                    node.alarm = None
                    node.speaker.on_wake()
            if self.client is not None:
                self.client.look(self.now)
            self.watch()
        self.now = until

    def _deliver(self) -> None:
        while self.flying and self.flying[0][0] <= self.now:
            self.flying.pop(0)[1]()

    def _arrive(self, node: Node, datagram: Datagram) -> None:
        if not node.alive or not node.interfaces[datagram.interface].up:
            return
        if node.frozen:
            node.inbox.append(datagram)  # the kernel keeps it
        else:
            node.speaker.on_datagram(datagram)


class Client:
    """A neighbour that believes the last gratuitous ARP, and asks nobody."""

    def __init__(self, vip: Vip) -> None:
        self.vip = vip
        self.believes: Node | None = None
        self.dark: list[tuple[int, int]] = []
        """From when to when the one that it believes did not have the address, µs."""
        self._dark_since: int | None = None

    def learn(self, node: Node) -> None:
        self.believes = node

    def look(self, now: int) -> None:
        dark = self.believes is not None and self.vip not in self.believes.held
        if dark and self._dark_since is None:
            self._dark_since = now
        elif not dark and self._dark_since is not None:
            self.dark.append((self._dark_since, now))
            self._dark_since = None

    def darkness_us(self, now: int) -> int:
        """All together until now."""
        ongoing = 0 if self._dark_since is None else now - self._dark_since
        return ongoing + sum(end - begin for begin, end in self.dark)


@pytest.fixture
def lan() -> Lan:
    return Lan()


@pytest.fixture
def client(lan: Lan) -> Client:
    """Of the address that instances have unless told otherwise."""
    lan.client = Client(vip(100))
    return lan.client


@pytest.fixture
def instance() -> Callable[..., VrrpInstance]:
    def build(**settings: Any) -> VrrpInstance:
        base = VrrpInstance(name="VI_1", interface="eth0", vrid=51, vips=(vip(100),))
        return dataclasses.replace(base, **settings)

    return build


@pytest.fixture
def make_vip() -> Callable[..., Vip]:
    return vip
