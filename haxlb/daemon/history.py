"""Facts in words: one log event each, and the last fifty lines that `haxlb show` prints."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from haxlb.model.facts import (
    AdvertRejected,
    AlarmCleared,
    AlarmRaised,
    BackendChanged,
    Fact,
    ForeignAdvertHeard,
    ForeignMacHeard,
    GroupChanged,
    PeerClaimed,
    PeerHeard,
    PriorityChanged,
    QuorumChanged,
    RoleChanged,
    TrackChanged,
)
from haxlb.model.units import SECOND_US

LENGTH = 50
REJECTED_QUIET_US = 60 * SECOND_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """How a fact is told."""

    level: str
    event: str
    """Stable snake_case name for the log."""
    fields: dict[str, str | int | bool]
    sentence: str
    """For people."""
    lasting: bool = True
    """Belongs into the history. What a misbehaving network can repeat every second does not: it would push out
    the role changes that the history is for; it is counted in the status, and the alarms quote it."""


def describe(fact: Fact) -> Entry:
    """Tell a fact as a log event and as a sentence."""
    return _TELLERS[type(fact)](fact)


def _role_changed(fact: RoleChanged) -> Entry:
    before, after = fact.before.value, fact.after.value
    return Entry(
        level="info",
        event="role_changed",
        fields={
            "instance": fact.instance,
            "vrid": fact.vrid,
            "from": before,
            "to": after,
            "priority": fact.priority,
            "reason": fact.reason,
        },
        sentence=f"{fact.instance} {before} -> {after}: {fact.reason}",
    )


def _peer_heard(fact: PeerHeard) -> Entry:
    said = f"hears {fact.address} with priority {fact.priority}" if fact.priority else f"hears {fact.address} resign"
    return Entry(
        level="info",
        event="peer_heard",
        fields={
            "instance": fact.instance,
            "vrid": fact.vrid,
            "peer": str(fact.address),
            "priority": fact.priority,
        },
        sentence=f"{fact.instance} {said}",
    )


def _foreign_advert_heard(fact: ForeignAdvertHeard) -> Entry:
    return Entry(
        level="debug",
        event="foreign_advert_heard",
        fields={
            "instance": fact.instance,
            "vrid": fact.vrid,
            "peer": str(fact.address),
            "priority": fact.priority,
        },
        sentence=f"{fact.instance} is MASTER and hears {fact.address} with priority {fact.priority}",
        lasting=False,
    )


def _advert_rejected(fact: AdvertRejected) -> Entry:
    instance = {} if fact.instance is None else {"instance": fact.instance}
    return Entry(
        level="warning",
        event="advert_rejected",
        fields={**instance, "peer": str(fact.address), "reason": fact.reason, "detail": fact.detail},
        sentence=f"advert of {fact.address} rejected ({fact.reason}): {fact.detail}",
        lasting=False,
    )


def _foreign_mac_heard(fact: ForeignMacHeard) -> Entry:
    return Entry(
        level="debug",
        event="foreign_mac_heard",
        fields={"vip": str(fact.vip), "interface": fact.interface, "mac": fact.mac},
        sentence=f"{fact.mac} answers ARP for {fact.vip} on {fact.interface}",
        lasting=False,
    )


def _peer_claimed(fact: PeerClaimed) -> Entry:
    claims = "claims" if fact.master else "no longer claims"
    return Entry(
        level="info",
        event="peer_claimed",
        fields={"peer": fact.node, "vrid": fact.vrid, "peer_instance": fact.instance, "master": fact.master},
        sentence=f"{fact.node} {claims} on MQTT to be MASTER of VRID {fact.vrid}",
    )


def _backend_changed(fact: BackendChanged) -> Entry:
    return Entry(
        level="info" if fact.up else "warning",
        event="backend_up" if fact.up else "backend_down",
        fields={"virtual_server": fact.virtual_server, "real_server": fact.real_server, "reason": fact.reason},
        sentence=f"{fact.real_server} of {fact.virtual_server} {'UP' if fact.up else 'DOWN'}: {fact.reason}",
    )


def _quorum_changed(fact: QuorumChanged) -> Entry:
    state = "gained" if fact.up else "lost"
    return Entry(
        level="info" if fact.up else "warning",
        event=f"quorum_{state}",
        fields={"virtual_server": fact.virtual_server, "reason": fact.reason},
        sentence=f"{fact.virtual_server} quorum {state}: {fact.reason}",
    )


def _group_changed(fact: GroupChanged) -> Entry:
    came = f"{fact.before} -> {fact.after}" if fact.before else fact.after
    return Entry(
        level="info",
        event="group_changed",
        fields={"group": fact.group, "from": fact.before, "to": fact.after},
        sentence=f"sync group {fact.group} {came}",
    )


def _priority_changed(fact: PriorityChanged) -> Entry:
    return Entry(
        level="info",
        event="priority_changed",
        fields={
            "instance": fact.instance,
            "vrid": fact.vrid,
            "from": fact.before,
            "to": fact.after,
            "reason": fact.reason,
        },
        sentence=f"{fact.instance} priority {fact.before} -> {fact.after}: {fact.reason}",
    )


def _track_changed(fact: TrackChanged) -> Entry:
    now = _value(fact.kind, fact.after)
    return Entry(
        level="warning" if fact.after == 0 and fact.kind != "track_file" else "info",
        event="track_changed",
        fields={"kind": fact.kind, "name": fact.name, "from": _value(fact.kind, fact.before), "to": now},
        sentence=f"{fact.kind} {fact.name}: {now}",
    )


def _value(kind: str, value: int | None) -> str:
    if value is None:
        return "not known"
    if kind == "track_file":
        return str(value)
    return "well" if value else "not well"


def _alarm_raised(fact: AlarmRaised) -> Entry:
    return Entry(
        level="error" if fact.severity == "critical" else "warning",
        event="alarm_raised",
        fields={
            "key": fact.key,
            "severity": fact.severity,
            "summary": fact.summary,
            "evidence": "; ".join(fact.evidence),
        },
        sentence=f"ALARM {fact.key}: {fact.summary}",
    )


def _alarm_cleared(fact: AlarmCleared) -> Entry:
    return Entry(
        level="info",
        event="alarm_cleared",
        fields={"key": fact.key, "reason": fact.reason},
        sentence=f"alarm {fact.key} cleared: {fact.reason}",
    )


_TELLERS: dict[type, Callable[[Any], Entry]] = {
    RoleChanged: _role_changed,
    PeerHeard: _peer_heard,
    ForeignAdvertHeard: _foreign_advert_heard,
    AdvertRejected: _advert_rejected,
    ForeignMacHeard: _foreign_mac_heard,
    PeerClaimed: _peer_claimed,
    BackendChanged: _backend_changed,
    QuorumChanged: _quorum_changed,
    GroupChanged: _group_changed,
    PriorityChanged: _priority_changed,
    TrackChanged: _track_changed,
    AlarmRaised: _alarm_raised,
    AlarmCleared: _alarm_cleared,
}


class History:
    """The last fifty lines, newest last; a line that repeats itself is counted, not repeated."""

    def __init__(self) -> None:
        self._lines: deque[tuple[float, str, int]] = deque(maxlen=LENGTH)

    def add(self, sentence: str, at: float) -> None:
        """Note a sentence; `at` in seconds since the epoch."""
        times = 1
        if self._lines and self._lines[-1][1] == sentence:
            times = self._lines.pop()[2] + 1
        self._lines.append((at, sentence, times))

    def lines(self) -> tuple[str, ...]:
        """One line each: time in UTC, sentence."""
        return tuple(
            f"{_timestamp(at)} {sentence}{f' ({times} times)' if times > 1 else ''}"
            for at, sentence, times in self._lines
        )


class RejectedFilter:
    """Lets one log line per source and reason through in a minute; the status counts all of them."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, str], int] = {}

    def passes(self, fact: AdvertRejected) -> bool:
        """Whether this one is logged."""
        key = (str(fact.address), fact.reason)
        last = self._last.get(key)
        if last is not None and fact.at_us - last < REJECTED_QUIET_US:
            return False
        if len(self._last) >= 1024:  # noqa: PLR2004 - spoofed sources must not grow it without bound
            self._last.clear()
        self._last[key] = fact.at_us
        return True


def _timestamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
