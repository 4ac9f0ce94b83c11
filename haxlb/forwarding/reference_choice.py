"""Whom the oracle chooses for a new flow: bpf/choose.h and compare.h, for clarity and not for speed."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from haxlb.forwarding.hashing import mix
from haxlb.forwarding.reference_flows import FlowTable
from haxlb.forwarding.reference_packet import Packet
from haxlb.forwarding.reference_rings import PICK_ATTEMPTS, Rings
from haxlb.forwarding.reference_schedulers import Candidate, Locality, better, is_busy, least
from haxlb.forwarding.wanted import Load, WantedServer, WantedService
from haxlb.model.addresses import IPAddress
from haxlb.model.virtual_server import Scheduler


class Chooser:
    """The schedulers, with what they remember."""

    def __init__(self, rings: Rings, flows: FlowTable) -> None:
        self._rings = rings
        self._flows = flows
        self._cursors: Counter[str] = Counter()
        self._localities: dict[tuple[str, IPAddress], Locality] = {}

    def load(self, service: WantedService, server: WantedServer) -> Load:
        """Flows on record for a server."""
        active, inactive = self._flows.load(service.name, server.key)
        return Load(active=active, inactive=inactive, overloaded=(service.name, server.key) in self._flows.overloaded)

    def choose(self, service: WantedService, packet: Packet, now_s: float, *, in_turn: bool) -> WantedServer | None:
        """None = there is no server. `in_turn`: as the scheduler says, not by hash."""
        if not in_turn or service.scheduler.hashes or service.scheduler in (Scheduler.RR, Scheduler.WRR):
            return self._pick(service, packet, in_turn=in_turn)
        if service.scheduler is Scheduler.TWOS:
            return self._of_two(service) or self._pick(service, packet, in_turn=False)
        if service.scheduler not in (Scheduler.LBLC, Scheduler.LBLCR):
            return alive(service, least(service.scheduler, self._candidates(service)))
        return self._by_locality(service, packet, now_s)

    def _by_locality(self, service: WantedService, packet: Packet, now_s: float) -> WantedServer | None:
        """Lblc and lblcr: a destination address keeps to its servers until they are overloaded while others idle."""
        destination = (service.name, packet.destination)
        usable = {each.key: each for each in self._candidates(service)}
        locality = self._localities.get(destination)
        if locality is not None:
            key = locality.find(usable, now_s)
            if key is not None and not is_busy(usable[key], self._candidates(service, full_ones=True)):
                return alive(service, key)
        key = least(service.scheduler, tuple(usable.values()))
        if key is not None:
            locality = self._localities.setdefault(destination, Locality())
            locality.note(key, usable, now_s, replicates=service.scheduler is Scheduler.LBLCR)
        return alive(service, key)

    def _candidates(self, service: WantedService, *, full_ones: bool = False) -> list[Candidate]:
        """Servers that can get flows, in the order of the list."""
        # Of turns each server once: twos wants to know who is full.
        servers = [server_of(service, key) for key in dict.fromkeys(self._rings.slots(service))]
        return [
            Candidate(key=each.key, weight=each.weight, active=load.active, inactive=load.inactive)
            for each in servers
            for load in (self.load(service, each),)
            if each.gets_packets and each.weight and (full_ones or not self.is_full(service, each))
        ]

    def _of_two(self, service: WantedService) -> WantedServer | None:
        """Of two that chance names the one with less to do; None where both are full."""
        turns = self._rings.slots(service)
        if not turns:
            return None
        turn = self._cursors[service.name]
        self._cursors[service.name] += 1
        usable = {each.key: each for each in self._candidates(service)}
        drawn = [turns[mix(turn & 0xFFFFFFFF, number) % len(turns)] for number in (1, 2)]
        named = [usable[key] for key in drawn if key in usable]
        if not named:
            return None
        return alive(service, better(named[0], named[-1]))

    def _pick(self, service: WantedService, packet: Packet, *, in_turn: bool) -> WantedServer | None:
        """By the slots: of turns the next one, else the one of the packet's hash; who is full is passed over."""
        slots = self._rings.slots(service)
        if not slots:
            return None
        takes_turn = in_turn and service.scheduler.takes_turns
        if takes_turn:
            start = self._cursors[service.name]
            if start >= len(slots):
                start %= len(slots)
            self._cursors[service.name] = start + 1
        else:
            start = self._rings.place(service, packet)
        for attempt in range(PICK_ATTEMPTS):
            server = alive(service, slots[(start + attempt) % len(slots)])
            if server is not None and not self.is_full(service, server):
                if takes_turn:
                    self._cursors[service.name] += attempt
                return server
        return None

    def is_full(self, service: WantedService, server: WantedServer) -> bool:
        """A server has reached its upper threshold and not fallen below the lower (ip_vs_bind_dest)."""
        if not server.upper_threshold:
            return False
        name = (service.name, server.key)
        flows = sum(self._flows.load(*name))
        lower = Fraction(server.lower_threshold) or Fraction(3 * server.upper_threshold, 4)
        still = flows >= lower
        full = flows >= server.upper_threshold or (still and name in self._flows.overloaded)
        (self._flows.overloaded.add if full else self._flows.overloaded.discard)(name)
        return full


def server_of(service: WantedService, key: str) -> WantedServer:
    """The server of this key."""
    return next(each for each in service.servers if each.key == key)


def alive(service: WantedService, key: str | None) -> WantedServer | None:
    """The same if there is one that gets packets."""
    return next((each for each in service.servers if each.key == key and each.gets_packets), None)
