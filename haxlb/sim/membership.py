"""One instance of one director, as a member of its virtual router."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from haxlb.model.instance import Role, VrrpInstance
from haxlb.sim.lan import Nic

if TYPE_CHECKING:
    from haxlb.sim.processes import Processes

RouterKey = tuple[str, int]
"""Segment and VRID (of IPv6: VRID + 256): what all directors of one virtual router share."""


class Process(Enum):
    """State of haxlb's processes on a director."""

    RUNNING = "running"
    FROZEN = "frozen"
    DEAD = "dead"


@dataclass(slots=True, kw_only=True, eq=False)
class Membership:
    """What a director is in one virtual router."""

    director: Processes
    instance: VrrpInstance
    router: RouterKey
    nic: Nic
    slowest_us: int = 0
    """The longest advert interval that the instance has had: others may have learned it."""
    reloaded: bool = False
    """Whether its settings are no longer those of the beginning."""
    names: list[str] = field(default_factory=list)
    """All that the instance has had, the present one last."""
    colleagues: list[Membership] = field(default_factory=list, repr=False)
    """All members of this router, itself included."""

    @property
    def circle(self) -> list[Membership]:
        """The members of its sync group on this director, itself included; without a group itself alone."""
        director = self.director
        group = next((each for each in director.config.sync_groups if self.instance.name in each.members), None)
        if group is None:
            return [self]
        return [each for each in director.memberships if each.instance.name in group.members]

    @property
    def outvoted(self) -> bool:
        """Whether it is in a sync group, which may have left MASTER for another member's sake."""
        return len(self.circle) > 1

    @property
    def role(self) -> Role:
        """As reported last."""
        return self.director.roles.get(self.instance.name, Role.INIT)

    @property
    def runs(self) -> bool:
        """Whether its speaker runs: a frozen one cannot be blamed for what it does not do."""
        return self.director.process is Process.RUNNING and self.director.has_speaker

    @property
    def speaks(self) -> bool:
        """Whether its adverts leave the host and it hears others."""
        return self.runs and self.nic.carrier

    @property
    def is_live_master(self) -> bool:
        """MASTER, and able to say so."""
        return self.role is Role.MASTER and self.speaks

    def __str__(self) -> str:
        return f"{self.director.name} ({self.instance.name})"


def memberships_of(director: Processes) -> tuple[Membership, ...]:
    """One for each of its instances."""
    return tuple(
        Membership(
            director=director,
            instance=each,
            router=(director.nics[each.interface].segment, each.key[1]),
            nic=director.nics[each.interface],
            names=[each.name],
            slowest_us=each.advert_interval_us,
        )
        for each in director.config.instances
    )
