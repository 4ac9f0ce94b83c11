"""For tests: two hosts with addresses of both families, and advert sockets inside them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address

from lab import Host, Lab

from haxlb.daemon.ports import Datagram, Link
from haxlb.linux.adverts import AdvertSockets
from haxlb.linux.log import Complaints
from haxlb.linux.timerfd import MonotonicClock
from haxlb.model.addresses import Vip
from haxlb.model.instance import VrrpInstance
from tests.netns.standin import eventually, inside, vip

ONE, TWO = IPv4Address("10.9.0.1"), IPv4Address("10.9.0.2")
ONE6, TWO6 = IPv6Address("fd00:9::1"), IPv6Address("fd00:9::2")
LOCAL6 = {"d1": IPv6Address("fe80::9:1"), "d2": IPv6Address("fe80::9:2")}
MULTICAST = VrrpInstance(name="VI_1", interface="eth0", vrid=51, vips=(vip("10.9.0.100"),))
MULTICAST6 = VrrpInstance(
    name="VI_6",
    interface="eth0",
    vrid=61,
    version=3,
    family=6,
    vips=(Vip(address=IPv6Address("fd00:9::64"), prefix_length=64, interface="eth0"),),
)


def two_hosts(lab: Lab) -> None:
    """Make d1 and d2."""
    for name, address, address6 in (("d1", ONE, ONE6), ("d2", TWO, TWO6)):
        host = lab.host(name, f"{address}/24")
        host.sysctl(net__ipv6__conf__all__disable_ipv6=0, net__ipv6__conf__eth0__disable_ipv6=0)
        for each in (address6, LOCAL6[name]):
            host.run("ip", "address", "add", f"{each}/64", "dev", "eth0", "nodad")


class Lines:
    """A log that remembers."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def __call__(self, level: str, event: str, **fields: object) -> None:
        self.lines.append((event, fields))


class Clock:
    """A clock that is told the time."""

    def __init__(self) -> None:
        self.us = 1_000_000

    def now(self) -> int:
        return self.us


class Sockets:
    """AdvertSockets inside a host."""

    def __init__(self, host: Host, *instances: VrrpInstance, clock: Clock | None = None, strangers: bool = False):
        self.log = Lines()
        self.complaints = Complaints(self.log, clock or MonotonicClock())
        self.adverts = AdvertSockets(clock or MonotonicClock(), self.complaints)
        self.host = host
        self.strangers = strangers
        assert self.configure(*instances) == {}

    def configure(self, *instances: VrrpInstance) -> dict[tuple[str, int], str]:
        with inside(self.host.namespace):
            index = socket.if_nametoindex("eth0")
            address = self.host.address.ip if self.host.address else None
            local = LOCAL6.get(self.host.name)
            link = Link(interface="eth0", up=True, mac="", address=address, address6=local)
            deaf = self.adverts.configure(instances, {"eth0": index}, {"eth0": link}, strangers=self.strangers)
        return {key: str(problem) for key, problem in deaf.items()}

    def __enter__(self) -> AdvertSockets:
        return self.adverts

    def __exit__(self, *_: object) -> None:
        self.adverts.close()


def received(adverts: AdvertSockets, count: int) -> list[Datagram]:
    return received_until(adverts, lambda taken: len(taken) >= count, f"{count} datagrams")


def received_until(adverts: AdvertSockets, enough: Callable[[list[Datagram]], bool], what: str) -> list[Datagram]:
    """All that come until it is enough: the kernel may hand over what was sent a moment later, and by and by."""
    taken: list[Datagram] = []
    eventually(lambda: enough(taken.__iadd__(adverts.receive())), what)
    return taken


def send(adverts: AdvertSockets, host: Host, frames: list[Datagram]) -> None:
    with inside(host.namespace):
        for each in frames:
            adverts.send(each)
