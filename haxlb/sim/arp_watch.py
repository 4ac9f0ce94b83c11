"""The ARP watch of a virtual director: while it holds VIPs it asks the LAN who else has them.

As `haxlb.linux.arp_watch`: once a second after the first VIP came, then every three seconds; a MAC is known for a
director's where that director is configured as a peer or was heard.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from haxlb.model.addresses import IPAddress
from haxlb.model.facts import ForeignMacHeard
from haxlb.model.units import SECOND_US
from haxlb.sim.adapters import AddressTable, VirtualClock
from haxlb.sim.lan import Lan, Nic
from haxlb.sim.loop import Timer, VirtualLoop

FIRST_US = SECOND_US
PERIOD_US = 3 * SECOND_US


class ArpWatch:
    """Asks for what the table holds; tells what is answered or announced."""

    def __init__(
        self,
        *,
        loop: VirtualLoop,
        clock: VirtualClock,
        lan: Lan,
        nics: dict[str, Nic],
        addresses: AddressTable,
        on_fact: Callable[[ForeignMacHeard], None],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._lan = lan
        self._nics = nics
        self._addresses = addresses
        self._on_fact = on_fact
        self._timer: Timer | None = None
        self._reported: dict[tuple[IPAddress, str], int] = {}
        self.peers: dict[IPAddress, None] = {}
        """Addresses of the directors that are known."""

    def follow(self) -> None:
        """The addresses held have changed."""
        if not self._addresses.held:
            self.close()
        elif self._timer is None:
            self._timer = self._loop.after(FIRST_US, self._ask)

    def close(self) -> None:
        """Ask no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def hear(self, nic: Nic, sender: Nic, vip: IPAddress) -> None:
        """Somebody announces or answers for an address; at most one fact a second and MAC."""
        if not any(each.address == vip and each.interface == nic.interface for each in self._addresses.held):
            return
        now = self._clock.now()
        last = self._reported.get((vip, sender.mac))
        if last is not None and now - last < SECOND_US:
            return
        self._reported[vip, sender.mac] = now
        director = next((each for each in sender.addresses if each in self.peers), None)
        self._on_fact(ForeignMacHeard(vip=vip, interface=nic.interface, mac=sender.mac, at_us=now, director=director))

    def _ask(self) -> None:
        self._timer = self._loop.after(PERIOD_US, self._ask) if self._addresses.held else None
        for vip in self._addresses.held:
            nic = self._nics[vip.interface]
            self._lan.ask(nic, vip.address, partial(self.hear, nic))
