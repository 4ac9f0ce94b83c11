"""What is known of one instance: our role in it, and the evidence that somebody else is MASTER too."""

from __future__ import annotations

from dataclasses import dataclass, field

from haxlb.model.addresses import IPAddress
from haxlb.model.facts import AdvertRejected, ForeignAdvertHeard, ForeignMacHeard, PeerClaimed
from haxlb.model.instance import Role, VrrpInstance
from haxlb.model.units import SECOND_US
from haxlb.splitbrain.evidence import Series, StandingClaim, seconds
from haxlb.splitbrain.window import protocol_window_us


def last_will_us(keepalive_s: int) -> int:
    """A broker takes a dead client's claim back after one and a half keepalives (MQTT 3.1.1 section 3.1.2.10)."""
    return keepalive_s * SECOND_US * 3 // 2


LAST_WILL_US = last_will_us(10)
ARP_GAP_US = 3_500_000
"""The ARP watch asks every 3 s. A director that yields and comes back needs longer than one such pause (3 intervals
of 1 s, and the skew), so that its short appearances do not add up."""
ARP_WINDOW_US = 4 * SECOND_US
"""The least length of a series of ARP sightings: three of them, whatever the advert interval."""
ARP_SILENCE_US = 6_500_000
"""Two questions without an answer."""
SUSPICION_US = 600 * SECOND_US
"""So long a rejected advert makes its sender the likely owner of a foreign MAC. Two keepaliveds, or one and haxlb, that
refuse each other put their own adverts off at each advert that arrives, so that it may be the last one for a while."""
REJECTED_GAP_US = 3 * SECOND_US
"""Rejected adverts are reported once a second at most."""

Conflict = tuple[IPAddress, str]
"""VIP and the MAC that answers for it beside ours."""

Claimed = tuple[str, str]
"""Node, and its name for the instance."""


@dataclass(slots=True)
class InstanceWatch:
    """Evidence for one instance; only what is seen while we are MASTER counts."""

    instance: VrrpInstance
    last_will_us: int = LAST_WILL_US
    role: Role = Role.INIT
    master_since_us: int = 0
    adverts: Series[IPAddress] = field(init=False)
    rejected: Series[IPAddress] = field(init=False)
    """Adverts for our VRID that were not believed: no evidence alone, since anybody can send them."""
    suspect: AdvertRejected | None = None
    """The last advert that was not believed, in whatever role: for the words of an alarm, it is no evidence."""
    suspect_us: int = 0
    macs: Series[Conflict] = field(init=False)
    directors: dict[str, IPAddress] = field(default_factory=dict)
    """Those of the MACs that belong to another director."""
    claims: dict[Claimed, StandingClaim] = field(default_factory=dict)
    look_us: int | None = None
    """When time alone will change the verdict; None = not before the next fact."""

    def __post_init__(self) -> None:
        self._forget()

    @property
    def window_us(self) -> int:
        """The protocol's own: master_down_interval and one advert."""
        return self.adverts.window_us

    def reconfigure(self, instance: VrrpInstance) -> None:
        """Take the changed instance; role and evidence stay."""
        before = (self.adverts.by_source, self.rejected.by_source, self.macs.by_source)
        self.instance = instance
        self._forget()
        self.adverts.by_source, self.rejected.by_source, self.macs.by_source = before

    def enter(self, role: Role, now: int) -> None:
        """Our own role has changed: evidence starts from nothing, claims must be repeated to count."""
        self.role = role
        self.master_since_us = now
        self._forget()
        for claim in self.claims.values():
            claim.fresh_since_us = None

    def see_advert(self, fact: ForeignAdvertHeard, now: int) -> None:
        """Another's advert while we are MASTER."""
        if self.role is Role.MASTER:
            # The speaker knows the interval in force.
            window_us = fact.master_down_interval_us + self.instance.advert_interval_us
            self.adverts.window_us = self.adverts.silence_us = window_us
            self.adverts.see(fact.address, now, f"priority {fact.priority}")

    def see_rejected(self, fact: AdvertRejected, now: int) -> None:
        """An advert for our VRID that we did not believe."""
        self.suspect, self.suspect_us = fact, now
        if self.role is Role.MASTER:
            self.rejected.see(fact.address, now, fact.detail)

    def see_mac(self, fact: ForeignMacHeard, now: int) -> None:
        """A foreign MAC on one of our VIPs while we are MASTER."""
        if self.role is not Role.MASTER:
            return
        self.macs.see((fact.vip, fact.mac), now)
        if fact.director is not None:
            self.directors[fact.mac] = fact.director

    def see_claim(self, fact: PeerClaimed, now: int) -> None:
        """Another node says that it is MASTER, or no longer."""
        if not fact.master:
            self.claims.pop((fact.node, fact.instance), None)
            return
        claim = self.claims.setdefault((fact.node, fact.instance), StandingClaim(since_us=now))
        if self.role is Role.MASTER:
            claim.repeat(now)

    def standing(self, now: int) -> bool:
        """Whether any evidence of another MASTER has outlasted its window."""
        if self.role is not Role.MASTER:
            return False
        if any(self.adverts.standing(now)) or any(self._is_a_director(mac, now) for _, mac in self.macs.standing(now)):
            return True
        return any(
            claim.length_us >= self.window_us or now >= self._certain_at(claim) for claim in self.claims.values()
        )

    def conflicts(self, now: int) -> list[Conflict]:
        """VIPs that somebody answers for who is no director, nor likely to be one, with the MAC."""
        if self.role is not Role.MASTER or any(self.rejected.recent(now)):
            return []
        return [(vip, mac) for vip, mac in self.macs.standing(now) if mac not in self.directors]

    def likely_owner(self, now: int) -> str:
        """Who most likely has a foreign MAC that belongs to no director, in words."""
        if self.suspect is not None and now - self.suspect_us < SUSPICION_US:
            return f"the director {self.suspect.address}, whose adverts are refused: {self.suspect.detail}"
        return "a real server that has the VIP on lo without arp_ignore=1 and arp_announce=2"

    def silent(self, now: int) -> bool:
        """Whether nothing was seen of another MASTER for a window and no claim stands."""
        return not self._claimed(now) and now >= self._silent_at(now)

    def plan(self, now: int, *, raised: bool) -> None:
        """Set `look_us`: when the passing of time alone will raise or clear an alarm."""
        looks: list[int] = []
        if self.role is Role.MASTER:
            looks += [self.macs.over_at(each) for each in self.conflicts(now)]
            if not raised:
                looks += map(self._certain_at, self.claims.values())
            elif not self._claimed(now):
                looks.append(self._silent_at(now))
        self.look_us = min(looks, default=None)

    def lines(self, now: int) -> tuple[str, ...]:
        """The evidence in words."""
        vrid = self.instance.vrid
        out = [
            f"adverts of {address} for VRID {vrid}, {seen.detail}: {seen.count} in {seconds(seen.length_us)}"
            for address, seen in self.adverts.by_source.items()
        ]
        out += [
            f"adverts of {address} for VRID {vrid} that are not believed: {seen.detail}"
            for address, seen in self.rejected.by_source.items()
        ]
        out += [
            f"{self._named(mac)} announces or answers ARP for our VIP {vip}: "
            f"{seen.count} time{'' if seen.count == 1 else 's'} in {seconds(seen.length_us)}"
            for (vip, mac), seen in self.macs.by_source.items()
        ]
        out += [
            f"{node} claims on MQTT to be MASTER of VRID {vrid}, "
            f"for {seconds(now - max(claim.since_us, self.master_since_us))} beside us"
            for (node, _), claim in self.claims.items()
        ]
        return tuple(out)

    def others(self) -> str:
        """Who the others are, for a summary."""
        directors = [*self.adverts.by_source, *self.directors.values(), *self.rejected.by_source]
        return (
            ", ".join(dict.fromkeys([*map(str, directors), *(node for node, _ in self.claims)])) or "another director"
        )

    def _forget(self) -> None:
        interval = self.instance.advert_interval_us
        window = protocol_window_us(self.instance)
        # A director that yields needs more than three intervals to come again: a flapping one never adds up.
        self.adverts = Series(gap_us=3 * interval, window_us=window, silence_us=window)
        gap = max(3 * interval, REJECTED_GAP_US)
        silence = max(window, ARP_SILENCE_US)
        # Outlasts the MACs of the same director: at the end they must not look like a stranger's for a moment.
        self.rejected = Series(gap_us=gap, window_us=window, silence_us=silence + REJECTED_GAP_US)
        self.macs = Series(gap_us=ARP_GAP_US, window_us=max(window, ARP_WINDOW_US), silence_us=silence)
        self.directors = {}

    def _is_a_director(self, mac: str, now: int) -> bool:
        """Whether a MAC on our VIP is known to be a director's, or one speaks for our VRID whom we do not believe."""
        return mac in self.directors or any(self.rejected.standing(now))

    def _named(self, mac: str) -> str:
        director = self.directors.get(mac)
        return mac if director is None else f"{mac} (director {director})"

    def _claimed(self, now: int) -> bool:
        return any(claim.fresh_since_us is not None or now >= self._certain_at(claim) for claim in self.claims.values())

    def _silent_at(self, now: int) -> int:
        ends = [self.adverts.over_at(each) for each in self.adverts.by_source]
        ends += [self.macs.over_at(each) for each in self.macs.by_source if self._is_a_director(each[1], now)]
        return max(ends, default=now)

    def _certain_at(self, claim: StandingClaim) -> int:
        """From here on even an unrepeated claim counts: the last will of a dead author would have taken it back."""
        return max(claim.since_us, self.master_since_us) + self.last_will_us + self.window_us
