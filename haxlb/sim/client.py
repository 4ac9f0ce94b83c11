"""The clients of one segment: whom they believe to hold each VIP, and how long nobody answered them.

Their traffic goes to one MAC: that of the last gratuitous ARP, or of whoever answered when they asked. It is served for
as long as the host behind that MAC has power and a link: both directors forward what reaches them, MASTER or not, and
so does the kernel of a director whose processes are frozen or dead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from haxlb.daemon.ports import Datagram
from haxlb.model.addresses import IPAddress
from haxlb.sim.lan import Lan, Nic
from haxlb.sim.ledger import Ledger, Spans
from haxlb.sim.loop import Timer, VirtualLoop

STALE_US = 8_000_000
"""Linux asks the old MAC for so long before it asks everybody: delay_first_probe_time 5 s, then three probes."""
RETRY_US = 1_000_000
"""retrans_time: how often an unresolved address is asked for."""


class Client:
    """All clients of one segment; they hear the same."""

    def __init__(
        self,
        segment: str,
        vips: Iterable[IPAddress],
        *,
        loop: VirtualLoop,
        ledger: Ledger,
        lan: Lan,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_change`: they have another belief."""
        self._on_change = on_change
        self.segment = segment
        self.vips = tuple(dict.fromkeys(vips))
        self.nic = Nic(
            host="clients", interface=segment, segment=segment, mac=f"client:{segment}", addresses=(), receiver=self
        )
        self.unserved = Spans()
        """By VIP."""
        self._loop = loop
        self._ledger = ledger
        self._lan = lan
        self._cache: dict[IPAddress, Nic] = {}
        self._asking: dict[IPAddress, Timer] = {}

    def believes(self, vip: IPAddress) -> str | None:
        """The host that gets the traffic of this VIP."""
        nic = self._cache.get(vip)
        return None if nic is None else nic.host

    def look(self, now: int) -> None:
        """Note who is served now; start to ask where nobody is."""
        for vip in self.vips:
            nic = self._cache.get(vip)
            served = nic is not None and nic.alive
            self.unserved.set(vip, now, so=not served)
            if served and vip in self._asking:
                self._asking.pop(vip).cancel()
            elif not served and vip not in self._asking:
                self._ask_in(vip, RETRY_US if nic is None else STALE_US)

    def answers(self, nic: Nic, address: IPAddress) -> bool:
        """Clients have no VIP."""
        del nic, address
        return False

    def on_frame(self, nic: Nic, datagram: Datagram) -> None:
        """VRRP is not for clients."""

    def on_announcement(self, nic: Nic, sender: Nic, vips: tuple[IPAddress, ...]) -> None:
        """The last gratuitous ARP wins."""
        del nic
        for vip in vips:
            if vip in self.vips:
                self._learn(vip, sender)

    def _learn(self, vip: IPAddress, sender: Nic) -> None:
        if self._cache.get(vip) is not sender:
            self._cache[vip] = sender
            self._ledger.note("clients", f"send the traffic of {vip} to {sender.host}")
            self.look(self._loop.now_us)
            self._on_change()

    def _ask_in(self, vip: IPAddress, delay_us: int) -> None:
        self._asking[vip] = self._loop.after(delay_us, partial(self._ask, vip))

    def _ask(self, vip: IPAddress) -> None:
        self._ask_in(vip, RETRY_US)
        self._lan.ask(self.nic, vip, self._hear)

    def _hear(self, holder: Nic, vip: IPAddress) -> None:
        """The first answer wins; the question stands no more."""
        timer = self._asking.pop(vip, None)
        if timer is not None:
            timer.cancel()
            self._learn(vip, holder)
