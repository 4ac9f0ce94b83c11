"""A speaker that plays its part on an empty stage, before there is anything to speak of.

What a take-over runs is run rarely. Python looks up every name and attribute anew the first times that code runs, and
only then specialises it (PEP 659), so that the first take-over would be the slowest. It is the code that is
rehearsed, all of it pure; nothing leaves the process.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address

from haxlb.daemon.messages import Happened, Notify, encode
from haxlb.daemon.ports import Datagram, Link
from haxlb.daemon.speaker import Speaker, datagrams
from haxlb.model.addresses import Vip
from haxlb.model.facts import Fact
from haxlb.model.instance import VrrpInstance
from haxlb.model.notification import NotifyDue
from haxlb.model.units import SECOND_US

ROUNDS = 12
"""A function is specialised after eight calls (CPython 3.11, Include/internal/pycore_code.h)."""
_OWN, _PEER = IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2")
_VIP = Vip(address=IPv4Address("192.0.2.3"), prefix_length=24, interface="lo")


class _Stage:
    """All ports; there is nobody behind them."""

    def __init__(self) -> None:
        self.time = 0
        self.alarm: int | None = None
        self.arrived: list[Datagram] = []

    def now(self) -> int:
        return self.time

    def wake_at(self, deadline_us: int | None) -> None:
        self.alarm = deadline_us

    def send(self, datagram: Datagram) -> None:
        """To nobody."""

    def receive(self) -> list[Datagram]:
        arrived, self.arrived = self.arrived, []
        return arrived

    def add(self, vips: Iterable[Vip]) -> None:
        """To no interface."""

    def remove(self, vips: Iterable[Vip]) -> None:
        """From no interface."""

    def announce(self, vips: Iterable[Vip]) -> None:
        """To nobody."""

    def link(self, interface: str) -> Link:
        return Link(interface=interface, up=True, mac="", address=_OWN)

    def notify(self, due: NotifyDue) -> None:
        encode(Notify(due=due))

    def report(self, fact: Fact) -> None:
        encode(Happened(fact=fact))


def rehearse(rounds: int = ROUNDS) -> tuple[int, int]:
    """Become MASTER and leave it this many times, both ways; the adverts sent and the changes of role that it took."""
    instance = VrrpInstance(name="", interface="lo", vrid=1, priority=100, vips=(_VIP,))
    stage = _Stage()
    speaker = Speaker(
        clock=stage,
        wake=stage,
        adverts=stage,
        addresses=stage,
        announcer=stage,
        links=stage,
        notify=stage,
        reports=stage,
    )
    speaker.configure((instance,))
    for number in range(rounds):
        for _ in range(3):  # alone: MASTER, and two adverts in turn
            stage.time = stage.alarm if stage.alarm is not None else stage.time
            speaker.on_wake()
        if number % 2:
            speaker.hand_over((), "rehearsed")
            speaker.resume()
        for priority in (200, 0):  # a better one comes, and resigns
            stage.time += SECOND_US // 100
            speaker.on_datagram(*datagrams(instance, _PEER, priority))
    status = speaker.status(0)[0]
    speaker.stop("rehearsed")
    return status.adverts_sent, status.transitions
