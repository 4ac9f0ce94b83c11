"""What we say of ourselves on MQTT: per VRID, whether we are MASTER, repeated for as long as we are.

A retained claim outlives its author: the broker takes it back only when the last will fires, fifteen seconds after a
power-off, while the other director is MASTER within four. A claim that is repeated tells the living from the dead.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from haxlb.model.facts import RoleChanged
from haxlb.model.instance import Role, VrrpInstance
from haxlb.model.units import SECOND_US


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishClaim:
    """Publish, retained: this node is MASTER of the VRID, or no longer."""

    instance: str
    vrid: int
    master: bool


@dataclass(slots=True)
class _Standing:
    vrid: int
    period_us: int
    due_us: int


@dataclass(slots=True)
class Claimant:
    """A machine: told roles and the time, answers with claims to publish."""

    _periods: dict[str, int] = field(default_factory=dict)
    _standing: dict[str, _Standing] = field(default_factory=dict)

    def configure(self, instances: tuple[VrrpInstance, ...]) -> list[PublishClaim]:
        """Take these instances from now on; claims of instances that are gone are withdrawn."""
        self._periods = {each.name: max(each.advert_interval_us, SECOND_US) for each in instances}
        gone = [name for name in self._standing if name not in self._periods]
        return [PublishClaim(instance=name, vrid=self._standing.pop(name).vrid, master=False) for name in gone]

    def handle(self, fact: RoleChanged, now: int) -> list[PublishClaim]:
        """Claim on entering MASTER, withdraw on leaving it."""
        if fact.after is Role.MASTER:
            period = self._periods.get(fact.instance, SECOND_US)
            self._standing[fact.instance] = _Standing(fact.vrid, period, now + period)
            return [PublishClaim(instance=fact.instance, vrid=fact.vrid, master=True)]
        if self._standing.pop(fact.instance, None) is None:
            return []
        return [PublishClaim(instance=fact.instance, vrid=fact.vrid, master=False)]

    def next_deadline(self) -> int | None:
        """When the next claim is due for repetition, µs."""
        return min((each.due_us for each in self._standing.values()), default=None)

    def handle_timer(self, now: int) -> list[PublishClaim]:
        """Repeat the claims that are due: once per advert interval, at most once a second."""
        due = []
        for name, each in self._standing.items():
            if each.due_us <= now:
                each.due_us = now + each.period_us
                due.append(PublishClaim(instance=name, vrid=each.vrid, master=True))
        return due

    def standing(self) -> list[PublishClaim]:
        """All that we claim now: to be published again after a reconnect."""
        return [PublishClaim(instance=name, vrid=each.vrid, master=True) for name, each in self._standing.items()]
