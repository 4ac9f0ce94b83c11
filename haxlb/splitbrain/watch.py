"""What is known of one instance: our role in it, and the evidence that somebody else is MASTER too."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Address

from haxlb.model.facts import ForeignAdvertHeard, ForeignMacHeard, PeerClaimed
from haxlb.model.node import Role, VrrpInstance
from haxlb.splitbrain.evidence import Sightings, StandingClaim, seconds
from haxlb.splitbrain.window import protocol_window_us

LAST_WILL_US = 15_000_000
"""A broker takes a dead client's claim back after one and a half keepalives (MQTT 3.1.1 section 3.1.2.10) of 10 s."""


@dataclass(slots=True)
class InstanceWatch:
    """Evidence for one instance; only what is seen while we are MASTER counts."""

    instance: VrrpInstance
    role: Role = Role.INIT
    master_since_us: int = 0
    window_us: int = 0
    """master_down_interval and one advert; follows what the speaker says of its own interval."""
    adverts: dict[IPv4Address, Sightings] = field(default_factory=dict)
    macs: dict[tuple[IPv4Address, str], Sightings] = field(default_factory=dict)
    """Foreign MACs of known directors, by VIP and MAC."""
    claims: dict[str, StandingClaim] = field(default_factory=dict)
    look_us: int | None = None
    """When time alone will change the verdict; None = not before the next fact."""

    def __post_init__(self) -> None:
        self.window_us = self.window_us or protocol_window_us(self.instance)

    def reconfigure(self, instance: VrrpInstance) -> None:
        """Take the changed instance; role and evidence stay."""
        self.instance = instance
        self.window_us = protocol_window_us(instance)

    def enter(self, role: Role, now: int) -> None:
        """Our own role has changed: evidence starts from nothing, claims must be repeated to count."""
        self.role = role
        self.master_since_us = now
        self.adverts.clear()
        self.macs.clear()
        for claim in self.claims.values():
            claim.fresh_since_us = None

    def see_advert(self, fact: ForeignAdvertHeard, now: int) -> None:
        """Another's advert while we are MASTER.

        The series ends with a silence of three adverts: a director that yields and comes back needs longer than
        that to become MASTER again, so a flapping one never adds up to a standing one.
        """
        if self.role is not Role.MASTER:
            return
        self.window_us = fact.master_down_interval_us + self.instance.advert_interval_us
        gap_us = 3 * self.instance.advert_interval_us
        detail = f"priority {fact.priority}"
        seen = self.adverts.setdefault(fact.address, Sightings(first_us=now, last_us=now, count=0))
        seen.see(now, gap_us=gap_us, detail=detail)

    def see_mac(self, fact: ForeignMacHeard, now: int, *, gap_us: int) -> None:
        """A known director's MAC on one of our VIPs while we are MASTER."""
        if self.role is not Role.MASTER:
            return
        key = (fact.vip, fact.mac)
        seen = self.macs.setdefault(key, Sightings(first_us=now, last_us=now, count=0))
        seen.see(now, gap_us=gap_us, detail=f"director {fact.director}")

    def see_claim(self, fact: PeerClaimed, now: int) -> None:
        """Another node says that it is MASTER, or no longer."""
        if not fact.master:
            self.claims.pop(fact.node, None)
            return
        claim = self.claims.setdefault(fact.node, StandingClaim(since_us=now))
        if self.role is Role.MASTER:
            claim.repeat(now)

    def standing(self, now: int) -> bool:
        """Whether any evidence has outlasted the protocol's window."""
        if self.role is not Role.MASTER:
            return False
        seen = (*self.adverts.values(), *self.macs.values())
        if any(each.length_us >= self.window_us and now - each.last_us < self.window_us for each in seen):
            return True
        if any(claim.length_us >= self.window_us for claim in self.claims.values()):
            return True
        return any(now >= self._certain_at(claim) for claim in self.claims.values())

    def silent(self, now: int) -> bool:
        """Whether nothing was seen for a window and no claim stands."""
        return not self._claimed(now) and now >= self._silent_at()

    def plan(self, now: int, *, raised: bool) -> None:
        """Set `look_us`: when the passing of time alone will raise or clear the alarm."""
        if self.role is not Role.MASTER:
            self.look_us = None
        elif raised:
            self.look_us = None if self._claimed(now) else self._silent_at()
        else:
            self.look_us = min(map(self._certain_at, self.claims.values()), default=None)

    def lines(self, now: int) -> tuple[str, ...]:
        """The evidence in words, oldest kind first."""
        out = [
            f"adverts of {address} for VRID {self.instance.vrid}, {seen.detail}: "
            f"{seen.count} in {seconds(seen.length_us)}, the last {seconds(now - seen.last_us)} ago"
            for address, seen in self.adverts.items()
        ]
        out += [
            f"{mac} ({seen.detail}) announces or answers ARP for our VIP {vip}: seen {seen.count} times "
            f"in {seconds(seen.length_us)}"
            for (vip, mac), seen in self.macs.items()
        ]
        out += [
            f"{node} claims on MQTT to be MASTER of VRID {self.instance.vrid}, "
            f"for {seconds(now - max(claim.since_us, self.master_since_us))} beside us"
            for node, claim in self.claims.items()
        ]
        return tuple(out)

    def others(self) -> str:
        """Who the others are, for a summary."""
        directors = [str(address) for address in self.adverts]
        directors += [seen.detail.removeprefix("director ") for seen in self.macs.values()]
        return ", ".join(dict.fromkeys([*directors, *self.claims])) or "another director"

    def _claimed(self, now: int) -> bool:
        return any(claim.fresh_since_us is not None or now >= self._certain_at(claim) for claim in self.claims.values())

    def _silent_at(self) -> int:
        seen = (*self.adverts.values(), *self.macs.values())
        return max((each.last_us for each in seen), default=self.master_since_us) + self.window_us

    def _certain_at(self, claim: StandingClaim) -> int:
        """From here on even an unrepeated claim counts: the last will of a dead author would have taken it back."""
        return max(claim.since_us, self.master_since_us) + LAST_WILL_US + self.window_us
