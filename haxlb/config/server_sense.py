"""Whether the values of a virtual server make sense together."""

from __future__ import annotations

from haxlb.health.outcome import seconds
from haxlb.health.rise_fall import fall_time_us, probe_limit_us
from haxlb.model.node import RealServer, Scheduler
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.section import Section
from keepalived_compat.source import Span

_HASHING = (Scheduler.SH, Scheduler.MH)


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

    def complain_of_persistence(self, scheduler: Scheduler | None) -> None:
        """persistence_timeout does what it says, or nothing."""
        entry = self._section.entry("persistence_timeout")
        if entry is None:
            return
        if entry.value == 0:
            self._complaints.warning(
                "old-spelling",
                entry.span,
                "persistence_timeout 0 is taken as no persistence; keepalived calls it invalid and does the same",
                "delete the line",
            )
            return
        if scheduler in _HASHING and not self._section.has("sh-port") and not self._section.has("mh-port"):
            self._complaints.warning(
                "useless-persistence",
                entry.span,
                f"persistence_timeout does nothing here: `lb_algo {scheduler.value}` already sends all connections of"
                " a client to one server",
                "delete the line",
            )
            return
        self._complaints.error(
            "not-supported-yet",
            entry.span,
            "persistence_timeout is not supported yet: connections of one client may go to different servers",
            "with `lb_algo sh` a client's connections go to one server",
        )

    def _place(self, name: str) -> Span:
        entry = self._section.entry(name)
        return entry.argument_span if entry else self._head
