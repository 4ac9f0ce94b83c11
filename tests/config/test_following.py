"""What follows the master, and what stands beside instances, as values that can be printed."""

from __future__ import annotations

import json
from ipaddress import IPv4Address, ip_address

import pytest

from haxlb.cli.explain_config import explain
from haxlb.config.printer import keepalived_conf
from haxlb.model.addresses import StaticAddress, TtlLimits, Vip
from haxlb.model.groups import AddressRange, FirewallMark, SyncGroup, VirtualServerGroup
from haxlb.model.node import NodeConfig
from haxlb.model.routes import NextHop, Route, Rule
from haxlb.model.tracking import Track, TrackKind
from haxlb.model.wire import from_json, to_json

TEXT = """\
global_defs {
    default_interface eth9
}
static_ipaddress {
    192.0.2.5/24 dev eth0 brd + label eth0:1 scope link noprefixroute
    192.0.2.6 peer 192.0.2.7
    2001:db8::5/64 dev eth0 preferred_lft forever -nodad
    2001:db8::6/64 dev eth0 preferred_lft 0
}
virtual_server_group web {
    10.0.0.1 80
    10.0.0.2-9 443
    2001:db8::1-2001:db8::f 80
    10.1.0.0/30
    fwmark 7 inet6
}
virtual_server_group empty {
}
virtual_server_group mixed {
    10.0.0.1 80
    2001:db8::1 80
    fwmark 7
}
virtual_server_group marks {
    fwmark 8
}
static_routes {
    default via 192.0.2.1 dev eth0
    inet6 default via fe80::1 dev eth0
}
static_rules {
    from 192.0.2.0/24 table 100 preference 5
}
vrrp_sync_group VG {
    group {
        A B
        B
    }
    track_interface {
        eth2 weight 5
    }
}
vrrp_instance A {
    interface eth0
    virtual_router_id 1
    unicast_src_ip 10.0.0.250
    unicast_peer {
        10.0.0.250 min_ttl 1
        10.0.0.251 min_ttl 250
        10.0.0.252
        10.0.0.253 max_ttl 64 min_ttl 0
        10.0.0.251 min_ttl 3
    }
    virtual_ipaddress {
        10.0.0.1/24 scope link brd + label eth0:1 preferred_lft 0 track_group VG -nodad home no_track
        10.0.0.3 peer 10.0.0.4 preferred_lft forever use_vmac noprefixroute
        10.0.0.5/24 mngtmpaddr
        10.0.0.3 no_track
    }
    virtual_ipaddress_excluded {
        2001:db8::3/64 dev eth1 preferred_lft 0 -nodad
        10.0.0.7/24 dev eth1 label x autojoin
        10.0.0.8/24 dev eth1
        2001:db8::1/64
    }
    virtual_routes {
        10.9.0.0/16 via 10.0.0.254 dev eth1 src 10.0.0.1 metric 7 table 3 mtu lock 1400 onlink no_track
        blackhole 10.8.0.0/16
        10.7.0.0/16 nexthop via 10.0.0.2 dev eth1 weight 3 nexthop via 10.0.0.3 dev " eth2" onlink
        2001:db8:1::/48 via 2001:db8::fe dev eth1
    }
    virtual_rules {
        not from 10.0.0.0/8 to 10.1.0.0/16 fwmark 1/0xff iif eth0 sport 80-90 table 7 preference 1 no_track
        blackhole dport 22 ipproto tcp preference 2
        inet6 from 2001:db8::/32 goto 30000 preference 3
    }
}
vrrp_instance B {
    interface eth1
    virtual_router_id 1
    virtual_ipaddress {
        10.0.0.2/24
        10.0.0.5/24 peer 10.0.0.6
    }
}
"""


@pytest.fixture
def config(loading) -> NodeConfig:
    found = loading(TEXT).config
    assert found is not None
    return found


def test_groups(config):
    track = Track(kind=TrackKind.INTERFACE, name="eth2", weight=5)
    assert config.sync_groups == (SyncGroup(name="VG", members=("A", "B"), tracks=(track,)),)


def test_members_that_there_are_not(loading, codes):
    group = "vrrp_sync_group VG {\ngroup {\nA\nC\n}\n}\n"
    alone = (
        "vrrp_sync_group other {\ngroup {\nD B C\n}\n}\n"
        "vrrp_instance D {\ninterface eth3\nvirtual_router_id 7\nvirtual_ipaddress {\n10.9.9.9\n}\n}\n"
    )
    loaded = loading(TEXT + alone + group)
    said = [each for each in codes(loaded) if each[0] == "error" and each[1] not in ("mixed-family", "duplicate-vip")]
    assert said == [("error", "duplicate-name"), ("error", "undefined-member"), ("error", "duplicate-name")]
    assert [each.members for each in loaded.config.sync_groups] == [("A", "B"), ("D",)]
    # Who else was meant has been complained of.
    assert ("warning", "lonely-member") not in codes(loaded)


def test_routes(config):
    assert config.static_routes == (
        Route(destination="0.0.0.0/0", via="192.0.2.1", device="eth0"),
        Route(destination="::/0", via="fe80::1", device="eth0"),
    )
    assert config.instances[0].routes == (
        Route(
            destination="10.9.0.0/16",
            via="10.0.0.254",
            device="eth1",
            source="10.0.0.1",
            metric=7,
            onlink=True,
            mtu_locked=True,
            numbers=(("mtu", 1400),),
            texts=(("table", "3"),),
            no_track=True,
        ),
        Route(destination="10.8.0.0/16", kind="blackhole"),
        Route(
            destination="10.7.0.0/16",
            nexthops=(
                NextHop(via="10.0.0.2", device="eth1", weight=3),
                NextHop(via="10.0.0.3", device=" eth2", onlink=True),
            ),
        ),
        Route(destination="2001:db8:1::/48", via="2001:db8::fe", device="eth1"),
    )


def test_rules(config):
    assert config.static_rules == (
        Rule(family=4, selectors=(("from", "192.0.2.0/24"), ("preference", "5")), action=("table", "100")),
    )
    first, second, third = config.instances[0].rules
    assert dict(first.selectors) == {
        "not": "",
        "no_track": "",
        "from": "10.0.0.0/8",
        "to": "10.1.0.0/16",
        "fwmark": "1/255",
        "iif": "eth0",
        "sport": "80-90",
        "preference": "1",
    }
    assert (second.action, dict(second.selectors)["dport"]) == (("blackhole",), "22-22")
    assert (third.family, third.action) == (6, ("goto", "30000"))


def test_excluded_addresses(config):
    assert [(str(each), each.interface, each.label) for each in config.instances[0].excluded_vips] == [
        ("2001:db8::3/64", "eth1", None),
        ("10.0.0.7/24", "eth1", "x"),
        ("10.0.0.8/24", "eth1", None),
        ("2001:db8::1/64", "eth0", None),
    ]


def test_static_addresses(config):
    assert config.static_addresses == (
        StaticAddress(
            address="192.0.2.5",
            prefix_length=24,
            interface="eth0",
            label="eth0:1",
            scope=253,
            broadcast="192.0.2.255",
            flags=("noprefixroute",),
        ),
        StaticAddress(address="192.0.2.6", prefix_length=32, interface="eth9", peer="192.0.2.7"),
        StaticAddress(
            address="2001:db8::5",
            prefix_length=64,
            interface="eth0",
            preferred_lifetime_s=2**32 - 1,
            flags=("-nodad",),
        ),
        StaticAddress(address="2001:db8::6", prefix_length=64, interface="eth0", preferred_lifetime_s=0),
    )


def test_static_addresses_are_printed_with_names_for_numbers(config):
    lines = [each.strip() for each in keepalived_conf(config, secrets=True).splitlines()]
    assert "192.0.2.5/24 dev eth0 scope link brd 192.0.2.255 label eth0:1 noprefixroute" in lines
    assert "192.0.2.6 dev eth9 peer 192.0.2.7" in lines
    assert "2001:db8::5/64 dev eth0 preferred_lft forever -nodad" in lines


def test_static_addresses_go_to_eth0_unless_told(loading):
    loaded = loading("static_ipaddress {\n192.0.2.5\n}\n")
    assert [each.interface for each in loaded.config.static_addresses] == ["eth0"]


def test_server_groups_that_keepalived_removes_are_left_out(config):
    assert config.virtual_server_groups == (
        VirtualServerGroup(
            name="web",
            ranges=(
                AddressRange(first="10.0.0.1", last="10.0.0.1", port=80),
                AddressRange(first="10.0.0.2", last="10.0.0.9", port=443),
                AddressRange(first="2001:db8::1", last="2001:db8::f", port=80),
                AddressRange(first="10.1.0.0", last="10.1.0.3"),
            ),
            marks=(FirewallMark(mark=7, family=6),),
        ),
        VirtualServerGroup(name="marks", marks=(FirewallMark(mark=8),)),
    )


def test_limits_of_peers(config):
    a, b = config.instances
    assert a.ttl_limits == (
        TtlLimits(peer=IPv4Address("10.0.0.251"), lowest=250),
        TtlLimits(peer=IPv4Address("10.0.0.253"), lowest=0, highest=64),
    )
    assert [str(each) for each in a.peers] == ["10.0.0.251", "10.0.0.252", "10.0.0.253"]
    assert b.ttl_limits == ()


def test_options_of_virtual_addresses(config):
    a, b = config.instances
    assert a.vips == (
        Vip(
            address=IPv4Address("10.0.0.1"),
            prefix_length=24,
            interface="eth0",
            scope=253,
            broadcast=IPv4Address("10.0.0.255"),
            label="eth0:1",
            preferred_lifetime_s=0,
            track_group="VG",
            flags=("home", "-nodad", "no_track"),
        ),
        Vip(
            address=IPv4Address("10.0.0.3"),
            prefix_length=32,
            interface="vrrp.1",
            peer=IPv4Address("10.0.0.4"),
            preferred_lifetime_s=2**32 - 1,
            flags=("noprefixroute",),
        ),
        Vip(address=IPv4Address("10.0.0.5"), prefix_length=24, interface="eth0", flags=("mngtmpaddr",)),
    )
    assert a.excluded_vips[0] == Vip(
        address=ip_address("2001:db8::3"),
        prefix_length=64,
        interface="eth1",
        preferred_lifetime_s=0,
        flags=("-nodad",),
    )
    # 10.0.0.5 is A's.
    assert [str(each) for each in b.vips] == ["10.0.0.2/24"]


def test_virtual_addresses_are_printed_with_their_options(config):
    lines = [each.strip() for each in keepalived_conf(config, secrets=True).splitlines()]
    flags = "preferred_lft 0 track_group VG home -nodad no_track"
    assert f"10.0.0.1/24 dev eth0 scope link brd 10.0.0.255 label eth0:1 {flags}" in lines
    assert "10.0.0.3 dev eth0 use_vmac peer 10.0.0.4 preferred_lft forever noprefixroute" in lines
    assert "10.0.0.7/24 dev eth1 label x autojoin" in lines
    assert "2001:db8::3/64 dev eth1 preferred_lft 0 -nodad" in lines


def test_they_print_and_load_to_the_same(loading, config):
    assert loading(keepalived_conf(config, secrets=True)).config == config


def test_they_cross_the_pipes_between_processes(config):
    assert from_json(NodeConfig, json.loads(json.dumps(to_json(config)))) == config


def test_they_are_explained(loading):
    text = explain(loading(TEXT))
    assert "  * it fails over together with B (vrrp_sync_group VG)\n" in text
    assert "  * 4 further addresses, 4 routes, 3 rules come and go with the MASTER; adverts do not name them\n" in text
    what = "static, on this host while haxlb runs, whoever is MASTER"
    assert f"  * {what}: 4 addresses, 2 routes, 1 rule\n" in text
    shown = "10.0.0.1 port 80, 10.0.0.2-10.0.0.9 port 443, 2001:db8::1-2001:db8::f port 80, 10.1.0.0-10.1.0.3"
    assert f"  * virtual_server_group web is {shown} and 1 more\n" in text
    assert "  * virtual_server_group marks is fwmark 8\n" in text
    shown = "peer 10.0.0.4 preferred_lft forever noprefixroute"
    assert f"  * 10.0.0.3 is put on with `{shown}`\n" in text
    assert "  * adverts of 10.0.0.251 count with a TTL of 250 to 255 only\n" in text
    assert "  * adverts of 10.0.0.253 count with a TTL of 0 to 64 only\n" in text
