"""What each scheduler that compares servers compares, as the oracle knows it: IPVS's formulas (ip_vs_*.c of Linux).

Of equals the first in the list wins. Servers of weight 0, dead and full ones are not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from haxlb.model.virtual_server import Scheduler

LOCALITY_EXPIRES_S: Final = 24 * 60 * 60
"""A set of lblcr that has not changed for so long gives up a server (sysctl_lblcr_expiration)."""
LOCALITY_SERVERS: Final = 8
"""Of one destination's set; IPVS has no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A server as a scheduler sees it."""

    key: str
    weight: int
    active: int
    inactive: int

    @property
    def overhead(self) -> int:
        """ip_vs_dest_conn_overhead: an active connection weighs 256 inactive ones."""
        return 256 * self.active + self.inactive


Cost = Callable[[Candidate], Fraction | None]
"""What is compared: the least is the best, None is out of the question."""


def _lc(server: Candidate) -> Fraction:
    return Fraction(server.overhead)


def _wlc(server: Candidate) -> Fraction:
    return Fraction(server.overhead, server.weight)


def _sed(server: Candidate) -> Fraction:
    return Fraction(server.active + 1, server.weight)


def _nq(server: Candidate) -> Fraction:
    return _sed(server) if server.active else Fraction(0)


def _fo(server: Candidate) -> Fraction:
    return Fraction(-server.weight)


def _ovf(server: Candidate) -> Fraction | None:
    return None if server.active > server.weight else Fraction(-server.weight)


COSTS: Final[Mapping[Scheduler, Cost]] = {
    Scheduler.LC: _lc,
    Scheduler.WLC: _wlc,
    Scheduler.SED: _sed,
    Scheduler.NQ: _nq,
    Scheduler.FO: _fo,
    Scheduler.OVF: _ovf,
    Scheduler.TWOS: _wlc,
    Scheduler.LBLC: _wlc,
    Scheduler.LBLCR: _wlc,
}


def least(scheduler: Scheduler, servers: Sequence[Candidate]) -> str | None:
    """Key of the best server."""
    costs = [(cost, server.key) for server in servers if (cost := COSTS[scheduler](server)) is not None]
    return min(costs, key=lambda each: each[0])[1] if costs else None


def better(first: Candidate, second: Candidate) -> str:
    """twos: of two that chance named, the second only where it has less to do."""
    return second.key if _wlc(second) < _wlc(first) else first.key


def is_busy(server: Candidate, others: Sequence[Candidate]) -> bool:
    """Lblc and lblcr: it has more connections than weight, while another has less than half of its own weight."""
    return server.active > server.weight and any(2 * other.active < other.weight for other in others)


@dataclass(slots=True, kw_only=True)
class Locality:
    """The servers that a destination address keeps to: one with lblc, a set with lblcr."""

    places: list[str | None] = field(default_factory=lambda: [None] * LOCALITY_SERVERS)
    modified_s: float = 0.0

    def find(self, usable: Mapping[str, Candidate], now_s: float) -> str | None:
        """The least loaded of those that can get flows; now and then the set gives up the most loaded one."""
        members = [(place, usable[key]) for place, key in enumerate(self.places) if key in usable and key is not None]
        if not members:
            return None
        best = min(members, key=lambda each: _wlc(each[1]))[1]
        if len(members) > 1 and now_s - self.modified_s > LOCALITY_EXPIRES_S:
            # max() takes the first of equals, as the kernel's set does.
            worst = max(members, key=lambda each: _wlc(each[1]))[0]
            self.places[worst] = None
            self.modified_s = now_s
        return best.key

    def note(self, key: str, usable: Mapping[str, Candidate], now_s: float, *, replicates: bool) -> None:
        """It keeps to this server from now on: lblc to it alone, lblcr also to the others."""
        if not replicates:
            self.places[0] = key
        elif key in self.places:
            return
        else:
            # The place of one that cannot get flows, else the last.
            free = [place for place, member in enumerate(self.places) if member is None or member not in usable]
            self.places[min(free, default=LOCALITY_SERVERS - 1)] = key
        self.modified_s = now_s
