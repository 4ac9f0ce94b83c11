"""The speaker as a process, and what it has in the kernel's tables: before, while, and after it is MASTER."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address, ip_address
from pathlib import Path
from typing import Any

import pytest
from lab import Host, Lab

from haxlb.daemon.messages import ConfigureSpeaker, HandOver, Logged, Ready, Stop
from haxlb.linux.address_requests import encode_removal
from haxlb.linux.addresses import RENEW_EVERY_S
from haxlb.linux.resign import Bequest
from haxlb.linux.rtnetlink import Rtnetlink
from haxlb.linux.speaker_main import RESTORE_PAUSE_S
from haxlb.model.addresses import StaticAddress, Vip
from haxlb.model.facts import AlarmCleared, AlarmRaised, RoleChanged
from haxlb.model.instance import GarpConfig, Role, VirtualMac, VrrpInstance
from haxlb.model.routes import Route, Rule
from haxlb.model.settings import SpeakerSettings
from tests.netns.standin import Ear, SpeakerHandle, eventually, inside

pytestmark = pytest.mark.netns


def vip(address: str, interface: str = "eth0", **fields: Any) -> Vip:
    parsed = ip_address(address)
    return Vip(address=parsed, prefix_length=parsed.max_prefixlen, interface=interface, **fields)


ROUTE = Route(destination="192.0.2.0/24", via="10.9.0.77", source="10.9.0.100", device="eth0")
RULE = Rule(family=4, selectors=(("from", "10.9.0.100/32"),), action=("table", "100"))
INSTANCE = VrrpInstance(
    name="VI_1",
    interface="eth0",
    vrid=51,
    version=3,
    advert_interval_us=100_000,
    initial_role=Role.MASTER,
    vips=(vip("10.9.0.100"),),
    excluded_vips=(vip("10.9.0.101"), vip("2001:db8::101")),
    routes=(ROUTE,),
    rules=(RULE,),
    garp=GarpConfig(master_delay_us=0),
)
SLOW_US = 40_000_000
"""Two minutes until a BACKUP that hears nobody becomes MASTER: longer than any look at one may take."""
VMAC = replace(
    INSTANCE,
    vips=(vip("10.9.0.100", "vrrp.51"),),
    excluded_vips=(),
    routes=(),
    rules=(),
    virtual_mac=VirtualMac(interface="vrrp.51", mac="00:00:5e:00:01:33"),
)


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(f"hxsn{os.getpid()}") as made:
        for number, name in enumerate(("d1", "cl"), 1):
            host = made.host(name, f"10.9.0.{number}/24")
            host.sysctl(net__ipv6__conf__all__disable_ipv6=0)
            host.run("ip", "address", "add", f"2001:db8::{number}/64", "dev", "eth0", "nodad")
        yield made


@pytest.fixture
def director(lab: Lab) -> Host:
    return lab.hosts["d1"]


@pytest.fixture
def speaker(director: Host) -> Iterator[SpeakerHandle]:
    with SpeakerHandle(director) as started:
        yield started


def configure(speaker: SpeakerHandle, *instances: VrrpInstance, **more: Any) -> str:
    before = len(speaker.messages)
    speaker.send(ConfigureSpeaker(instances=instances, garp_frames=(), **more))
    ready: Ready = speaker.wait_for(lambda m: isinstance(m, Ready), "Ready", start=before)
    return ready.problem


def own(host: Host, interface: str = "eth0") -> set[str]:
    """Addresses but for those that the lab has put there and the link-local ones."""
    shown = host.run("ip", "-j", "address", "show", "dev", interface, check=False).stdout or "[]"
    listed = [each["local"] for link in json.loads(shown) for each in link["addr_info"]]
    return {each for each in listed if not each.startswith("fe80") and not each.endswith((".0.1", "::1"))}


def routes(host: Host) -> list[str]:
    found = json.loads(host.run("ip", "-j", "route", "show", "protocol", "18").stdout or "[]")
    return [each["dst"] for each in found]


def rules(host: Host) -> list[str]:
    found = json.loads(host.run("ip", "-j", "rule", "show").stdout or "[]")
    return [each["src"] for each in found if each["src"] != "all"]


ALL = {"10.9.0.100", "10.9.0.101", "2001:db8::101"}


def everything(host: Host) -> bool:
    return own(host) == ALL and routes(host) == ["192.0.2.0/24"] and rules(host) == ["10.9.0.100"]


def nothing(host: Host) -> bool:
    return own(host) == set() and routes(host) == [] and rules(host) == []


def listed(host: Host) -> str:
    return host.run("nft", "list", "ruleset").stdout


def freeze(speaker: SpeakerHandle) -> None:
    """Stop it, and wait until the last of its threads has come out of the kernel: it may be putting something on."""
    speaker.process.send_signal(signal.SIGSTOP)

    def is_frozen() -> bool:
        stats = [each.read_text() for each in Path(f"/proc/{speaker.process.pid}/task").glob("*/stat")]
        return all(each.rpartition(")")[2].split()[0] == "T" for each in stats)

    eventually(is_frozen, "it stands still")


def answers_ping(client: Host, address: str) -> bool:
    return client.run("ping", "-c1", "-W2", address, check=False).returncode == 0


def neighbour(client: Host, address: str) -> str:
    """What the client's kernel knows of it."""
    return client.run("ip", "neigh", "show", address).stdout


def logged(speaker: SpeakerHandle, event: str) -> list[Logged]:
    return [each for each in list(speaker.messages) if isinstance(each, Logged) and each.event == event]


def test_all_of_an_instance_follows_its_role(director: Host, speaker: SpeakerHandle) -> None:
    assert configure(speaker, INSTANCE) == ""
    speaker.becomes(Role.MASTER)
    eventually(lambda: everything(director), "addresses, route and rule")
    # Alone it would be MASTER again after three intervals.
    assert configure(speaker, replace(INSTANCE, advert_interval_us=SLOW_US)) == ""
    start = len(speaker.messages)
    speaker.send(HandOver(instances=(), reason="test"))
    speaker.becomes(Role.BACKUP, start=start)
    eventually(lambda: nothing(director), "they are gone")


def test_a_virtual_mac_that_somebody_sets_down_is_up_again(director: Host, speaker: SpeakerHandle) -> None:
    """With vmac_xmit_base the peer goes on hearing us: nobody would have the VIP."""
    mac = VMAC.virtual_mac
    assert mac is not None
    configure(speaker, replace(VMAC, virtual_mac=replace(mac, xmit_base=True)))
    eventually(lambda: own(director, "vrrp.51") == {"10.9.0.100"}, "the VIP")

    def is_up() -> bool:
        return "UP" in json.loads(director.run("ip", "-j", "link", "show", "dev", "vrrp.51").stdout)[0]["flags"]

    for _ in range(3):
        director.run("ip", "link", "set", "vrrp.51", "down")
        eventually(is_up, "it is up again")
    assert own(director, "vrrp.51") == {"10.9.0.100"}
    start = len(speaker.messages)
    director.run("ip", "link", "set", "eth0", "down")
    speaker.becomes(Role.FAULT, start=start)
    start = len(speaker.messages)
    director.run("ip", "link", "set", "eth0", "up")
    speaker.becomes(Role.MASTER, start=start)
    assert logged(speaker, "virtual_mac_missing") == []


def test_a_packet_filter_that_somebody_flushes_is_made_again(director: Host, speaker: SpeakerHandle) -> None:
    """Every start of nftables.service begins with `flush ruleset`."""
    configure(speaker, replace(INSTANCE, accept=False))
    eventually(lambda: "10.9.0.100" in listed(director), "the table")
    director.run("nft", "flush", "ruleset")
    eventually(lambda: "10.9.0.100" in listed(director), "it is there again")
    eventually(lambda: logged(speaker, "packet_filter_removed"), "it says so")


def test_what_somebody_removes_by_hand_is_back_at_once(director: Host, speaker: SpeakerHandle) -> None:
    configure(speaker, INSTANCE)
    eventually(lambda: everything(director), "addresses, route and rule")
    # The route goes with the address that it prefers as source.
    director.run("ip", "address", "del", "10.9.0.100/32", "dev", "eth0")
    eventually(lambda: everything(director), "VIP and route are back")
    director.run("ip", "address", "del", "2001:db8::101/128", "dev", "eth0")
    director.run("ip", "rule", "del", "from", "10.9.0.100")
    eventually(lambda: everything(director), "excluded VIP and rule are back")
    # It gives up where something comes back each time that it looks; what it has flushed is flushed.
    director.run("ip", "address", "flush", "dev", "eth0", check=False)
    director.run("ip", "address", "add", "10.9.0.1/24", "dev", "eth0")
    eventually(lambda: everything(director), "after a flush")


def test_it_corrects_but_does_not_fight(director: Host, speaker: SpeakerHandle) -> None:
    configure(speaker, replace(INSTANCE, routes=(), rules=()))
    eventually(lambda: own(director) == ALL, "addresses")
    with inside(director.namespace):
        netlink = Rtnetlink()
        request = encode_removal(IPv4Address("10.9.0.100"), 32, socket.if_nametoindex("eth0"))
    times = 20
    rounds: list[float] = []
    while len(rounds) < times:
        eventually(lambda: netlink.change([request]) == [0], "it is there to be taken off")
        rounds.append(time.monotonic())
    netlink.close()
    # Ten times a second, and the renewals in between; what stands still here or there only makes it longer.
    took_s = rounds[-1] - rounds[0]
    assert times - 1 <= 3 + took_s / RESTORE_PAUSE_S + took_s / RENEW_EVERY_S, took_s
    eventually(lambda: own(director) == ALL, "addresses again")


def test_foreign_addresses_and_routes_are_left_alone(director: Host, speaker: SpeakerHandle) -> None:
    director.run("ip", "address", "add", "10.9.0.200/24", "dev", "eth0")
    director.run("ip", "route", "add", "198.51.100.0/24", "via", "10.9.0.77")
    configure(speaker, INSTANCE)
    eventually(lambda: own(director) == ALL | {"10.9.0.200"}, "both")
    speaker.send(Stop())
    speaker.process.wait(timeout=60)
    assert own(director) == {"10.9.0.200"}
    assert "198.51.100.0/24 via 10.9.0.77" in director.run("ip", "route").stdout


def test_left_overs_go_at_start_and_at_reload(director: Host, speaker: SpeakerHandle) -> None:
    backup = replace(INSTANCE, initial_role=Role.BACKUP, advert_interval_us=SLOW_US)
    for address in ("10.9.0.100/24", "10.9.0.101/32", "2001:db8::101/64"):
        director.run("ip", "address", "add", address, "dev", "eth0")
    director.run("ip", "route", "add", "192.0.2.0/24", "via", "10.9.0.77", "protocol", "18")
    director.run("ip", "rule", "add", "from", "10.9.0.100", "table", "100", "preference", "9", "protocol", "18")
    configure(speaker, backup)
    assert nothing(director)
    director.run("ip", "address", "add", "2001:db8::101/128", "dev", "eth0")
    configure(speaker, backup)
    assert nothing(director)
    assert [each.fields["vips"] for each in logged(speaker, "vips_left_over")] == ["2001:db8::101/128 on eth0"]


def test_killed_it_leaves_no_address_and_its_successor_cleans_up_the_rest(
    director: Host, speaker: SpeakerHandle
) -> None:
    configure(speaker, INSTANCE)
    eventually(lambda: everything(director), "addresses, route and rule")
    speaker.kill()
    # Nobody does anything: the kernel takes the addresses off, and with one of them the route that prefers it.
    eventually(lambda: own(director) == set(), "addresses expire")
    eventually(lambda: routes(director) == [], "the route goes")
    assert rules(director) == ["10.9.0.100"]
    with SpeakerHandle(director) as successor:
        configure(successor, replace(INSTANCE, initial_role=Role.BACKUP, advert_interval_us=SLOW_US))
        assert nothing(director)


def test_the_supervisors_bequest_takes_all_of_it_off(director: Host, speaker: SpeakerHandle) -> None:
    configure(speaker, INSTANCE)
    eventually(lambda: everything(director), "addresses, route and rule")
    with inside(director.namespace):
        bequest = Bequest()
        bequest.prepare([INSTANCE])
        freeze(speaker)
        assert bequest.execute(frozenset({"VI_1"})) == ()
    assert nothing(director)
    with inside(director.namespace):
        assert bequest.execute(frozenset()) == (), "what is not there is no problem"
        bequest.close()


def test_lifetimes_can_be_turned_off(director: Host, speaker: SpeakerHandle) -> None:
    configure(speaker, INSTANCE, settings=SpeakerSettings(vip_lifetime_s=0))
    eventually(lambda: everything(director), "addresses")
    shown = json.loads(director.run("ip", "-j", "address", "show", "dev", "eth0").stdout)[0]["addr_info"]
    assert {each["valid_life_time"] for each in shown if each["local"] in ALL} == {2**32 - 1}


def test_a_route_that_the_kernel_refuses_is_an_alarm_and_comes_when_it_can(
    director: Host, speaker: SpeakerHandle
) -> None:
    refused = replace(INSTANCE, routes=(Route(destination="192.0.2.0/24", via="10.55.0.1"),), rules=())
    configure(speaker, refused)
    speaker.becomes(Role.MASTER)
    (alarm,) = eventually(lambda: speaker.facts(AlarmRaised), "an alarm")
    assert alarm.key == "route/VI_1"
    assert "cannot add the route to 192.0.2.0/24" in alarm.evidence[0]
    director.run("ip", "address", "add", "10.55.0.2/24", "dev", "eth0")
    eventually(lambda: routes(director) == ["192.0.2.0/24"], "the route")
    eventually(lambda: speaker.facts(AlarmCleared), "the all-clear")


def test_a_reload_moves_what_differs_and_nothing_else(director: Host, speaker: SpeakerHandle) -> None:
    configure(speaker, INSTANCE)
    eventually(lambda: everything(director), "addresses, route and rule")
    other = Route(destination="203.0.113.0/24", via="10.9.0.77")
    changed = replace(INSTANCE, routes=(replace(ROUTE, metric=7), other), rules=(), excluded_vips=(vip("10.9.0.102"),))
    configure(speaker, changed)
    eventually(lambda: own(director) == {"10.9.0.100", "10.9.0.102"}, "addresses")
    assert routes(director) == ["192.0.2.0/24", "203.0.113.0/24"]
    assert rules(director) == []
    assert "metric 7" in director.run("ip", "route", "show", "192.0.2.0/24").stdout


def test_an_interface_that_vanishes_and_comes_back_has_everything_again(lab: Lab, director: Host) -> None:
    director.run("ip", "link", "add", "tmp0", "type", "veth", "peer", "name", "tmp1")
    for name in ("tmp0", "tmp1"):
        director.run("ip", "link", "set", name, "up")
    instance = replace(INSTANCE, excluded_vips=(vip("10.8.0.5", "tmp0"),), routes=(), rules=())
    with SpeakerHandle(director) as speaker:
        configure(speaker, instance)
        eventually(lambda: own(director, "tmp0") == {"10.8.0.5"}, "the VIP")
        director.run("ip", "link", "del", "tmp0")
        eventually(lambda: logged(speaker, "interface_vanished"), "it is noticed")
        director.run("ip", "link", "add", "tmp0", "type", "veth", "peer", "name", "tmp1")
        director.run("ip", "link", "set", "tmp0", "up")
        eventually(lambda: own(director, "tmp0") == {"10.8.0.5"}, "the VIP again")


def test_an_interface_that_is_renamed_keeps_nothing_of_ours(director: Host) -> None:
    director.run("ip", "link", "add", "tmp0", "type", "veth", "peer", "name", "tmp1")
    for name in ("tmp0", "tmp1"):
        director.run("ip", "link", "set", name, "up")
    instance = replace(
        VMAC,
        interface="tmp0",
        source=IPv4Address("10.9.0.1"),
        excluded_vips=(vip("10.8.0.5", "tmp0"), vip("2001:db8::5", "tmp0")),
    )
    with SpeakerHandle(director) as speaker:
        configure(speaker, instance)
        eventually(lambda: own(director, "tmp0") == {"10.8.0.5", "2001:db8::5"}, "the excluded VIPs")
        eventually(lambda: own(director, "vrrp.51") == {"10.9.0.100"}, "the VIP")
        director.run("ip", "link", "set", "tmp0", "name", "other0")
        speaker.becomes(Role.FAULT)
        eventually(lambda: own(director, "other0") == set() == own(director, "vrrp.51"), "all are off")
        director.run("ip", "link", "set", "other0", "name", "tmp0")
        eventually(lambda: own(director, "tmp0") == {"10.8.0.5", "2001:db8::5"}, "the excluded VIPs again")
        eventually(lambda: own(director, "vrrp.51") == {"10.9.0.100"}, "the VIP again")


def test_static_entries_are_on_while_it_runs(director: Host, speaker: SpeakerHandle) -> None:
    address = StaticAddress(address="10.4.0.1", prefix_length=24, interface="eth0")
    route = Route(destination="198.51.100.0/24", via="10.4.0.9")
    rule = Rule(family=4, selectors=(("from", "10.4.0.1/32"),), action=("table", "100"))
    quiet = replace(INSTANCE, initial_role=Role.BACKUP, advert_interval_us=SLOW_US)
    configure(speaker, quiet, static_addresses=(address,), static_routes=(route,), static_rules=(rule,))
    shown = "10.4.0.1/24" in director.run("ip", "address", "show", "dev", "eth0").stdout
    assert (shown, routes(director), rules(director)) == (True, ["198.51.100.0/24"], ["10.4.0.1"])
    director.run("ip", "address", "del", "10.4.0.1/24", "dev", "eth0")
    eventually(lambda: routes(director) == ["198.51.100.0/24"], "address and route are back")
    configure(speaker, quiet, static_rules=(rule,))
    assert (routes(director), rules(director)) == ([], ["10.4.0.1"])
    speaker.send(Stop())
    speaker.process.wait(timeout=60)
    assert (routes(director), rules(director)) == ([], [])


def test_a_virtual_mac_answers_adverts_and_goes_with_an_orderly_stop(
    lab: Lab, director: Host, speaker: SpeakerHandle
) -> None:
    client = lab.hosts["cl"]
    with Ear(client.namespace) as ear:
        assert configure(speaker, VMAC) == ""
        speaker.becomes(Role.MASTER)
        eventually(lambda: own(director, "vrrp.51") == {"10.9.0.100"}, "the VIP on the macvlan")
        assert own(director) == set()
        garps = eventually(lambda: ear.garps(IPv4Address("10.9.0.100")), "gratuitous ARP")
        assert {each.source_mac for each in garps} == {"00:00:5e:00:01:33"}
        eventually(ear.adverts, "adverts")
        eventually(lambda: answers_ping(client, "10.9.0.100"), "an answer")
        assert "00:00:5e:00:01:33" in neighbour(client, "10.9.0.100")
    speaker.send(Stop())
    assert speaker.process.wait(timeout=60) == 0, speaker.messages[-3:]
    assert "vrrp.51" not in director.run("ip", "link").stdout
    assert director.run("cat", "/proc/sys/net/ipv4/conf/eth0/arp_ignore").stdout == "0\n"


def test_a_virtual_mac_of_an_address_moves_with_a_reload_and_nothing_else_does(
    director: Host, speaker: SpeakerHandle
) -> None:
    for name, far in (("tmp0", "tmp1"), ("tmp2", "tmp3")):
        director.run("ip", "link", "add", name, "type", "veth", "peer", "name", far)
        for each in (name, far):
            director.run("ip", "link", "set", each, "up")
    abroad = vip("10.9.3.100", "vrrp1.51")

    def on(base: str) -> VrrpInstance:
        mac = VirtualMac(interface="vrrp1.51", mac="00:00:5e:00:01:33", base=base)
        return replace(VMAC, vips=(*VMAC.vips, abroad), address_macs=(mac,))

    def below() -> str:
        (link,) = json.loads(director.run("ip", "-j", "link", "show", "vrrp1.51").stdout)
        return str(link["link"])

    with Ear(director.namespace, "tmp1") as first, Ear(director.namespace, "tmp3") as second:
        assert configure(speaker, on("tmp0")) == ""
        speaker.becomes(Role.MASTER)
        garps = eventually(lambda: first.garps(IPv4Address("10.9.3.100")), "gratuitous ARP on its link")
        assert {each.source_mac for each in garps} == {"00:00:5e:00:01:33"}
        eventually(lambda: own(director, "vrrp1.51") == {"10.9.3.100"}, "the address")
        assert first.adverts() == []
        changes = len(speaker.facts(RoleChanged))
        before = json.loads(director.run("ip", "-j", "link", "show", "vrrp.51").stdout)[0]["ifindex"]

        assert configure(speaker, on("tmp2")) == ""
        assert below() == "tmp2"
        eventually(lambda: own(director, "vrrp1.51") == {"10.9.3.100"}, "the address on the other link")
        eventually(lambda: second.garps(IPv4Address("10.9.3.100")), "gratuitous ARP there")

        assert configure(speaker, VMAC) == ""
    assert "vrrp1.51" not in director.run("ip", "link").stdout
    assert own(director, "vrrp.51") == {"10.9.0.100"}
    assert json.loads(director.run("ip", "-j", "link", "show", "vrrp.51").stdout)[0]["ifindex"] == before
    assert len(speaker.facts(RoleChanged)) == changes
    assert director.run("cat", "/proc/sys/net/ipv4/conf/tmp0/arp_ignore").stdout == "0\n"


def test_an_ipv6_instance_speaks_and_answers_with_its_virtual_mac(
    lab: Lab, director: Host, speaker: SpeakerHandle
) -> None:
    client = lab.hosts["cl"]
    instance = replace(
        VMAC,
        family=6,
        vips=(vip("fe80::100", "vrrp6.51"), vip("2001:db8::100", "vrrp6.51")),
        virtual_mac=VirtualMac(interface="vrrp6.51", mac="00:00:5e:00:02:33"),
    )
    with Ear(client.namespace) as ear:
        assert configure(speaker, instance) == ""
        speaker.becomes(Role.MASTER)

        def adverts() -> list[bytes]:
            frames = [each.frame for each in list(ear._frames)]
            return [each for each in frames if each[12:14] == b"\x86\xdd" and each[20] == 112]

        frame = eventually(adverts, "adverts")[0]
        assert frame[6:12].hex(":") == "00:00:5e:00:02:33"
        assert frame[22:26] == bytes.fromhex("fe800000")
        # It speaks before it has put the address on, and the client's kernel asks once a second.
        eventually(lambda: answers_ping(client, "2001:db8::100"), "an answer")
        assert "00:00:5e:00:02:33" in neighbour(client, "2001:db8::100")
    speaker.send(Stop())
    assert speaker.process.wait(timeout=60) == 0
    assert "vrrp6.51" not in director.run("ip", "link").stdout


def test_a_virtual_mac_outlives_a_crash_without_its_address_and_is_taken_over(director: Host) -> None:
    with SpeakerHandle(director) as first:
        configure(first, VMAC)
        eventually(lambda: own(director, "vrrp.51") == {"10.9.0.100"}, "the VIP on the macvlan")
        first.kill()
        eventually(lambda: own(director, "vrrp.51") == set(), "the address expires")
    before = json.loads(director.run("ip", "-j", "link", "show", "vrrp.51").stdout)[0]["ifindex"]
    with SpeakerHandle(director) as second:
        configure(second, VMAC)
        second.becomes(Role.MASTER)
        eventually(lambda: own(director, "vrrp.51") == {"10.9.0.100"}, "the VIP again")
        assert json.loads(director.run("ip", "-j", "link", "show", "vrrp.51").stdout)[0]["ifindex"] == before
        director.run("ip", "link", "del", "vrrp.51")
        eventually(lambda: own(director, "vrrp.51") == {"10.9.0.100"}, "somebody has deleted it")


def test_settings_and_packets_that_are_not_accepted(lab: Lab, director: Host, speaker: SpeakerHandle) -> None:
    client = lab.hosts["cl"]
    instance = replace(INSTANCE, accept=False, promote_secondaries=True, routes=(), rules=())
    igmp = "/proc/sys/net/ipv4/igmp_link_local_mcast_reports"
    configure(speaker, instance, settings=SpeakerSettings(disable_local_igmp=True))
    eventually(lambda: own(director) == ALL, "addresses")
    eventually(lambda: "haxlb" in director.run("nft", "list", "tables").stdout, "the table")
    assert director.run("cat", "/proc/sys/net/ipv4/conf/eth0/promote_secondaries").stdout == "1\n"
    assert director.run("cat", igmp).stdout == "0\n"
    for address in ALL:
        assert client.run("ping", "-c1", "-W0.3", address, check=False).returncode == 1
        eventually(lambda each=address: director.mac() in neighbour(client, each), "its neighbours find it")
    assert speaker.status().instances[0].role is Role.MASTER
    speaker.send(Stop())
    speaker.process.wait(timeout=60)
    assert director.run("nft", "list", "tables").stdout == ""
    assert director.run("cat", "/proc/sys/net/ipv4/conf/eth0/promote_secondaries").stdout == "0\n"
    assert director.run("cat", igmp).stdout == "1\n"


def test_more_events_than_the_socket_holds_do_not_hide_a_vip_that_was_taken_off(
    director: Host, speaker: SpeakerHandle, tmp_path: Path
) -> None:
    configure(speaker, replace(INSTANCE, routes=(), rules=()), settings=SpeakerSettings(vip_lifetime_s=0))
    eventually(lambda: own(director) == ALL, "addresses")
    freeze(speaker)
    # More than a megabyte of events, while nobody reads; the one that matters comes when there is no room any more.
    batch = tmp_path / "batch"
    batch.write_text(
        "".join(f"address add 172.{16 + n // 250}.{n % 250}.1/32 dev eth0\n" for n in range(4000))
        + "address flush dev eth0 to 172.16.0.0/12\naddress del 2001:db8::101/128 dev eth0\n"
    )
    director.run("ip", "-batch", str(batch))
    assert "2001:db8::101" not in own(director)
    speaker.process.send_signal(signal.SIGCONT)
    eventually(lambda: logged(speaker, "link_events_lost"), "the overrun")
    eventually(lambda: own(director) == ALL, "everything is on again")
