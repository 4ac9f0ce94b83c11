"""`virtual_server` and `real_server` blocks to values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from haxlb.config.checks import CheckedServer, read_checks, said
from haxlb.config.commands import command_of
from haxlb.config.defaults import Defaults
from haxlb.config.server_sense import ServerSense
from haxlb.model.addresses import Endpoint, Protocol
from haxlb.model.node import RealServer, Scheduler, VirtualServer
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.nearest import did_you_mean
from keepalived_compat.section import Entry, Section
from keepalived_compat.source import Span
from keepalived_compat.values import Unusable, endpoint_address, port

_METHODS = ("NAT", "DR", "TUN")
_SCHEDULERS = {each.value: each for each in Scheduler}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedServer:
    """A virtual server with the place that cross-checks point at."""

    virtual_server: VirtualServer
    head: Span
    section: Section
    """What its block says."""
    targets: tuple[tuple[IPv4Address, Span], ...] = ()
    """The addresses that packets are forwarded to."""


class VirtualServerReader:
    """Reads one `virtual_server` block."""

    def __init__(self, entry: Entry, defaults: Defaults, complaints: Complaints) -> None:
        self._entry = entry
        self._defaults = defaults
        self._section = entry.section if entry.section is not None else Section("virtual_server")
        self._complaints = complaints
        self._said = said(self._section)
        """To all checkers of its real servers."""
        self._title = " ".join(each.text for each in entry.words[:3])

    def read(self) -> PlacedServer | None:
        """The virtual server; None when it cannot be used, which has been complained of."""
        head = self._head()
        # All of it is read even where a part makes it unusable: every complaint at once.
        scheduler, direct, protocol = self._scheduler(), self._direct(), self._protocol()
        sense = ServerSense(self._section, self._title, self._head_span(), self._complaints)
        sense.complain_of_persistence(scheduler)
        if head is None:
            return None
        address, number = head
        servers = self._servers(number, direct=direct)
        sorry = self._sorry(number)
        if scheduler is None or not direct or protocol is None or not self._family():
            return None
        if not servers:
            self._complaints.error(
                "no-real-server",
                self._head_span(),
                f"{self._title} has no usable real_server and is left out, as in keepalived",
                "add `real_server ADDRESS PORT { … }`",
            )
            return None
        quorum, hysteresis = self._quorum(servers)
        section = self._section
        sense.complain_of_sorry(sorry, servers)
        sense.complain_of_slow_probes(servers)
        return PlacedServer(
            head=self._head_span(),
            section=section,
            targets=tuple(self._targets(servers, sorry)),
            virtual_server=VirtualServer(
                endpoint=Endpoint(address=address, port=number, protocol=protocol),
                scheduler=scheduler,
                mh_port=self._hash_port(scheduler),
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

    def _head_span(self) -> Span:
        return self._entry.argument_span

    def _leave_out(self, where: Span, why: str, hint: str = "") -> None:
        self._complaints.error("not-supported-yet", where, f"{why}: {self._title} is left out", hint)

    def _head(self) -> tuple[IPv4Address, int] | None:
        words = self._entry.words[1:]
        where = self._head_span()
        if words[0].text in ("fwmark", "group"):
            self._leave_out(where, f"virtual_server {words[0].text} is not supported yet", "name ADDRESS and PORT")
            return None
        try:
            taken = endpoint_address(words[0].text)
            number = port(words[1].text) if len(words) > 1 else None
        except Unusable as problem:
            self._complaints.error(
                "bad-value",
                where,
                f"virtual_server: {problem.message}; its block is not used",
                problem.hint or "virtual_server ADDRESS PORT { … }",
            )
            return None
        if taken.caveat:
            self._complaints.warning("inexact-value", where, taken.caveat)
        for word in words[2:3]:
            self._complaints.warning(
                "surplus-words", word, f"`virtual_server` takes no further words: `{word.text}` is ignored"
            )
        if isinstance(taken.value, IPv6Address):
            self._leave_out(where, "IPv6 is not supported yet")
            return None
        if number is None:
            self._leave_out(where, "a virtual server for all ports is not supported yet", "name the port")
            return None
        return (taken.value, number) if isinstance(taken.value, IPv4Address) else None

    def _scheduler(self) -> Scheduler | None:
        entry = self._section.entry("lb_algo")
        if entry is None:
            if "lb_algo" not in self._section.refused:
                self._leave_out(
                    self._head_span(),
                    "no lb_algo is named, so keepalived takes wlc, which is not supported yet",
                    "add `lb_algo wrr`",
                )
            else:
                self._leave_out(
                    self._head_span(),
                    "without a usable lb_algo keepalived takes wlc, which is not supported yet",
                    "correct its lb_algo",
                )
            return None
        if entry.value not in _SCHEDULERS:
            self._leave_out(
                entry.argument_span, f"scheduler {entry.value} is not supported yet", f"one of {', '.join(_SCHEDULERS)}"
            )
            return None
        return _SCHEDULERS[entry.value]

    def _hash_port(self, scheduler: Scheduler) -> bool:
        found = None
        for name, needed in (("sh-port", Scheduler.SH), ("mh-port", Scheduler.MH)):
            entry = self._section.entry(name)
            if entry is None:
                continue
            if scheduler is not needed:
                self._complaints.warning(
                    "useless-flag", entry.span, f"`{name}` is for scheduler {needed.value} only, and is ignored"
                )
                continue
            found = entry
            algo = self._section.entry("lb_algo")
            if algo is not None and self._section.entries.index(algo) > self._section.entries.index(entry):
                self._complaints.warning(
                    "order",
                    entry.span,
                    f"`{name}` stands before lb_algo: taken here, ignored by keepalived",
                    "put it after lb_algo",
                )
        return found is not None

    def _direct(self) -> bool:
        """Whether the forwarding method is DR; says so when it is not."""
        entry = self._section.entry("lb_kind")
        if entry is None:
            if "lb_kind" not in self._section.refused:
                self._leave_out(
                    self._head_span(),
                    "no lb_kind is named, so keepalived takes NAT, which is not supported yet",
                    "add `lb_kind DR`",
                )
            return False
        method = self._method(entry)
        if method is None:
            return False
        if method != "DR":
            self._leave_out(entry.argument_span, f"lb_kind {method} is not supported yet", "DR is")
        return method == "DR"

    def _method(self, entry: Entry) -> str | None:
        """The forwarding method that an entry names."""
        word = entry.words[1]
        if word.text in _METHODS:
            return word.text
        if word.text.upper() in _METHODS:
            self._complaints.warning(
                "inexact-value",
                word,
                f"`{word.text}` is taken as {word.text.upper()}; keepalived wants capitals, and takes NAT",
                f"write {word.text.upper()}",
            )
            return word.text.upper()
        self._complaints.error(
            "bad-value",
            word,
            f"{entry.keyword.name}: `{word.text}` is no forwarding method; {self._title} is left out",
            did_you_mean(word.text, _METHODS) or "NAT, DR or TUN",
        )
        return None

    def _protocol(self) -> Protocol | None:
        entry = self._section.entry("protocol")
        if entry is None and "protocol" in self._section.refused:
            return Protocol.UDP
        if entry is None:
            self._complaints.warning(
                "missing-protocol",
                self._head_span(),
                f"{self._title} names no protocol, so it is UDP, as in keepalived: TCP connections are not served",
                "add `protocol TCP`",
            )
            return Protocol.UDP
        if entry.value == "SCTP":
            self._leave_out(entry.argument_span, "protocol SCTP is not supported yet")
            return None
        return Protocol(entry.value)

    def _family(self) -> bool:
        entry = self._section.entry("ip_family")
        if entry is not None and entry.value == "inet6":
            self._complaints.warning(
                "useless-flag", entry.span, "ip_family inet6 does not fit the IPv4 address and is ignored"
            )
        return True

    def _targets(self, servers: tuple[RealServer, ...], sorry: RealServer | None) -> Iterator[tuple[IPv4Address, Span]]:
        used = {each.address for each in servers} | ({sorry.address} if sorry is not None else set())
        for entry in (*self._section.all("real_server"), *self._section.all("sorry_server")):
            if entry.value[0] in used:
                yield entry.value[0], entry.argument_span

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
        return entry.argument_span if entry else self._head_span()

    def _servers(self, service_port: int, *, direct: bool) -> tuple[RealServer, ...]:
        found: dict[tuple[IPv4Address, int], tuple[RealServer, Entry]] = {}
        for entry in self._section.all("real_server"):
            server = self._real_server(entry, service_port, direct=direct)
            if server is None:
                continue
            first, place = found.setdefault((server.address, server.port), (server, entry))
            if first is not server:
                self._complaints.error(
                    "duplicate-server",
                    entry.argument_span,
                    f"real_server {server.key} stands twice in {self._title}; the second is not used, as in keepalived",
                    f"the first stands at {place.argument_span}; delete one",
                )
        return tuple(server for server, _ in found.values())

    def _real_server(self, entry: Entry, service_port: int, *, direct: bool) -> RealServer | None:
        target = self._target(entry)
        if target is None:
            return None
        address, written_port = target
        section = entry.section if entry.section is not None else Section("real_server")
        method = section.entry("lvs_method")
        if method is not None and self._method(method) != "DR":
            self._complaints.error(
                "not-supported-yet",
                method.argument_span,
                f"lvs_method other than DR is not supported yet: real_server {address} is left out",
            )
            return None
        checked = CheckedServer(
            section=section,
            said=said(section, self._said),
            address=address,
            port=written_port or service_port,
        )
        checks = tuple(read_checks(checked, self._complaints))
        if direct:
            self._complain_of_port(entry, written_port, service_port)
        if not checks and not any(name.endswith(("_CHECK", "_GET")) for name in section.refused):
            self._complaints.note(
                "unchecked-server",
                entry.argument_span,
                f"real_server {address} has no check: it counts as up",
                "add `TCP_CHECK { }`",
            )
        return RealServer(
            address=address,
            port=service_port if direct or written_port is None else written_port,
            weight=section.value("weight", self._section.value("weight", 1)),
            inhibit_on_failure=section.value("inhibit_on_failure", self._section.has("inhibit_on_failure")),
            checks=checks,
            notify_up=command_of(section, "notify_up"),
            notify_up_at_start=self._defaults.notify_up_at_start and bool(command_of(section, "notify_up")),
            notify_down=command_of(section, "notify_down"),
            smtp_alert=section.value("smtp_alert", self._defaults.smtp_alert_server),
        )

    def _sorry(self, service_port: int) -> RealServer | None:
        method = self._section.entry("sorry_server_lvs_method")
        entry = self._section.entry("sorry_server")
        if entry is None:
            return None
        if method is not None and self._method(method) != "DR":
            self._complaints.error(
                "not-supported-yet",
                method.argument_span,
                "sorry_server_lvs_method other than DR is not supported yet: there is no sorry server",
            )
            return None
        target = self._target(entry)
        if target is None:
            return None
        self._complain_of_port(entry, target[1], service_port)
        return RealServer(address=target[0], port=service_port)

    def _target(self, entry: Entry) -> tuple[IPv4Address, int | None] | None:
        pair: tuple[Any, int | None] = entry.value
        address, number = pair
        if isinstance(address, IPv4Address):
            return address, number
        self._complaints.error(
            "not-supported-yet",
            entry.argument_span,
            f"IPv6 is not supported yet: {entry.keyword.name} {address} is left out",
        )
        return None

    def _complain_of_port(self, entry: Entry, written: int | None, service_port: int) -> None:
        if written is not None and written != service_port:
            name = f"{entry.keyword.name} {entry.words[1].text}"
            self._complaints.warning(
                "port-reset",
                entry.words[2],
                f"DR does not change ports: packets to {name} keep port {service_port},"
                f" as with keepalived; its checks still go to {written}",
                f"write {service_port}, and connect_port {written} in its check if that is meant",
            )
