"""Virtual addresses on and off, and what to do when the kernel refuses.

A refusal never changes a role: the instance stays MASTER, an alarm says what is wrong, and it is tried again each
second, a few of many, until it works. An address that could not be taken off is the worse case: it is remembered until
it is off. One that two instances hold, or that a reload moves from one to the other, is taken off by the last one only.
"""

from __future__ import annotations

from haxlb.daemon.ports import AddressPort, AnnouncePort, ReportPort
from haxlb.daemon.speaker_retries import Key, Refusals
from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.errors import HostError
from haxlb.model.instance import VrrpInstance
from haxlb.vrrp.changes import place

Place = tuple[IPAddress, str]


class VipKeeper:
    """Executes AddVips and RemoveVips for all instances of a node."""

    def __init__(self, *, addresses: AddressPort, announcer: AnnouncePort, reports: ReportPort) -> None:
        self._addresses = addresses
        self._announcer = announcer
        self._holders: dict[Place, set[Key]] = {}
        self._on: dict[Place, Vip] = {}
        """What was put on there last."""
        self._refusals = Refusals[Vip](kind="vip", settled="the kernel has the addresses as wanted", reports=reports)

    @property
    def retry_at(self) -> int | None:
        """When `retry` wants to be called, monotonic µs."""
        return self._refusals.retry_at

    def claim(self, instance: VrrpInstance, vips: tuple[Vip, ...]) -> None:
        """The instance holds these, or is about to: no other instance's removal takes them off."""
        for vip in vips:
            self._holders.setdefault(place(vip), set()).add(instance.key)

    def add(self, instance: VrrpInstance, vips: tuple[Vip, ...], now: int) -> None:
        """Put on; a refusal raises an alarm and is tried again."""
        self.claim(instance, vips)
        # Of another instance of ours, with another prefix length or label: it would stay beside this one for ever.
        stale = tuple(old for vip in vips if (old := self._on.get(place(vip), vip)) != vip)
        self._on.update((place(vip), vip) for vip in vips)
        try:
            if stale:
                self._addresses.remove(stale)
            self._addresses.add(vips)
        except HostError as problem:
            self._refusals.not_on.update(dict.fromkeys(vips, instance.key))
            self._refusals.raise_for(instance, f"{_names(vips)} cannot be put on", problem, now)
        self._refusals.settle(now)

    def remove(self, instance: VrrpInstance, vips: tuple[Vip, ...], now: int) -> None:
        """Take off what no other instance of ours holds."""
        for vip in vips:
            self._refusals.not_on.pop(vip, None)
        unheld = tuple(vip for vip in vips if self._release(vip, instance.key))
        if unheld:
            try:
                self._addresses.remove(unheld)
            except HostError as problem:
                self._refusals.not_off.update(dict.fromkeys(unheld, instance.key))
                self._refusals.raise_for(instance, f"{_names(unheld)} cannot be taken off", problem, now)
        self._refusals.settle(now)

    def retry(self, now: int) -> None:
        """Try again what failed, if it is time; what comes on at last is announced."""
        if not self._refusals.is_due(now):
            return
        for vip in [each for each in self._refusals.not_off if place(each) in self._holders]:
            del self._refusals.not_off[vip]
        self._refusals.retry(now, remove=self._removed, add=self._added)

    def stop(self) -> None:
        """Nothing is tried again."""
        self._refusals.retry_at = None

    def _removed(self, vip: Vip) -> bool:
        try:
            self._addresses.remove((vip,))
        except HostError:
            return False
        return True

    def _added(self, vip: Vip) -> bool:
        try:
            self._addresses.add((vip,))
        except HostError:
            return False
        self._announcer.announce((vip,))
        return True

    def _release(self, vip: Vip, key: Key) -> bool:
        """Whether nobody holds the address when this instance lets it go."""
        holders = self._holders.get(place(vip))
        if holders is None:
            return True
        holders.discard(key)
        if holders:
            return False
        del self._holders[place(vip)]
        self._on.pop(place(vip), None)
        return True


def _names(vips: tuple[Vip, ...]) -> str:
    return ", ".join(map(str, vips))
