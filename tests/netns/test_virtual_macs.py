from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any

import pytest
from lab import Host, Lab

from haxlb.linux.addresses import Addresses
from haxlb.linux.announcer import Announcer
from haxlb.linux.firewall import Firewall, name_of_table, quiet_interfaces, refused_addresses, ruleset
from haxlb.linux.links import Links
from haxlb.linux.log import Complaints
from haxlb.linux.rtnetlink import Rtnetlink
from haxlb.linux.sysctls import Sysctls, promote_secondaries
from haxlb.linux.timerfd import MonotonicClock
from haxlb.linux.virtual_macs import VirtualMacs
from haxlb.model.addresses import Vip
from haxlb.model.errors import HostError
from haxlb.model.instance import VirtualMac, VrrpInstance
from tests.netns.kernel import Lines
from tests.netns.standin import Ear, eventually, inside

pytestmark = pytest.mark.netns

MAC, MAC6 = "00:00:5e:00:01:33", "00:00:5e:00:02:33"
VIP = Vip(address=IPv4Address("10.9.0.100"), prefix_length=32, interface="vrrp.51")
VIP6 = Vip(address=IPv6Address("2001:db8::100"), prefix_length=128, interface="vrrp6.51")
FOUR = VrrpInstance(
    name="VI_4",
    interface="eth0",
    vrid=51,
    vips=(VIP,),
    virtual_mac=VirtualMac(interface="vrrp.51", mac=MAC),
)
SIX = VrrpInstance(
    name="VI_6",
    interface="eth0",
    vrid=51,
    family=6,
    vips=(VIP6,),
    virtual_mac=VirtualMac(interface="vrrp6.51", mac=MAC6),
)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(f"hxvm{os.getpid()}") as made:
        for number, name in enumerate(("d1", "cl"), 1):
            host = made.host(name, f"10.9.0.{number}/24")
            host.sysctl(net__ipv6__conf__all__disable_ipv6=0, net__ipv6__conf__default__accept_dad=0)
            host.run("ip", "address", "add", f"2001:db8::{number}/64", "dev", "eth0", "nodad")
        yield made


@pytest.fixture
def director(lab: Lab) -> Host:
    return lab.hosts["d1"]


@pytest.fixture
def client(lab: Lab) -> Iterator[Host]:
    yield lab.hosts["cl"]
    lab.hosts["cl"].run("ip", "neigh", "flush", "dev", "eth0")


class Kit:
    """The adapters inside the director."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.log = Lines()
        with inside(host.namespace):
            self.netlink = Rtnetlink()
        self.below = Sysctls(self.log)
        self.macs = VirtualMacs(self.netlink, self.below)
        self.links = Links(self.netlink)
        self.addresses = Addresses(self.netlink, self.links.index, lifetime_s=0)

    def ensure(self, *instances: VrrpInstance) -> list[HostError]:
        with inside(self.host.namespace):
            problems = self.macs.ensure(instances)
        names = [mac.interface for each in instances for mac in each.virtual_macs]
        self.links.watch(["eth0", *names], [vip.address for each in instances for vip in each.vips])
        return problems

    def announce(self, *vips: Vip) -> None:
        complaints = Complaints(self.log, MonotonicClock())
        with inside(self.host.namespace):
            announcer = Announcer(self.links.mac, complaints, lambda *_: None)
        announcer.announce(vips)
        announcer.close()


@pytest.fixture
def kit(director: Host) -> Iterator[Kit]:
    made = Kit(director)
    yield made
    with inside(director.namespace):
        made.macs.close()
    made.netlink.close()


def shown(host: Host, name: str) -> dict[str, Any]:
    found = json.loads(host.run("ip", "-j", "-d", "address", "show", "dev", name, check=False).stdout or "[]")
    return dict(found[0]) if found else {}


def learnt(client: Host, address: str) -> str:
    """The MAC that the client's kernel has for it, after it has asked."""
    client.run("ping", "-c1", "-W1", address, check=False)
    lines = client.run("ip", "neigh", "show", address, "dev", "eth0").stdout.split()
    return lines[lines.index("lladdr") + 1] if "lladdr" in lines else ""


def answers_ping(client: Host, address: str) -> bool:
    return client.run("ping", "-c1", "-W2", address, check=False).returncode == 0


def setting(host: Host, name: str) -> str:
    return host.run("cat", f"/proc/sys/net/{name}").stdout.strip()


def test_a_private_macvlan_with_the_virtual_mac_and_nothing_of_its_own(director: Host, kit: Kit) -> None:
    assert kit.ensure(replace(FOUR, virtual_mac=VirtualMac(interface="vrrp.51", mac=MAC, group=7))) == []
    found = shown(director, "vrrp.51")
    assert found["address"] == MAC
    assert found["link"] == "eth0"
    assert found["linkinfo"]["info_data"]["mode"] == "private"
    assert found["group"] in ("7", 7)
    assert found["addr_info"] == []
    assert "UP" in found["flags"]
    assert setting(director, "ipv6/conf/vrrp.51/disable_ipv6") == "1"
    assert setting(director, "ipv4/conf/eth0/arp_ignore") == "1"
    with inside(director.namespace):
        kit.macs.close()
    assert shown(director, "vrrp.51") == {}
    assert setting(director, "ipv4/conf/eth0/arp_ignore") == "0"
    assert setting(director, "ipv4/conf/eth0/arp_announce") == "0"


def test_the_client_learns_the_virtual_mac_and_no_other(director: Host, client: Host, kit: Kit) -> None:
    kit.ensure(FOUR, SIX)
    kit.addresses.add([VIP, VIP6])
    with Ear(client.namespace) as ear:
        assert eventually(lambda: learnt(client, "10.9.0.100"), "an answer") == MAC
        assert eventually(lambda: learnt(client, "2001:db8::100"), "an answer") == MAC6
        own = eventually(lambda: learnt(client, "10.9.0.1"), "an answer")
        assert own == director.mac(), "its own address keeps its own MAC"

        def answers(address: IPv4Address) -> list[str]:
            frames = [each for each in ear.frames() if each.is_arp and each.frame[21] == 2]
            return [each.source_mac for each in frames if each.frame[28:32] == address.packed]

        # It came last: what was said for the VIP has been heard, too.
        eventually(lambda: answers(IPv4Address("10.9.0.1")), "the answer for its own address is heard")
        assert set(answers(IPv4Address("10.9.0.100"))) == {MAC}
    eventually(lambda: answers_ping(client, "10.9.0.100"), "an answer")
    eventually(lambda: answers_ping(client, "2001:db8::100"), "an answer")
    kit.addresses.remove([VIP, VIP6])
    client.run("ip", "neigh", "flush", "dev", "eth0")
    assert learnt(client, "10.9.0.100") == "", "without the VIP nobody answers"


def test_it_is_reachable_also_where_the_host_filters_by_reverse_path(director: Host, client: Host, kit: Kit) -> None:
    director.sysctl(net__ipv4__conf__all__rp_filter=1)
    kit.ensure(FOUR)
    kit.addresses.add([VIP])
    eventually(lambda: answers_ping(client, "10.9.0.100"), "an answer")
    kit.addresses.remove([VIP])
    director.sysctl(net__ipv4__conf__all__rp_filter=0)


def test_the_hosts_own_questions_do_not_name_the_vip(director: Host, client: Host, kit: Kit) -> None:
    kit.ensure(FOUR)
    kit.addresses.add([VIP])
    with Ear(client.namespace) as ear:
        director.run("ip", "neigh", "flush", "dev", "eth0")
        director.run("ping", "-c1", "-W1", "-I", "10.9.0.100", "10.9.0.2", check=False)
        asked = eventually(
            lambda: [
                each
                for each in list(ear._frames)
                if each.is_arp and each.source_mac == director.mac() and each.frame[21] == 1
            ],
            "a question",
        )
    assert {each.frame[28:32] for each in asked} == {IPv4Address("10.9.0.1").packed}
    kit.addresses.remove([VIP])


def test_announcements_come_from_the_virtual_mac(client: Host, kit: Kit) -> None:
    kit.ensure(FOUR, SIX)
    target = VIP6.address.packed
    with Ear(client.namespace) as ear:
        kit.announce(VIP, VIP6)
        garp = eventually(lambda: ear.garps(IPv4Address("10.9.0.100")), "gratuitous ARP")[0]
        advertisement = eventually(
            # Others, too, answer each other's questions meanwhile.
            lambda: [each for each in ear.frames() if each.frame[54:55] == b"\x88" and each.frame[62:78] == target],
            "neighbour advertisement",
        )[0]
    assert garp.source_mac == MAC
    assert advertisement.source_mac == MAC6
    assert advertisement.frame[-6:].hex(":") == MAC6


def test_what_a_crash_has_left_is_taken_over(director: Host, kit: Kit) -> None:
    dead = Kit(director)
    assert dead.ensure(FOUR) == []
    dead.netlink.close()
    index = shown(director, "vrrp.51")["ifindex"]
    assert kit.ensure(FOUR) == []
    assert shown(director, "vrrp.51")["ifindex"] == index
    assert kit.macs.made == ("vrrp.51",)


def test_what_keepalived_has_left_is_made_anew_where_it_does_not_fit(director: Host, kit: Kit) -> None:
    director.run("ip", "link", "add", "link", "eth0", "name", "vrrp.51", "type", "macvlan", "mode", "private")
    director.run("ip", "link", "set", "vrrp.51", "address", "00:00:5e:00:01:07")
    assert kit.ensure(FOUR) == []
    assert shown(director, "vrrp.51")["address"] == MAC


@pytest.mark.parametrize(
    "made",
    [
        ("link", "add", "vrrp.51", "type", "veth", "peer", "name", "far9"),
        ("link", "add", "link", "eth0", "name", "vrrp.51", "type", "macvlan", "mode", "bridge"),
    ],
)
def test_an_interface_of_somebody_else_is_left_alone(director: Host, kit: Kit, made: tuple[str, ...]) -> None:
    director.run("ip", *made)
    mac = shown(director, "vrrp.51")["address"]
    (problem,) = kit.ensure(FOUR)
    assert "there is an interface vrrp.51 already, and it is not haxlb's (remove it (ip link del vrrp.51)" in str(
        problem
    )
    with inside(director.namespace):
        kit.macs.close()
    assert shown(director, "vrrp.51")["address"] == mac
    director.run("ip", "link", "del", "vrrp.51")


def test_a_reload_renames_changes_and_removes(director: Host, kit: Kit) -> None:
    kit.ensure(FOUR, SIX)
    renamed = replace(FOUR, virtual_mac=VirtualMac(interface="vmac0", mac=MAC))
    with inside(director.namespace):
        assert kit.macs.ensure([renamed, SIX]) == []
        kit.macs.retire([renamed, SIX])
    assert shown(director, "vrrp.51") == {}
    assert (shown(director, "vmac0")["address"], "UP" in shown(director, "vmac0")["flags"]) == (MAC, True)
    changed = replace(FOUR, virtual_mac=VirtualMac(interface="vmac0", mac="02:00:00:00:00:33"))
    with inside(director.namespace):
        assert kit.macs.ensure([changed]) == []
        kit.macs.retire([changed])
    assert shown(director, "vmac0")["address"] == "02:00:00:00:00:33"
    assert shown(director, "vrrp6.51") == {}


def test_it_comes_back_with_the_interface_below(lab: Lab, director: Host, kit: Kit) -> None:
    director.run("ip", "link", "add", "tmp0", "type", "veth", "peer", "name", "tmp1")
    instance = replace(FOUR, interface="tmp0")
    assert kit.ensure(instance) == []
    director.run("ip", "link", "del", "tmp0")
    (problem,) = kit.ensure(instance)
    assert "no vrrp.51: there is no interface tmp0" in str(problem)
    director.run("ip", "link", "add", "tmp0", "type", "veth", "peer", "name", "tmp1")
    assert kit.ensure(instance) == []
    assert shown(director, "vrrp.51")["link"] == "tmp0"
    director.run("ip", "link", "del", "tmp0")


@pytest.fixture
def further(director: Host) -> Iterator[tuple[str, str]]:
    """Two more links of the director."""
    names = ("tmp0", "tmp2")
    for name, far in zip(names, ("tmp1", "tmp3"), strict=True):
        director.run("ip", "link", "add", name, "type", "veth", "peer", "name", far)
        for each in (name, far):
            director.run("ip", "link", "set", each, "up")
    yield names
    for name in names:
        director.run("ip", "link", "del", name)


def of_addresses(name: str, base: str) -> VirtualMac:
    return VirtualMac(interface=name, mac=MAC, base=base)


def test_one_virtual_mac_on_several_interfaces(director: Host, kit: Kit, further: tuple[str, str]) -> None:
    one, two = further
    abroad = replace(VIP, address=IPv4Address("10.8.0.100"), interface="vrrp1.51")
    instance = replace(
        FOUR,
        vips=(VIP, abroad),
        address_macs=(of_addresses("vrrp1.51", one), of_addresses("vrrp2.51", two)),
    )
    assert kit.ensure(instance) == []
    assert kit.macs.made == ("vrrp.51", "vrrp1.51", "vrrp2.51")
    kit.addresses.add([VIP, abroad])
    for name, base, vips in (("vrrp.51", "eth0", [VIP]), ("vrrp1.51", one, [abroad]), ("vrrp2.51", two, [])):
        found = shown(director, name)
        assert (found["address"], found["link"], "UP" in found["flags"]) == (MAC, base, True)
        assert [each["local"] for each in found["addr_info"]] == [str(vip.address) for vip in vips]
        assert setting(director, f"ipv4/conf/{base}/arp_ignore") == "1"
        assert setting(director, f"ipv6/conf/{name}/disable_ipv6") == "1"
    with inside(director.namespace):
        kit.macs.retire([FOUR])
    assert (shown(director, "vrrp1.51"), shown(director, "vrrp2.51")) == ({}, {})
    assert shown(director, "vrrp.51")["address"] == MAC
    kit.addresses.remove([VIP, abroad])


def test_their_numbers_move_with_a_reload(director: Host, kit: Kit, further: tuple[str, str]) -> None:
    one, two = further
    before = replace(FOUR, address_macs=(of_addresses("vrrp1.51", one), of_addresses("vrrp2.51", two)))
    after = replace(FOUR, address_macs=(of_addresses("vrrp1.51", two),))
    index = kit.ensure(before) == [] and shown(director, "vrrp.51")["ifindex"]
    with inside(director.namespace):
        assert kit.macs.ensure([after]) == []
        kit.macs.retire([after])
    found = shown(director, "vrrp1.51")
    assert (found["address"], found["link"], "UP" in found["flags"]) == (MAC, two, True)
    assert shown(director, "vrrp2.51") == {}
    assert shown(director, "vrrp.51")["ifindex"] == index, "what did not change was not touched"


def test_without_the_interface_of_an_address_the_others_are_made(director: Host, kit: Kit) -> None:
    (problem,) = kit.ensure(replace(FOUR, address_macs=(of_addresses("vrrp1.51", "absent0"),)))
    assert str(problem) == (
        "VI_4: no vrrp1.51: there is no interface absent0 (create it, or name another one in `dev`)"
    )
    assert shown(director, "vrrp.51")["address"] == MAC


def test_a_kernel_without_ipvlan_says_so(director: Host, kit: Kit) -> None:
    present = director.run("ip", "link", "add", "link", "eth0", "name", "probe0", "type", "ipvlan", check=False)
    instance = replace(
        FOUR, virtual_mac=VirtualMac(interface="vrrp.51", mac="", ipvlan="bridge", ipvlan_address="10.9.0.51/24")
    )
    problems = kit.ensure(instance)
    if present.returncode:
        assert [str(each) for each in problems] == [
            "VI_4: this kernel has no ipvlan interfaces (modprobe ipvlan, or do without use_ipvlan)"
        ]
    else:
        director.run("ip", "link", "del", "probe0")
        assert problems == []
        found = shown(director, "vrrp.51")
        assert found["address"] == director.mac()
        assert [each["local"] for each in found["addr_info"]] == ["10.9.0.51"]


# -- settings


def test_secondaries_are_promoted_while_it_is_asked_for(director: Host) -> None:
    settings = Sysctls(Lines())
    with inside(director.namespace):
        settings.hold(promote_secondaries(["eth0"]))
        assert settings.held == ("ipv4/conf/eth0/promote_secondaries",)
        director.run("ip", "address", "add", "10.8.0.1/24", "dev", "eth0")
        director.run("ip", "address", "add", "10.8.0.2/24", "dev", "eth0")
        director.run("ip", "address", "del", "10.8.0.1/24", "dev", "eth0")
        assert "10.8.0.2/24" in director.run("ip", "address", "show", "dev", "eth0").stdout
        director.run("ip", "address", "del", "10.8.0.2/24", "dev", "eth0")
        settings.hold(promote_secondaries([]))
        assert settings.held == ()
    assert setting(director, "ipv4/conf/eth0/promote_secondaries") == "0"


def test_a_setting_that_was_so_already_is_not_put_back(director: Host) -> None:
    director.sysctl(net__ipv4__conf__eth0__promote_secondaries=1)
    settings = Sysctls(Lines())
    with inside(director.namespace):
        settings.hold(promote_secondaries(["eth0"]))
        settings.release()
    assert setting(director, "ipv4/conf/eth0/promote_secondaries") == "1"
    director.sysctl(net__ipv4__conf__eth0__promote_secondaries=0)


def test_a_setting_of_an_absent_interface_is_one_line_in_the_log(director: Host) -> None:
    log = Lines()
    settings = Sysctls(log)
    with inside(director.namespace):
        settings.hold(promote_secondaries(["absent0"]))
        settings.release()
    ((event, fields),) = log.lines
    assert event == "sysctl_not_set"
    assert fields["setting"] == "net.ipv4.conf.absent0.promote_secondaries"
    assert fields["remedy"]


# -- no_accept


class Table:
    """The firewall inside the director."""

    def __init__(self, host: Host, *, nft: str = "nft", name: str = "haxlb") -> None:
        self.host = host
        self.name = name
        self.problems: list[HostError | None] = []
        self.nft = nft

    def run(self, *wanted: tuple[IPv4Address | IPv6Address, ...], close: bool = False) -> None:
        async def steps() -> None:
            firewall = Firewall(self.problems.append, nft=self.nft)
            firewall.table = self.name
            for each in wanted:
                firewall.refuse(each)
            await firewall.settled()
            if close:
                await firewall.close()

        # A child process is of the namespace of the thread that starts it.
        with inside(self.host.namespace):
            asyncio.run(asyncio.wait_for(steps(), 60))

    def listed(self) -> str:
        return self.host.run("nft", "list", "ruleset").stdout


@pytest.fixture
def table(director: Host) -> Iterator[Table]:
    made = Table(director)
    yield made
    made.run(())
    assert made.listed() == ""


def test_packets_to_unowned_vips_are_dropped_but_neighbours_find_them(
    director: Host, client: Host, table: Table
) -> None:
    for address in ("10.9.0.100/32", "2001:db8::100/128"):
        director.run("ip", "address", "add", address, "dev", "eth0", *(["nodad"] if ":" in address else []))
    both = (IPv4Address("10.9.0.100"), IPv6Address("2001:db8::100"))
    eventually(lambda: all(answers_ping(client, str(each)) for each in both), "answers")
    client.run("ip", "neigh", "flush", "dev", "eth0")
    table.run(both)
    assert table.problems == [None]
    for each in both:
        assert client.run("ping", "-c1", "-W0.3", str(each), check=False).returncode == 1
        assert eventually(lambda address=str(each): learnt(client, address), "a neighbour") == director.mac()
        assert not reaches(client, str(each))
    for own in ("10.9.0.1", "2001:db8::1"):
        eventually(lambda address=own: answers_ping(client, address), "an answer")
    table.run(())
    eventually(lambda: all(answers_ping(client, str(each)) for each in both), "answers")
    for address in ("10.9.0.100/32", "2001:db8::100/128"):
        director.run("ip", "address", "del", address, "dev", "eth0")


def joins(host: Host, interface: str, *groups: str) -> list[socket.socket]:
    """Sockets that have joined multicast groups on an interface."""
    opened = []
    with inside(host.namespace):
        index = socket.if_nametoindex(interface)
        for group in groups:
            six = ":" in group
            opened.append(socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_DGRAM))
            if six:
                wanted = struct.pack("=16si", IPv6Address(group).packed, index)
                opened[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, wanted)
            else:
                wanted = struct.pack("=4s4si", IPv4Address(group).packed, bytes(4), index)
                opened[-1].setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, wanted)
    return opened


def memberships(ear: Ear, mac: str) -> int:
    """Reports of group memberships from this MAC."""
    groups = (bytes.fromhex("01005e000016"), bytes.fromhex("333300000016"))
    return sum(each.source_mac == mac and each.frame[:6] in groups for each in ear.frames())


def test_no_switch_hears_of_a_virtual_mac_that_only_listens(
    director: Host, client: Host, kit: Kit, table: Table
) -> None:
    """A report of a BACKUP would move the MAC to its port, away from the MASTER's."""
    listening = replace(FOUR, virtual_mac=VirtualMac(interface="vrrp.51", mac=MAC, xmit_base=True))
    with inside(director.namespace):
        firewall = Firewall(table.problems.append)
        firewall.refuse_at_once((), quiet_interfaces([listening, SIX]))
    assert table.problems == []
    kit.ensure(listening, SIX)
    with Ear(client.namespace) as ear:
        opened = [*joins(director, "vrrp.51", "224.0.0.18"), *joins(director, "vrrp6.51", "ff02::12")]
        opened += joins(director, "eth0", "224.0.0.18", "ff02::12")
        # Each report is sent twice within a second (RFC 3376 section 8.1): eth0's, which joined last, tell when.
        eventually(lambda: memberships(ear, director.mac()) >= 4, "both reports of the interface below")
        assert memberships(ear, MAC) == 0
        assert memberships(ear, MAC6) == 0
        # With an address it is MASTER's, and neighbours' questions must find the way to it.
        kit.addresses.add([VIP])
        opened += joins(director, "vrrp.51", "224.0.0.19")
        eventually(lambda: memberships(ear, MAC) > 0, "the MASTER's report")
    for each in opened:
        each.close()
    kit.addresses.remove([VIP])


def reaches(client: Host, address: str) -> bool:
    """Whether a TCP connection is answered, be it by a reset."""
    with (
        inside(client.namespace),
        contextlib.closing(socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)) as connection,
    ):
        connection.settimeout(0.3)
        try:
            connection.connect((address, 9))
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
        return True


def test_the_last_order_counts_and_the_table_goes_with_us(table: Table) -> None:
    one, two = IPv4Address("10.9.0.100"), IPv4Address("10.9.0.101")
    table.run((one,), (one, two), (two,))
    assert "10.9.0.101" in table.listed()
    assert "10.9.0.100" not in table.listed()
    table.run((one,), close=True)
    assert table.listed() == ""


def test_two_of_one_namespace_have_a_table_each(director: Host, table: Table) -> None:
    other = Table(director, name=name_of_table(Path("/run/other")))
    one, two = IPv4Address("10.9.0.100"), IPv4Address("10.9.0.101")
    table.run((one,))
    other.run((two,))
    assert other.problems == [None]
    assert "10.9.0.100" in table.listed()
    assert "10.9.0.101" in table.listed()
    other.run((two,), (one,), close=True)
    assert "10.9.0.101" not in table.listed()
    assert "10.9.0.100" in table.listed()


def test_what_a_crash_has_left_is_removed_at_the_next_start(table: Table) -> None:
    table.run((IPv4Address("10.9.0.100"),))
    assert table.listed() != ""
    table.run(())
    assert table.listed() == ""


def test_without_nft_there_is_one_problem_and_only_where_it_is_needed(director: Host) -> None:
    table = Table(director, nft="/nonexistent/nft")
    table.run(())
    assert table.problems == []
    table.run((IPv4Address("10.9.0.100"),))
    (problem,) = table.problems
    assert str(problem) == (
        "no_accept is not in force: /nonexistent/nft cannot be run: No such file or directory"
        " (apt install nftables, or write `accept`)"
    )


def test_what_nft_refuses_is_one_line(director: Host) -> None:
    table = Table(director, nft="/bin/false")
    table.run((IPv4Address("10.9.0.100"),))
    (problem,) = table.problems
    assert str(problem).startswith("no_accept is not in force: nft: no word (")


def test_an_nft_that_hangs_is_ended_when_nobody_waits_any_more(director: Host, tmp_path: Path) -> None:
    hanging = tmp_path / "nft"
    hanging.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 1000\n")
    hanging.chmod(0o755)

    async def abandon() -> None:
        firewall = Firewall(lambda _: None, nft=str(hanging))
        firewall.refuse((IPv4Address("10.9.0.100"),))
        waiting = asyncio.ensure_future(firewall.settled())
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    with inside(director.namespace):
        asyncio.run(asyncio.wait_for(abandon(), 60))
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


def test_only_instances_that_do_not_accept_are_refused() -> None:
    closed = replace(FOUR, accept=False, excluded_vips=(VIP6,))
    assert refused_addresses([closed, SIX]) == (VIP.address, VIP6.address)
    assert refused_addresses([FOUR, SIX]) == ()
    text = ruleset([VIP6.address, VIP.address])
    assert text.index("ip daddr { 10.9.0.100 } counter drop") < text.index("ip6 daddr { 2001:db8::100 } counter drop")
