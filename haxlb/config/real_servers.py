"""`real_server` and `sorry_server` to values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from haxlb.config.checks import CheckedServer, Said, read_checks, said
from haxlb.config.commands import command_of
from haxlb.config.defaults import Defaults
from haxlb.config.server_head import Head
from haxlb.config.server_method import Method, read_method
from haxlb.model.addresses import IPAddress, Protocol
from haxlb.model.check import CheckKind
from haxlb.model.virtual_server import ForwardingMethod, RealServer
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.section import Entry, Section

HEAVIEST = 65_535
"""Weights are 16 bits wide in the forwarder (bpf/abi.h)."""
_OF_SERVICE = "the method of the virtual server counts"
_OPTIONS = frozenset(
    {"lvs_method", "inhibit_on_failure", "notify_up", "notify_down", "smtp_alert", "uthreshold", "lthreshold"}
)
"""What most real servers of a large file do not say."""
_NOTHING = Section("real_server")
_CHECKS = frozenset(each.value for each in CheckKind)

PlacedReal = tuple[RealServer, Entry]
"""A server, and the line that opens it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What the servers of one `virtual_server` need to know of it."""

    title: str
    section: Section
    head: Head
    protocol: Protocol
    method: Method


class RealServerReader:
    """Reads the servers of one `virtual_server`."""

    def __init__(self, service: Service, defaults: Defaults, complaints: Complaints) -> None:
        self._service = service
        self._section = service.section
        self._defaults = defaults
        self._complaints = complaints
        self._said: Said = said(service.section)
        """To all checkers of the real servers."""
        head = service.head
        self._usual_port = head.port if head.one_port else None
        """To name it changes nothing; None where there are several."""
        self._usual = self._options(_NOTHING, service.method)
        """Of a server that says nothing of its own."""
        self._placed: list[PlacedReal] = []

    @property
    def placed(self) -> tuple[PlacedReal, ...]:
        """The servers that were read and are used, and where they stand."""
        return tuple(self._placed)

    def read_all(self) -> tuple[RealServer, ...]:
        """The real servers in file order."""
        found: dict[tuple[IPAddress, int], PlacedReal] = {}
        for entry in self._section.all("real_server"):
            server = self._real_server(entry)
            if server is None:
                continue
            placed = (server, entry)
            first = found.setdefault((server.address, server.port), placed)
            if first is placed:
                continue
            self._complaints.error(
                "duplicate-server",
                entry.argument_span,
                f"real_server {server.key} stands twice in {self._service.title}; the second is not used,"
                " as in keepalived",
                f"the first stands at {first[1].argument_span}; delete one",
            )
        self._placed += found.values()
        return tuple([server for server, _ in found.values()])

    def read_sorry(self) -> RealServer | None:
        """The sorry server, None when there is none."""
        entry = self._section.entry("sorry_server")
        line = self._section.entry("sorry_server_lvs_method")
        if entry is None:
            return None
        method = None if line is None else read_method(line, self._complaints, loss=_OF_SERVICE)
        method = method or self._service.method
        if not self._fits(entry, method):
            return None
        sorry = RealServer(
            address=entry.value[0],
            port=self._port(entry, method),
            inhibit_on_failure=self._section.has("sorry_server_inhibit"),
            **_method_fields(method),
        )
        self._placed.append((sorry, entry))
        return sorry

    def _real_server(self, entry: Entry) -> RealServer | None:
        address, written = entry.value
        section = entry.section if entry.section is not None else _NOTHING
        method, options = self._service.method, self._usual
        if not _OPTIONS.isdisjoint(section.names):
            method = self._method(section)
            options = self._options(section, method)
        checked = CheckedServer(section, said(section, self._said), address, written or self._service.head.port)
        # All of it is read even where a part makes it unusable: every complaint at once.
        checks = tuple(read_checks(checked, self._complaints))
        weight = self._weight(section)
        if not self._fits(entry, method):
            return None
        if not checks and not any(name.endswith(("_CHECK", "_GET")) for name in section.refused):
            self._complaints.note(
                "unchecked-server",
                entry.argument_span,
                f"real_server {address} has no check: it counts as up",
                "add `TCP_CHECK { }`",
            )
        return RealServer(
            address=address,
            port=self._port(entry, method),
            weight=weight,
            alpha=self._alpha(section),
            checks=checks,
            **options,
        )

    def _alpha(self, section: Section) -> bool | None:
        """None where it is that of the virtual server. One of its checks that has it is enough."""
        usual = self._section.has("alpha")
        alpha = bool(section.value("alpha", usual))
        of_checks = [
            each.section.value("alpha", alpha)
            for each in section.entries
            if each.keyword.name in _CHECKS and each.section is not None
        ]
        alpha = any(of_checks) if of_checks else alpha
        return None if alpha is usual else alpha

    def _method(self, section: Section) -> Method:
        line = section.entry("lvs_method")
        method = None if line is None else read_method(line, self._complaints, loss=_OF_SERVICE)
        return method or self._service.method

    def _options(self, section: Section, method: Method) -> dict[str, Any]:
        """The fields of RealServer that `_OPTIONS` are about."""
        upper, lower = self._thresholds(section)
        notify_up = command_of(section, "notify_up")
        return {
            "inhibit_on_failure": section.value("inhibit_on_failure", self._section.has("inhibit_on_failure")),
            "notify_up": notify_up,
            "notify_up_at_start": self._defaults.notify_up_at_start and bool(notify_up),
            "notify_down": command_of(section, "notify_down"),
            "smtp_alert": section.value("smtp_alert", self._defaults.smtp_alert_server),
            "upper_threshold": upper,
            "lower_threshold": lower,
            **_method_fields(method),
        }

    def _fits(self, entry: Entry, method: Method) -> bool:
        """Packets of the virtual server can be given to it by this method; says so when not."""
        address: IPAddress = entry.value[0]
        version = address.version
        if version == 6 and address.is_link_local:  # noqa: PLR2004 - the family
            self._complaints.error(
                "bad-value",
                entry.argument_span,
                f"{_name(entry)} is link-local, and does not say on which interface: it is left out",
                "name an address that is global, or unique local (fd00::/8)",
            )
            return False
        families = self._service.head.families
        if families != {version} and method.kind is not ForwardingMethod.TUN:
            other = " and ".join(f"IPv{each}" for each in sorted(families))
            self._complaints.error(
                "mixed-family",
                entry.argument_span,
                f"{_name(entry)} is left out, as in keepalived: {self._service.title} serves {other}, and"
                f" {method.kind.value} does not change the family",
                "one virtual_server a family, or lvs_method TUN",
            )
            return False
        if self._service.protocol is Protocol.SCTP and method.kind is ForwardingMethod.NAT:
            self._complaints.error(
                "not-supported",
                entry.argument_span,
                f"{_name(entry)} is left out: NAT of SCTP is not supported, since its checksum (CRC32c) covers the"
                " whole packet and XDP cannot make it anew",
                "lb_kind DR or TUN, which leave the packet as it is",
            )
            return False
        return True

    def _port(self, entry: Entry, method: Method) -> int:
        """The port that packets have when they reach the server; 0 = that of the packet."""
        written: int | None = entry.value[1]
        head = self._service.head
        if written is None or written == self._usual_port:
            return head.port
        if not method.keeps_ports and not head.all_ports:
            return written
        kept = f"port {head.port}" if head.port else "the port that they came to"
        every = f"{self._service.title} is for all ports"
        why = f"{method.kind.value} does not change ports" if method.keeps_ports else every
        self._complaints.warning(
            "port-reset",
            entry.words[2],
            f"{why}: packets to {entry.keyword.name} {entry.words[1].text} keep {kept}, as with keepalived;"
            + (f" its checks still go to {written}" if entry.keyword.name == "real_server" else " it has no checks"),
            f"write {head.port}, and connect_port {written} in its check if that is meant"
            if head.port
            else f"write no port, and connect_port {written} in its check",
        )
        return head.port

    def _weight(self, section: Section) -> int:
        entry = section.entry("weight") or self._section.entry("weight")
        if entry is None:
            return 1
        if entry.value > HEAVIEST:
            self._complaints.warning(
                "inexact-value",
                entry.argument_span,
                f"weight {entry.value} is taken as {HEAVIEST}, the largest that there is",
                "only their ratio counts: divide all weights, and quorum and hysteresis, which are of their sum",
            )
        return min(int(entry.value), HEAVIEST)

    def _thresholds(self, section: Section) -> tuple[int, int]:
        upper, lower = section.entry("uthreshold"), section.entry("lthreshold")
        if lower is None or not lower.value:
            return (upper.value if upper is not None else 0), 0
        if upper is None or not upper.value:
            self._complaints.warning(
                "useless-option",
                lower.span,
                "lthreshold says when a server that uthreshold has stopped gets connections again; without uthreshold"
                " it does nothing, and is ignored",
                "add `uthreshold CONNECTIONS`",
            )
            return 0, 0
        if lower.value > upper.value:
            self._complaints.error(
                "bad-value",
                lower.argument_span,
                f"lthreshold {lower.value} is above uthreshold {upper.value}, which IPVS refuses; three quarters of"
                " uthreshold are taken",
                "lthreshold must not be above uthreshold",
            )
            return upper.value, 0
        return upper.value, lower.value


def _name(entry: Entry) -> str:
    return f"{entry.keyword.name} {entry.value[0]}"


def _method_fields(method: Method) -> dict[str, Any]:
    return {
        "method": method.kind,
        "tunnel": method.tunnel,
        "tunnel_port": method.port,
        "tunnel_checksum": method.checksum,
    }
