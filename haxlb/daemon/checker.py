"""The checker: health, neighbours and forwarder of a node, driven through ports.

Loop-agnostic and synchronous, like the speaker: whoever drives it calls the `on_…` methods for what happens and
`on_wake` when the time asked for through the wake port has come. What an input means for the data plane is carried out
by the wake that it asks for at once, so several changes of one instant are one change of the maps.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv6Address

from haxlb.daemon.checker_plane import Attachment, DataPlane
from haxlb.daemon.checker_ports import CheckerReportPort, NeighbourPort, ProbePort, VerdictPort
from haxlb.daemon.checker_sweeps import SweepPort, Sweeps
from haxlb.daemon.checker_table import Epoch, Neighbour, virtual_server_status, wanted_table, way_to
from haxlb.daemon.ports import ClockPort, ForwarderPort, ScriptPort, WakePort
from haxlb.forwarding.wanted import NextHop
from haxlb.health.monitor import Configured, Effect, Input, Monitor, ProbeEnded, ReachChanged, Woke
from haxlb.health.outcome import Outcome
from haxlb.health.pool import PoolChanged, RunScript
from haxlb.health.timetable import AbandonProbe, StartProbe
from haxlb.model.addresses import IPAddress
from haxlb.model.facts import BackendChanged, QuorumChanged
from haxlb.model.node import NodeConfig
from haxlb.model.status import DataPlaneStatus, VirtualServerStatus
from haxlb.model.units import SECOND_US
from haxlb.model.virtual_server import RealServer, VirtualServer

FIRST_TABLE_WITHIN_US = SECOND_US
"""The first table waits this long for the link-layer addresses of the servers. A checker that starts beside a
forwarder at work would otherwise take every server out of it for the moment until they are known."""


class Checker:
    """All virtual servers of one node."""

    def __init__(
        self,
        *,
        clock: ClockPort,
        wake: WakePort,
        probes: ProbePort,
        neighbours: NeighbourPort,
        forwarder: ForwarderPort,
        scripts: ScriptPort,
        verdicts: VerdictPort,
        reports: CheckerReportPort,
        sweeps: SweepPort | None = None,
    ) -> None:
        self._clock = clock
        self._wake = wake
        self._probes = probes
        self._neighbours = neighbours
        self._scripts = scripts
        self._verdicts = verdicts
        self._reports = reports
        self._monitor = Monitor(seed="")
        self._plane = DataPlane(forwarder, reports)
        self._sweeps = Sweeps(sweeps, reports)
        self._virtual_servers: tuple[VirtualServer, ...] | None = None
        self._known: dict[IPAddress, Neighbour] = {}
        self._followed: dict[IPAddress, None] = {}
        self._servers: dict[IPAddress, list[RealServer]] = {}
        """Of the followed ones, those that are no directors."""
        self._peers: dict[str, tuple[IPAddress, ...]] = {}
        self._dirty = False
        self._verdict_changed = False
        self._saved: dict[str, bool] = {}
        self._saved_for = 0
        """Of the data plane's `renewals`."""
        self._hold_until: int | None = None

    def configure(self, config: NodeConfig, program: str) -> None:
        """Check and forward exactly this; what stays the same keeps its state. Answered by `ready`.

        `program` is the path of a pinned program; empty = attach nothing, what is attached stays.
        """
        now = self._clock.now()
        first = self._virtual_servers is None
        self._virtual_servers = config.virtual_servers
        if first:
            # The name spreads the first probes: the directors of a pair do not ask in step.
            self._monitor = Monitor(seed=config.node)
            self._hold_until = now + FIRST_TABLE_WITHIN_US
        remembered = self._verdicts.load() if first else {}
        self._tell(Configured(virtual_servers=config.virtual_servers, remembered=remembered), now)
        self._follow(now)
        self._dirty = self._verdict_changed = True
        if program:
            self._plane.want_attachment(
                Attachment(program=program, interfaces=config.forwarding_interfaces, mode=config.forwarding.mode)
            )
        self._plane.lifetime_s = max(config.timeouts.tcp_s, config.timeouts.udp_s)
        self._plane.answer("ConfigureChecker")
        self._arm(now)

    def swap(self, program: str) -> None:
        """Exchange the attached program for this pinned one. Answered by `ready`."""
        self._plane.swap(program)
        self._plane.answer("SwapProgram")
        self._arm(self._clock.now())

    def peers_known(self, interface: str, peers: Iterable[IPAddress]) -> None:
        """The other directors that were heard on this interface; the first that can be reached is asked."""
        now = self._clock.now()
        self._peers[interface] = tuple(_scoped(each, interface) for each in peers)
        self._dirty = True
        self._follow(now)
        self._arm(now)

    def on_probe_result(self, ticket: int, outcome: Outcome) -> None:
        """A probe has ended."""
        self.on_probe_results(((ticket, outcome),))

    def on_probe_results(self, results: Iterable[tuple[int, Outcome]]) -> None:
        """These probes, by their tickets, have ended."""
        now = self._clock.now()
        for ticket, outcome in results:
            self._tell(ProbeEnded(ticket=ticket, outcome=outcome), now)
        self._arm(now)

    def on_neighbour(
        self, address: IPAddress, next_hop: NextHop | None, reason: str, gateway: IPAddress | None = None
    ) -> None:
        """The way to an address is this now, through this gateway, or there is none and why."""
        if address not in self._followed:
            return
        now = self._clock.now()
        former = self._known.get(address)
        neighbour = Neighbour(next_hop=next_hop, reason="" if next_hop else reason, gateway=gateway)
        if neighbour == former:
            return
        self._known[address] = neighbour
        self._log_neighbour(address, self._judged(address, former), self._judged(address, neighbour))
        self._dirty = True
        self._tell_reach(address, now)
        self._arm(now)

    def on_interfaces(self) -> None:
        """An interface of this host has another MAC, or is new."""
        now = self._clock.now()
        self._plane.interfaces_changed(now)
        self._arm(now)

    def on_wake(self) -> None:
        """The time asked for has come: probes that are due, and what the data plane shall do."""
        now = self._clock.now()
        self._tell(Woke(), now)
        self._settle(now)
        self._sweeps.on_time(now)
        self._arm(now)

    def status(self, epoch_us: int) -> tuple[tuple[VirtualServerStatus, ...], DataPlaneStatus]:
        """Every virtual server in configuration order, and the forwarder; `epoch_us` is the wall clock's now."""
        epoch = Epoch(offset_us=epoch_us - self._clock.now())
        counters = self._plane.counters()
        servers = tuple(
            virtual_server_status(pool, self._monitor.checks, self._known, counters, epoch)
            for pool in self._monitor.status()
        )
        return servers, self._plane.status(counters, needed=bool(servers))

    def _tell(self, said: Input, now: int) -> None:
        for effect in self._monitor.handle(said, now):
            self._execute(effect)

    def _execute(self, effect: Effect) -> None:
        match effect:
            case StartProbe():
                self._probes.start(effect)
            case AbandonProbe(ticket=ticket):
                self._probes.abandon(ticket)
            case BackendChanged() | QuorumChanged():
                self._reports.report(effect)
                self._verdict_changed = True
            case RunScript(queue=queue, command=command):
                self._scripts.run(queue, command)
            case PoolChanged():
                self._dirty = True

    def _follow(self, now: int) -> None:
        servers: dict[IPAddress, list[RealServer]] = {}
        for virtual_server in self._virtual_servers or ():
            for each in virtual_server.real_servers:
                servers.setdefault(each.address, []).append(each)
            if virtual_server.sorry_server is not None:
                servers.setdefault(virtual_server.sorry_server.address, []).append(virtual_server.sorry_server)
        self._servers = servers
        wanted = dict.fromkeys(servers)
        for peers in self._peers.values():
            wanted.update(dict.fromkeys(peers))
        self._followed = wanted
        for gone in [each for each in self._known if each not in wanted]:
            del self._known[gone]
            self._tell(ReachChanged(address=gone, reachable=False), now)
        for address in servers:
            # Another method of forwarding may reach it where the former one did not.
            if address in self._known:
                self._tell_reach(address, now)
        self._neighbours.follow(self._followed)

    def _tell_reach(self, address: IPAddress, now: int) -> None:
        judged = self._judged(address, self._known[address])
        self._tell(ReachChanged(address=address, reachable=judged is not None and judged.next_hop is not None), now)

    def _judged(self, address: IPAddress, neighbour: Neighbour | None) -> Neighbour | None:
        """What is known of an address as those that have it see it: behind a gateway, DR reaches nobody."""
        if neighbour is None or neighbour.gateway is None:
            return neighbour
        ways = [way_to(each, {address: neighbour}) for each in self._servers.get(address, ())]
        return next((each for each in ways if each.next_hop is not None), ways[0] if ways else neighbour)

    @property
    def _resolving(self) -> bool:
        return any(each not in self._known for each in self._servers)

    def _settle(self, now: int) -> None:
        if self._hold_until is not None:
            if now < self._hold_until and self._resolving:
                return
            self._hold_until = None
        if self._dirty and self._virtual_servers is not None:
            self._dirty = False
            self._plane.want_table(wanted_table(self._monitor.status(), self._known, self._peer()))
        self._plane.settle(now)
        self._sweeps.start(now)
        if self._verdict_changed or self._saved_for != self._plane.renewals:
            # After the maps, never before them: this is a file.
            self._verdict_changed = False
            self._save()

    def _save(self) -> None:
        known, renewals = self._monitor.remember(), self._plane.renewals
        if (known, renewals) != (self._saved, self._saved_for):
            self._saved, self._saved_for = known, renewals
            self._verdicts.save(known)

    def _peer(self) -> NextHop | None:
        for peers in self._peers.values():
            for address in peers:
                neighbour = self._known.get(address)
                # It is asked by a frame that is sent on as it is: no router may be between, nor may it be ourselves.
                if neighbour is None or neighbour.next_hop is None or neighbour.gateway is not None:
                    continue
                if not neighbour.next_hop.local:
                    return neighbour.next_hop
        return None

    def _arm(self, now: int) -> None:
        deadlines = [self._monitor.next_deadline(), self._plane.next_deadline(), self._sweeps.next_deadline()]
        if self._hold_until is not None and self._resolving:
            deadlines.append(self._hold_until)
        elif self._dirty or self._verdict_changed or self._plane.waiting:
            deadlines.append(now)
        self._wake.wake_at(min((each for each in deadlines if each is not None), default=None))

    def _log_neighbour(self, address: IPAddress, former: Neighbour | None, neighbour: Neighbour | None) -> None:
        if neighbour is None or former == neighbour:
            return
        if neighbour.next_hop is None:
            self._reports.log("warning", "neighbour_unreachable", address=address, reason=neighbour.reason)
        elif former is not None and former.next_hop is None:
            self._reports.log("info", "neighbour_reachable", address=address, mac=neighbour.next_hop.destination_mac)
        elif former is not None and former.next_hop is not None:
            self._reports.log(
                "info",
                "neighbour_moved",
                address=address,
                mac=neighbour.next_hop.destination_mac,
                former=former.next_hop.destination_mac,
            )


def _scoped(peer: IPAddress, interface: str) -> IPAddress:
    """A link-local address says nothing without its interface."""
    if isinstance(peer, IPv6Address) and peer.is_link_local and not peer.scope_id:
        return IPv6Address(f"{peer}%{interface}")
    return peer
