"""A virtual director: a kernel that outlives its processes, and haxlb's processes, which can be stopped and killed.

The speaker, the detector and the claimant are the real ones. What is virtual is the host around them: a stopped
process leaves its socket filling and its addresses expiring, a killed one leaves them to the supervisor or to their
lifetimes, and the forwarder goes on for as long as there is power.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from haxlb.daemon.ports import Datagram
from haxlb.daemon.speaker import Speaker, resignation
from haxlb.model.addresses import IPAddress
from haxlb.model.facts import AdvertRejected, AlarmCleared, AlarmRaised, Fact, RoleChanged
from haxlb.model.node import Role
from haxlb.sim.adapters import (
    AddressTable,
    NotifyLog,
    VirtualAdverts,
    VirtualAnnouncer,
    VirtualClock,
    VirtualLinks,
    VirtualWake,
)
from haxlb.sim.lan import Nic
from haxlb.sim.membership import Membership, Process
from haxlb.sim.supervisor import Supervisor
from haxlb.sim.topology import Station

if TYPE_CHECKING:
    from haxlb.sim.world import World

LIFETIME_US = (1_300_000, 2_000_000)
"""Addresses live for two seconds and are renewed every 0.7 s: so much is left at any moment."""
BEQUEST_US = 5_000
"""The supervisor notices the closed pipe and sends what it has prepared."""
RESPAWN_US = 300_000
"""A new speaker: the interpreter's start."""


class Director:
    """One director; starts without power."""

    def __init__(self, station: Station, world: World, random: Random) -> None:
        self.config = station.config
        self.name = station.config.node
        self.powered = False
        self.process = Process.DEAD
        self.roles: dict[str, Role] = {}
        self.alarms: dict[str, AlarmRaised] = {}
        self.notifications = NotifyLog()
        self._world = world
        self._random = random
        self.nics: dict[str, Nic] = {}
        for plan in station.nics:
            nic = Nic(
                host=self.name,
                interface=plan.interface,
                segment=plan.segment,
                mac=plan.mac,
                addresses=plan.addresses,
                receiver=self,
                carrier=False,
            )
            self.nics[plan.interface] = nic
            world.lan.plug(nic)
        self.memberships = tuple(
            Membership(
                director=self,
                instance=each,
                router=(self.nics[each.interface].segment, each.vrid),
                nic=self.nics[each.interface],
            )
            for each in self.config.instances
        )
        self.addresses = AddressTable(self.nics, self._on_addresses)
        self._clock = VirtualClock(world.loop, 0)
        self._wake = VirtualWake(world.loop, self._clock, self._on_wake)
        self._adverts = VirtualAdverts(world.lan, self.nics)
        self._speaker: Speaker | None = None
        self._supervisor: Supervisor | None = None
        self._missed: dict[str, Callable[[], None]] = {}
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

    # -- what can be done to it

    def power_on(self) -> None:
        """Boot: links up, haxlb started."""
        self.powered = True
        self._clock.offset_us = self._random.randrange(1_000_000, 1_000_000_000) - self._world.loop.now_us
        for nic in self.nics.values():
            nic.carrier = True
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
            on_alarm=self._tell_alarm,
        )
        self._start_speaker()

    def stop(self, reason: str) -> None:
        """Orderly: `systemctl stop haxlb`. The forwarder stays."""
        self._note(f"haxlb stops in order: {reason}")
        self.speaker.stop(reason)
        self._die()

    def kill(self) -> None:
        """SIGKILL for all of haxlb: nobody is left to clean up but the kernel."""
        self._note("all processes of haxlb are killed")
        self._die()
        self._expire_later()

    def kill_speaker(self) -> None:
        """SIGKILL for the speaker alone: the supervisor resigns for it and starts another."""
        self._note("the speaker is killed")
        masters = [each for each in self.memberships if each.role is Role.MASTER]
        self._close_speaker()
        self.roles = {}
        life = self._life
        self._world.loop.after(BEQUEST_US, partial(self._execute_bequest, masters, life))
        self._world.loop.after(BEQUEST_US + RESPAWN_US, partial(self._respawn, life))

    def freeze(self) -> None:
        """SIGSTOP for all of haxlb, or a hypervisor that steals its time; the kernel goes on."""
        self._note("all processes of haxlb are frozen")
        self.process = Process.FROZEN
        self._life += 1
        if self._supervisor is not None:
            self._supervisor.freeze()
        self._expire_later()
        self._world.touch()

    def thaw(self) -> None:
        """They run again, and find the time passed: what comes first is chance."""
        self._note("the processes run again")
        self.process = Process.RUNNING
        self._life += 1
        if self.addresses.held:
            self.addresses.renew()
        missed, self._missed = self._missed, {}
        todo = list(missed.values())
        self._random.shuffle(todo)
        for each in todo:
            each()
        if self._supervisor is not None:
            self._supervisor.thaw()
        self._world.touch()

    def power_off(self) -> None:
        """Gone, as by a pulled plug."""
        self._note("power off")
        if self._supervisor is not None:
            self._supervisor.lose_power()
            self._supervisor = None
        self._die()
        self.powered = False
        for nic in self.nics.values():
            nic.carrier = False
        self.addresses.expire()

    def unplug(self) -> None:
        """All cables are pulled; the host sees its carriers go."""
        self._note("all links lost")
        self._set_carriers(up=False)

    def plug(self) -> None:
        """All cables are back."""
        self._note("all links are back")
        self._set_carriers(up=True)

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
            at_us=self._clock.now(),
        )
        if self.process is Process.RUNNING:
            self._speaker.on_datagram(arrived)
        else:
            self._adverts.queue.append(arrived)
            self._missed.setdefault("drain", self._drain)

    def on_announcement(self, nic: Nic, sender: Nic, vips: tuple[IPAddress, ...]) -> None:
        """Gratuitous ARP; of interest where it is about an address that we hold."""
        if self._supervisor is not None and self.process is Process.RUNNING:
            for vip in vips:
                self._supervisor.arp_watch.hear(nic, sender, vip)

    def answers(self, nic: Nic, address: IPAddress) -> bool:
        """The kernel answers ARP for what it has, whatever its processes do."""
        return any(each.address == address and each.interface == nic.interface for each in self.addresses.present)

    def report(self, fact: Fact) -> None:
        """ReportPort: a fact of the speaker."""
        if isinstance(fact, RoleChanged):
            self.roles[fact.instance] = fact.after
            self._note(f"{fact.instance}: {fact.before.value} -> {fact.after.value}: {fact.reason}")
            self._world.touch()
        elif isinstance(fact, AdvertRejected):
            self._world.note_once(self.name, f"rejects an advert of {fact.address}: {fact.detail}")
        elif isinstance(fact, AlarmRaised | AlarmCleared):
            self._tell_alarm(fact)
        self._take(fact)

    # -- inside

    def _start_speaker(self) -> None:
        self._adverts.queue = []
        self._speaker = self._world.speaker_class(
            clock=self._clock,
            wake=self._wake,
            adverts=self._adverts,
            addresses=self.addresses,
            announcer=VirtualAnnouncer(self._world.lan, self.nics),
            links=VirtualLinks(self.nics),
            notify=self.notifications,
            reports=self,
        )
        self._speaker.configure(self.config.instances)
        self._world.touch()

    def _execute_bequest(self, masters: list[Membership], life: int) -> None:
        if life != self._life or self.process is not Process.RUNNING:
            return
        links = VirtualLinks(self.nics)
        for each in masters:
            for datagram in resignation(each.instance, links.link(each.instance.interface)):
                self._adverts.send(datagram)
        self.addresses.remove(vip for each in self.memberships for vip in each.instance.vips)
        for each in masters:
            self._take(
                RoleChanged(
                    instance=each.instance.name,
                    vrid=each.instance.vrid,
                    before=Role.MASTER,
                    after=Role.INIT,
                    reason="the speaker has died",
                    priority=each.instance.priority,
                    at_us=self._clock.now(),
                )
            )
        self._note("the supervisor takes the addresses off and resigns for the dead speaker")

    def _respawn(self, life: int) -> None:
        if life == self._life and self.process is Process.RUNNING:
            self._note("a new speaker starts")
            self._start_speaker()

    def _die(self) -> None:
        self._life += 1
        self.process = Process.DEAD
        self._close_speaker()
        if self._supervisor is not None:
            self._supervisor.close()
            self._supervisor = None
        self.roles = {}
        self.alarms = {}
        self._world.touch()

    def _close_speaker(self) -> None:
        self._speaker = None
        self._wake.close()
        self._missed = {}
        self.addresses.held.clear()
        self._world.touch()

    def _expire_later(self) -> None:
        life = self._life
        self._world.loop.after(self._random.randrange(*LIFETIME_US), partial(self._expire, life))

    def _expire(self, life: int) -> None:
        if life == self._life and self.addresses.present:
            self._note("the kernel takes the addresses off: nobody renewed them")
            self.addresses.expire()

    def _set_carriers(self, *, up: bool) -> None:
        for interface, nic in self.nics.items():
            nic.carrier = up
            self._tell_link(interface)
        self._world.touch()

    def _tell_link(self, interface: str) -> None:
        if self.process is Process.FROZEN:
            self._missed.setdefault(f"link {interface}", partial(self._tell_link, interface))
            return
        link = VirtualLinks(self.nics).link(interface)
        if self._speaker is not None and link is not None:
            self._speaker.on_link(link)

    def _on_wake(self) -> None:
        if self.process is Process.FROZEN:
            self._missed.setdefault("wake", self._on_wake)
        elif self._speaker is not None:
            self._speaker.on_wake()

    def _drain(self) -> None:
        for datagram in self._adverts.receive():
            self.speaker.on_datagram(datagram)

    def _on_addresses(self) -> None:
        if self._supervisor is not None:
            self._supervisor.arp_watch.follow()
        self._world.touch()

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

    def _note(self, what: str) -> None:
        self._world.ledger.note(self.name, what)
