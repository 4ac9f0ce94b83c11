"""A virtual host without its processes: interfaces, addresses, routes, a clock. It outlives whatever runs on it."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from haxlb.model.addresses import IPAddress
from haxlb.sim.adapters import AddressTable, RouteTable, VirtualAdverts, VirtualClock, VirtualLinks
from haxlb.sim.lan import Lan, Nic, Receiver
from haxlb.sim.loop import VirtualLoop
from haxlb.sim.topology import Station

EPOCH_US = 1_800_000_000_000_000
"""The time of day at the beginning of every world."""
LEFT = 0.65
"""Addresses are renewed after a third of their lifetime: at least so much of it is left at any moment."""


class Kernel:
    """What a director's kernel has and does by itself."""

    def __init__(
        self,
        station: Station,
        *,
        receiver: Receiver,
        lan: Lan,
        loop: VirtualLoop,
        on_addresses: Callable[[], None],
        on_routes: Callable[[], None],
    ) -> None:
        self.nics: dict[str, Nic] = {}
        for plan in station.nics:
            nic = Nic(
                host=station.config.node,
                interface=plan.interface,
                segment=plan.segment,
                mac=plan.mac,
                addresses=plan.addresses,
                receiver=receiver,
                carrier=False,
                base=self.nics.get(plan.base),
            )
            self.nics[plan.interface] = nic
            lan.plug(nic)
        self.clock = VirtualClock(loop, 0)
        self.addresses = AddressTable(self.nics, on_addresses)
        self.routes = RouteTable(on_routes)
        self.adverts = VirtualAdverts(lan, self.nics)
        self.links = VirtualLinks(self.nics)

    def answers(self, nic: Nic, address: IPAddress) -> bool:
        """ARP and neighbour discovery: for what it has, whatever its processes do."""
        return any(each.address == address and each.interface == nic.interface for each in self.addresses.present)

    def boot(self, monotonic_us: int, now_us: int) -> None:
        """Power on: the clock starts anew, the links come up."""
        self.clock.offset_us = monotonic_us - now_us
        self.set_carriers(up=True)

    def set_carriers(self, *, up: bool) -> None:
        """Cables in or out."""
        for nic in self.nics.values():
            nic.carrier = up

    def sleep(self, *, asleep: bool) -> None:
        """The host is suspended, or no longer: nothing is received meanwhile."""
        for nic in self.nics.values():
            nic.asleep = asleep

    def halt(self) -> None:
        """Power off."""
        self.set_carriers(up=False)
        self.sleep(asleep=False)
        self.addresses.expire()
        self.routes.present.clear()


def left_to_live(lifetime_us: int, dice: Random) -> int | None:
    """How long addresses stay that nobody renews from now on; None = for ever."""
    return dice.randrange(int(lifetime_us * LEFT), lifetime_us) if lifetime_us else None
