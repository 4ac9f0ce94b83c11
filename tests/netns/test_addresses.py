from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, cast

import pytest

from haxlb.linux.address_requests import FOREVER
from haxlb.linux.addresses import LIFETIME_S, RENEW_EVERY_S, Addresses
from haxlb.linux.host_network import HostNetwork
from haxlb.linux.renewer import Renewer
from haxlb.linux.rtnetlink import Rtnetlink
from haxlb.linux.static_entries import StaticEntries
from haxlb.model.addresses import StaticAddress, Vip
from haxlb.model.errors import HostError
from haxlb.model.routes import Route
from tests.netns.bfd_hosts import until
from tests.netns.kernel import Namespace, namespace
from tests.netns.standin import eventually, inside

pytestmark = pytest.mark.netns

LONG_S = 600
"""A lifetime that outlives every pause of a busy machine: of addresses that no test waits for the end of."""


def vip(address: str, prefix_length: int | None = None, **fields: Any) -> Vip:
    parsed = ip_address(address)
    fields.setdefault("interface", "eth0")
    return Vip(address=parsed, prefix_length=prefix_length or parsed.max_prefixlen, **fields)


@pytest.fixture(scope="module")
def host() -> Iterator[Namespace]:
    with namespace("adr") as made:
        yield made


def lasting(host: Namespace, *interfaces: str, **options: Any) -> Addresses:
    """Addresses that do not end by themselves while a test looks at them."""
    return Addresses(host.netlink, host.links(*interfaces).index, lifetime_s=LONG_S, **options)


def renewed(host: Namespace, keeper: Addresses, address: str) -> dict[str, Any]:
    """What the kernel shows of an address of two seconds right after its renewal."""

    def shown() -> dict[str, Any]:
        keeper.renew()
        found = host.addresses().get(address, {})
        return found if found.get("valid_life_time") in (1, 2) else {}  # else we were held up

    return eventually(shown, f"{address} lives for two seconds")


@pytest.fixture
def keeper(host: Namespace) -> Iterator[Addresses]:
    made = lasting(host, "eth0", "eth1")
    before = {name: host.addresses(name) for name in ("eth0", "eth1")}
    yield made
    made.remove(made.held)
    assert {name: set(host.addresses(name)) for name in before} == {name: set(before[name]) for name in before}


def test_an_ipv6_vip_is_usable_at_once_deprecated_and_short_lived(host: Namespace, keeper: Addresses) -> None:
    keeper.lifetime_s = LIFETIME_S
    keeper.add([vip("2001:db8::100")])
    shown = renewed(host, keeper, "2001:db8::100/128")
    # keepalived's: no probing for duplicates, and never the source of a connection that does not ask for it.
    assert shown["nodad"]
    assert shown["deprecated"]
    assert "tentative" not in shown


def test_a_prefix_makes_it_a_source_like_any_other(host: Namespace, keeper: Addresses) -> None:
    keeper.lifetime_s = LIFETIME_S
    keeper.add([vip("2001:db8::100", 64)])
    shown = renewed(host, keeper, "2001:db8::100/64")
    assert "deprecated" not in shown
    assert shown["preferred_life_time"] == shown["valid_life_time"]


@pytest.mark.parametrize(
    ("wanted", "shown"),
    [
        (vip("2001:db8::100", 64, flags=("home",)), "home"),
        (vip("2001:db8::100", 64, flags=("noprefixroute",)), "noprefixroute"),
        (vip("2001:db8::100", 64, flags=("mngtmpaddr",)), "mngtmpaddr"),
        (vip("10.0.0.100", 24, flags=("noprefixroute",)), "noprefixroute"),
    ],
)
def test_flags_are_the_kernels(host: Namespace, keeper: Addresses, wanted: Vip, shown: str) -> None:
    keeper.add([wanted])
    assert host.addresses()[str(wanted)][shown]
    keeper.renew()
    assert host.addresses()[str(wanted)][shown], "renewal changes no flag"


def test_a_multicast_address_joins_its_group(host: Namespace, keeper: Addresses) -> None:
    keeper.add([vip("ff0e::1234", flags=("autojoin",))])
    assert "ff0e::1234" in host.run("ip", "-6", "maddress", "show", "dev", "eth0")


def test_duplicate_address_detection_on_request(host: Namespace) -> None:
    host.run("sysctl", "-qw", "net.ipv6.conf.eth1.accept_dad=1")
    host.run("ip", "address", "add", "2001:db8:1::100/64", "dev", "far1", "nodad")
    now = [0.0]
    keeper = lasting(host, "eth1", monotonic=lambda: now[0])
    doubtful, good, slow = (
        vip(f"2001:db8:1::{each}", 64, interface="eth1", flags=("-nodad",)) for each in ("100", "200", "300")
    )
    host.run("sysctl", "-qw", "net.ipv6.conf.eth1.dad_transmits=100")
    keeper.add([slow])
    assert host.addresses("eth1")[str(slow)]["tentative"]
    keeper.remove([slow])
    host.run("sysctl", "-qw", "net.ipv6.conf.eth1.dad_transmits=1")
    keeper.add([doubtful, good])
    assert keeper.duplicates() == (), "too early to say"
    now[0] = 5.0

    def looked() -> bool:
        keeper.renew()
        return keeper.duplicates() == (doubtful,)

    eventually(looked, "the good one has been probed")
    keeper.remove([doubtful, good])
    assert keeper.duplicates() == ()
    host.run("ip", "address", "del", "2001:db8:1::100/64", "dev", "far1")
    host.run("sysctl", "-qw", "net.ipv6.conf.eth1.accept_dad=0")


def test_a_peer_is_the_other_end(host: Namespace, keeper: Addresses) -> None:
    four = vip("10.7.0.1", peer=IPv4Address("10.7.0.2"))
    six = vip("2001:db8::1", peer=IPv6Address("2001:db8::2"))
    keeper.add([four, six])
    shown = host.json("address", "show", "dev", "eth0")[0]["addr_info"]
    ends = {(each["local"], each["address"]) for each in shown if "address" in each}
    assert ends == {("10.7.0.1", "10.7.0.2"), ("2001:db8::1", "2001:db8::2")}


def test_both_families_vanish_by_themselves(host: Namespace) -> None:
    keeper = Addresses(host.netlink, host.links("eth0").index)
    began = 0.0

    def on() -> bool:
        nonlocal began
        began = time.monotonic()
        keeper.renew()
        return len(host.addresses()) == 4  # else we were held up

    keeper.add([vip("10.0.0.100"), vip("2001:db8::100"), vip("2001:db8::101", 64)])
    eventually(on, "all three are on")
    eventually(lambda: set(host.addresses()) == {"10.0.0.1/24"}, "the kernel takes them off")
    assert time.monotonic() - began > 1.5, "the lifetime is whole seconds, the kernel counts from the last one"


def test_renewal_keeps_both_families_for_longer_than_their_lifetime(host: Namespace, keeper: Addresses) -> None:
    keeper.lifetime_s = LIFETIME_S
    wanted = [vip("10.0.0.100"), vip("2001:db8::100"), vip("2001:db8::101", 64)]
    begun = time.monotonic()
    keeper.add(wanted)
    since = begun
    while begun - since < 3.5:
        shown = host.addresses()
        if time.monotonic() - begun < 1.5:
            assert len(shown) == 4
        else:  # we were held up, and the kernel has taken them off or not: from here anew
            since = time.monotonic()
        time.sleep(0.3)
        begun = time.monotonic()
        keeper.renew()
    assert renewed(host, keeper, "2001:db8::101/64")["preferred_life_time"] in (1, 2)


def test_without_a_lifetime_they_stay(host: Namespace, keeper: Addresses) -> None:
    keeper.lifetime_s = 0
    keeper.add([vip("10.0.0.100"), vip("2001:db8::101", 64)])
    shown = host.addresses()
    assert {shown[each]["valid_life_time"] for each in ("10.0.0.100/32", "2001:db8::101/64")} == {FOREVER}
    keeper.lifetime_s = LIFETIME_S
    for each in ("10.0.0.100/32", "2001:db8::101/64"):
        assert renewed(host, keeper, each)


def test_a_preferred_lifetime_ends_while_the_address_lives_on(host: Namespace) -> None:
    now = [100.0]
    keeper = lasting(host, "eth0", monotonic=lambda: now[0])
    both = [vip(each, length, preferred_lifetime_s=60) for each, length in (("10.0.0.100", 24), ("2001:db8::101", 64))]
    keeper.add(both)
    now[0] = 159.9
    keeper.renew()
    assert all("deprecated" not in host.addresses()[str(each)] for each in both)
    now[0] = 160.0
    keeper.renew()
    assert all(host.addresses()[str(each)]["deprecated"] for each in both)
    keeper.remove(both)
    keeper.add(both)
    assert all("deprecated" not in host.addresses()[str(each)] for each in both), "it begins anew with each take-over"
    keeper.remove(both)


def test_what_was_left_with_another_prefix_goes_too(host: Namespace, keeper: Addresses) -> None:
    host.run("ip", "address", "add", "2001:db8::100/64", "dev", "eth0", "nodad")
    host.run("ip", "address", "add", "2001:db8::101/64", "dev", "eth0", "nodad")
    host.run("ip", "address", "add", "10.0.0.100/24", "dev", "eth0")
    keeper.remove([vip("2001:db8::100"), vip("10.0.0.100")])
    assert set(host.addresses()) == {"10.0.0.1/24", "2001:db8::101/64"}, "and nothing else"
    host.run("ip", "address", "del", "2001:db8::101/64", "dev", "eth0")


def test_an_address_that_is_there_several_times_goes_altogether(host: Namespace, keeper: Addresses) -> None:
    """By hand with other lengths: the kernel takes off one at a time, and the first is not ours."""
    for length in (32, 28, 25):
        host.run("ip", "address", "add", f"10.0.0.100/{length}", "dev", "eth0")
    keeper.add([vip("10.0.0.100", 24)])
    keeper.remove([vip("10.0.0.100", 24)])
    assert set(host.addresses()) == {"10.0.0.1/24"}


def test_reconciling_takes_off_what_is_not_held_and_puts_on_what_is(host: Namespace, keeper: Addresses) -> None:
    held, not_held = [vip("10.0.0.100"), vip("2001:db8::100")], [vip("10.0.0.101"), vip("2001:db8::101")]
    keeper.add(held)
    for each in held:
        host.run("ip", "address", "del", str(each), "dev", "eth0")
    for each in not_held:
        host.run("ip", "address", "add", str(each), "dev", "eth0")
    host.run("ip", "address", "add", "10.0.0.77/24", "dev", "eth0")
    assert keeper.reconcile([*held, *not_held, vip("10.0.0.102")]) == tuple(not_held)
    assert set(host.addresses()) == {"10.0.0.1/24", "10.0.0.77/24", "10.0.0.100/32", "2001:db8::100/128"}
    assert keeper.reconcile([*held, *not_held]) == ()
    host.run("ip", "address", "del", "10.0.0.77/24", "dev", "eth0")


def test_where_ipv6_is_disabled_the_error_says_so(host: Namespace, keeper: Addresses) -> None:
    host.run("sysctl", "-qw", "net.ipv6.conf.eth1.disable_ipv6=1")
    with pytest.raises(HostError, match=r"IPv6 is disabled there \(sysctl net.ipv6.conf.eth1.disable_ipv6=0\)"):
        keeper.add([vip("2001:db8::100", interface="eth1")])
    keeper.remove(keeper.held)
    host.run("sysctl", "-qw", "net.ipv6.conf.eth1.disable_ipv6=0")


def test_what_the_kernel_refuses_is_named_and_the_rest_is_on(host: Namespace, keeper: Addresses) -> None:
    odd = vip("2001:db8::100", 48, flags=("mngtmpaddr",))
    with pytest.raises(HostError, match=r"cannot add 2001:db8::100/48 on eth0: Invalid argument"):
        keeper.add([odd, vip("2001:db8::101")])
    assert "2001:db8::101/128" in host.addresses()


def test_many_are_renewed_a_portion_at_a_time_and_none_is_passed_over(host: Namespace) -> None:
    network = HostNetwork(host.netlink, host.links("eth0"), host.log)
    keeper = network.addresses
    keeper.lifetime_s = LONG_S
    many = [vip(f"2001:db8::{n:x}") for n in range(1, 41)]
    keeper.add(many)
    pauses, seen = [], set()
    for gone in (many[3], many[17]):
        # One that leaves in the middle of a round must not make another one lose its turn.
        keeper.remove([gone])
        many.remove(gone)
    for _ in range(3):
        before = set(host.addresses())
        for each in before - {"10.0.0.1/24"}:
            host.run("ip", "address", "del", each, "dev", "eth0")
        pauses.append(network.renew())
        portion = set(host.addresses()) - {"10.0.0.1/24"}
        assert len(portion) <= 16
        seen |= portion
    assert seen == {str(each) for each in many}
    assert sum(pauses) == pytest.approx(RENEW_EVERY_S)
    keeper.remove(many)
    assert network.renew() == RENEW_EVERY_S


def test_renewals_wait_for_the_kernel_in_a_thread(host: Namespace) -> None:
    async def test() -> None:
        with inside(host.name):
            renewer = Renewer()
        network = HostNetwork(host.netlink, host.links("eth0"), host.log, renewer)
        keeper = network.addresses
        keeper.lifetime_s = LONG_S
        many = [vip("10.7.0.1"), vip("2001:db8::1")]
        keeper.add(many)
        host.run("ip", "address", "flush", "dev", "eth0", "to", "10.7.0.1/32")
        assert network.renew() == RENEW_EVERY_S
        renewer.wait()
        assert {str(each) for each in many} < set(host.addresses())
        network.renew()
        keeper.remove(many)  # at once: the renewal must not come after it
        renewer.wait()
        assert not {str(each) for each in many} & set(host.addresses())
        await asyncio.sleep(0)
        await network.close()

    asyncio.run(test())


class Watched:
    """An Rtnetlink, and how often it was told to change something."""

    def __init__(self, netlink: Rtnetlink) -> None:
        self._netlink = netlink
        self.changes = 0

    def change(self, requests: Sequence[bytes]) -> list[int]:
        self.changes += 1
        return self._netlink.change(requests)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._netlink, name)


def test_routes_and_static_entries_are_seen_to_by_the_thread_too(host: Namespace) -> None:
    async def test() -> None:
        with inside(host.name):
            renewer = Renewer()
        watched = Watched(host.netlink)
        links = host.links("eth0")
        network = HostNetwork(cast("Rtnetlink", watched), links, host.log, renewer)
        route = Route(destination="192.0.2.0/24", via="10.0.0.9")
        late = static("10.5.0.1", 24, interface="late0")
        network._static.apply([static("10.0.0.50", 24), late], (), ())
        network.routing.add([route], ())
        host.run("ip", "route", "del", route.destination)
        host.run("ip", "address", "del", "10.0.0.50/24", "dev", "eth0")
        watched.changes = 0
        network.renew()
        renewer.wait()
        assert watched.changes == 0
        assert "10.0.0.50/24" in host.addresses()
        assert host.json("route", "show", route.destination)
        await until(
            lambda: "late0" in str(dict(host.log.lines).get("static_entry_missing")), "what the thread found is told"
        )
        # The other way round: the thread has put it on, and a reload no longer wants it before that is heard of.
        network._static.apply([static("10.0.0.50", 24), static("10.0.0.51", 24)], (), ())
        host.run("ip", "address", "del", "10.0.0.51/24", "dev", "eth0")
        network.renew()
        network._static.apply((), (), ())
        network.routing.remove([route], ())
        await until(lambda: not {"10.0.0.50/24", "10.0.0.51/24"} & set(host.addresses()), "they are off")
        assert not host.json("route", "show", route.destination)
        await network.close()

    asyncio.run(test())


def test_what_the_thread_puts_on_for_the_first_time_while_a_reload_lets_go_of_it_is_taken_off(host: Namespace) -> None:
    made = entries(host, "eth0")
    host.run("ip", "address", "add", "10.0.0.52/24", "dev", "eth0")  # somebody else's, so that it is not ours yet
    made.apply([static("10.0.0.52", 24)], (), ())
    host.run("ip", "address", "del", "10.0.0.52/24", "dev", "eth0")
    turn = made.begin_turn()
    outcome = host.netlink.change(turn.requests)
    made.apply((), (), ())
    assert "10.0.0.52/24" in host.addresses()
    assert made.end_turn(turn, outcome) == []
    assert "10.0.0.52/24" not in host.addresses()


def test_what_is_taken_off_is_taken_off_after_a_renewal_that_is_under_way(host: Namespace) -> None:
    still_there: list[bool] = []
    keeper = lasting(host, "eth0", before_removal=lambda: still_there.append("10.7.0.1/32" in host.addresses()))
    keeper.add([vip("10.7.0.1")])
    turn = keeper.begin_turn()
    keeper.remove([vip("10.7.0.1")])
    assert still_there == [True]
    keeper.end_turn(turn, [errno.ENODEV])  # what is not held any more troubles nobody
    assert "10.7.0.1/32" not in host.addresses()


def test_what_cannot_be_renewed_stays_a_problem_until_it_can(host: Namespace) -> None:
    links = host.links("eth0", "late0")
    keeper = Addresses(host.netlink, links.index, lifetime_s=LONG_S)
    many = [vip(f"10.7.0.{n}") for n in range(1, 5)]
    late = vip("10.7.0.99", interface="late0")
    with pytest.raises(HostError):
        keeper.add([late, *many])
    for _ in range(5):
        with pytest.raises(HostError, match="there is no interface late0"):
            keeper.renew(1)
    host.run("ip", "link", "add", "late0", "type", "veth", "peer", "name", "late1")
    links.link("late0")
    keeper.renew()
    for _ in range(5):
        keeper.renew(1)
    assert "10.7.0.99/32" in host.addresses("late0")
    keeper.remove([late, *many])
    host.run("ip", "link", "del", "late0")


def test_many_of_both_families_in_one_go(host: Namespace, keeper: Addresses) -> None:
    many = [vip(f"10.7.0.{n}") for n in range(1, 126)] + [vip(f"2001:db8::{n:x}") for n in range(1, 126)]
    keeper.prepare(many)
    keeper.add(many)
    assert len(host.addresses()) == 251
    keeper.remove(many)


# -- links


def test_an_interface_has_one_usable_link_local_address_and_that_is_no_vip(host: Namespace) -> None:
    host.run("ip", "address", "add", "fe80::1/64", "dev", "eth1", "nodad")
    # The kernel gives it one when it has heard, by a work queue, that the other end is up, too.
    own = eventually(
        lambda: (it := host.links("eth1", vips=(IPv6Address("fe80::1"),)).link("eth1")) and it.address6 and it,
        "eth1 has an address of its own",
    )
    assert own.address6 is not None
    assert own.address6.is_link_local
    assert own.address6 != IPv6Address("fe80::1")
    assert own.address == IPv4Address("10.1.0.1")
    host.run("ip", "address", "del", f"{own.address6}/64", "dev", "eth1")
    bare = host.links("eth1", vips=(IPv6Address("fe80::1"),)).link("eth1")
    assert bare is not None
    assert bare.address6 is None
    assert bare.address == IPv4Address("10.1.0.1")
    # While it is probed for duplicates nothing may be sent from it (RFC 4862 section 5.4).
    host.run("sysctl", "-qw", "net.ipv6.conf.eth1.accept_dad=1", "net.ipv6.conf.eth1.dad_transmits=100")
    host.run("ip", "address", "add", "fe80::2/64", "dev", "eth1")
    tentative = host.links("eth1", vips=(IPv6Address("fe80::1"),)).link("eth1")
    assert tentative is not None
    assert tentative.address6 is None
    host.run("ip", "-6", "address", "flush", "dev", "eth1")


def test_an_interface_without_address_resolution_is_not_announced_on(host: Namespace) -> None:
    host.run("ip", "link", "set", "eth1", "arp", "off")
    links = host.links("eth0", "eth1")
    assert links.mac("eth1") == ""
    assert links.mac("eth0") != ""
    host.run("ip", "link", "set", "eth1", "arp", "on")
    links.link("eth1")
    assert links.mac("eth1") != ""


# -- static addresses


def static(address: str, prefix_length: int, **fields: Any) -> StaticAddress:
    fields.setdefault("interface", "eth0")
    return StaticAddress(address=address, prefix_length=prefix_length, **fields)


class NoRoutes:
    """A RoutePort for which nothing is to do."""

    def add(self, routes: object, rules: object) -> None:
        raise AssertionError("no routes")

    remove = add


def entries(host: Namespace, *names: str) -> StaticEntries:
    return StaticEntries(host.netlink, NoRoutes(), host.links(*names).index)


def test_static_addresses_are_there_for_ever_and_change_by_difference(host: Namespace) -> None:
    before = set(host.addresses())
    made = entries(host, "eth0", "eth1")
    first = static("10.5.0.50", 24, label="eth0:st", scope=253, broadcast="10.5.0.255")
    assert made.apply([first, static("2001:db8::50", 64)], (), ()) == []
    shown = host.addresses()
    assert set(shown) - before == {"10.5.0.50/24", "2001:db8::50/64"}
    assert shown["10.5.0.50/24"]["valid_life_time"] == FOREVER
    assert (shown["10.5.0.50/24"]["label"], shown["10.5.0.50/24"]["scope"]) == ("eth0:st", "link")
    assert made.apply([static("2001:db8::50", 64), static("10.1.0.50", 24, interface="eth1")], (), ()) == []
    assert set(host.addresses()) - before == {"2001:db8::50/64"}
    assert "10.1.0.50/24" in host.addresses("eth1")
    host.run("ip", "address", "del", "2001:db8::50/64", "dev", "eth0")
    assert made.renew() == []
    assert "2001:db8::50/64" in host.addresses(), "put back"
    assert made.close() == []
    assert set(host.addresses()) == before
    assert "10.1.0.50/24" not in host.addresses("eth1")


def test_a_static_address_that_was_there_before_is_not_ours(host: Namespace) -> None:
    made = entries(host, "eth0")
    assert made.apply([static("10.0.0.1", 24)], (), ()) == []
    assert made.addresses == ()
    assert made.close() == []
    assert "10.0.0.1/24" in host.addresses()


def test_a_static_address_that_a_crash_has_left_is_ours(host: Namespace) -> None:
    entries(host, "eth0").apply([static("10.0.0.50", 24)], (), ())
    again = entries(host, "eth0")
    assert again.apply([static("10.0.0.50", 24)], (), ()) == []
    assert again.close() == []
    assert "10.0.0.50/24" not in host.addresses()


def test_a_static_address_without_its_interface_is_one_problem_and_comes_with_it(host: Namespace) -> None:
    links = host.links("eth0", "later0")
    made = StaticEntries(host.netlink, NoRoutes(), links.index)
    (problem,) = made.apply([static("10.5.0.1", 24, interface="later0"), static("10.0.0.50", 24)], (), ())
    assert "there is no interface later0 (create it" in str(problem)
    assert "10.0.0.50/24" in host.addresses()
    host.run("ip", "link", "add", "later0", "type", "veth", "peer", "name", "later1")
    links.link("later0")
    assert made.renew() == []
    assert "10.5.0.1/24" in host.addresses("later0")
    assert made.close() == []
    host.run("ip", "link", "del", "later0")


def test_a_vip_that_changes_its_interfaces_name_is_taken_off_there(host: Namespace) -> None:
    host.run("ip", "link", "add", "old0", "type", "veth", "peer", "name", "old1")
    links = host.links("old0")
    keeper = Addresses(host.netlink, links.index, lifetime_s=LONG_S)
    wanted = vip("2001:db8::100", interface="old0")
    keeper.add([wanted])
    host.run("ip", "link", "set", "old0", "name", "new0")
    links.link("old0")
    with pytest.raises(HostError, match="there is no interface old0"):
        keeper.renew()
    assert str(wanted) in host.addresses("new0")
    keeper.remove([replace(wanted)])
    assert host.addresses("new0") == {}
    host.run("ip", "link", "del", "new0")
