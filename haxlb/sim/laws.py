"""The laws of DESIGN section 6 that a drill checks, after every event that can have touched them.

L1  one voice: directors that hear each other are down to one MASTER per virtual router after the protocol's window
L2  what follows the master (VIPs, routes, rules) is on the host if, and only if, its instance is MASTER
L4  a director that can run has, or is, a MASTER within master_down_interval + skew_time
L5  each change of a role is told once, in order, to the operator, to MQTT and to the history (`haxlb.sim.accounts`)
L6  a split brain raises its alarm within two windows, its end clears it, and without one there is no alarm
L8  adverts are on time, and none is sent without a cause (`haxlb.sim.pace`)
L10 the same seed gives the same trace (checked by `haxlb.sim.drill`, which runs it twice)

Two more are the simulator's own:

L11 announcements: of a MASTER only, with a cause, and few (`haxlb.sim.pace`)
L12 clients follow the master: within an advert interval after a MASTER has yielded to another one they send to that

A law with a term is a condition that must not hold for longer than that: it is looked at when something changes, and
once more when the term is over. So checking costs nothing while nothing happens. Where a frame is lost by bad luck the
term of L1 begins anew, and L12 is not judged: the protocol cannot know what it was not told.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import combinations

from haxlb.model.facts import AlarmCleared, AlarmRaised, RoleChanged
from haxlb.model.instance import Role, VrrpInstance
from haxlb.model.units import SECOND_US
from haxlb.sim.broker import LATENCY_US as BROKER_LATENCY_US
from haxlb.sim.broker import Broker
from haxlb.sim.client import Client
from haxlb.sim.lan import Lan
from haxlb.sim.ledger import Ledger
from haxlb.sim.loop import Timer, VirtualLoop
from haxlb.sim.membership import Membership, RouterKey
from haxlb.splitbrain import protocol_window_us
from haxlb.splitbrain.watch import ARP_SILENCE_US, LAST_WILL_US
from haxlb.vrrp.holdings import addresses
from haxlb.vrrp.timers import skew_time

EPSILON_US = 2_000
"""For the events of one and the same moment to take place one after the other."""
DARK_US = 5_000
"""How much longer than an advert interval clients may send to one that is MASTER no more."""


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

    def __init__(
        self,
        *,
        loop: VirtualLoop,
        lan: Lan,
        broker: Broker | None,
        ledger: Ledger,
        clients: tuple[Client, ...] = (),
        alarms: bool = True,
    ) -> None:
        """`alarms`: judge L6."""
        self._clients = {each.segment: each for each in clients}
        self._judges_alarms = alarms
        self._yielded: dict[Membership, None] = {}
        """Were MASTER, are BACKUP, and have left clients to another MASTER that they heard."""
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
                self._on_iff_master(each)
                self._a_master(each, masters)
                self._clients_follow(each, masters)
                if self._judges_alarms:
                    self._an_alarm(each, masters)

    def role_changed(self, member: Membership, fact: RoleChanged) -> None:
        """A speaker has reported a change."""
        self._yielded.pop(member, None)
        if fact.before is Role.MASTER and fact.after is Role.BACKUP:
            self.last_word(member.router)
        others = [each for each in member.colleagues if each is not member and each.is_live_master]
        if fact.before is Role.MASTER and fact.after is Role.BACKUP and len(others) == 1 and not member.outvoted:
            self._yielded[member] = None

    def restart(self, members: Iterable[Membership]) -> None:
        """Other settings or priorities: what has begun is counted from now on."""
        routers = {each.router for each in members}
        for key, timer in list(self._terms.items()):
            if any(isinstance(each, Membership) and each.router in routers for each in key):
                timer.cancel()
                del self._terms[key]

    def last_word(self, router: RouterKey) -> None:
        """One that is MASTER no more has said its last word (haxlb.vrrp.farewell): it may be taken for a MASTER's."""
        for key, timer in list(self._terms.items()):
            if key[0] == "L4" and isinstance(key[1], Membership) and key[1].router == router:
                timer.cancel()
                del self._terms[key]

    def accuse(self, law: str, sentence: str) -> None:
        """Whoever else looks on has seen a law broken."""
        self._break(law, sentence)

    def alarm(self, member: Membership, alarm: AlarmRaised | AlarmCleared) -> None:
        """A director raised or cleared the split-brain alarm of this instance."""
        if not isinstance(alarm, AlarmRaised) or not self._judges_alarms:
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
                self._term(
                    ("L1", one, other),
                    hear and _agree(one, other) and one in masters and other in masters,
                    window,
                    f"{one} and {other} hear each other and were both MASTER for more than {_s(window)}",
                    (one.director.name, other.director.name),
                )

    def _on_iff_master(self, member: Membership) -> None:
        director = member.director
        if not member.runs:
            return
        present = director.addresses.present
        masters = [each for each in director.memberships if each.role is Role.MASTER]
        held = {vip for each in masters for vip in addresses(each.instance)}
        for vip in addresses(member.instance):
            if member.role is Role.MASTER and vip not in present:
                self._break("L2", f"{member} is MASTER and {vip.address} is not on {vip.interface}")
            elif vip not in held and vip in present:
                self._break("L2", f"{member} is {member.role.value} and {vip.address} is still on {vip.interface}")
        entries = (*member.instance.routes, *member.instance.rules)
        if entries:
            routed = {entry for each in masters for entry in (*each.instance.routes, *each.instance.rules)}
            for entry in entries:
                if (entry in routed) is not (entry in director.kernel.routes.present):
                    self._break("L2", f"{member} is {member.role.value}, and the kernel's routes are not: {entry}")

    def _a_master(self, member: Membership, masters: list[Membership]) -> None:
        circle = member.circle
        eligible = all(self._waits(each) for each in circle) and member not in masters
        terms = [longest_down_us(each.instance, each.colleagues) for each in circle]
        term = max(terms) + self._lan.longest_latency_us + member.director.config.speaker.startup_delay_us
        sentence = f"{member} can run and had no MASTER to hear for {_s(term)}"
        self._term(("L4", member), eligible, term, sentence)

    def _waits(self, member: Membership) -> bool:
        """Whether it could be MASTER, and hears none that is not itself."""
        if not member.speaks or member.role not in (Role.BACKUP, Role.MASTER):
            return False
        others = (each for each in member.colleagues if each is not member and each.is_live_master)
        return not any(self._lan.reaches(each.nic, member.nic) and _agree(each, member) for each in others)

    def _clients_follow(self, member: Membership, masters: list[Membership]) -> None:
        """A MASTER that heard a better one and yielded has clients that believe it: they must be told."""
        key = ("L12", member)
        if member not in self._yielded and key not in self._terms:
            return
        winner = masters[0] if len(masters) == 1 else None
        astray = False
        if winner is not None and member in self._yielded and not winner.instance.lower_prio_no_advert:
            hear = self._lan.reaches(member.nic, winner.nic) and self._lan.reaches(winner.nic, member.nic)
            astray = hear and member.speaks and self._believed(member, winner)
        if not astray:
            self._yielded.pop(member, None)
        interval = max(each.instance.advert_interval_us for each in member.colleagues)
        limit = interval + DARK_US + 2 * self._lan.longest_latency_us
        if winner is not None and winner.director.bench.is_hoarse(winner.instance.key):
            limit += SECOND_US  # three contests a second are answered, the fourth must wait (haxlb.vrrp.contest)
        sentence = f"clients sent to {member} for {_s(limit)} after it had yielded to {winner}"
        hosts = (member.director.name, "clients", *(each.director.name for each in masters[:1]))
        self._term(key, astray, limit, sentence, hosts)

    def _believed(self, member: Membership, winner: Membership) -> bool:
        for vip in addresses(member.instance):
            nic = member.director.nics[vip.interface]
            client = self._clients.get(nic.segment)
            if (
                client is not None
                and vip not in member.director.addresses.present
                and client.believes(vip.address) == member.director.name
                and winner.director.nics[vip.interface].segment == nic.segment
                and self._lan.reaches(winner.director.nics[vip.interface], client.nic)
            ):
                return True
        return False

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
            term * 3 if self._lan.lost else term,
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

    def _term(
        self,
        key: tuple[object, ...],
        holds: bool,  # noqa: FBT001 - the condition
        limit_us: int,
        sentence: str,
        hosts: tuple[str, ...] = (),
    ) -> None:
        """`hosts`: a frame lost between any two of them makes it begin anew."""
        timer = self._terms.get(key)
        if not holds:
            if timer is not None:
                timer.cancel()
                del self._terms[key]
        elif timer is None:
            over = self._loop.now_us + limit_us + EPSILON_US
            self._terms[key] = self._loop.at(over, partial(self._over, key, limit_us, sentence, hosts))

    def _over(self, key: tuple[object, ...], limit_us: int, sentence: str, hosts: tuple[str, ...]) -> None:
        lost_at = max((self._lan.lost_at(*pair) for pair in combinations(hosts, 2)), default=-1)
        over = lost_at + limit_us + EPSILON_US
        if lost_at >= 0 and over > self._loop.now_us:
            if key[0] == "L12":
                # What is announced is announced once: who has not got it must ask.
                del self._terms[key]
                self._yielded = {each: None for each in self._yielded if each is not key[1]}
                return
            self._terms[key] = self._loop.at(over, partial(self._over, key, limit_us, sentence, hosts))
            return
        self._break(str(key[0]).split()[0], sentence)

    def _break(self, law: str, sentence: str) -> None:
        breach = Breach(law=law, at_us=self._loop.now_us, sentence=sentence)
        if not any(each.law == law and each.sentence == sentence for each in self.breaches):
            self.breaches.append(breach)
            self._ledger.note("LAW BROKEN", str(breach))


def longest_down_us(instance: VrrpInstance, members: Iterable[Membership]) -> int:
    """How long this instance may wait for a MASTER: version 3 learns the interval of the one that it lost."""
    interval = instance.advert_interval_us
    if instance.version != 2:  # noqa: PLR2004 - version 2 has one interval for all
        interval = max(interval, *(each.slowest_us for each in members))
    # What is tracked may have made its priority the lowest.
    priority = 1 if any(each.weight for each in instance.tracks) else instance.priority
    return instance.down_timer_adverts * interval + 2 * skew_time(instance.version, priority, interval)


def _agree(one: Membership, other: Membership) -> bool:
    """Version 2 demands equal intervals: while a reload has reached one of them only they do not believe each other."""
    if one.instance.advert_interval_us == other.instance.advert_interval_us or one.instance.version != 2:  # noqa: PLR2004
        return True
    return not (one.reloaded or other.reloaded)


def _s(span_us: int) -> str:
    return f"{span_us / SECOND_US:.3f} s"
