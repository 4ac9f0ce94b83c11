"""The virtual world: directors on a LAN, a broker, clients, and the laws that look on.

Everything hangs together here and nowhere else. All randomness comes from streams named after the seed and their
purpose, so that a change in one place does not shift the dice of another.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from haxlb.daemon.speaker import Speaker
from haxlb.model.addresses import IPAddress
from haxlb.model.facts import AlarmCleared, AlarmRaised
from haxlb.sim.broker import Broker
from haxlb.sim.client import Client
from haxlb.sim.director import Director
from haxlb.sim.lan import Lan, Wire
from haxlb.sim.laws import Laws
from haxlb.sim.ledger import Ledger, Spans
from haxlb.sim.loop import VirtualLoop
from haxlb.sim.membership import Membership, Process, RouterKey
from haxlb.sim.processes import Processes
from haxlb.sim.topology import Station
from haxlb.vrrp.holdings import addresses


@dataclass(frozen=True, slots=True, kw_only=True)
class Nature:
    """What the world is made of, beside its directors."""

    wire: Wire = field(default_factory=Wire)
    broker: bool = False
    """All directors reach one MQTT broker."""
    speaker_class: type[Speaker] = Speaker
    judges_alarms: bool = True
    """Whether law L6 is checked."""


class World:
    """One run's world; time stands at 0 and nobody has power."""

    def __init__(self, stations: tuple[Station, ...], seed: int, nature: Nature) -> None:
        self.loop = VirtualLoop()
        self.ledger = Ledger(self.loop)
        self.lan = Lan(self.loop, self.dice(seed, "lan"), nature.wire, self.ledger)
        self.broker = Broker(self.loop) if nature.broker else None
        self.speaker_class = nature.speaker_class
        self.directors = tuple(
            Director(each, self, self.dice(seed, f"director {index}")) for index, each in enumerate(stations)
        )
        self.routers = _routers(self.directors)
        self.router_of: dict[tuple[str, IPAddress], RouterKey] = {}
        """By segment and VIP, as configured at the beginning."""
        self.clients = self._clients()
        self.laws = Laws(
            loop=self.loop,
            lan=self.lan,
            broker=self.broker,
            ledger=self.ledger,
            clients=self.clients,
            alarms=nature.judges_alarms,
        )
        self.split = Spans()
        """By router: two or more live MASTERs."""
        self.mute = Spans()
        """By router: no live MASTER."""
        self.raised: list[tuple[RouterKey, int]] = []
        """Split-brain alarms: router and time."""
        self._said: set[tuple[str, str]] = set()
        self._touched = True
        self.loop.observe(self._after_event)

    @staticmethod
    def dice(seed: int, purpose: str) -> Random:
        """A stream of random numbers of its own."""
        return Random(f"{seed}/{purpose}")  # noqa: S311 - reproducible, not secret

    def touch(self) -> None:
        """Something has changed that laws, clients or sums depend on; looked at when the event is over."""
        self._touched = True

    def cut(self, sender: Director, receiver: Director) -> None:
        """Nothing of `sender` reaches `receiver` from now on."""
        self.lan.cut(sender.name, receiver.name)
        self.ledger.note("LAN", f"{sender.name} no longer reaches {receiver.name}")
        self.touch()

    def heal(self, sender: Director, receiver: Director) -> None:
        """Undo a cut."""
        self.lan.heal(sender.name, receiver.name)
        self.ledger.note("LAN", f"{sender.name} reaches {receiver.name} again")
        self.touch()

    def alarm_changed(self, director: Processes, alarm: AlarmRaised | AlarmCleared) -> None:
        """A director raised or cleared an alarm."""
        self.touch()
        for each in director.memberships:
            if alarm.key == f"split-brain/{each.instance.name}":
                self.laws.alarm(each, alarm)
                if isinstance(alarm, AlarmRaised):
                    self.raised.append((each.router, self.loop.now_us))

    def note_once(self, who: str, what: str) -> None:
        """Write a line unless it was written before."""
        if (who, what) not in self._said:
            self._said.add((who, what))
            self.ledger.note(who, what)

    def look(self) -> None:
        """Judge the moment: called after each event that touched something."""
        self._touched = False
        now = self.loop.now_us
        for director in self.directors:
            director.bench.accounts.close_moment()
        for key, members in self.routers.items():
            masters = sum(each.is_live_master for each in members)
            self.split.set(key, now, so=masters > 1)
            self.mute.set(key, now, so=masters == 0)
        for client in self.clients:
            client.look(now)
        self.laws.look(self.routers)

    def finish(self) -> None:
        """The end: what is judged when all is quiet."""
        self.look()
        for director in self.directors:
            director.bench.finish()
            for each in director.memberships if director.process is Process.RUNNING else ():
                if each.runs:
                    director.bench.accounts.compare(director.told, each.role, each.names)

    def _after_event(self) -> None:
        if self._touched:
            self.look()

    def _clients(self) -> tuple[Client, ...]:
        vips: dict[str, list[IPAddress]] = {}
        for director in self.directors:
            for each in director.memberships:
                for vip in addresses(each.instance):
                    segment = director.nics[vip.interface].segment
                    vips.setdefault(segment, []).append(vip.address)
                    self.router_of.setdefault((segment, vip.address), each.router)
        clients = tuple(
            Client(segment, listed, loop=self.loop, ledger=self.ledger, lan=self.lan, on_change=self.touch)
            for segment, listed in vips.items()
        )
        for client in clients:
            self.lan.plug(client.nic)
        return clients


def _routers(directors: tuple[Director, ...]) -> dict[RouterKey, list[Membership]]:
    out: dict[RouterKey, list[Membership]] = {}
    for director in directors:
        for each in director.memberships:
            out.setdefault(each.router, []).append(each)
    for members in out.values():
        for each in members:
            each.colleagues = members
    return out
