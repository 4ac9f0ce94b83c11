"""How a `virtual_server` chooses among its servers: scheduler, flags, persistence."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address

from haxlb.config.flow_timeouts import LONGEST_S
from haxlb.config.server_head import Head
from haxlb.model.addresses import Protocol
from haxlb.model.virtual_server import Scheduler
from keepalived_compat.diagnostics import Complaints
from keepalived_compat.grammar import integer
from keepalived_compat.section import Entry, Section
from keepalived_compat.source import Span
from keepalived_compat.values import Unusable, number

PERSISTENCE_S = 360
"""IPVS_SVC_PERSISTENT_TIMEOUT: where persistence_timeout has no value."""
_SCHEDULERS = {each.value: each for each in Scheduler}
_WITH_FLAGS = (Scheduler.SH, Scheduler.MH)
_BITS = {4: 32, 6: 128}


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The fields of VirtualServer of the same names."""

    scheduler: Scheduler
    mh_port: bool = False
    persistence_s: int = 0
    persistence_granularity: int | None = None
    one_packet: bool = False


class ScheduleReader:
    """Reads what one `virtual_server` says of it."""

    def __init__(self, section: Section, title: str, head: Span, complaints: Complaints) -> None:
        self._section = section
        self._title = title
        self._where = head
        self._complaints = complaints

    def read(self, head: Head | None, protocol: Protocol) -> Schedule:
        """All of it; without a head that can be used only to complain."""
        scheduler = self._scheduler()
        mh_port, one_packet = self._hash_port(scheduler), self._one_packet(protocol)
        persistence_s, bits = 0, None
        if head is not None:
            # One client goes to one server all the same; to record it would only cost memory.
            by_address = scheduler.hashes and not mh_port
            bits = self._granularity(head)
            persistence_s = self._persistence(head, scheduler, by_address=by_address, granularity=bits)
        return Schedule(
            scheduler=scheduler,
            mh_port=mh_port,
            persistence_s=persistence_s,
            persistence_granularity=bits,
            one_packet=one_packet,
        )

    def _scheduler(self) -> Scheduler:
        entry = self._section.entry("lb_algo")
        if entry is not None:
            return _SCHEDULERS[entry.value]
        # One that cannot be used has been complained of.
        if "lb_algo" not in self._section.refused:
            self._complaints.warning(
                "missing-scheduler",
                self._where,
                f"{self._title} names no lb_algo: wlc is taken, as in keepalived",
                "add `lb_algo wlc`, or the one that is meant",
            )
        return Scheduler.WLC

    def _hash_port(self, scheduler: Scheduler) -> bool:
        found = False
        for name, needed in (("sh-port", (Scheduler.SH,)), ("mh-port", (Scheduler.MH,)), ("flag-2", _WITH_FLAGS)):
            entry = self._section.entry(name)
            if entry is None:
                continue
            if scheduler not in needed:
                self._complaints.warning(
                    "useless-flag",
                    entry.span,
                    f"`{name}` is for scheduler {' or '.join(each.value for each in needed)} only, and is ignored",
                )
                continue
            found = True
            algo = self._section.entry("lb_algo")
            entries = self._section.entries
            if name != "flag-2" and algo is not None and entries.index(algo) > entries.index(entry):
                self._complaints.warning(
                    "order",
                    entry.span,
                    f"`{name}` stands before lb_algo: taken here, ignored by keepalived",
                    "put it after lb_algo",
                )
        return found

    def _one_packet(self, protocol: Protocol) -> bool:
        entry = self._section.entry("ops")
        if entry is not None and protocol is not Protocol.UDP:
            self._complaints.warning(
                "useless-flag",
                entry.span,
                f"ops (one packet scheduling) is for UDP only, and is ignored, as in keepalived; {self._title} is"
                f" {protocol.value}",
            )
            return False
        return entry is not None

    def _persistence(self, head: Head, scheduler: Scheduler, *, by_address: bool, granularity: int | None) -> int:
        """In seconds."""
        entry = self._section.entry("persistence_timeout")
        seconds = 0
        if entry is not None:
            seconds = PERSISTENCE_S if entry.value is None else self._bounded(entry)
        if entry is not None and seconds == 0:
            self._complaints.warning(
                "old-spelling",
                entry.span,
                "persistence_timeout 0 is taken as no persistence; keepalived calls it invalid and does the same",
                "delete the line",
            )
        if not seconds and granularity is not None:
            seconds = PERSISTENCE_S
        elif not seconds and head.all_ports and not by_address:
            seconds = PERSISTENCE_S
            self._complaints.warning(
                "forced-persistence",
                self._where,
                f"{self._title} serves all ports: persistence_timeout {seconds} is taken, as in keepalived, so that the"
                " connections of a client to different ports go to one server",
                f"add `persistence_timeout {seconds}`, or name the port",
            )
        if entry is not None and seconds and by_address and granularity is None:
            self._complaints.note(
                "useless-persistence",
                entry.span,
                f"`lb_algo {scheduler.value}` already sends all connections of a client to one server;"
                " persistence_timeout keeps it there when servers come and go, at the price of a record for each"
                " connection",
                "without it the forwarder needs no records",
            )
        return seconds

    def _bounded(self, entry: Entry) -> int:
        if entry.value > LONGEST_S:
            self._complaints.warning(
                "inexact-value",
                entry.argument_span,
                f"persistence_timeout {entry.value} is taken as {LONGEST_S}, the longest that there is (18 hours)",
                "it counts from the client's last packet",
            )
        return min(int(entry.value), LONGEST_S)

    def _granularity(self, head: Head) -> int | None:
        entry = self._section.entry("persistence_granularity")
        if entry is None:
            return None
        family = head.places[0][0].version
        try:
            bits = _mask(str(entry.value)) if family == 4 else None  # noqa: PLR2004 - the family
            if bits is None:
                bits = self._prefix(entry, family)
        except Unusable as problem:
            self._complaints.error(
                "bad-value",
                entry.argument_span,
                f"persistence_granularity: {problem.message}; it is not used",
                problem.hint,
            )
            return None
        return bits

    def _prefix(self, entry: Entry, family: int) -> int:
        """The number of bits. Raises Unusable."""
        bits = int(str(number(str(entry.value), integer(1, _BITS[family], strict=True)).value))
        if family == 4:  # noqa: PLR2004 - the family
            mask = granularity(bits, family)
            self._complaints.warning(
                "inexact-value",
                entry.argument_span,
                f"persistence_granularity {bits} is taken as {mask}; keepalived wants a netmask for IPv4",
                f"write {mask}",
            )
        return bits


def granularity(bits: int, family: int) -> str:
    """persistence_granularity as it is written: a netmask, for IPv6 the length of a prefix."""
    return str(bits) if family != 4 else str(IPv4Address((0xFFFFFFFF << (32 - bits)) & 0xFFFFFFFF))  # noqa: PLR2004 - the family


def _mask(text: str) -> int | None:
    """The ones of a netmask, None for what is none. Raises Unusable for one with gaps."""
    if "." not in text:
        return None
    try:
        value = int(IPv4Address(text))
    except AddressValueError:
        raise Unusable(f"`{text}` is no netmask", "255.255.255.0, or for IPv6 a prefix length") from None
    inverse = ~value & 0xFFFFFFFF
    if value == 0 or inverse & (inverse + 1):
        raise Unusable(f"`{text}` is no netmask of ones before zeros", "255.255.255.0 for a /24")
    return value.bit_count()
