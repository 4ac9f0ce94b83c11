"""The whole of health checking as one machine: outcomes and neighbours in; probes, facts and scripts out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from haxlb.health.outcome import Outcome, failed, seconds
from haxlb.health.pool import Member, Pool, PoolChanged, PoolEffect, member_name
from haxlb.health.rise_fall import RiseFall, probe_limit_us
from haxlb.health.timetable import AbandonProbe, StartProbe, Timetable
from haxlb.model.addresses import IPAddress
from haxlb.model.check import Check
from haxlb.model.virtual_server import VirtualServer

Effect = StartProbe | AbandonProbe | PoolEffect


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """Input: check these virtual servers from now on."""

    virtual_servers: tuple[VirtualServer, ...]
    remembered: Mapping[str, bool] = field(default_factory=dict)
    """What an earlier process knew, by `member_name`: read until the checks have a verdict of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeEnded:
    """Input: the outcome of a probe that was started."""

    ticket: int
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachChanged:
    """Input: whether frames can reach this address. What was never said to be reachable is not."""

    address: IPAddress
    reachable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Woke:
    """Input: `next_deadline` has come."""


Input = Configured | ProbeEnded | ReachChanged | Woke


class Monitor:
    """State that a reload does not touch stays.

    A server is known by its virtual server's name and its own address and port, a check by all of its parameters.
    """

    def __init__(self, seed: str) -> None:
        self.checks: dict[Check, RiseFall] = {}
        self._pools: dict[str, Pool] = {}
        self._timetable = Timetable(seed)
        self._reachable: dict[IPAddress, bool] = {}
        self._members_of_check: dict[Check, list[tuple[Pool, Member]]] = {}
        self._members_of_address: dict[IPAddress, list[tuple[Pool, Member]]] = {}

    def handle(self, said: Input, now: int) -> list[Effect]:
        """Take in one input; the effects are to be executed in this order."""
        match said:
            case Configured():
                return self._configure(said, now)
            case ProbeEnded(ticket=ticket, outcome=outcome):
                check = self._timetable.ended(ticket)
                return [] if check is None else self._judge(check, outcome, now)
            case ReachChanged(address=address, reachable=reachable):
                self._reachable[address] = reachable
                return self._refresh(self._members_of_address.get(address, []), now)
            case Woke():
                return self._wake(now)

    def next_deadline(self) -> int | None:
        """When to say `Woke`, µs."""
        return self._timetable.next_deadline()

    def status(self) -> tuple[Pool, ...]:
        """The pools in configuration order, to be read only."""
        return tuple(self._pools.values())

    def remember(self) -> dict[str, bool]:
        """What a later process wants to know: which servers are up."""
        return {
            member_name(name, member.server): member.up
            for name, pool in self._pools.items()
            for member in pool.members.values()
        }

    def _configure(self, said: Configured, now: int) -> list[Effect]:
        before = {name: pool.serving() for name, pool in self._pools.items()}
        former, self._pools = self._pools, {}
        for virtual_server in said.virtual_servers:
            pool = former.get(virtual_server.name) or Pool(virtual_server, now)
            pool.configure(virtual_server, said.remembered, now)
            self._pools[virtual_server.name] = pool
        self._index()
        self.checks = {check: self.checks.get(check) or RiseFall(check) for check in self._members_of_check}
        effects: list[Effect] = list(self._timetable.configure(self.checks, now))
        for name, pool in self._pools.items():
            refreshed = pool.refresh(pool.members.values(), self.checks, self._reachable, now)
            effects += [each for each in refreshed if not isinstance(each, PoolChanged)]
            if pool.serving() != before.pop(name, None):
                effects.append(PoolChanged(virtual_server=name))
        return effects + [PoolChanged(virtual_server=gone) for gone in before]

    def _index(self) -> None:
        self._members_of_check, self._members_of_address = {}, {}
        for pool in self._pools.values():
            for member in pool.members.values():
                self._members_of_address.setdefault(member.server.address, []).append((pool, member))
                for check in dict.fromkeys(member.server.checks):
                    self._members_of_check.setdefault(check, []).append((pool, member))

    def _wake(self, now: int) -> list[Effect]:
        starting, overdue = self._timetable.start_due(now)
        effects: list[Effect] = []
        for abandon, check in overdue:
            # The prober keeps its own deadline; this one catches a prober that is stuck itself.
            outcome = failed(f"no outcome in {seconds(probe_limit_us(check))}")
            effects += [abandon, *self._judge(check, outcome, now)]
        return [*effects, *starting]

    def _judge(self, check: Check, outcome: Outcome, now: int) -> list[Effect]:
        machine = self.checks[check]
        machine.handle(outcome, now)
        self._timetable.pause(check, machine.pause_us, now)
        return self._refresh(self._members_of_check[check], now)

    def _refresh(self, members: list[tuple[Pool, Member]], now: int) -> list[Effect]:
        effects: list[Effect] = []
        for pool, member in members:
            effects += pool.refresh((member,), self.checks, self._reachable, now)
        return effects
