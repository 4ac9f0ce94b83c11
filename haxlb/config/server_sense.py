"""Whether the values of a virtual server make sense together."""

from __future__ import annotations

from collections.abc import Iterable

from haxlb.config.real_servers import PlacedReal
from haxlb.config.server_head import Head
from haxlb.health.outcome import seconds
from haxlb.health.rise_fall import fall_time_us, probe_limit_us
from haxlb.model.virtual_server import ForwardingMethod, RealServer, Scheduler
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.section import Section
from keepalived_compat.source import Span, Word

MOST_COMPARED = 256
"""Servers that a scheduler looks at for each new flow (bpf/compare.h)."""
MOST_IN_TURN = 16384
"""Servers of which each has a turn, or a slot of a ring: as many as there are slots."""


_NAT = ForwardingMethod.NAT
"""Python 3.11 takes longer to look a member up in its class than to compare it."""


class ServerSense:
    """Complaints about one `virtual_server`."""

    def __init__(self, section: Section, title: str, head: Span, complaints: Complaints) -> None:
        self._section = section
        self._title = title
        self._head = head
        self._complaints = complaints

    def complain_of_sorry(self, sorry: RealServer | None, servers: tuple[RealServer, ...]) -> None:
        """The sorry server is none of those that it stands in for."""
        if sorry is not None and any(each.key == sorry.key for each in servers):
            self._complaints.warning(
                "sorry-is-real",
                self._place("sorry_server"),
                f"the sorry_server of {self._title} is one of its real servers: when they are down, so is it",
                "name a host that has nothing to do with them",
            )

    def complain_of_slow_probes(self, servers: tuple[RealServer, ...]) -> None:
        """Once for a virtual server: its real servers are mostly checked alike."""
        for server in servers:
            for check in server.checks:
                if probe_limit_us(check) > check.delay_loop_us:
                    self._complaints.note(
                        "slow-probe",
                        self._place("delay_loop"),
                        f"{check.kind.value} of {server.key} may last {seconds(probe_limit_us(check))}, longer than its"
                        f" delay_loop of {seconds(check.delay_loop_us)}: the next probe waits for its end,"
                        f" and a server that hangs is out after at most {seconds(fall_time_us(check))}",
                        "a shorter connect_timeout finds it sooner",
                    )
                    return

    def complain_of_targets(self, head: Head, targets: Iterable[PlacedReal]) -> None:
        """No server has an address that is served: its packets would come back to the director.

        By NAT that is the director itself, as 127.0.0.1 is; packets to it are the kernel's as they are.
        """
        served = {address for address, _ in head.places}
        for each, line in targets:
            if each.method is _NAT:
                changed = head.ports - {0, each.port} if each.port else None
                if changed and (each.address in served or each.address.is_loopback):
                    self._complain_of_local_port(each, line.argument, min(changed))
            elif each.address in served:
                self._complaints.warning(
                    "server-is-vip",
                    line.argument,
                    f"{each.key} is a virtual address of {self._title}: to find the server that has it, a director"
                    " asks for an address of its own",
                    "name the server's own address",
                )

    def _complain_of_local_port(self, server: RealServer, where: Word, port: int) -> None:
        self._complaints.warning(
            "local-port",
            where,
            f"{server.key} is this host itself, and packets to it are not translated: they keep port {port}, whatever"
            f" its checks say; IPVS changes it to {server.port}",
            f"have the program listen on port {port}, too, or redirect it: nft … tcp dport {port} redirect to"
            f" :{server.port}",
        )

    def in_turn(self, servers: tuple[RealServer, ...], *, sorry: bool) -> tuple[RealServer, ...]:
        """As many of the servers as can have a turn each; `sorry`: another one stands in for them."""
        most = MOST_IN_TURN - sorry
        if len(servers) <= most:
            return servers
        self._complaints.error(
            "too-many-servers",
            self._head,
            f"{self._title} has {len(servers)} servers, and {most} can have a turn: those after {servers[most - 1].key}"
            " are left out",
            "divide them among several virtual servers",
        )
        return servers[:most]

    def bearable(self, scheduler: Scheduler, servers: int) -> Scheduler:
        """The scheduler, or wrr where it would have to compare too many servers for each connection."""
        if scheduler.hashes or scheduler.takes_turns or servers <= MOST_COMPARED:
            return scheduler
        self._complaints.error(
            "too-many-servers",
            self._place("lb_algo"),
            f"{self._title} has {servers} servers, and {scheduler.value} can compare {MOST_COMPARED}: wrr is taken",
            "write `lb_algo wrr`, or one that hashes: mh",
        )
        return Scheduler.WRR

    def _place(self, name: str) -> Span:
        entry = self._section.entry(name)
        return entry.argument_span if entry else self._head
