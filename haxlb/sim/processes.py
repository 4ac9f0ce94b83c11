"""haxlb's processes on a virtual host: what runs there, what reaches it, and what becomes of it when one of them dies.

The speaker, the tracker and most of the supervisor are the real ones. `haxlb.sim.director` is the other half of the
class: what can be done to it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from haxlb.daemon.ports import Datagram
from haxlb.daemon.speaker import Speaker
from haxlb.daemon.tracking import anything
from haxlb.model.addresses import IPAddress
from haxlb.model.facts import AdvertRejected, AlarmCleared, AlarmRaised, Fact, RoleChanged
from haxlb.model.instance import Role
from haxlb.model.notification import NotifyDue
from haxlb.model.tracking import TrackResult
from haxlb.model.units import SECOND_US
from haxlb.sim.adapters import VirtualAnnouncer, VirtualWake
from haxlb.sim.estate import Estate
from haxlb.sim.judged import Bench, JudgedAdverts, JudgedAnnouncer, JudgedNotify
from haxlb.sim.kernel import EPOCH_US, Kernel, left_to_live
from haxlb.sim.lan import Nic
from haxlb.sim.membership import Membership, Process, memberships_of
from haxlb.sim.supervisor import Supervisor
from haxlb.sim.topology import Station
from haxlb.sim.tracked import Health, Key, Tracking

if TYPE_CHECKING:
    from haxlb.sim.world import World

BEQUEST_US = (500, 5_000)
"""The supervisor notices the closed pipe, and decides what is resumed and what is given up."""
PROMOTION_US = (1_000, 8_000)
"""A spare speaker: from its orders to its first advert."""
SPARE_US = 2_500_000
"""After the start of a speaker its spare stands by."""
RESPAWN_US = 300_000
"""A new speaker: the interpreter's start."""
PIPE_US = 300
"""From one process to another."""


class Processes:
    """A host with the processes of haxlb, all of them virtual but their code; starts without power."""

    def __init__(self, station: Station, world: World, random: Random) -> None:
        self.config = station.config
        self.name = station.config.node
        self.powered = False
        self.process = Process.DEAD
        self.suspended = False
        self.roles: dict[str, Role] = {}
        self.alarms: dict[str, AlarmRaised] = {}
        self.health: dict[Key, Health] = {}
        """Of what it tracks; who is not named is well."""
        self.wall_offset_us = EPOCH_US
        """The time of day less the world's."""
        self._world = world
        self._random = random
        self.kernel = Kernel(
            station,
            receiver=self,
            lan=world.lan,
            loop=world.loop,
            on_addresses=self._on_addresses,
            on_routes=world.touch,
        )
        self.nics = self.kernel.nics
        self.addresses = self.kernel.addresses
        self._clock = self.kernel.clock
        self.memberships = memberships_of(self)
        self.bench = Bench(self.name, self._clock, self._accuse, self._last_word)
        self.bench.configure(self.config)
        self._wake = VirtualWake(world.loop, self._clock, self._on_wake)
        self._speaker: Speaker | None = None
        self._supervisor: Supervisor | None = None
        self._tracking: Tracking | None = None
        self._results: list[TrackResult] = []
        self._priorities: dict[str, int] = {}
        """As the timeline has them."""
        """On their way to the speaker."""
        self._missed: dict[str, Callable[[], None]] = {}
        self._slept_at_us = 0
        self._estate = Estate(self.kernel, lambda: self.config, self._epoch_us, self._note)
        self._spare_at_us = 0
        self._life = 0
        """Counts starts, stops and freezes: what was planned for an earlier life does not happen."""

    @property
    def has_speaker(self) -> bool:
        """Whether there is one, frozen or not."""
        return self._speaker is not None

    @property
    def speaker(self) -> Speaker:
        """The real speaker. Only while there is one."""
        assert self._speaker is not None
        return self._speaker

    @property
    def told(self) -> list[str]:
        """The lines that its operator was told since haxlb was started, where it runs."""
        return [] if self._supervisor is None else self._supervisor.fifo.lines

    def membership_of(self, name: str) -> Membership | None:
        """The part of one instance, by its present name."""
        return next((each for each in self.memberships if each.instance.name == name), None)

    def start(self) -> None:
        """Start haxlb's processes on the running host."""
        self._life += 1
        self.process = Process.RUNNING
        self._supervisor = Supervisor(
            self.config,
            loop=self._world.loop,
            clock=self._clock,
            lan=self._world.lan,
            nics=self.nics,
            addresses=self.addresses,
            broker=self._world.broker,
            heirs=self._estate,
            note=self._note,
            on_alarm=self._tell_alarm,
        )
        self._start_speaker()
        self._start_tracker()

    # -- what the world says

    def on_frame(self, nic: Nic, datagram: Datagram) -> None:
        """A VRRP message for this host's socket."""
        if self._speaker is None:
            return
        arrived = Datagram(
            interface=nic.interface,
            source=datagram.source,
            destination=datagram.destination,
            ttl=datagram.ttl,
            payload=datagram.payload,
            ah=datagram.ah,
            ip_header=datagram.ip_header,
            at_us=self._clock.now(),
        )
        if self.process is Process.RUNNING:
            self.bench.heard(arrived)
            self._speaker.on_datagram(arrived)
        else:
            self.kernel.adverts.queue.append(arrived)
            self._missed.setdefault("drain", self._drain)

    def on_announcement(self, nic: Nic, sender: Nic, vips: tuple[IPAddress, ...]) -> None:
        """Gratuitous ARP; of interest where it is about an address that we hold."""
        if self._supervisor is not None and self.process is Process.RUNNING:
            for vip in vips:
                self._supervisor.arp_watch.hear(nic, sender, vip)

    def answers(self, nic: Nic, address: IPAddress) -> bool:
        """The kernel answers, whatever its processes do."""
        return self.kernel.answers(nic, address)

    def report(self, fact: Fact) -> None:
        """ReportPort: a fact of the speaker."""
        if isinstance(fact, RoleChanged):
            self.roles[fact.instance] = fact.after
            member = self.membership_of(fact.instance)
            if member is not None:
                self.bench.changed(fact, member.instance.key)
                self._world.laws.role_changed(member, fact)
            self._note(f"{fact.instance}: {fact.before.value} -> {fact.after.value}: {fact.reason}")
            self._world.touch()
            self._take_role(fact)
            return
        if isinstance(fact, AdvertRejected):
            self._world.note_once(self.name, f"rejects an advert of {fact.address}: {fact.detail}")
        elif isinstance(fact, AlarmRaised | AlarmCleared):
            self._tell_alarm(fact)
        self._take(fact)

    # -- inside

    def _start_speaker(self) -> None:
        self.kernel.adverts.queue = []
        self.bench.begin()
        self._speaker = self._world.speaker_class(
            clock=self._clock,
            wake=self._wake,
            adverts=JudgedAdverts(self.kernel.adverts, self.bench),
            addresses=self.addresses,
            routes=self.kernel.routes,
            announcer=JudgedAnnouncer(VirtualAnnouncer(self._world.lan, self.nics), self.bench),
            links=self.kernel.links,
            notify=JudgedNotify(self._notify, self.bench),
            reports=self,
            recorder=self._estate.record,
            epoch_offset_us=self._epoch_us() - self._clock.now(),
        )
        self._spare_at_us = self._world.loop.now_us + SPARE_US
        assert self._supervisor is not None
        orders = self._supervisor.speaker_orders()
        self._speaker.configure(
            orders.instances,
            orders.sync_groups,
            orders.settings,
            successions=orders.successions,
            results=orders.results,
        )
        self._resume_roles([each.instance for each in orders.successions])
        if self._supervisor.standing.results:
            self._speaker.on_tracked(self._supervisor.standing.results.values())
        self._priorities = {each.name: each.priority for each in self._speaker.status(0)}
        self._world.touch()

    def _resume_roles(self, names: list[str]) -> None:
        """Those that go on as MASTER have not changed, so nobody reports it."""
        for each in self.speaker.status(0) if names else ():
            member = self.membership_of(each.name)
            if member is not None and each.name in names and each.role is Role.MASTER:
                self._note(f"{each.name}: goes on as MASTER")
                self.roles[each.name] = Role.MASTER
                self.bench.resumed(each.name, member.instance.key)

    def _start_tracker(self) -> None:
        if self._supervisor is None:
            return
        orders = self._supervisor.standing.tracker_orders()
        if self._tracking is None:
            if not anything(orders):
                return
            self._tracking = Tracking(
                loop=self._world.loop,
                clock=self._clock,
                health=self.health,
                when=self._when_running,
                on_tracked=self._on_results,
                on_fact=self._take,
            )
        self._tracking.configure(self.config, orders)

    def _epoch_us(self) -> int:
        return self._world.loop.now_us + self.wall_offset_us

    def _on_results(self, results: tuple[TrackResult, ...]) -> None:
        """From the tracker by way of the supervisor to the speaker."""
        if self._supervisor is not None:
            self._supervisor.take_results(results)
        self._results += results
        self._world.loop.after(PIPE_US, partial(self._when_running, "results", self._deliver_results))

    def _deliver_results(self) -> None:
        results, self._results = self._results, []
        if results and self._speaker is not None:
            self.bench.disturb()
            self._speaker.on_tracked(results)
            self._tell_priorities()
            self._world.laws.restart(self.memberships)
            self._world.touch()

    def _tell_priorities(self) -> None:
        """What tracked things have made of them."""
        for each in self.speaker.status(0):
            before = self._priorities.get(each.name, each.base_priority)
            self._priorities[each.name] = each.priority
            if each.priority != before:
                why = ", ".join(f"{one.name} {one.change:+d}" for one in each.contributions if one.change)
                self._note(f"{each.name}: priority {before} -> {each.priority}: {why or 'as configured'}")

    def _when_running(self, key: str, what: Callable[[], None]) -> None:
        if self.process is Process.FROZEN:
            self._missed.setdefault(key, what)
        elif self.process is Process.RUNNING:
            what()

    def _bereave_later(self) -> None:
        delay_us = self._random.randrange(*BEQUEST_US)
        self._world.loop.after(delay_us, partial(self._bereave, self._life))

    def _bereave(self, life: int) -> None:
        if life != self._life or self.process is not Process.RUNNING or self._supervisor is None:
            return
        successor = self.config.speaker.spare and self._world.loop.now_us >= self._spare_at_us
        self._supervisor.bereaved(self._estate.statuses, successor=successor)
        delay_us = self._random.randrange(*PROMOTION_US) if successor else RESPAWN_US
        self._world.loop.after(delay_us, partial(self._respawn, life))

    def _respawn(self, life: int) -> None:
        if life == self._life and self.process is Process.RUNNING:
            self._note("a new speaker starts")
            self._start_speaker()

    def _die(self) -> None:
        self._life += 1
        self.process = Process.DEAD
        self._close_speaker()
        if self._tracking is not None:
            self._tracking.close()
            self._tracking = None
        self._results = []
        if self._supervisor is not None:
            self._supervisor.close()
            self._supervisor = None
        self.roles = {}
        self.alarms = {}
        self._world.touch()

    def _close_speaker(self) -> None:
        self.bench.end()
        self._speaker = None
        self._wake.close()
        self._missed = {}
        self.addresses.held.clear()
        self._world.touch()

    def _expire_later(self) -> None:
        left_us = left_to_live(self.config.speaker.vip_lifetime_s * SECOND_US, self._random)
        if left_us is not None:
            self._world.loop.after(left_us, partial(self._expire, self._life))

    def _expire(self, life: int) -> None:
        if life == self._life and self.addresses.present:
            self._note("the kernel takes the addresses off: nobody renewed them")
            self.addresses.expire()

    def _set_carriers(self, *, up: bool, interfaces: tuple[str, ...]) -> None:
        self.bench.disturb()
        for interface in interfaces:
            self.nics[interface].carrier = up
            self._tell_link(interface)
        self._world.touch()

    def _tell_link(self, interface: str) -> None:
        if self.process is Process.FROZEN:
            self._missed.setdefault(f"link {interface}", partial(self._tell_link, interface))
            return
        link = self.kernel.links.link(interface)
        if self._speaker is not None and link is not None:
            self._speaker.on_link(link)
            self._tell_priorities()

    def _on_wake(self) -> None:
        if self.process is Process.FROZEN:
            self._missed.setdefault("wake", self._on_wake)
        elif self._speaker is not None:
            self._speaker.on_wake()

    def _drain(self) -> None:
        for datagram in self.kernel.adverts.receive():
            self.bench.heard(datagram)
            self.speaker.on_datagram(datagram)

    def _on_addresses(self) -> None:
        if self._supervisor is not None:
            self._supervisor.arp_watch.follow()
        self._world.touch()

    def _notify(self, due: NotifyDue) -> None:
        if self._supervisor is not None:
            self._supervisor.notify(due)

    def _take_role(self, fact: RoleChanged) -> None:
        supervisor = self._supervisor
        if supervisor is not None:
            before = supervisor.records(fact.instance)
            supervisor.take(fact)
            self.bench.accounts.recorded(fact, before, supervisor.records(fact.instance))

    def _take(self, fact: Fact) -> None:
        if self._supervisor is not None:
            self._supervisor.take(fact)

    def _tell_alarm(self, alarm: AlarmRaised | AlarmCleared) -> None:
        if isinstance(alarm, AlarmRaised):
            self.alarms[alarm.key] = alarm
            self._note(f"ALARM {alarm.key}: {alarm.summary}")
            for line in alarm.evidence:
                self._note(f"  evidence: {line}")
        else:
            self.alarms.pop(alarm.key, None)
            self._note(f"alarm {alarm.key} cleared: {alarm.reason}")
        self._world.alarm_changed(self, alarm)

    def _accuse(self, law: str, sentence: str) -> None:
        self._world.laws.accuse(law, sentence)

    def _last_word(self, key: tuple[str, int]) -> None:
        member = next(each for each in self.memberships if each.instance.key == key)
        self._world.laws.last_word(member.router)
        self._world.touch()

    def _note(self, what: str) -> None:
        self._world.ledger.note(self.name, what)
