"""A virtual director: a kernel that outlives its processes, and haxlb's processes, which can be stopped and killed.

The speaker, the tracker and most of the supervisor are the real ones. What is virtual is the host around them: a
stopped process leaves its socket filling and its addresses expiring, a killed one leaves them to the supervisor or to
their lifetimes, and the forwarder goes on for as long as there is power.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from haxlb.daemon.ports import Datagram
from haxlb.daemon.speaker import Speaker, resignation
from haxlb.daemon.speaker_frames import sign
from haxlb.daemon.tracking import anything
from haxlb.model.addresses import IPAddress
from haxlb.model.facts import AdvertRejected, AlarmCleared, AlarmRaised, Fact, RoleChanged
from haxlb.model.node import SECOND_US, NodeConfig, Role, VrrpInstance
from haxlb.model.notification import NotifyDue
from haxlb.model.status import InstanceStatus
from haxlb.model.tracking import TrackResult
from haxlb.sim.adapters import VirtualAnnouncer, VirtualWake
from haxlb.sim.estate import FlightRecord
from haxlb.sim.judged import Bench, JudgedAdverts, JudgedAnnouncer, JudgedNotify
from haxlb.sim.kernel import Kernel
from haxlb.sim.lan import Nic
from haxlb.sim.membership import Membership, Process
from haxlb.sim.supervisor import Supervisor
from haxlb.sim.topology import Station
from haxlb.sim.tracked import Health, Key, Tracking
from haxlb.vrrp.advert import Expected
from haxlb.vrrp.authentication_header import clock_sequence
from haxlb.vrrp.holdings import addresses

if TYPE_CHECKING:
    from haxlb.sim.world import World

LEFT = 0.65
"""Addresses are renewed after a third of their lifetime: at least so much of it is left at any moment."""
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
_SEQUENCE_LEAD = 16
"""As in `haxlb.linux.resign`: adverts out of turn may have taken the speaker this far ahead of its clock's number."""
EPOCH_US = 1_800_000_000_000_000
"""The time of day at the beginning of every world."""


class Director:
    """One director; starts without power."""

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
        self.memberships = tuple(
            Membership(
                director=self,
                instance=each,
                router=(self.nics[each.interface].segment, each.key[1]),
                nic=self.nics[each.interface],
                names=[each.name],
                slowest_us=each.advert_interval_us,
            )
            for each in self.config.instances
        )
        self.bench = Bench(self.name, self._clock, self._accuse, self._last_word)
        self.bench.configure(self.config)
        self._wake = VirtualWake(world.loop, self._clock, self._on_wake)
        self._speaker: Speaker | None = None
        self._supervisor: Supervisor | None = None
        self._tracking: Tracking | None = None
        self._results: list[TrackResult] = []
        """On their way to the speaker."""
        self._missed: dict[str, Callable[[], None]] = {}
        self._slept_at_us = 0
        self._record = FlightRecord()
        self._statuses: tuple[InstanceStatus, ...] = ()
        """Of a speaker that has died."""
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

    # -- what can be done to it

    def power_on(self) -> None:
        """Boot: links up, haxlb started."""
        self.powered = True
        self.kernel.boot(self._random.randrange(1_000_000, 1_000_000_000), self._world.loop.now_us)
        self._note("power on, haxlb starts")
        self.start()

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
            heirs=self,
            note=self._note,
            on_alarm=self._tell_alarm,
        )
        self._start_speaker()
        self._start_tracker()

    def start_again(self) -> None:
        """`systemctl start haxlb`."""
        self._note("haxlb is started")
        self.start()

    def stop(self, reason: str) -> None:
        """Orderly: `systemctl stop haxlb`. The forwarder stays."""
        self._note(f"haxlb stops in order: {reason}")
        self.speaker.stop(reason)
        self._world.look()
        self._die()

    def kill_supervisor(self) -> None:
        """SIGKILL for the supervisor: the other processes find their pipes closed, and the speaker hands over."""
        self._note("the supervisor is killed: the speaker resigns and ends")
        self.speaker.stop("the supervisor is gone")
        self._world.look()
        self._die()

    def kill(self) -> None:
        """SIGKILL for all of haxlb: nobody is left to clean up but the kernel."""
        self._note("all processes of haxlb are killed")
        self._die()
        self._expire_later()

    def kill_speaker(self) -> None:
        """SIGKILL for the speaker alone: the supervisor resigns for it and starts another."""
        self._note("the speaker is killed")
        self._statuses = self.speaker.status(self._epoch_us())
        self._close_speaker()
        self.roles = {}
        self._bereave_later()

    def freeze(self) -> None:
        """SIGSTOP for all of haxlb, or a hypervisor that steals its time; the kernel goes on."""
        self._note("all processes of haxlb are frozen")
        self._stand_still()
        self._expire_later()

    def thaw(self) -> None:
        """They run again, and find the time passed: what comes first is chance."""
        self._note("the processes run again")
        self._proceed()

    def suspend(self) -> None:
        """The whole host stands still: the kernel, too, hears and forwards nothing, and no lifetime runs out."""
        self._note("the host is suspended")
        self.suspended = True
        self._slept_at_us = self._world.loop.now_us
        self._stand_still()
        self.kernel.sleep(asleep=True)

    def resume_host(self, *, clock_stood: bool) -> None:
        """It goes on. `clock_stood`: its monotonic clock has not counted the time (as CLOCK_MONOTONIC does not)."""
        self._note(f"the host goes on{', its clock has stood' if clock_stood else ''}")
        self.suspended = False
        self.kernel.sleep(asleep=False)
        if clock_stood:
            self._clock.offset_us -= self._world.loop.now_us - self._slept_at_us
        self._proceed()

    def jump_wall_clock(self, by_us: int) -> None:
        """Somebody sets the time of day."""
        self._note(f"the time of day jumps by {by_us / SECOND_US:+.0f} s")
        self.wall_offset_us += by_us

    def reload(self, config: NodeConfig, what: str) -> None:
        """`haxlb reload`: the same instances (interface, VRID, family) with other settings or names."""
        self._note(f"reload: {what}")
        names = {each.key: each.name for each in self.config.instances}
        renamed = {names[each.key]: each.name for each in config.instances if names[each.key] != each.name}
        self.config = config
        self.roles = {renamed.get(name, name): role for name, role in self.roles.items()}
        by_key = {each.key: each for each in config.instances}
        for each in self.memberships:
            each.reloaded |= each.instance != by_key[each.instance.key]
            each.instance = by_key[each.instance.key]
            each.names.append(each.instance.name)
            each.slowest_us = max(each.slowest_us, each.instance.advert_interval_us)
        self.bench.configure(config)
        self.bench.accounts.renamed(renamed)
        self.bench.disturb()
        if self._supervisor is not None:
            self._supervisor.reload(config)
        if self._speaker is not None:
            self._speaker.configure(config.instances, config.sync_groups, config.speaker)
        self._start_tracker()
        self._world.laws.restart(self.memberships)
        self._world.touch()

    def set_health(self, key: Key, health: Health) -> None:
        """Something that is tracked is so from now on."""
        self._note(f"{key[0].value} {key[1]} is {health.value}")
        self.health[key] = health
        if self._tracking is not None:
            self._tracking.look(key)

    def _stand_still(self) -> None:
        self.bench.pause()
        self.process = Process.FROZEN
        self._life += 1
        if self._supervisor is not None:
            self._supervisor.freeze()
        self._world.touch()

    def _proceed(self) -> None:
        self.process = Process.RUNNING
        self._life += 1
        self.bench.proceed()
        if self.addresses.held:
            self.addresses.renew()
        missed, self._missed = self._missed, {}
        todo = list(missed.values())
        self._random.shuffle(todo)
        for each in todo:
            each()
        if self._supervisor is not None:
            self._supervisor.thaw()
            if self._speaker is None:
                # It died before the supervisor was stopped, which finds that out now.
                self._bereave_later()
        self._world.touch()

    def power_off(self) -> None:
        """Gone, as by a pulled plug."""
        self._note("power off")
        if self._supervisor is not None:
            self._supervisor.lose_power()
            self._supervisor = None
        self._die()
        self.powered = self.suspended = False
        self.kernel.halt()

    def unplug(self) -> None:
        """All cables are pulled; the host sees its carriers go."""
        self._note("all links lost")
        self._set_carriers(up=False, interfaces=tuple(self.nics))

    def plug(self) -> None:
        """All cables are back."""
        self._note("all links are back")
        self._set_carriers(up=True, interfaces=tuple(self.nics))

    def set_link(self, interface: str, *, up: bool) -> None:
        """One cable, out or in."""
        self._note(f"{interface} {'is back' if up else 'lost'}")
        self._set_carriers(up=up, interfaces=(interface,))

    def hand_over(self, reason: str) -> None:
        """`haxlb failover`."""
        self._note(f"asked to hand over: {reason}")
        self.speaker.hand_over((), reason)

    def resume(self) -> None:
        """`haxlb resume`."""
        self._note("resumes")
        self.speaker.resume()

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
            recorder=self._record,
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
            self._world.laws.restart(self.memberships)
            self._world.touch()

    def _when_running(self, key: str, what: Callable[[], None]) -> None:
        if self.process is Process.FROZEN:
            self._missed.setdefault(key, what)
        elif self.process is Process.RUNNING:
            what()

    # -- Heirs: what the supervisor does for a dead speaker

    def recorded(self, name: str) -> tuple[int, ...]:
        """The dead speaker's last adverts as MASTER."""
        del name
        return self._record.read(self.config)

    def execute(self, masters: frozenset[str], kept: frozenset[str] = frozenset()) -> tuple[str, ...]:
        """Resign for these instances, and take off what belongs to none that is kept."""
        for each in self.config.instances:
            if each.name in masters:
                for datagram in self._resignation(each):
                    self.kernel.adverts.send(datagram)
        staying = {vip for each in self.config.instances if each.name in kept for vip in addresses(each)}
        going = [each for each in self.config.instances if each.name not in kept]
        self.addresses.remove(vip for each in going for vip in addresses(each) if vip not in staying)
        self.kernel.routes.remove(
            (it for each in going for it in each.routes), (it for each in going for it in each.rules)
        )
        self._note("the supervisor takes the addresses off and resigns for the dead speaker")
        return ()

    def wall(self) -> float:
        """The time of day."""
        return self._epoch_us() / SECOND_US

    def _bereave_later(self) -> None:
        delay_us = self._random.randrange(*BEQUEST_US)
        self._world.loop.after(delay_us, partial(self._bereave, self._life))

    def _bereave(self, life: int) -> None:
        if life != self._life or self.process is not Process.RUNNING or self._supervisor is None:
            return
        successor = self.config.speaker.spare and self._world.loop.now_us >= self._spare_at_us
        self._supervisor.bereaved(self._statuses, successor=successor)
        delay_us = self._random.randrange(*PROMOTION_US) if successor else RESPAWN_US
        self._world.loop.after(delay_us, partial(self._respawn, life))

    def _resignation(self, instance: VrrpInstance) -> list[Datagram]:
        frames = resignation(instance, self.kernel.links.link(instance.interface))
        key = Expected.of(instance).key
        return frames if key is None else sign(frames, key, clock_sequence(self._epoch_us()) + _SEQUENCE_LEAD)

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
        lifetime_us = self.config.speaker.vip_lifetime_s * SECOND_US
        if lifetime_us:
            left_us = self._random.randrange(int(lifetime_us * LEFT), lifetime_us)
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
