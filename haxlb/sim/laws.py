"""The laws of DESIGN section 6 that a drill checks, after every event that can have touched them.

L1  one voice: directors that hear each other are down to one MASTER per virtual router after the protocol's window
L2  a VIP is on the interface if, and only if, its instance is MASTER
L4  a director that can run has, or is, a MASTER within master_down_interval + skew_time
L6  a split brain raises its alarm within two windows, its end clears it, and without one there is no alarm
L10 the same seed gives the same trace (checked by `haxlb.sim.drill`, which runs it twice)

A law with a term is a condition that must not hold for longer than that: it is looked at when something changes, and
once more when the term is over. So checking costs nothing while nothing happens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from haxlb.model.facts import AlarmCleared, AlarmRaised
from haxlb.model.node import SECOND_US, Role, VrrpInstance
from haxlb.sim.broker import LATENCY_US as BROKER_LATENCY_US
from haxlb.sim.broker import Broker
from haxlb.sim.lan import Lan
from haxlb.sim.ledger import Ledger
from haxlb.sim.loop import Timer, VirtualLoop
from haxlb.sim.membership import Membership, RouterKey
from haxlb.splitbrain import protocol_window_us
from haxlb.splitbrain.watch import ARP_SILENCE_US, LAST_WILL_US
from haxlb.splitbrain.window import master_down_interval_us

EPSILON_US = 2_000
"""For the events of one and the same moment to take place one after the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Breach:
    """A law was broken."""

    law: str
    at_us: int
    sentence: str

    def __str__(self) -> str:
        return f"{self.law}: {self.sentence}"


class Laws:
    """Looks on; changes nothing."""

    def __init__(self, *, loop: VirtualLoop, lan: Lan, broker: Broker | None, ledger: Ledger) -> None:
        self._loop = loop
        self._lan = lan
        self._broker = broker
        self._ledger = ledger
        self._terms: dict[tuple[object, ...], Timer] = {}
        self._split: dict[RouterKey, bool] = {}
        self._split_ended_us: dict[RouterKey, int] = {}
        self.breaches: list[Breach] = []

    def look(self, routers: dict[RouterKey, list[Membership]]) -> None:
        """Something has changed: judge the moment."""
        for key, members in routers.items():
            masters = [each for each in members if each.is_live_master]
            split = len(masters) > 1
            if self._split.get(key) and not split:
                self._split_ended_us[key] = self._loop.now_us
            self._split[key] = split
            self._one_voice(members, masters)
            for each in members:
                self._vip_iff_master(each)
                self._a_master(each, masters)
                self._an_alarm(each, masters)

    def alarm(self, member: Membership, alarm: AlarmRaised | AlarmCleared) -> None:
        """A director raised or cleared the split-brain alarm of this instance."""
        if not isinstance(alarm, AlarmRaised):
            return
        # What was seen may be a message that was under way when its sender yielded.
        tolerance = self._lan.longest_latency_us + BROKER_LATENCY_US + EPSILON_US
        ended = self._split_ended_us.get(member.router)
        just_now = ended is not None and self._loop.now_us - ended <= tolerance
        if not just_now and sum(each.is_live_master for each in member.colleagues) < 2:  # noqa: PLR2004 - two voices
            self._break("L6", f"{member} raised {alarm.key} although there was no other MASTER")

    def _one_voice(self, members: list[Membership], masters: list[Membership]) -> None:
        for index, one in enumerate(members):
            for other in members[index + 1 :]:
                hear = self._lan.reaches(one.nic, other.nic) and self._lan.reaches(other.nic, one.nic)
                intervals = (one.instance.advert_interval_us, other.instance.advert_interval_us)
                window = max(intervals) + 2 * self._lan.longest_latency_us
                if self._lan.lossy:
                    window = max(protocol_window_us(one.instance), protocol_window_us(other.instance))
                self._term(
                    ("L1", one, other),
                    hear and one in masters and other in masters,
                    window,
                    f"{one} and {other} hear each other and were both MASTER for more than {_s(window)}",
                )

    def _vip_iff_master(self, member: Membership) -> None:
        director = member.director
        if not member.runs:
            return
        present = director.addresses.present
        held = {vip for each in director.memberships if each.role is Role.MASTER for vip in each.instance.vips}
        for vip in member.instance.vips:
            if member.role is Role.MASTER and vip not in present:
                self._break("L2", f"{member} is MASTER and {vip.address} is not on {vip.interface}")
            elif vip not in held and vip in present:
                self._break("L2", f"{member} is {member.role.value} and {vip.address} is still on {vip.interface}")

    def _a_master(self, member: Membership, masters: list[Membership]) -> None:
        eligible = member.speaks and member.role in (Role.BACKUP, Role.MASTER)
        led = any(each is member or self._lan.reaches(each.nic, member.nic) for each in masters)
        term = longest_down_us(member.instance, member.colleagues) + self._lan.longest_latency_us
        sentence = f"{member} can run and had no MASTER to hear for {_s(term)}"
        self._term(("L4", member), eligible and not led, term, sentence)

    def _an_alarm(self, member: Membership, masters: list[Membership]) -> None:
        key = f"split-brain/{member.instance.name}"
        others = [each for each in masters if each is not member]
        raised = key in member.director.alarms
        window = protocol_window_us(member.instance)
        slow = max(SECOND_US, *(each.instance.advert_interval_us for each in member.colleagues))
        seen = member in masters and any(self._shows(each, member) for each in others)
        # A claim is repeated once a second at most: it counts after the window and the claims on either side of it.
        term = max(2 * window, window + 2 * slow) + self._lan.longest_latency_us + BROKER_LATENCY_US
        self._term(
            ("L6 raise", member),
            seen and not raised,
            term * 3 if self._lan.lossy else term,
            f"{member} had another MASTER beside it for {_s(term)} and raised no alarm",
        )
        term = max(2 * window, ARP_SILENCE_US) + slow + (LAST_WILL_US if self._broker is not None else 0)
        sentence = f"{member} still had its alarm {_s(term)} after the split brain was over"
        self._term(("L6 clear", member), raised and member.runs and not others, term, sentence)

    def _shows(self, other: Membership, member: Membership) -> bool:
        """Whether `member` can know that `other` is MASTER: it hears it, or both talk to the broker."""
        if self._lan.reaches(other.nic, member.nic):
            return True
        broker = self._broker
        return broker is not None and broker.connected(other.director.name) and broker.connected(member.director.name)

    def _term(self, key: tuple[object, ...], holds: bool, limit_us: int, sentence: str) -> None:  # noqa: FBT001
        timer = self._terms.get(key)
        if not holds:
            if timer is not None:
                timer.cancel()
                del self._terms[key]
        elif timer is None:
            over = self._loop.now_us + limit_us + EPSILON_US
            self._terms[key] = self._loop.at(over, partial(self._break, str(key[0])[:2].strip(), sentence))

    def _break(self, law: str, sentence: str) -> None:
        breach = Breach(law=law, at_us=self._loop.now_us, sentence=sentence)
        if not any(each.law == law and each.sentence == sentence for each in self.breaches):
            self.breaches.append(breach)
            self._ledger.note("LAW BROKEN", str(breach))


def longest_down_us(instance: VrrpInstance, members: Iterable[Membership]) -> int:
    """How long this instance may wait for a MASTER: version 3 learns the interval of the one that it lost."""
    interval = instance.advert_interval_us
    if instance.version != 2:  # noqa: PLR2004 - version 2 has one interval for all
        interval = max(interval, *(each.instance.advert_interval_us for each in members))
    skew = master_down_interval_us(instance) - 3 * instance.advert_interval_us
    scaled = skew * interval // instance.advert_interval_us if instance.version != 2 else skew  # noqa: PLR2004
    return 3 * interval + 2 * scaled


def _s(span_us: int) -> str:
    return f"{span_us / SECOND_US:.3f} s"
