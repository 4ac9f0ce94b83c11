"""Virtual addresses on and off, and what to do when the kernel refuses.

A refusal never changes a role: the instance stays MASTER, an alarm says what is wrong, and it is tried again each
second until it works. An address that could not be taken off is the worse case: it is remembered until it is off.
"""

from __future__ import annotations

from collections.abc import Callable

from haxlb.daemon.ports import AddressPort, AnnouncePort, ReportPort
from haxlb.model.addresses import Vip
from haxlb.model.errors import HostError
from haxlb.model.facts import AlarmCleared, AlarmRaised
from haxlb.model.node import SECOND_US, VrrpInstance

_RETRY_US = SECOND_US

Key = tuple[str, int]


class VipKeeper:
    """Executes AddVips and RemoveVips for all instances of a node; `masters` tells who is MASTER now."""

    def __init__(
        self,
        *,
        addresses: AddressPort,
        announcer: AnnouncePort,
        reports: ReportPort,
        masters: Callable[[], list[VrrpInstance]],
    ) -> None:
        self._addresses = addresses
        self._announcer = announcer
        self._reports = reports
        self._masters = masters
        self._lacking: dict[Key, None] = {}
        """Instances whose addresses the kernel refused."""
        self._left: dict[Vip, Key] = {}
        """Addresses that the kernel did not let go."""
        self._alarms: dict[Key, str] = {}
        self.retry_at: int | None = None
        """When `retry` wants to be called, monotonic µs."""

    def add(self, instance: VrrpInstance, vips: tuple[Vip, ...], now: int) -> None:
        """Put on; a refusal raises an alarm and is tried again."""
        for vip in vips:
            self._left.pop(vip, None)
        try:
            self._addresses.add(vips)
        except HostError as problem:
            self._lacking[instance.key] = None
            self._failed(instance, f"{_names(vips)} cannot be put on", problem, now)
        self._settle(now)

    def remove(self, instance: VrrpInstance, vips: tuple[Vip, ...], now: int) -> None:
        """Take off, but for what a MASTER of ours holds."""
        masters = self._masters()
        held = {vip for master in masters for vip in master.vips}
        unheld = tuple(vip for vip in vips if vip not in held)
        if all(master.key != instance.key for master in masters):
            self._lacking.pop(instance.key, None)
        if unheld:
            try:
                self._addresses.remove(unheld)
            except HostError as problem:
                self._left.update(dict.fromkeys(unheld, instance.key))
                self._failed(instance, f"{_names(unheld)} cannot be taken off", problem, now)
        self._settle(now)

    def retry(self, now: int) -> None:
        """Try again what failed, if it is time; what comes on at last is announced."""
        if self.retry_at is None or now < self.retry_at:
            return
        self.retry_at = None
        left, self._left = self._left, {}
        owners = {key: tuple(vip for vip, owner in left.items() if owner == key) for key in left.values()}
        held = {vip for master in self._masters() for vip in master.vips}
        for key, vips in owners.items():
            unheld = tuple(vip for vip in vips if vip not in held)
            try:
                self._addresses.remove(unheld)
            except HostError:
                self._left.update(dict.fromkeys(unheld, key))
        for master in self._masters():
            if master.key in self._lacking:
                try:
                    self._addresses.add(master.vips)
                except HostError:
                    continue
                del self._lacking[master.key]
                self._announcer.announce(master.vips)
        if self._lacking or self._left:
            self.retry_at = now + _RETRY_US
        self._settle(now)

    def stop(self) -> None:
        """Nothing is tried again."""
        self.retry_at = None

    def _failed(self, instance: VrrpInstance, what: str, problem: HostError, now: int) -> None:
        self.retry_at = now + _RETRY_US
        if instance.key in self._alarms:
            return
        self._alarms[instance.key] = alarm = f"vip/{instance.name}"
        self._reports.report(
            AlarmRaised(
                key=alarm,
                severity="critical",
                summary=f"{instance.name}: {what} {instance.interface}",
                evidence=(str(problem),),
                at_us=now,
            )
        )

    def _settle(self, now: int) -> None:
        """Clear the alarms of what works again."""
        if not self._alarms:
            return
        troubled = {*self._lacking, *self._left.values()}
        for key in [each for each in self._alarms if each not in troubled]:
            fact = AlarmCleared(key=self._alarms.pop(key), reason="the kernel has the addresses as wanted", at_us=now)
            self._reports.report(fact)


def _names(vips: tuple[Vip, ...]) -> str:
    return ", ".join(map(str, vips))
