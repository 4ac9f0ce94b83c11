from __future__ import annotations

import asyncio
import os
import struct
import subprocess
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import pytest
from lab import Host, Lab

from haxlb.daemon.messages import GarpFrame
from haxlb.linux.addresses import Addresses
from haxlb.linux.announcer import Announcer, announcement, garp_request
from haxlb.linux.links import LinkMonitor, Links
from haxlb.linux.log import Complaints
from haxlb.linux.neighbour_advertisement import unsolicited_advertisement
from haxlb.linux.rtnetlink import Rtnetlink
from haxlb.linux.timerfd import MonotonicClock
from haxlb.model.addresses import IPAddress, Vip
from haxlb.model.errors import HostError
from tests.netns.standin import Ear, addresses, eventually, inside, vip

pytestmark = pytest.mark.netns

ONE = IPv4Address("10.9.0.1")
HOUR_S = 3600
"""A lifetime that no standstill of a busy machine outlasts."""


class Lines:
    """A log that remembers."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []

    def __call__(self, level: str, event: str, **fields: object) -> None:
        self.lines.append((event, fields))


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(f"hxsad{os.getpid()}") as made:
        made.host("d1", "10.9.0.1/24")
        made.host("d2", "10.9.0.2/24")
        yield made


@pytest.fixture
def one(lab: Lab) -> Host:
    return lab.hosts["d1"]


@pytest.fixture
def two(lab: Lab) -> Host:
    return lab.hosts["d2"]


@pytest.fixture
def netlink(one: Host) -> Iterator[Rtnetlink]:
    """rtnetlink in the first host."""
    with inside(one.namespace):
        opened = Rtnetlink()
    yield opened
    opened.close()
    one.run("ip", "address", "flush", "dev", "lo")
    one.run("ip", "address", "flush", "dev", "eth0")
    one.run("ip", "address", "add", "10.9.0.1/24", "dev", "eth0")


# -- addresses


def watched(netlink: Rtnetlink, *names: str, vips: tuple[str, ...] = ()) -> Links:
    links = Links(netlink)
    links.watch(names, [IPv4Address(each) for each in vips])
    return links


def keeper_of(netlink: Rtnetlink, links: Links) -> Addresses:
    return Addresses(netlink, links.index, lifetime_s=HOUR_S)


def test_addresses_come_with_all_their_properties_and_a_lifetime(one: Host, netlink: Rtnetlink) -> None:
    keeper = keeper_of(netlink, watched(netlink, "eth0"))
    plain, rich = (
        vip("10.9.0.100"),
        Vip(
            address=IPv4Address("10.5.0.101"),
            prefix_length=24,
            interface="eth0",
            label="eth0:vip",
            scope=253,
            broadcast=IPv4Address("10.5.0.255"),
        ),
    )
    keeper.add([plain, rich])
    shown = one.run("ip", "-o", "-4", "address", "show", "dev", "eth0").stdout
    lines = {line.split()[3]: line for line in shown.splitlines()}
    assert "scope global" in lines["10.9.0.100/32"]
    assert "scope link" in lines["10.5.0.101/24"]
    assert "eth0:vip" in lines["10.5.0.101/24"]
    assert "brd 10.5.0.255" in lines["10.5.0.101/24"]
    for each in ("10.9.0.100/32", "10.5.0.101/24"):
        # The kernel shows what is left of it.
        assert HOUR_S - 300 < int(lines[each].split("valid_lft ")[1].split("sec")[0]) <= HOUR_S
    keeper.add([plain])  # a second time is no error
    keeper.remove([plain, rich])
    keeper.remove([plain])  # nor is this
    assert addresses(one) == {ONE}


def test_a_lifetime_of_two_seconds_is_the_usual_one(one: Host, netlink: Rtnetlink) -> None:
    keeper = Addresses(netlink, watched(netlink, "eth0").index)
    assert keeper.lifetime_s == 2
    keeper.add([vip("10.9.0.100")])
    eventually(lambda: addresses(one) == {ONE}, "the kernel takes it off by itself")


def test_renewal_restores_what_is_held_and_nothing_else(one: Host, netlink: Rtnetlink) -> None:
    keeper = keeper_of(netlink, watched(netlink, "eth0"))
    kept, given_up = vip("10.9.0.100"), vip("10.9.0.101")
    keeper.add([kept, given_up])
    keeper.remove([given_up])
    one.run("ip", "address", "del", "10.9.0.100/32", "dev", "eth0")
    keeper.renew()
    assert addresses(one) == {ONE, kept.address}
    keeper.remove([kept])


def test_many_addresses_go_in_batches(one: Host, netlink: Rtnetlink) -> None:
    keeper = keeper_of(netlink, watched(netlink, "eth0"))
    many = [vip(f"10.7.{n // 250}.{n % 250 + 1}") for n in range(300)]
    keeper.prepare(many)
    keeper.add(many)
    assert len(addresses(one)) == 301
    keeper.remove(many)
    assert addresses(one) == {ONE}


def test_what_cannot_be_put_on_is_named_and_the_rest_is_on(one: Host, netlink: Rtnetlink) -> None:
    keeper = keeper_of(netlink, watched(netlink, "eth0", "absent"))
    good, bad = vip("10.9.0.100"), vip("10.9.0.101", interface="absent")
    with pytest.raises(HostError, match=r"cannot add 10.9.0.101/32: there is no interface absent \(create"):
        keeper.add([bad, good])
    assert good.address in addresses(one)
    keeper.remove([bad, good])
    with pytest.raises(HostError, match=r"cannot add 10.9.0.100/32 on eth0: .*\(try `ip address add"):
        keeper.add([replace(good, label="this-label-is-too-long-for-the-kernel")])


# -- links


def test_a_link_as_it_is_now(one: Host, netlink: Rtnetlink) -> None:
    links = watched(netlink, "eth0", "absent", vips=("10.9.0.1",))
    assert links.link("absent") is None
    assert links.link("a-name-that-is-far-too-long") is None
    assert links.index("absent") is None
    one.run("ip", "address", "add", "10.9.0.200/24", "dev", "eth0")
    one.run("ip", "address", "add", "10.6.0.1/24", "dev", "eth0")
    # The kernel tells by a work queue that both ends are up (net/core/link_watch.c).
    link = eventually(lambda: (found := links.link("eth0")) and found.up and found, "eth0 is up")
    assert (link.up, link.mac, link.mtu) == (True, one.mac(), 1500)
    # 10.9.0.1 is one of our VIPs and 10.9.0.200 secondary to it.
    assert link.address == IPv4Address("10.6.0.1")


def on_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the kernel changes it, not the loop
        await asyncio.sleep(0.005)


def test_a_source_address_may_be_on_any_interface_and_its_events_are_those_of_who_tracks_it(
    one: Host, netlink: Rtnetlink
) -> None:
    one.sysctl(net__ipv6__conf__lo__disable_ipv6=0)
    sources = frozenset({IPv4Address("10.99.0.7"), IPv6Address("2001:db8:9::7")})

    async def test() -> None:
        heard: list[str] = []
        links = Links(netlink)
        links.watch(["eth0"], [], {"eth0": sources})
        with inside(one.namespace):
            monitor = LinkMonitor(links, netlink, heard.append, Lines())
        seen = [absent(links)]
        # Addresses and the interface below are not watched themselves.
        for word in ("add", "del"):
            for address in ("10.99.0.7/32", "2001:db8:9::7/128"):
                heard.clear()
                one.run("ip", "address", word, address, "dev", "lo")
                await until(lambda: "eth0" in heard)
                seen.append(absent(links))
        monitor.close()
        four, six = sorted(sources, key=lambda each: each.version)
        assert seen == [{four, six}, {six}, set(), {four}, {four, six}]

    def absent(links: Links) -> frozenset[IPAddress]:
        link = links.link("eth0")
        assert link is not None
        return link.absent_sources

    on_loop(test)


def test_the_monitor_hears_of_links_and_foreign_addresses_but_not_of_our_own(one: Host, netlink: Rtnetlink) -> None:
    async def test() -> None:
        heard: list[str] = []
        links = watched(netlink, "eth0", "new0")
        with inside(one.namespace):
            monitor = LinkMonitor(links, netlink, heard.append, Lines())
        keeper = keeper_of(netlink, links)
        keeper.add([vip("10.9.0.100")])
        keeper.renew()
        keeper.remove([vip("10.9.0.100")])
        one.run("ip", "link", "add", "new0", "type", "veth", "peer", "name", "new1")
        await until(lambda: "new0" in heard)
        assert "eth0" not in heard
        links.link("new0")
        heard.clear()
        one.run("ip", "address", "add", "10.6.0.9/24", "dev", "eth0")
        await until(lambda: "eth0" in heard)
        one.run("ip", "link", "set", "new0", "name", "renamed0")
        await until(lambda: "new0" in heard)
        heard.clear()
        monitor.close()
        one.run("ip", "link", "del", "renamed0")

    on_loop(test)


def test_of_ipv6_only_the_loss_of_a_vip_that_is_held_is_told(one: Host, netlink: Rtnetlink) -> None:
    """The kernel does not say who asked for a change of an IPv6 address: renewals would wake us all the time."""
    one.sysctl(net__ipv6__conf__eth0__disable_ipv6=0)
    ours = Vip(address=IPv6Address("2001:db8::100"), prefix_length=128, interface="eth0")

    async def test() -> None:
        heard: list[str] = []
        links = Links(netlink)
        links.watch(["eth0"], [ours.address])
        # The link-local address that comes with IPv6 is news, too, once it has been probed.
        await until(lambda: (link := links.link("eth0")) is not None and link.address6 is not None)
        keeper = keeper_of(netlink, links)
        # The kernel tells of its end after the address is usable, and holds this lock until then (addrconf_dad_work).
        one.run("ip", "link", "set", "lo", "mtu", "64999")
        with inside(one.namespace):
            monitor = LinkMonitor(links, netlink, heard.append, Lines(), keeper.holds)
        links.watch(["eth0", "lo"], [ours.address])
        for number, change in enumerate((keeper.add, keeper.add, keeper.remove, keeper.add)):
            change([ours])
            # Events come in order: this one is behind those of the change.
            one.run("ip", "link", "set", "lo", "mtu", str(65000 + number))
            await until(lambda: "lo" in heard)
            assert "eth0" not in heard
            heard.clear()
        one.run("ip", "address", "del", "2001:db8::100/128", "dev", "eth0")
        await until(lambda: "eth0" in heard)
        heard.clear()
        one.run("ip", "address", "add", "2001:db8::77/128", "dev", "eth0")
        await until(lambda: "eth0" in heard)
        monitor.close()
        keeper.remove([ours])

    on_loop(test)
    one.run("ip", "link", "set", "lo", "mtu", "65536")
    one.sysctl(net__ipv6__conf__eth0__disable_ipv6=1)


def test_more_events_than_the_socket_holds_mean_a_look_at_everything(one: Host, netlink: Rtnetlink) -> None:
    async def test() -> None:
        heard: list[str] = []
        log = Lines()
        links = watched(netlink, "eth0", "lo")
        with inside(one.namespace):
            monitor = LinkMonitor(links, netlink, heard.append, log)
        # The loop does not run meanwhile, so nobody reads.
        keeper = keeper_of(netlink, links)
        many = [vip(f"10.7.{n // 250}.{n % 250 + 1}") for n in range(1000)]
        keeper.prepare(many)
        for _ in range(3):
            keeper.add(many)
            keeper.remove(many)
        await until(lambda: set(heard) == {"eth0", "lo"})
        assert monitor.resyncs >= 1
        assert log.lines[0][0] == "link_events_lost"
        monitor.close()

    on_loop(test)


# -- announcer


def test_a_frame_that_is_missing_or_for_another_mac_is_made_on_the_spot(one: Host, two: Host) -> None:
    stale: list[tuple[str, str]] = []
    mac = {"eth0": one.mac()}
    log = Lines()
    with inside(one.namespace):
        announcer = Announcer(mac.get, Complaints(log, MonotonicClock()), lambda *what: stale.append(what))
    crafted, missing = vip("10.9.0.100"), vip("10.9.0.101")
    # Told apart from what the announcer would make itself by its padding.
    frame = garp_request(one.mac(), crafted.address) + b"crafted"
    announcer.take(
        [GarpFrame(interface="eth0", mac=one.mac(), vip=crafted.address, frame_hex=frame.hex())],
    )
    with Ear(two.namespace) as ear:
        announcer.announce([crafted, missing])
        first = eventually(lambda: ear.garps(crafted.address), "the crafted frame")
        assert first[0].frame == frame
        assert eventually(lambda: ear.garps(missing.address), "the missing frame")[0].source_mac == one.mac()
        assert stale == [("eth0", one.mac())]

        stale.clear()
        mac["eth0"] = "02:00:00:00:00:77"
        announcer.inspect("eth0")
        assert stale == [("eth0", "02:00:00:00:00:77")]
        announcer.announce([crafted])
        eventually(lambda: ear.garps(crafted.address)[-1].source_mac == "02:00:00:00:00:77", "from the new MAC")
        assert len(stale) == 1, "each MAC is reported once"
    assert announcer.sent == 3
    mac["eth0"] = ""  # a tunnel
    announcer.announce([crafted])
    assert (announcer.sent, log.lines) == (3, [])
    mac.clear()
    announcer.announce([crafted])
    assert log.lines[0][0] == "garp_not_sent"
    announcer.close()


def test_a_link_that_takes_no_more_frames_holds_nobody_up(one: Host) -> None:
    """Paused by its switch, say: without an end, as far as the speaker can tell."""
    log = Lines()
    with inside(one.namespace):
        announcer = Announcer(lambda _: "02:00:00:00:00:01", Complaints(log, MonotonicClock()), lambda *_: None)
    one.run(*["tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "8kbit", "burst", "1600", "latency", "3600s"])
    try:
        announcer.announce([vip(f"10.7.{n // 250}.{n % 250}") for n in range(20_000)])
        assert 1_000 < announcer.sent < 20_000
        assert log.lines[0][0] == "garp_not_sent"
    finally:
        one.run(*["tc", "qdisc", "del", "dev", "eth0", "root"])
        announcer.close()


def test_tshark_finds_nothing_wrong_with_an_announcement(tmp_path: Path) -> None:
    frames = [
        announcement("02:00:00:00:00:01", IPv4Address("10.9.0.100"), "absent0"),
        announcement("00:00:5e:00:02:33", IPv6Address("2001:db8::100"), "absent0"),
        unsolicited_advertisement("00:00:5e:00:02:33", IPv6Address("fe80::1"), router=True),
    ]
    capture = tmp_path / "frames.pcap"
    # pcap(5): magic, version 2.4, no zone, no accuracy, snapshot length, Ethernet.
    header = struct.pack("=IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    capture.write_bytes(header + b"".join(struct.pack("=IIII", 0, 0, len(each), len(each)) + each for each in frames))
    said = subprocess.run(["tshark", "-r", capture, "-V"], capture_output=True, text=True, check=True).stdout
    assert "Is gratuitous: True" in said
    assert said.count("[Checksum Status: Good]") == 2
    assert "Flags: 0x20000000, Override" in said
    assert "Flags: 0xa0000000, Router, Override" in said
    assert said.count("ICMPv6 Option (Target link-layer address : 00:00:5e:00:02:33)") == 2
    complaints = subprocess.run(
        ["tshark", "-r", capture, "-Y", "_ws.malformed || _ws.expert.severity >= 4194304"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert complaints == ""


def test_neighbours_take_the_address_of_an_ipv6_announcement(one: Host, two: Host) -> None:
    for host in (one, two):
        host.sysctl(net__ipv6__conf__eth0__disable_ipv6=0)
    # Something stale, which an unsolicited advertisement without the override flag would not correct.
    two.run("ip", "neigh", "replace", "fe80::64", "lladdr", "02:00:00:00:00:99", "dev", "eth0", "nud", "stale")
    mac = one.mac()
    with inside(one.namespace):
        announcer = Announcer(lambda _: mac, Complaints(Lines(), MonotonicClock()), lambda *_: None)
    announcer.announce([Vip(address=IPv6Address("fe80::64"), prefix_length=128, interface="eth0")])
    eventually(lambda: mac in two.run("ip", "neigh", "show", "fe80::64").stdout, "the new MAC")
    announcer.close()
    for host in (one, two):
        host.sysctl(net__ipv6__conf__eth0__disable_ipv6=1)


def test_announcing_is_fast(one: Host) -> None:
    with inside(one.namespace):
        announcer = Announcer(lambda _: "02:00:00:00:00:01", Complaints(Lines(), MonotonicClock()), lambda *_: None)
    vips = [vip(f"10.7.0.{n}") for n in range(1, 251)]
    took_s = []
    for _ in range(5):
        # Of this thread alone, and the best of them: the collector of what other tests have left may come in between.
        began = time.thread_time()
        announcer.announce(vips)
        took_s.append(time.thread_time() - began)
    assert min(took_s) < 0.1, took_s
    assert announcer.sent == 5 * 250
    announcer.close()
