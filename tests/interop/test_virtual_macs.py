"""Virtual MACs of addresses, and groups that static entries name: haxlb and keepalived make the same of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from lab import Host, Lab

from tests.interop.company import prepare
from tests.interop.conversation import announced
from tests.interop.directors import Director, Haxlb, Keepalived, add_interface, every_address
from tests.interop.stories import Story
from tests.netns.standin import Ear, eventually

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
LIMIT_S = 90.0
INSTANCE = """
vrrp_instance VI_{vrid} {{
 version 3
 state BACKUP
 interface eth0
 virtual_router_id {vrid}
 priority {priority}
 advert_int 0.1
 garp_master_delay 1
 {macs}
 virtual_ipaddress {{
  10.9.1.{vrid}/32
  10.9.3.{vrid}/32 dev eth1{flag}
  10.9.4.{vrid}/32 dev eth1
 }}
{excluded}
}}
"""
EXCLUDED = " virtual_ipaddress_excluded {{\n  2001:db8:1::{0}/128\n  2001:db8:3::{0}/128 dev eth1\n }}"
FORMS = {
    61: ("use_vmac\n use_vmac_addr", ""),
    62: ("use_vmac_addr", ""),
    63: ("use_vmac", " use_vmac"),
    64: ("", " use_vmac"),
    65: ("use_vmac own65 02:00:00:00:00:41\n use_vmac_addr", ""),
}
"""By VRID: the lines on virtual MACs, and the flag of one address."""
OWN_MAC = 65
"""Without IPv6: keepalived 2.2.7 puts such addresses onto the instance's macvlan, where it has turned IPv6 off."""


def configuration(number: int) -> str:
    return "".join(
        INSTANCE.format(
            vrid=vrid,
            priority={1: 150, 2: 100}[number],
            macs=macs,
            flag=flag,
            excluded="" if vrid == OWN_MAC else EXCLUDED.format(vrid),
        )
        for vrid, (macs, flag) in FORMS.items()
    )


def layout(host: Host) -> dict[str, tuple[str, str, str, frozenset[str]]]:
    """By macvlan: the interface below, its MAC, its mode, and the addresses but for link-local ones."""
    links: list[dict[str, Any]] = json.loads(host.run("ip", "-j", "-d", "address", "show").stdout)
    return {
        each["ifname"]: (
            each["link"],
            each["address"],
            each["linkinfo"]["info_data"]["mode"],
            frozenset(found["local"] for found in each["addr_info"] if not found["local"].startswith("fe80")),
        )
        for each in links
        if each.get("linkinfo", {}).get("info_kind") == "macvlan"
    }


def plain(host: Host) -> set[tuple[str, str]]:
    """Virtual addresses on the interfaces themselves."""
    links = json.loads(host.run("ip", "-j", "address", "show", "type", "veth").stdout)
    return {
        (each["ifname"], found["local"])
        for each in links
        for found in each["addr_info"]
        if found["local"].startswith(("10.9.1.", "10.9.3.", "10.9.4.", "2001:db8:1:", "2001:db8:3:"))
    }


def pair(lab: Lab, directory: Path, kinds: tuple[type[Haxlb | Keepalived], ...]) -> list[Director]:
    directors: list[Director] = []
    for number, kind in enumerate(kinds, 1):
        host = prepare(lab, f"d{number}", number)
        add_interface(host, "eth1", f"10.9.2.{number}/24")
        directors.append(kind(host, number, directory / f"d{number}"))
    return directors


def same_layout(kinds: tuple[type[Haxlb | Keepalived], ...], lab: Lab, directory: Path) -> None:
    one, two = pair(lab, directory, kinds)
    everything = {f"10.9.{net}.{vrid}" for net in (1, 3, 4) for vrid in FORMS}
    everything |= {f"2001:db8:{net}::{vrid}" for net in (1, 3) for vrid in FORMS if vrid != OWN_MAC}

    def has_all(director: Director) -> bool:
        return not everything - every_address(director.host)

    def has_none(director: Director) -> bool:
        return not everything & every_address(director.host)

    with Ear(one.host.namespace, "eth1") as ear_one, Ear(two.host.namespace, "eth1") as ear_two:
        one.start(configuration(1))
        eventually(lambda: has_all(one), "the first is MASTER", LIMIT_S)
        two.start(configuration(2))
        eventually(lambda: has_none(two), "the second has made its virtual MACs and has no address", LIMIT_S)
        first = layout(one.host), plain(one.host)
        one.stop()
        eventually(lambda: has_all(two) and has_none(one), "take-over", LIMIT_S)
        assert (layout(two.host), plain(two.host)) == first
        assert layout(one.host) == {}, "after an orderly stop none is left"
        for vrid in FORMS:
            below = json.loads(two.host.run("ip", "-j", "link", "show", "dev", "eth1").stdout)[0]["address"]
            usual = {"10.9.3": f"00:00:5e:00:01:{vrid:02x}", "10.9.4": f"00:00:5e:00:01:{vrid:02x}"}
            usual |= {"10.9.4": below} if vrid in (63, 64) else {}
            usual = dict.fromkeys(usual, "02:00:00:00:00:41") if vrid == OWN_MAC else usual
            for net, mac in usual.items():
                vip = ip_address(f"{net}.{vrid}")
                eventually(lambda vip=vip, mac=mac: mac in announced(ear_one.frames(), vip), f"{vip} is announced")
        one.start(configuration(1))
        eventually(lambda: has_all(one) and has_none(two), "return", LIMIT_S)
        assert (layout(one.host), plain(one.host)) == first
        vip = ip_address("10.9.3.61")
        eventually(lambda: "00:00:5e:00:01:3d" in announced(ear_two.frames(), vip), "it is announced to the second")
    for each in (one, two):
        each.stop()
        assert each.complaints() == []


TRACKED = """
track_group G {
 group {
  VI_71
 }
}
static_ipaddress {
 10.9.5.1/24 dev eth1 track_group G
}
"""
ROUTER = """
vrrp_instance VI_71 {
 version 3
 interface eth0
 virtual_router_id 71
 priority %d
 advert_int 0.1
 virtual_ipaddress {
  10.9.1.71/32
 }
}
"""


def a_group_of_static_entries(kinds: tuple[type[Haxlb | Keepalived], ...], lab: Lab, directory: Path) -> None:
    """An entry that somebody deletes is put back and moves nothing; the loss of its interface is FAULT."""
    one, two = pair(lab, directory, kinds)

    def held(director: Director) -> bool:
        return "10.9.1.71" in every_address(director.host)

    one.start(TRACKED + ROUTER % 150)
    eventually(lambda: held(one), "the first is MASTER", LIMIT_S)
    two.start(ROUTER % 100)
    one.host.run("ip", "address", "del", "10.9.5.1/24", "dev", "eth1")
    eventually(lambda: "10.9.5.1" in every_address(one.host), "the static address is back")
    assert (held(one), held(two)) == (True, False)
    one.host.run("ip", "link", "set", "eth1", "down")
    eventually(lambda: held(two) and not held(one), "the second takes over", LIMIT_S)
    one.host.run("ip", "link", "set", "eth1", "up")
    eventually(lambda: held(one) and not held(two), "the first returns", LIMIT_S)
    eventually(lambda: "10.9.5.1" in every_address(one.host), "with its static address")
    for each in (one, two):
        each.stop()


MIXED = {"haxlb-first": (Haxlb, Keepalived), "keepalived-first": (Keepalived, Haxlb)}
STORIES = [
    Story(f"{what}-{order}", partial(live, kinds))
    for what, live in (("same-layout", same_layout), ("track-group", a_group_of_static_entries))
    for order, kinds in MIXED.items()
]


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_a_mixed_pair(story: Story, outcome: Callable[[Story], None]) -> None:
    outcome(story)
