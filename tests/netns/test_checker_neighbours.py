"""Neighbours in a namespace: every way in which a frame reaches a server, or does not."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import pytest
from lab import Host, Lab

from haxlb.forwarding.wanted import NextHop
from haxlb.linux.neighbours import Neighbours
from haxlb.model.addresses import IPAddress
from tests.netns.standin import inside

pytestmark = pytest.mark.netns

DIRECTOR, FIRST, SECOND, ABSENT = (IPv4Address(f"10.77.0.{host}") for host in (11, 21, 22, 99))
DIRECTOR6, FIRST6, ABSENT6 = (IPv6Address(f"2001:db8:77::{host}") for host in (11, 21, 99))
Said = list[tuple[IPAddress, NextHop | None, str, IPAddress | None]]


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(f"hxnb{os.getpid()}") as made:
        made.host("d1", f"{DIRECTOR}/24")
        made.host("s1", f"{FIRST}/24")
        made.host("s2", f"{SECOND}/24")
        # Questions that follow each other as fast as it goes, but more than three of them: one processor may wait for
        # the machine while the other counts the questions. And an entry that is stale after a second.
        for family in ("ipv4", "ipv6"):
            settings = {
                "retrans_time_ms": 100,
                "ucast_solicit": 15,
                "mcast_solicit": 15,
                "base_reachable_time_ms": 500,
                "delay_first_probe_time": 1,
            }
            made.hosts["d1"].sysctl(**{f"net__{family}__neigh__eth0__{name}": each for name, each in settings.items()})
        yield made


class Observer:
    """Neighbours of the director, and what they said."""

    def __init__(self, host: Host, refresh_s: float = 0.2) -> None:
        self.said: Said = []
        self.logged: list[str] = []
        self.interfaces_changed = 0
        with inside(host.namespace):
            self.neighbours = Neighbours(
                lambda *words: self.said.append(words),
                lambda _, event, **__: self.logged.append(event),
                on_interfaces=self._count,
                refresh_s=refresh_s,
            )

    def _count(self) -> None:
        self.interfaces_changed += 1

    def of(self, address: IPAddress) -> tuple[NextHop | None, str] | None:
        """The last word on an address."""
        return next(((hop, reason) for each, hop, reason, _ in reversed(self.said) if each == address), None)

    def gateway(self, address: IPAddress) -> IPAddress | None:
        """The gateway in the last word on an address."""
        return next(gateway for each, _, _, gateway in reversed(self.said) if each == address)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 - what is waited for is in the kernel
                await asyncio.sleep(0.005)


def run(host: Host, test: Callable[[Observer], Coroutine[Any, Any, None]], refresh_s: float = 0.2) -> None:
    async def body() -> None:
        observer = Observer(host, refresh_s)
        try:
            await test(observer)
        finally:
            observer.neighbours.close()

    asyncio.run(body())


def to(director: Host, server: Host, source: IPAddress = DIRECTOR) -> NextHop:
    """How it must be, from `ip`'s view."""
    index = int(director.run("ip", "-o", "link", "show", "eth0").stdout.split(":")[0])
    return NextHop(interface_index=index, source_mac=director.mac(), destination_mac=server.mac(), source=source)


def here(director: Host, source: IPAddress) -> NextHop:
    """The way of a director to itself."""
    index = int(director.run("ip", "-o", "link", "show", "lo").stdout.split(":")[0])
    nobody = "00:00:00:00:00:00"
    return NextHop(interface_index=index, source_mac=nobody, destination_mac=nobody, source=source, mtu=65535)


def fields(hop: NextHop) -> dict[str, Any]:
    return dataclasses.asdict(hop)


def six(lab: Lab) -> None:
    """IPv6 addresses, at once usable."""
    for name, host in lab.hosts.items():
        number = {"d1": 11, "s1": 21, "s2": 22}[name]
        # Or the link-local address that the kernel makes of the MAC would become usable at any time from here on.
        host.sysctl(net__ipv6__conf__all__accept_dad=0, net__ipv6__conf__eth0__accept_dad=0)
        host.sysctl(net__ipv6__conf__eth0__disable_ipv6=0, net__ipv6__conf__lo__disable_ipv6=0)
        host.run("ip", "address", "add", f"2001:db8:77::{number}/64", "dev", "eth0", "nodad")
        host.run("ip", "address", "add", f"fe80::77:{number}/64", "dev", "eth0", "nodad")


def own_link_local(host: Host) -> str:
    """The one that it sends from."""
    shown = host.run("ip", "-6", "route", "get", "fe80::dead", "dev", "eth0").stdout
    return shown.split("src ")[1].split()[0]


def test_servers_on_the_link_are_resolved_and_one_that_is_not_there_is_named(lab: Lab) -> None:
    director, first, second = lab.hosts["d1"], lab.hosts["s1"], lab.hosts["s2"]

    async def test(observer: Observer) -> None:
        observer.neighbours.follow([FIRST, SECOND, ABSENT])
        assert observer.said == [], "never from within the call"
        await observer.until(lambda: len(observer.said) == 3)
        assert observer.of(FIRST) == (to(director, first), "")
        assert observer.of(SECOND) == (to(director, second), "")
        assert observer.of(ABSENT) == (None, f"no ARP answer from {ABSENT} on eth0")
        # The entries go stale, are used, confirmed; the absent one is asked for again and again. Nothing changes.
        seen: set[str] = set()

        def cycled() -> bool:
            seen.update(word for word in director.run("ip", "neigh", "show").stdout.split() if word.isupper())
            return {"REACHABLE", "FAILED"} <= seen and bool({"STALE", "DELAY", "PROBE"} & seen)

        await observer.until(cycled)
        assert len(observer.said) == 3
        # A later follow says only what is new, at once: the kernel knows it already.
        observer.neighbours.follow([FIRST])
        observer.neighbours.follow([FIRST, SECOND])
        await observer.until(lambda: len(observer.said) == 4)
        assert observer.said[3] == (SECOND, to(director, second), "", None)

    run(director, test)


def test_a_second_process_knows_at_once_what_the_kernel_knows(lab: Lab) -> None:
    director, first = lab.hosts["d1"], lab.hosts["s1"]
    director.run("ip", "neigh", "replace", str(FIRST), "lladdr", first.mac(), "nud", "stale", "dev", "eth0")

    async def test(observer: Observer) -> None:
        observer.neighbours.follow([FIRST])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert observer.said == [(FIRST, to(director, first), "", None)]

    run(director, test)


@pytest.mark.parametrize("announced", [True, False], ids=["with gratuitous ARP", "silently"])
def test_a_server_with_another_mac_is_found(lab: Lab, announced: bool) -> None:  # noqa: FBT001
    director, first = lab.hosts["d1"], lab.hosts["s1"]
    first.sysctl(net__ipv4__conf__eth0__arp_notify=int(announced))

    async def test(observer: Observer) -> None:
        observer.neighbours.follow([FIRST])
        await observer.until(lambda: observer.said)
        before = to(director, first)
        first.run("ip", "link", "set", "eth0", "address", "02:77:00:00:00:21")
        after = to(director, first)
        assert after != before
        await observer.until(lambda: observer.of(FIRST) == (after, ""))
        if announced:
            assert [each[1] for each in observer.said] == [before, after], "in one step"

    run(director, test, refresh_s=60 if announced else 0.2)


def test_a_server_that_goes_and_comes_back(lab: Lab) -> None:
    director, first = lab.hosts["d1"], lab.hosts["s1"]

    async def test(observer: Observer) -> None:
        observer.neighbours.follow([FIRST])
        await observer.until(lambda: observer.said)
        first.unplug()
        await observer.until(lambda: observer.of(FIRST) == (None, f"no ARP answer from {FIRST} on eth0"))
        first.plug()
        await observer.until(lambda: observer.of(FIRST) == (to(director, first), ""))

    run(director, test)


def test_our_own_mac_and_link(lab: Lab) -> None:
    director, first = lab.hosts["d1"], lab.hosts["s1"]

    async def test(observer: Observer) -> None:
        observer.neighbours.follow([FIRST])
        await observer.until(lambda: observer.said)
        director.run("ip", "link", "set", "eth0", "address", "02:77:00:00:00:11")
        await observer.until(lambda: observer.of(FIRST) == (to(director, first), ""))
        director.run("ip", "link", "set", "eth0", "down")
        await observer.until(lambda: observer.of(FIRST) == (None, f"no route to {FIRST}"))
        director.run("ip", "link", "set", "eth0", "up")
        await observer.until(lambda: observer.of(FIRST) == (to(director, first), ""))

    run(director, test)


def test_a_new_mac_and_a_new_interface_are_said_also_where_no_server_is(lab: Lab) -> None:
    director = lab.hosts["d1"]

    async def test(observer: Observer) -> None:
        director.run("ip", "link", "set", "eth0", "address", "02:77:00:00:00:12")
        await observer.until(lambda: observer.interfaces_changed == 1)
        director.run("ip", "link", "set", "eth0", "down")
        director.run("ip", "link", "set", "eth0", "up")
        observer.neighbours.follow([FIRST])
        await observer.until(lambda: observer.of(FIRST) is not None)
        assert observer.interfaces_changed == 1
        director.run("ip", "link", "add", "eth7", "type", "bridge")
        await observer.until(lambda: observer.interfaces_changed > 1)
        director.run("ip", "link", "delete", "eth7")

    run(director, test)


def test_what_nothing_reaches_says_why(lab: Lab) -> None:
    director, nowhere = lab.hosts["d1"], IPv4Address("192.0.2.1")
    six(lab)
    director.run("ip", "route", "add", "prohibit", "10.89.0.0/24")
    director.run("ip", "route", "add", "prohibit", "2001:db8:89::/64")
    forbidden, everybody = IPv4Address("10.89.0.1"), IPv4Address("10.77.0.255")
    forbidden6, nowhere6, many = (IPv6Address(each) for each in ("2001:db8:89::1", "2001:db8:1::1", "ff02::1"))
    unscoped, elsewhere = IPv6Address("fe80::1"), IPv6Address("fe80::1%eth9")
    listed = [nowhere, forbidden, everybody, forbidden6, nowhere6, many, unscoped, elsewhere]

    async def test(observer: Observer) -> None:
        observer.neighbours.follow(listed)
        await observer.until(lambda: len(observer.said) == len(listed))
        assert [(each, reason) for each, _, reason, _ in observer.said] == [
            (nowhere, f"no route to {nowhere}"),
            (forbidden, f"no route to {forbidden}"),
            (everybody, f"{everybody} is not the address of one host"),
            (forbidden6, f"no route to {forbidden6}"),
            (nowhere6, f"no route to {nowhere6}"),
            (many, f"{many} is not the address of one host"),
            (unscoped, "fe80::1 is link-local, and names no interface (`%eth0`)"),
            (elsewhere, "there is no interface eth9 for fe80::1%eth9"),
        ]
        assert all(hop is None for _, hop, *_ in observer.said)

    run(director, test)


@pytest.mark.parametrize(
    ("far", "gateway"),
    [("10.88.0.5", str(FIRST)), ("2001:db8:88::5", str(FIRST6)), ("10.88.0.5", str(FIRST6))],
    ids=["IPv4", "IPv6", "IPv4 by an IPv6 gateway"],
)
def test_behind_a_gateway_the_next_hop_is_the_gateway(lab: Lab, far: str, gateway: str) -> None:
    director, first, second = lab.hosts["d1"], lab.hosts["s1"], lab.hosts["s2"]
    six(lab)
    address, via = ip_address(far), ip_address(gateway)
    net = f"{far}/{address.max_prefixlen}"
    via_words = ["via", "inet6", gateway] if via.version > address.version else ["via", gateway]
    director.run("ip", "route", "add", net, *via_words)
    source = DIRECTOR if address.version == 4 else DIRECTOR6

    async def test(observer: Observer) -> None:
        observer.neighbours.follow([address])
        await observer.until(lambda: observer.said)
        assert observer.said == [(address, to(director, first, source), "", via)]
        # The MTU of the route, and another gateway, are followed.
        director.run("ip", "route", "replace", net, *via_words, "mtu", "1400")
        narrow = NextHop(**{**fields(to(director, first, source)), "mtu": 1400})
        await observer.until(lambda: observer.of(address) == (narrow, ""))
        other = "10.77.0.22" if via.version == 4 else "2001:db8:77::22"
        director.run("ip", "route", "replace", net, *via_words[:-1], other)
        await observer.until(lambda: observer.of(address) == (to(director, second, source), ""))
        assert observer.gateway(address) == ip_address(other)
        second.unplug()
        asked = "ARP" if via.version == 4 else "neighbour discovery"
        said = f"no {asked} answer on eth0 from {other}, the gateway to {address}"
        await observer.until(lambda: observer.of(address) == (None, said))

    run(director, test)


def test_the_mtu_of_a_path_that_the_kernel_has_found_out_is_taken_up(lab: Lab) -> None:
    """Nothing tells of it: the route is looked at again and again."""
    director, first, second = lab.hosts["d1"], lab.hosts["s1"], lab.hosts["s2"]
    far = IPv4Address("10.88.0.5")
    director.run("ip", "route", "add", f"{far}/32", "via", str(FIRST))
    first.sysctl(net__ipv4__ip_forward=1)
    first.run("ip", "route", "add", f"{far}/32", "via", str(SECOND), "mtu", "1300")
    second.run("ip", "address", "add", f"{far}/32", "dev", "lo")

    async def test(observer: Observer) -> None:
        observer.neighbours.follow([far])
        await observer.until(lambda: observer.of(far) == (to(director, first), ""))
        director.run("ping", "-c", "1", "-W", "1", "-M", "do", "-s", "1400", str(far), check=False)
        await observer.until(lambda: (hop := (observer.of(far) or (None, ""))[0]) is not None and hop.mtu == 1300)

    run(director, test)


def test_a_server_that_is_this_host_is_reached_by_itself(lab: Lab) -> None:
    director = lab.hosts["d1"]
    six(lab)

    async def test(observer: Observer) -> None:
        observer.neighbours.follow([DIRECTOR, DIRECTOR6])
        await observer.until(lambda: len(observer.said) == 2)
        assert observer.of(DIRECTOR) == (here(director, DIRECTOR), "")
        assert observer.of(DIRECTOR6) == (here(director, DIRECTOR6), "")
        assert here(director, DIRECTOR).local

    run(director, test)


def test_ipv6_servers_are_resolved_by_neighbour_discovery(lab: Lab) -> None:
    director, first = lab.hosts["d1"], lab.hosts["s1"]
    six(lab)
    link_local = IPv6Address(f"{own_link_local(first)}%eth0")
    from_link_local = IPv6Address(own_link_local(director))

    async def test(observer: Observer) -> None:
        observer.neighbours.follow([FIRST6, link_local, ABSENT6])
        await observer.until(lambda: len(observer.said) == 3)
        assert observer.of(FIRST6) == (to(director, first, DIRECTOR6), "")
        assert observer.of(link_local) == (to(director, first, from_link_local), "")
        assert observer.of(ABSENT6) == (None, f"no neighbour discovery answer from {ABSENT6} on eth0")
        # Another MAC is found although nobody announces it, and so is the death of the host.
        first.run("ip", "link", "set", "eth0", "address", "02:77:00:00:00:21")
        await observer.until(lambda: observer.of(FIRST6) == (to(director, first, DIRECTOR6), ""))
        first.unplug()
        gone = f"no neighbour discovery answer from {FIRST6} on eth0"
        await observer.until(lambda: observer.of(FIRST6) == (None, gone))
        first.plug()
        await observer.until(lambda: observer.of(FIRST6) == (to(director, first, DIRECTOR6), ""))

    run(director, test)


def test_a_macvlan_sends_out_of_the_interface_below_under_its_own_mac(lab: Lab) -> None:
    director, first = lab.hosts["d1"], lab.hosts["s1"]
    director.run("ip", "link", "add", "vrrp.51", "link", "eth0", "type", "macvlan", "mode", "private")
    director.run("ip", "link", "set", "vrrp.51", "up")
    director.run("ip", "address", "add", "10.91.0.1/24", "dev", "vrrp.51")
    first.run("ip", "address", "add", "10.91.0.2/24", "dev", "eth0")

    async def test(observer: Observer) -> None:
        address = IPv4Address("10.91.0.2")
        observer.neighbours.follow([address])
        await observer.until(lambda: observer.said)
        hop, reason = observer.of(address) or (None, "")
        assert hop is not None, reason
        wanted = fields(to(director, first)) | {"source": IPv4Address("10.91.0.1"), "source_mac": hop.source_mac}
        assert hop == NextHop(**wanted)
        assert hop.source_mac in director.run("ip", "link", "show", "vrrp.51").stdout

    run(director, test)


def test_routes_that_change_are_noticed(lab: Lab) -> None:
    director, second = lab.hosts["d1"], lab.hosts["s2"]
    nowhere = IPv4Address("192.0.2.1")

    async def test(observer: Observer) -> None:
        observer.neighbours.follow([SECOND, nowhere])
        await observer.until(lambda: len(observer.said) == 2)
        second.run("ip", "address", "add", f"{nowhere}/32", "dev", "lo")
        director.run("ip", "route", "add", f"{nowhere}/32", "dev", "eth0")
        await observer.until(lambda: observer.of(nowhere) == (to(director, second), ""))
        director.run("ip", "address", "add", f"{nowhere}/32", "dev", "eth0")
        await observer.until(lambda: observer.of(nowhere) == (here(director, nowhere), ""))
        director.run("ip", "address", "del", f"{nowhere}/32", "dev", "eth0")
        await observer.until(lambda: observer.of(nowhere) == (to(director, second), ""))

    run(director, test)


def test_an_interface_without_macs(lab: Lab) -> None:
    director = lab.hosts["d1"]
    made = director.run("ip", "tuntap", "add", "tun7", "mode", "tun", check=False)
    if made.returncode:
        pytest.skip(f"no tun device here: {made.stderr.strip()}")
    director.run("ip", "address", "add", "10.90.0.1/24", "dev", "tun7")
    director.run("ip", "link", "set", "tun7", "up")
    behind = IPv4Address("10.90.0.2")

    async def test(observer: Observer) -> None:
        observer.neighbours.follow([behind])
        await observer.until(lambda: observer.said)
        reason = f"{behind} is behind tun7, which has no MAC: forwarding needs Ethernet"
        assert observer.of(behind) == (None, reason)

    run(director, test)


def test_events_that_the_socket_could_not_hold_are_made_up_for(lab: Lab) -> None:
    director = lab.hosts["d1"]

    async def test(observer: Observer) -> None:
        observer.neighbours.follow([FIRST])
        await observer.until(lambda: observer.said)
        # The loop stands still while more happens than the socket holds; the last word of all is lost with the rest.
        for turn in range(10):
            batch = "".join(
                f"neigh replace 10.77.{each // 250 + 1}.{each % 250 + 1} lladdr 02:00:00:00:00:{turn:02x} dev eth0\n"
                for each in range(900)
            )
            subprocess.run(director.argv("ip", "-batch", "-"), input=batch, text=True, check=True)  # noqa: ASYNC221
        last = ("lladdr", "02:00:00:00:00:77", "nud", "permanent", "dev", "eth0")
        director.run("ip", "neigh", "replace", str(FIRST), *last)
        await observer.until(lambda: "neighbour_events_lost" in observer.logged)
        hop, _ = observer.of(FIRST) or (None, "")
        assert hop is not None
        assert hop.destination_mac == "02:00:00:00:00:77"

    run(director, test, refresh_s=60)
