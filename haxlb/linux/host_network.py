"""What the speaker has on this host besides sockets: addresses, routes, virtual MACs, settings, the firewall's table.

`begin` makes what must be there before interfaces are looked at, `finish` does what may come after the speaker has got
its instances: what it moves from one instance to another stays on, and what nobody wants any more goes last.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from haxlb.daemon.messages import ConfigureSpeaker
from haxlb.linux.addresses import RENEW_EVERY_S, Addresses, Turn
from haxlb.linux.firewall import Firewall, quiet_interfaces, refused_addresses
from haxlb.linux.links import Links
from haxlb.linux.log import Log
from haxlb.linux.renewer import Outcome, Renewer
from haxlb.linux.routes import devices_of
from haxlb.linux.routing import Routing
from haxlb.linux.rtnetlink import Rtnetlink
from haxlb.linux.static_entries import StaticEntries, devices
from haxlb.linux.sysctls import NO_LOCAL_IGMP, Sysctls, promote_secondaries
from haxlb.linux.virtual_macs import VirtualMacs
from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.errors import HostError
from haxlb.model.instance import VrrpInstance
from haxlb.model.routes import Route, Rule
from haxlb.model.tracking import TrackKind

_FIREWALL_PATIENCE_S = 2.0
_PORTION = 16
"""Addresses that are renewed in one go: 3 ms of IPv6."""
_MOST_ROUTES = 128
"""Routes and rules that are looked after in one go: 2 ms."""
_DUPLICATES_EVERY = 14
"""Rounds of renewal between two looks for duplicates: some ten seconds."""

_EVENTS = {
    "addresses": ("vip_not_renewed", "vips_renewed_again"),
    "routes": ("route_not_renewed", "routes_renewed_again"),
    "static": ("static_entry_missing", "static_entries_there_again"),
    "virtual_macs": ("virtual_mac_not_removed", "virtual_macs_removed"),
    "firewall": ("packet_filter_not_in_force", "packet_filter_in_force_again"),
    "duplicates": ("vip_duplicate", "vip_duplicate_gone"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What `Links.watch` is to be told."""

    interfaces: tuple[str, ...]
    vips: tuple[IPAddress, ...]
    sources: dict[str, frozenset[IPAddress]]


@dataclass(frozen=True, slots=True)
class _Batch:
    """Requests, and who wants to hear what became of them."""

    requests: tuple[bytes, ...]
    done: Callable[[Outcome], None]


class HostNetwork:
    """Everything of ours in the kernel's tables, but for the data plane."""

    def __init__(self, rtnetlink: Rtnetlink, links: Links, log: Log, renewer: Renewer | None = None) -> None:
        """Without a `renewer`, `renew` waits for the kernel."""
        self._rtnetlink = rtnetlink
        self._renewer = renewer
        settled = renewer.wait if renewer is not None else lambda: None
        self.addresses = Addresses(rtnetlink, links.index, before_removal=settled)
        self.routing = Routing(rtnetlink, links.index, before_removal=settled)
        self._virtual_macs = VirtualMacs(rtnetlink, Sysctls(log))
        self._static = StaticEntries(rtnetlink, self.routing, links.index, before_removal=settled)
        self._sysctls = Sysctls(log)
        self._firewall = Firewall(lambda problem: self._note("firewall", str(problem or "")))
        self._log = log
        self._config = ConfigureSpeaker(instances=(), garp_frames=())
        self._former: tuple[VrrpInstance, ...] = ()
        self._problems: dict[str, str] = {}
        self._portion = 0
        self._rounds = 0

    def begin(self, config: ConfigureSpeaker) -> str:
        """Make virtual MACs; why an instance lacks its own, empty when all is well."""
        self._former, self._config = self._config.instances, config
        self.addresses.lifetime_s = config.settings.vip_lifetime_s
        self._firewall.table = config.firewall_table
        quiet = quiet_interfaces(config.instances)
        if not self._former and not all(map(_exists, quiet)):
            # Before they join a group: the report of one is one too many.
            self._firewall.refuse_at_once(refused_addresses(config.instances), quiet)
        return self.make()

    @property
    def virtual_interfaces(self) -> tuple[str, ...]:
        """Those of virtual MACs that are there, or were until somebody removed them."""
        return self._virtual_macs.made

    def make(self) -> str:
        """Make virtual MACs and settings, again where they have gone with an interface; what could not be."""
        problems = self._virtual_macs.ensure(self._config.instances)
        settings = promote_secondaries(
            each.interface for each in self._config.instances if each.promote_secondaries and not each.virtual_mac
        )
        if self._config.settings.disable_local_igmp:
            settings |= NO_LOCAL_IGMP
        self._sysctls.hold(settings)
        return "; ".join(map(str, problems))

    def watched(self, *, former: bool = False) -> Watched:
        """Interfaces that are looked at, and addresses that are nobody's own; `former`: before the reload as well."""
        instances = (*self._former, *self._config.instances) if former else self._config.instances
        vips = _vips(instances)
        names = [each.interface for each in instances]
        names += [name for each in instances for mac in each.virtual_macs for name in (mac.interface, mac.base)]
        names += [vip.interface for vip in vips]
        names += [name for route in (*_routes(instances), *self._config.static_routes) for name in devices_of(route)]
        names += devices(self._config.static_addresses)
        tracks = [track for each in instances for track in each.tracks]
        tracks += [track for each in self._config.sync_groups for track in each.tracks]
        names += [track.name for track in tracks if track.kind is TrackKind.INTERFACE]
        return Watched(
            interfaces=tuple(dict.fromkeys(names)),
            vips=tuple(dict.fromkeys(vip.address for vip in vips)),
            sources=_tracked_sources(self._config.instances),
        )

    def prepare(self) -> None:
        """Encode what a take-over sends."""
        instances = self._config.instances
        self.addresses.prepare(_vips(instances))
        self.routing.prepare(
            (*self._config.static_routes, *_routes(instances)), (*self._config.static_rules, *_rules(instances))
        )

    def finish(self) -> None:
        """Take off what is not wanted, put on what is static, let packets in or not."""
        config = self._config
        self._try("addresses", self._reconcile)
        # Static rules were prepared, and got their preferences, in the order of the file.
        problems = self._static.apply(config.static_addresses, config.static_routes, config.static_rules)
        self._note("static", "; ".join(map(str, problems)))
        self._try("virtual_macs", lambda: self._virtual_macs.retire(config.instances))
        self._firewall.refuse(refused_addresses(config.instances), quiet_interfaces(config.instances))
        self._former = ()

    def renew(self, since: float | None = None) -> float:
        """Extend the lifetimes of some addresses, and see to some routes; in how many seconds to come again.

        `since` is when it was last seen that they are ours, as `Renewer.begin` has it.

        Some only: renewing 250 IPv6 addresses at once takes the kernel 50 ms, in which no advert would leave.
        """
        held = len(self.addresses.held)
        portions = max(1, -(-held // _PORTION))
        if self._renewer is not None and self._renewer.busy:
            return RENEW_EVERY_S / portions  # it is still the turn of the same ones
        turn = self.addresses.begin_turn(_PORTION)
        batches = [_Batch(turn.requests, lambda outcome: self._renewed(turn, outcome))]
        self._portion += 1
        whole_round = self._portion >= portions
        if whole_round:
            self._portion = 0
            batches += self._routes_and_static()
        self._carry_out(batches, since)
        if whole_round:
            self._look_after()
        return RENEW_EVERY_S / portions

    def _routes_and_static(self) -> list[_Batch]:
        routes, static = self.routing.begin_turn(_MOST_ROUTES), self._static.begin_turn()

        def routes_done(outcome: Outcome) -> None:
            self._try("routes", lambda: self.routing.end_turn(routes, outcome))

        def static_done(outcome: Outcome) -> None:
            self._note("static", "; ".join(map(str, self._static.end_turn(static, outcome))))

        return [_Batch(routes.requests, routes_done), _Batch(static.requests, static_done)]

    def _carry_out(self, batches: list[_Batch], since: float | None) -> None:
        """In one go, by the thread where there is one: nobody else waits for the kernel then."""
        requests = [request for batch in batches for request in batch.requests]

        def done(outcome: Outcome) -> None:
            begin = 0
            for batch in batches:
                end = begin + len(batch.requests)
                batch.done(outcome if isinstance(outcome, Exception) else outcome[begin:end])
                begin = end

        if not requests:
            done([])
        elif self._renewer is not None:
            self._renewer.begin(requests, done, since)
        else:
            try:
                outcome: Outcome = self._rtnetlink.change(requests)
            except OSError as problem:
                outcome = problem
            done(outcome)

    def _renewed(self, turn: Turn, outcome: Outcome) -> None:
        self._try("addresses", lambda: self.addresses.end_turn(turn, outcome))

    def restore(self) -> None:
        """Put back what somebody took off, at once."""
        self._try("addresses", self.addresses.restore)
        self._try("routes", lambda: self.routing.renew(_MOST_ROUTES))
        self._note("static", "; ".join(map(str, self._static.renew())))

    def _look_after(self) -> None:
        if self._firewall.restore():
            self._log("warning", "packet_filter_removed", detail="somebody took the table haxlb away: made again")
        self._rounds += 1
        if self._rounds % _DUPLICATES_EVERY == 0:
            self._try("duplicates", self._look_for_duplicates)

    async def close(self) -> None:
        """Take off what the speaker does not: static entries, virtual MACs, settings, the firewall's table."""
        if self._renewer is not None:
            self._renewer.close()
        self._note("static", "; ".join(map(str, self._static.close())))
        self._try("virtual_macs", self._virtual_macs.close)
        self._sysctls.release()
        try:
            await asyncio.wait_for(self._firewall.close(), _FIREWALL_PATIENCE_S)
        except TimeoutError:
            self._note(
                "firewall", f"nft did not end within {_FIREWALL_PATIENCE_S:g} s: the table haxlb may still be there"
            )

    def _reconcile(self) -> None:
        instances = self._config.instances
        left_over = self.addresses.reconcile(_vips(instances))
        if left_over:
            names = ", ".join(f"{vip} on {vip.interface}" for vip in left_over)
            self._log("warning", "vips_left_over", detail="taken off: no instance here is MASTER of them", vips=names)
        static = self._config.static_routes, self._config.static_rules
        self.routing.reconcile(
            [each for each in _routes(instances) if each not in static[0]],
            [each for each in _rules(instances) if each not in static[1]],
        )

    def _look_for_duplicates(self) -> None:
        found = self.addresses.duplicates()
        if found:
            names = ", ".join(f"{vip} on {vip.interface}" for vip in found)
            raise HostError(
                f"another host has {names}: duplicate address detection failed",
                remedy="find it (ip -6 neigh), or take `-nodad` away",
            )

    def _try(self, what: str, action: Callable[[], None]) -> None:
        try:
            action()
        except HostError as problem:
            self._note(what, str(problem))
        else:
            self._note(what, "")

    def _note(self, what: str, problem: str) -> None:
        """It is tried again and again: the log wants to know of changes only."""
        before = self._problems.get(what, "")
        self._problems[what] = problem
        if problem == before:
            return
        wrong, right = _EVENTS[what]
        if problem:
            self._log("error", wrong, reason=problem)
        else:
            self._log("info", right)


def _exists(interface: str) -> bool:
    try:
        socket.if_nametoindex(interface)
    except OSError:
        return False
    return True


def _vips(instances: Iterable[VrrpInstance]) -> list[Vip]:
    return [vip for each in instances for vip in (*each.vips, *each.excluded_vips)]


def _tracked_sources(instances: Iterable[VrrpInstance]) -> dict[str, frozenset[IPAddress]]:
    """By interface (track_src_ip)."""
    found: dict[str, frozenset[IPAddress]] = {}
    for each in instances:
        if each.track_source and each.source is not None:
            found[each.interface] = found.get(each.interface, frozenset()) | {each.source}
    return found


def _routes(instances: Iterable[VrrpInstance]) -> list[Route]:
    return [route for each in instances for route in each.routes]


def _rules(instances: Iterable[VrrpInstance]) -> list[Rule]:
    return [rule for each in instances for rule in each.rules]
