"""What an advert costs inside the speaker: 250 instances at one second, without a kernel below them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address
from typing import Any

from haxlb.daemon.ports import Datagram, Link
from haxlb.daemon.speaker import Speaker
from haxlb.model.addresses import Vip
from haxlb.model.facts import Fact
from haxlb.model.groups import SyncGroup
from haxlb.model.instance import Role, VrrpInstance
from haxlb.model.notification import NotifyDue

INSTANCES = 250
SECONDS = 60
CPU_LIMIT_S_PER_MINUTE = 3.0


class _World:
    """All ports, and nothing behind them but a list of what was sent."""

    def __init__(self, host: int, instances: Iterable[VrrpInstance], groups: Iterable[SyncGroup]) -> None:
        self.time = 0
        self.alarm: int | None = None
        self.sent: list[Datagram] = []
        self.wakes = 0
        self._link = Link(interface="eth0", up=True, mac="02:00:00:00:00:01", address=IPv4Address(f"192.0.2.{host}"))
        self.speaker = Speaker(
            clock=self,
            wake=self,
            adverts=self,
            addresses=self,
            announcer=self,
            links=self,
            notify=self,
            reports=self,
        )
        self.speaker.configure(instances, groups)

    def now(self) -> int:
        return self.time

    def wake_at(self, deadline_us: int | None) -> None:
        self.alarm = deadline_us

    def send(self, datagram: Datagram) -> None:
        self.sent.append(datagram)

    def receive(self) -> list[Datagram]:
        return []

    def add(self, vips: Iterable[Vip]) -> None:
        pass

    def remove(self, vips: Iterable[Vip]) -> None:
        pass

    def announce(self, vips: Iterable[Vip]) -> None:
        pass

    def link(self, interface: str) -> Link | None:
        return self._link

    def notify(self, due: NotifyDue) -> None:
        pass

    def report(self, fact: Fact) -> None:
        pass

    def run_until(self, until_us: int) -> None:
        while self.alarm is not None and self.alarm <= until_us:
            self.time = max(self.time, self.alarm)
            self.alarm = None
            self.wakes += 1
            self.speaker.on_wake()
        self.time = until_us


def measure() -> Iterator[dict[str, Any]]:
    """CPU of the speaker's own code a minute, as master and as backup; adverts that differ in phase and that do not."""
    for grouped in (False, True):
        for spread in (True, False):
            yield from _measure(spread=spread, grouped=grouped)


def _measure(*, spread: bool, grouped: bool) -> Iterator[dict[str, Any]]:
    instances = tuple(
        VrrpInstance(
            name=f"VI_{number}",
            interface="eth0",
            vrid=number,
            priority=150,
            vips=(Vip(address=IPv4Address(0x0A000000 + number), prefix_length=32, interface="eth0"),),
        )
        for number in range(1, INSTANCES + 1)
    )
    groups = (SyncGroup(name="all", members=tuple(each.name for each in instances)),) if grouped else ()
    master = _World(1, instances if not spread else instances[:1], () if spread else groups)
    if spread:
        # Their timers end at different times, as after elections of their own.
        for number in range(2, INSTANCES + 1):
            master.run_until(number * 4_000)
            master.speaker.configure(instances[:number], groups)
    master.run_until(20_000_000)
    assert all(each.role is Role.MASTER for each in master.speaker.status(0))
    master.sent.clear()
    master.wakes = 0
    begin = time.process_time()
    master.run_until(20_000_000 + SECONDS * 1_000_000)
    seconds = time.process_time() - begin
    yield _row("master", seconds, len(master.sent), master.wakes, spread=spread, grouped=grouped)
    heard = master.sent
    backup = _World(2, [dataclasses.replace(each, priority=100) for each in instances], groups)
    begin = time.process_time()
    for count, datagram in enumerate(heard):
        backup.time = count * SECONDS * 1_000_000 // len(heard)
        backup.speaker.on_datagram(datagram)
    seconds = time.process_time() - begin
    assert all(each.role is Role.BACKUP for each in backup.speaker.status(0))
    yield _row("backup", seconds, len(heard), 0, spread=spread, grouped=grouped)


def _row(role: str, seconds: float, adverts: int, wakes: int, *, spread: bool, grouped: bool) -> dict[str, Any]:
    return {
        "bench": f"speaker.{role}",
        "instances": INSTANCES,
        "one_group": grouped,
        "phases_differ": spread,
        "adverts": adverts,
        "wakes": wakes,
        "us_per_advert": round(seconds / adverts * 1e6, 2),
        "cpu_seconds_a_minute": round(seconds * 60 / SECONDS, 3),
        "limit_cpu_seconds_a_minute": CPU_LIMIT_S_PER_MINUTE,
    }
