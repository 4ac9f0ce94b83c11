"""Neighbours in a namespace: every way in which a frame reaches a server, or does not."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable, Coroutine, Iterator
from ipaddress import IPv4Address
from typing import Any

import pytest
from lab import Host, Lab

from haxlb.forwarding.wanted import NextHop
from haxlb.linux.neighbours import Neighbours
from tests.netns.standin import inside

pytestmark = pytest.mark.netns

DIRECTOR, FIRST, SECOND, ABSENT = (IPv4Address(f"10.77.0.{host}") for host in (11, 21, 22, 99))
Said = list[tuple[IPv4Address, NextHop | None, str]]


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(f"hxnb{os.getpid()}") as made:
        made.host("d1", f"{DIRECTOR}/24")
        made.host("s1", f"{FIRST}/24")
        made.host("s2", f"{SECOND}/24")
        # Three questions in 0.3 s instead of 3 s, and an entry that is stale after a second.
        made.hosts["d1"].sysctl(
            net__ipv4__neigh__eth0__retrans_time_ms=100,
            net__ipv4__neigh__eth0__base_reachable_time_ms=500,
            net__ipv4__neigh__eth0__delay_first_probe_time=1,
        )
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

    def of(self, address: IPv4Address) -> tuple[NextHop | None, str] | None:
        """The last word on an address."""
        return next(((hop, reason) for each, hop, reason in reversed(self.said) if each == address), None)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
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


def to(director: Host, server: Host) -> NextHop:
    """How it must be, from `ip`'s view."""
    index = int(director.run("ip", "-o", "link", "show", "eth0").stdout.split(":")[0])
    return NextHop(interface_index=index, source_mac=director.mac(), destination_mac=server.mac())


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
        assert observer.said[3] == (SECOND, to(director, second), "")

    run(director, test)


def test_a_second_process_knows_at_once_what_the_kernel_knows(lab: Lab) -> None:
    director, first = lab.hosts["d1"], lab.hosts["s1"]
    director.run("ip", "neigh", "replace", str(FIRST), "lladdr", first.mac(), "nud", "stale", "dev", "eth0")

    async def test(observer: Observer) -> None:
        observer.neighbours.follow([FIRST])
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert observer.said == [(FIRST, to(director, first), "")]

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


def test_what_direct_routing_cannot_reach_says_why(lab: Lab) -> None:
    director, far, nowhere = lab.hosts["d1"], IPv4Address("10.88.0.5"), IPv4Address("192.0.2.1")
    director.run("ip", "route", "add", "10.88.0.0/24", "via", str(FIRST))
    director.run("ip", "route", "add", "prohibit", "10.89.0.0/24")
    forbidden, everybody = IPv4Address("10.89.0.1"), IPv4Address("10.77.0.255")

    async def test(observer: Observer) -> None:
        observer.neighbours.follow([DIRECTOR, far, nowhere, forbidden, everybody])
        await observer.until(lambda: len(observer.said) == 5)
        assert [(each, reason) for each, _, reason in observer.said] == [
            (DIRECTOR, f"{DIRECTOR} is an address of this host: forwarding to itself is not supported yet"),
            (far, f"{far} is behind the gateway {FIRST}: direct routing needs a connected network"),
            (nowhere, f"no route to {nowhere}"),
            (forbidden, f"no route to {forbidden}"),
            (everybody, f"{everybody} is not the address of one host"),
        ]
        assert all(hop is None for _, hop, _ in observer.said)

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
        await observer.until(lambda: (observer.of(nowhere) or (None, ""))[1].startswith(f"{nowhere} is an address of"))
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
        reason = f"{behind} is behind tun7, which has no MAC: direct routing needs Ethernet"
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
