"""The in-memory LAN: segments that carry VRRP messages and gratuitous ARP between the hosts on them.

What a switch, a firewall or a bad cable can do to them is a property here: a direction between two hosts that is cut,
a latency with jitter, a share of frames that is lost, comes twice or overtakes others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Protocol

from haxlb.daemon.ports import Datagram
from haxlb.model.addresses import IPAddress
from haxlb.sim.ledger import Ledger
from haxlb.sim.loop import VirtualLoop


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """How good the cable is."""

    latency_us: int = 100
    jitter_us: int = 100
    """Up to so much is added, evenly distributed."""
    loss: float = 0.0
    """Share of frames that vanish, 0 to 1."""
    duplicates: float = 0.0
    """Share of frames that arrive twice."""
    disorder_us: int = 0
    """Frames may overtake others that were sent up to so much earlier; 0 = one direction never reorders."""

    @property
    def longest_us(self) -> int:
        """No frame needs longer than this, but for the queue behind others of the same microsecond."""
        return self.latency_us + self.jitter_us + self.disorder_us


class Receiver(Protocol):
    """What sits behind a NIC."""

    def answers(self, nic: Nic, address: IPAddress) -> bool:
        """Whether its kernel answers ARP for this address on this NIC."""
        ...

    def on_frame(self, nic: Nic, datagram: Datagram) -> None:
        """A VRRP message has arrived."""
        ...

    def on_announcement(self, nic: Nic, sender: Nic, vips: tuple[IPAddress, ...]) -> None:
        """A gratuitous ARP for each of these addresses has arrived."""
        ...


@dataclass(slots=True, kw_only=True, eq=False)
class Nic:
    """One host's port on a segment."""

    host: str
    interface: str
    """Its name on this host."""
    segment: str
    mac: str
    addresses: tuple[IPAddress, ...]
    """The primary one first."""
    receiver: Receiver = field(repr=False)
    carrier: bool = True
    """Cable in, and the host powered."""
    asleep: bool = False
    """Its host is suspended: nothing is received or answered, although the cable is in."""
    base: Nic | None = field(default=None, repr=False)
    """Of a macvlan: where VRRP messages for its host arrive all the same."""

    @property
    def alive(self) -> bool:
        """Whether frames that arrive are taken."""
        return self.carrier and not self.asleep


class Lan:
    """All segments of one world."""

    def __init__(self, loop: VirtualLoop, random: Random, wire: Wire, ledger: Ledger) -> None:
        self._loop = loop
        self._random = random
        self._wire = wire
        self._longest_us = wire.longest_us
        self._ledger = ledger
        self._segments: dict[str, list[Nic]] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._last_arrival: dict[tuple[str, str], int] = {}
        self._lost_at: dict[tuple[str, str], int] = {}
        self.carried = 0
        self.lost = 0

    @property
    def longest_latency_us(self) -> int:
        """No frame needs longer than this; of the worst wire that there was."""
        return self._longest_us

    @property
    def wire(self) -> Wire:
        """How good the cables are now."""
        return self._wire

    @wire.setter
    def wire(self, wire: Wire) -> None:
        self._wire = wire
        self._longest_us = max(self._longest_us, wire.longest_us)

    def lost_at(self, one: str, other: str) -> int:
        """When a frame between two hosts, in either direction, was lost by bad luck the last time."""
        return max(self._lost_at.get((one, other), -1), self._lost_at.get((other, one), -1))

    def plug(self, nic: Nic) -> None:
        """Connect a NIC to its segment."""
        self._segments.setdefault(nic.segment, []).append(nic)

    def cut(self, sender: str, receiver: str) -> None:
        """Nothing of `sender` reaches `receiver` from now on; the other way is another cut."""
        self._cuts.add((sender, receiver))

    def heal(self, sender: str, receiver: str) -> None:
        """Undo a cut."""
        self._cuts.discard((sender, receiver))

    def reaches(self, sender: Nic, receiver: Nic) -> bool:
        """Whether a frame sent now would arrive, bad luck aside."""
        return sender.alive and receiver.alive and (sender.host, receiver.host) not in self._cuts

    def send(self, nic: Nic, datagram: Datagram) -> None:
        """Carry a VRRP message to all others on the segment, or to the holder of its unicast destination."""
        unicast = not datagram.destination.is_multicast
        for other in self._segments[nic.segment]:
            if other.host == nic.host or other.base is not None:
                continue
            if unicast and datagram.destination not in other.addresses:
                continue
            for _ in range(self._copies(nic, other)):
                arrival = self._arrival(nic, other)
                self._loop.at(arrival, partial(self._deliver, nic, other, datagram))

    def announce(self, nic: Nic, vips: Iterable[IPAddress]) -> None:
        """Carry gratuitous ARP to all others on the segment."""
        addresses = tuple(vips)
        for other in self._segments[nic.segment]:
            if other.host == nic.host:
                continue
            for _ in range(self._copies(nic, other)):
                self._loop.at(self._arrival(nic, other), partial(self._deliver_announcement, nic, other, addresses))

    def ask(self, nic: Nic, address: IPAddress, hear: Callable[[Nic, IPAddress], None]) -> None:
        """An ARP request; `hear` is called with the NIC of each that answers, when its answer arrives."""
        for other in self._segments[nic.segment]:
            if other.host != nic.host and not self._loses(nic, other):
                self._loop.at(self._arrival(nic, other), partial(self._answer, nic, other, address, hear))

    def _answer(self, asker: Nic, nic: Nic, address: IPAddress, hear: Callable[[Nic, IPAddress], None]) -> None:
        if not self._arrives(asker, nic) or not nic.receiver.answers(nic, address) or self._loses(nic, asker):
            return
        self._loop.at(self._arrival(nic, asker), lambda: hear(nic, address) if self._arrives(nic, asker) else None)

    def _loses(self, sender: Nic, receiver: Nic) -> bool:
        if not self.reaches(sender, receiver):
            return True
        if self._wire.loss and self._random.random() < self._wire.loss:
            self.lost += 1
            self._lost_at[sender.host, receiver.host] = self._loop.now_us
            return True
        self.carried += 1
        return False

    def _copies(self, sender: Nic, receiver: Nic) -> int:
        if self._loses(sender, receiver):
            return 0
        return 2 if self._wire.duplicates and self._random.random() < self._wire.duplicates else 1

    def _arrival(self, sender: Nic, receiver: Nic) -> int:
        wire = self._wire
        arrival = self._loop.now_us + wire.latency_us + int(self._random.random() * (wire.jitter_us + 1))
        if wire.disorder_us:
            return arrival + int(self._random.random() * (wire.disorder_us + 1))
        path = (sender.mac, receiver.mac)
        last = self._last_arrival.get(path, 0)
        arrival = max(arrival, last)
        self._last_arrival[path] = arrival
        return arrival

    def _deliver(self, sender: Nic, receiver: Nic, datagram: Datagram) -> None:
        if self._arrives(sender, receiver):
            self._ledger.count(datagram.payload)
            receiver.receiver.on_frame(receiver, datagram)

    def _deliver_announcement(self, sender: Nic, receiver: Nic, vips: tuple[IPAddress, ...]) -> None:
        if self._arrives(sender, receiver):
            receiver.receiver.on_announcement(receiver, sender, vips)

    def _arrives(self, sender: Nic, receiver: Nic) -> bool:
        """A frame that is under way when its direction is cut is lost; its sender may be gone already."""
        return receiver.alive and (sender.host, receiver.host) not in self._cuts
