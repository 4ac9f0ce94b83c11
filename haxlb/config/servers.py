"""`virtual_server` blocks to values."""

from __future__ import annotations

from dataclasses import dataclass

from haxlb.config.commands import command_of
from haxlb.config.defaults import Defaults
from haxlb.config.real_servers import PlacedReal, RealServerReader, Service
from haxlb.config.server_groups import ServerGroups
from haxlb.config.server_head import HeadReader
from haxlb.config.server_method import Method, read_method
from haxlb.config.server_schedule import ScheduleReader
from haxlb.config.server_sense import ServerSense
from haxlb.model.addresses import Protocol
from haxlb.model.virtual_server import RealServer, VirtualServer
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.section import Entry, Section
from keepalived_compat.source import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedServer:
    """A virtual server with the place that cross-checks point at."""

    virtual_server: VirtualServer
    head: Span
    section: Section
    """What its block says."""
    targets: tuple[PlacedReal, ...] = ()
    """The servers that packets are forwarded to, the sorry server included."""


_PROTOCOLS = {each.value: each for each in Protocol}


class VirtualServerReader:
    """Reads one `virtual_server` block."""

    def __init__(self, entry: Entry, groups: ServerGroups, defaults: Defaults, complaints: Complaints) -> None:
        self._entry = entry
        self._defaults = defaults
        self._groups = groups
        self._section = entry.section if entry.section is not None else Section("virtual_server")
        self._complaints = complaints
        self._texts = entry.texts
        self._title = " ".join(self._texts[:3])
        self._where = entry.argument_span

    def read(self) -> PlacedServer | None:
        """The virtual server; None when it cannot be used, which has been complained of."""
        section = self._section
        head = HeadReader(self._entry, self._groups, self._complaints).read(section.value("ip_family", ""))
        # All of it is read even where a part makes it unusable: every complaint at once.
        protocol, method = self._protocol(), self._method()
        schedule = ScheduleReader(section, self._title, self._where, self._complaints).read(head, protocol)
        if head is None:
            return None
        service = Service(title=self._title, section=section, head=head, protocol=protocol, method=method)
        reader = RealServerReader(service, self._defaults, self._complaints)
        servers, sorry = reader.read_all(), reader.read_sorry()
        if not servers:
            self._complaints.error(
                "no-real-server",
                self._where,
                f"{self._title} has no usable real_server and is left out, as in keepalived",
                "add `real_server ADDRESS PORT { … }`",
            )
            return None
        sense = ServerSense(section, self._title, self._where, self._complaints)
        servers = sense.in_turn(servers, sorry=sorry is not None)
        quorum, hysteresis = self._quorum(servers)
        sense.complain_of_sorry(sorry, servers)
        sense.complain_of_slow_probes(servers)
        sense.complain_of_targets(head, reader.placed)
        endpoints = head.endpoints(protocol)
        return PlacedServer(
            head=self._where,
            section=section,
            targets=reader.placed,
            virtual_server=VirtualServer(
                endpoint=endpoints[0],
                more_endpoints=endpoints[1:],
                group=head.group,
                fwmark=head.fwmark,
                scheduler=sense.bearable(schedule.scheduler, len(servers) + (sorry is not None)),
                mh_port=schedule.mh_port,
                persistence_s=schedule.persistence_s,
                persistence_granularity=schedule.persistence_granularity,
                one_packet=schedule.one_packet,
                alpha=section.has("alpha"),
                quorum=quorum,
                hysteresis=hysteresis,
                quorum_up=command_of(section, "quorum_up"),
                quorum_down=command_of(section, "quorum_down"),
                smtp_alert=section.value("smtp_alert", self._defaults.smtp_alert_checker),
                sorry_server=sorry,
                real_servers=servers,
            ),
        )

    def _method(self) -> Method:
        entry = self._section.entry("lb_kind")
        if entry is not None:
            return read_method(entry, self._complaints, loss="NAT is taken, as in keepalived") or Method()
        if "lb_kind" not in self._section.refused and not self._all_have_methods():
            self._complaints.warning(
                "missing-method",
                self._where,
                f"{self._title} names no lb_kind: NAT is taken, as in keepalived",
                "add `lb_kind DR`, or NAT where it is meant",
            )
        return Method()

    def _all_have_methods(self) -> bool:
        reals = self._section.all("real_server")
        return bool(reals) and all(each.section is not None and each.section.has("lvs_method") for each in reals)

    def _protocol(self) -> Protocol:
        entry = self._section.entry("protocol")
        marked = self._texts[1] == "fwmark"
        if entry is not None:
            return _PROTOCOLS[entry.value]
        if "protocol" in self._section.refused:
            return Protocol.UDP
        if marked:
            self._complaints.note(
                "missing-protocol",
                self._where,
                f"{self._title} names no protocol: TCP is served. A mark is of any protocol with keepalived;"
                " here a virtual_server is of one",
                "add `protocol TCP`, and for UDP a second virtual_server of this fwmark with `protocol UDP`",
            )
            return Protocol.TCP
        self._complaints.warning(
            "missing-protocol",
            self._where,
            f"{self._title} names no protocol, so it is UDP, as in keepalived: TCP connections are not served",
            "add `protocol TCP`",
        )
        return Protocol.UDP

    def _quorum(self, servers: tuple[RealServer, ...]) -> tuple[int, int]:
        weights = sum(each.weight for each in servers)
        quorum, hysteresis = self._section.value("quorum", 1), self._section.value("hysteresis", 0)
        if quorum > max(weights, 1):
            self._complaints.warning(
                "unreachable-quorum",
                self._place("quorum"),
                f"quorum {quorum} is more than all servers weigh; {max(weights, 1)} is taken, as in keepalived",
            )
            quorum = max(weights, 1)
        if hysteresis >= quorum:
            self._complaints.warning(
                "unreachable-quorum",
                self._place("hysteresis"),
                f"hysteresis {hysteresis} must be less than the quorum; {quorum - 1} is taken, as in keepalived",
            )
            hysteresis = quorum - 1
        return quorum, hysteresis

    def _place(self, name: str) -> Span:
        entry = self._section.entry(name)
        return entry.argument_span if entry else self._where
