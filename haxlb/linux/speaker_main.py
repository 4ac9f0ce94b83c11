"""The speaker process: `python -m haxlb.linux.speaker_main --fd N`, started by the supervisor.

Gives the loop-agnostic `Speaker` its real adapters and drives it from asyncio. It ends in order (priority 0,
addresses off, scripts) on `Stop`, on SIGTERM, and when the pipe closes: a speaker without a supervisor would hold VIPs
that nobody can take from it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from ipaddress import IPv4Address

from haxlb.daemon.messages import (
    AskStatus,
    ConfigureSpeaker,
    DataPlaneReady,
    GarpFrame,
    GarpFrames,
    HandOver,
    Happened,
    LinkAltered,
    Message,
    Notify,
    Ready,
    Resume,
    SpeakerStatus,
    StandBy,
    Tracked,
    decode,
    encode,
)
from haxlb.daemon.notifications import commands_for
from haxlb.daemon.ports import Link
from haxlb.daemon.speaker import Speaker
from haxlb.daemon.speaker_member import OLD_CHECKSUM
from haxlb.linux import child
from haxlb.linux.addresses import RENEW_EVERY_S
from haxlb.linux.adverts import AdvertSockets
from haxlb.linux.announcer import Announcer
from haxlb.linux.child import FLUSH_TIMEOUT_S
from haxlb.linux.flight_recorder import FlightRecorder
from haxlb.linux.forwarded_macs import ForwardedMacs
from haxlb.linux.host_network import HostNetwork
from haxlb.linux.links import LinkMonitor, Links
from haxlb.linux.log import Complaints
from haxlb.linux.notify import ScriptRunner
from haxlb.linux.pacing import Paced
from haxlb.linux.pipe import Pipe
from haxlb.linux.realtime import Scheduling, freeze_collector
from haxlb.linux.rehearsal import rehearse
from haxlb.linux.renewer import Renewer, since_boot
from haxlb.linux.rtnetlink import Rtnetlink, import_narrowly
from haxlb.linux.timerfd import MonotonicClock, TimerfdWake
from haxlb.model.addresses import Vip
from haxlb.model.facts import AdvertRejected, Fact, RoleChanged
from haxlb.model.groups import SyncGroup
from haxlb.model.instance import VrrpInstance
from haxlb.model.notification import NotifyDue, NotifyScripts
from haxlb.model.settings import SpeakerSettings

SCRIPTS_TIMEOUT_S = 3.0
"""How long the scripts of a stop may take; keepalived gives them about one second."""
RESTORE_PAUSE_S = 0.1
"""Between two restorations that foreign changes cause."""
_LOCALHOST = IPv4Address("127.0.0.1")
_REHEARSED = ConfigureSpeaker(
    instances=(
        VrrpInstance(name="", interface="lo", vrid=1, vips=(Vip(address=_LOCALHOST, prefix_length=8, interface="lo"),)),
    ),
    garp_frames=(GarpFrame(interface="lo", mac="", vip=_LOCALHOST, frame_hex=""),),
)


class SpeakerProcess:
    """The wiring. Raises HostError where a capability is missing."""

    def __init__(self, pipe: Pipe, scheduling: Scheduling, recorder: FlightRecorder | None = None) -> None:
        self._pipe = pipe
        self._scheduling = scheduling
        self._recorder = recorder
        self._loop = asyncio.get_running_loop()
        self._clock = MonotonicClock()
        self._complaints = Complaints(pipe.log, self._clock)
        self._rtnetlink = Rtnetlink()
        self._links = Links(self._rtnetlink)
        self._renewer = Renewer()
        self._network = HostNetwork(self._rtnetlink, self._links, pipe.log, self._renewer)
        self._adverts = AdvertSockets(self._clock, self._complaints)
        self._announcer = Announcer(self._links.mac, self._complaints, self._report_stale)
        self._scripts = ScriptRunner(pipe.log)
        self._macs = ForwardedMacs(self._complaints)
        self._macs_due = 0.0
        self._wake = TimerfdWake(self._on_wake)
        self._monitor: LinkMonitor | None = None
        self._speaker = Speaker(
            clock=self._clock,
            wake=self._wake,
            adverts=self._adverts,
            addresses=self._network.addresses,
            routes=self._network.routing,
            announcer=self._announcer,
            links=self._links,
            notify=self,
            reports=self,
            recorder=recorder,
            macs=self._macs,
            epoch_offset_us=time.time_ns() // 1000 - self._clock.now(),
        )
        self._instances: tuple[VrrpInstance, ...] = ()
        self._groups: tuple[SyncGroup, ...] = ()
        self._settings: SpeakerSettings | None = None
        self._strangers = False
        """log_unknown_vrids."""
        self._reserve = ""
        self._last_scripts: dict[tuple[str, str], NotifyScripts] = {}
        self._told: dict[str, Link | None] = {}
        self._watched_sockets: set[int] = set()
        self._status_due = False
        self._frozen = False
        self._restoration = Paced(self._restore, RESTORE_PAUSE_S)
        self._renewal: asyncio.TimerHandle | None = None

    # -- orders of the supervisor

    def handle(self, message: Message) -> None:
        """Carry out one message and answer it."""
        if isinstance(message, StandBy):
            # What takes time comes before the real-time class: a speaker is at work beside.
            freeze_collector()
            self._scheduling.apply(message.settings)
            self._pipe.send(Ready(of=StandBy.__name__))
        elif isinstance(message, ConfigureSpeaker):
            self._scheduling.apply(message.settings)
            self._scripts.configure(message.script_settings, message.config_directory)
            self._last_scripts = {
                **{("INSTANCE", each.name): each.notify for each in message.instances},
                **{("GROUP", each.name): each.notify for each in message.sync_groups},
            }
            self._strangers = message.settings.log_unknown_vrids
            self._reserve = message.reserve
            self._configure(message)
        elif isinstance(message, GarpFrames):
            self._announcer.add(message.frames)
            self._speaker.on_wake()  # others may follow: what is due goes out between them
        elif isinstance(message, DataPlaneReady):
            self._macs.check()
            self._reserve = ""
            self._speaker.end_reserve()
        elif isinstance(message, HandOver):
            self._speaker.hand_over(message.instances, message.reason)
            self._send_status()
        elif isinstance(message, Resume):
            self._speaker.resume(message.instances)
            self._send_status()
        elif isinstance(message, Tracked):
            self._speaker.on_tracked(message.results)
            self._send_status()
        elif isinstance(message, AskStatus):
            self._send_status(message.ticket)
        else:
            self._pipe.log("warning", "message_not_for_the_speaker", message=type(message).__name__)

    async def leave(self, reason: str) -> None:
        """Hand over, let the scripts run, deliver what is still to be said."""
        if self._renewal is not None:
            self._renewal.cancel()
            if self._pipe.eof:
                self._pipe.log("warning", "handing_over", process="speaker", reason=reason)
        self._restoration.close()
        self._speaker.stop(reason)
        self._send_status()
        # An interface that goes now must not bring anything back.
        if self._monitor is not None:
            self._monitor.close()
        await self._network.close()
        await self._scripts.finish(SCRIPTS_TIMEOUT_S)
        await self._pipe.drained(FLUSH_TIMEOUT_S)
        self._wake.close()
        for fd in self._watched_sockets:
            self._loop.remove_reader(fd)
        self._adverts.close()
        self._announcer.close()
        self._macs.close()
        self._rtnetlink.close()
        if self._recorder is not None:
            self._recorder.close()
        self._pipe.close()

    def _begin(self) -> None:
        """With the first configuration; a spare does not hear of every address that comes and goes meanwhile."""
        self._monitor = LinkMonitor(
            self._links,
            self._rtnetlink,
            self._on_change,
            self._pipe.log,
            self._network.addresses.holds,
            own_ports=(self._renewer.port,),
        )
        self._renewal = self._loop.call_later(RENEW_EVERY_S, self._renew)

    def rehearse(self) -> None:
        """Import and run once what every configuration needs: 15 ms that a promoted spare does not have."""
        decode(encode(_REHEARSED))
        self._links.watch(("lo",), ())
        self._network.addresses.prepare(_REHEARSED.instances[0].vips)
        self._network.addresses.prepare(())
        self._links.watch((), ())
        rehearse()

    def _configure(self, message: ConfigureSpeaker) -> None:
        if self._monitor is None:
            self._begin()
        if self._recorder is not None:
            self._recorder.configure(each.key for each in message.instances)
        # What is due goes out between the steps: with hundreds of instances each takes some milliseconds.
        self._speaker.on_wake()
        lacking = self._network.begin(message)
        # The former ones, too: an address is taken off, and priority 0 is sent, on an interface that is still known.
        watched = self._network.watched(former=True)
        self._links.watch(watched.interfaces, watched.vips, watched.sources)
        self._instances, self._groups, self._settings = message.instances, message.sync_groups, message.settings
        self._announcer.take(message.garp_frames)
        self._macs.use(message.bpf_directory)
        problem = "; ".join(each for each in (lacking, self._apply(message)) if each)
        self._speaker.on_wake()
        # Now, not before: what a dead speaker has left is ours where we go on as MASTER.
        self._macs.check()
        self._network.finish()
        self._speaker.on_wake()
        if not self._frozen:
            freeze_collector()
            self._frozen = True
        self._pipe.send(Ready(of=ConfigureSpeaker.__name__, problem=problem))
        self._send_status()

    def _apply(self, orders: ConfigureSpeaker | None = None) -> str:
        """Make sockets, addresses and the speaker follow the configuration and the interfaces there are."""
        names = self._links.watched
        links = {name: self._links.known(name) for name in names}
        deaf = self._adverts.configure(self._instances, self._links.indices, links, strangers=self._strangers)
        self._network.prepare()
        heard = tuple(each for each in self._instances if each.key not in deaf)
        self._speaker.configure(
            heard,
            self._groups,
            self._settings,
            successions=orders.successions if orders else (),
            results=orders.results if orders else (),
            reserve=self._reserve,
        )
        self._adverts.retire()
        self._watch_sockets()
        watched = self._network.watched()
        self._links.narrow(watched.interfaces, watched.vips)
        self._tell_links()
        return "; ".join(dict.fromkeys(str(problem) for problem in deaf.values()))

    def _tell_links(self) -> None:
        """Tell the speaker of every interface that is not as it was last told.

        `Links.known` will not do as the memory: the speaker itself asks for an interface when an instance starts.
        """
        told, self._told = self._told, {name: self._links.known(name) for name in self._links.watched}
        for interface, link in self._told.items():
            before = told.get(interface)
            if link == before:
                continue
            # A VIP on a vanished interface is gone with it; the instance learns that its link is down.
            self._speaker.on_link(link or Link(interface=interface, up=False, mac="", address=None))
            self._send_status_soon()  # what tracks it may have another priority now
            if link and (before is None or link.mac != before.mac):
                self._announcer.inspect(interface)
                if told:  # with the first configuration whoever is MASTER has just announced
                    self._speaker.reannounce(interface)

    # -- what the world says

    def report(self, fact: Fact) -> None:
        """ReportPort: facts go to the supervisor, and the status follows each change of a role."""
        self._pipe.send(Happened(fact=fact))
        if isinstance(fact, RoleChanged) or (isinstance(fact, AdvertRejected) and fact.reason == OLD_CHECKSUM):
            self._send_status_soon()

    def notify(self, due: NotifyDue) -> None:
        """NotifyPort: the supervisor tells the operator; without one the last scripts are run here."""
        if not self._pipe.eof:
            self._pipe.send(Notify(due=due))
            return
        for command in commands_for(due, self._last_scripts.get((due.subject, due.name), NotifyScripts())):
            self._scripts.run(due.name, command)

    def _on_wake(self) -> None:
        self._speaker.on_wake()

    def _watch_sockets(self) -> None:
        # Closing a socket has already taken it out of epoll; the loop's own record must go, too, before its
        # number is given to another one.
        present = {each.fileno() for each in self._adverts.sockets}
        for fd in self._watched_sockets:
            self._loop.remove_reader(fd)
        for fd in present:
            self._loop.add_reader(fd, self._on_readable)
        self._watched_sockets = present

    def _on_readable(self) -> None:
        for datagram in self._adverts.receive():
            self._speaker.on_datagram(datagram)

    def _on_change(self, interface: str) -> None:
        """An interface, or an address that was not put there by us, has changed."""
        # Of a process that was stalled it may be an address that ran out: adverts that wait say whether it is ours.
        self._speaker.on_wake()
        index_before = self._links.index(interface)
        link = self._links.link(interface)
        if self._links.index(interface) != index_before:
            self._pipe.log("warning", "interface_appeared" if link else "interface_vanished", interface=interface)
            self._restore_virtual_macs()
        if link != self._told.get(interface):
            problem = self._apply()
            if problem:
                self._pipe.log("error", "instance_not_run", reason=problem)
        # Whoever took a VIP of ours off (an operator, a network manager) is corrected at once, in a fight a bit later.
        self._restoration.ask()

    def _restore(self) -> None:
        self._speaker.on_wake()  # as in `_renew`: it may come at the end of a pause
        virtual = map(self._links.known, self._network.virtual_interfaces)
        if any(link is not None and not link.up for link in virtual):
            # Set down by hand: the adverts may go out below it (vmac_xmit_base), and nobody could reach the VIP.
            self._restore_virtual_macs()
        self._network.restore()

    def _renew(self) -> None:
        # A process that was stalled may have lost its role meanwhile: what has arrived comes first.
        since = since_boot()
        self._speaker.on_wake()
        self._renewal = self._loop.call_later(self._network.renew(since), self._renew)
        if self._loop.time() >= self._macs_due:  # with many addresses this is called more often
            self._macs_due = self._loop.time() + RENEW_EVERY_S
            self._macs.check()

    def _restore_virtual_macs(self) -> None:
        """They go with the interface below, and come back with it."""
        problem = self._network.make()
        if problem:
            self._pipe.log("error", "virtual_mac_missing", reason=problem)
        for name in self._links.watched:
            self._links.link(name)

    def _report_stale(self, interface: str, mac: str) -> None:
        self._pipe.send(LinkAltered(interface=interface, mac=mac))

    def _send_status_soon(self) -> None:
        """One status for all that happens in this turn of the loop."""
        if not self._status_due:
            self._status_due = True
            self._loop.call_soon(self._send_status)

    def _send_status(self, ticket: int = 0) -> None:
        if ticket == 0:
            self._status_due = False
        instances = self._speaker.status(time.time_ns() // 1000)
        self._pipe.send(SpeakerStatus(ticket=ticket, instances=instances, lag=self._speaker.lag))


def _build(pipe: Pipe, recorder: int | None) -> SpeakerProcess:
    import_narrowly()
    made = SpeakerProcess(pipe, Scheduling(pipe.log), None if recorder is None else FlightRecorder(recorder))
    made.rehearse()
    return made


if __name__ == "__main__":
    about = (__doc__ or "").partition("\n")[0]
    sys.exit(child.main("speaker", "haxlb.linux.speaker_main", ConfigureSpeaker, _build, about, recorded=True))
