"""What haxlb does not act on yet, as values that can be printed."""

from __future__ import annotations

import json

import pytest

from haxlb.cli.explain_config import explain
from haxlb.config.printer import keepalived_conf
from haxlb.model.groups import SyncGroup
from haxlb.model.node import NodeConfig
from haxlb.model.routes import NextHop, Route, Rule
from haxlb.model.tracking import Track, TrackKind
from haxlb.model.wire import from_json, to_json

TEXT = """\
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
    virtual_ipaddress {
        10.0.0.1/24
    }
    virtual_ipaddress_excluded {
        10.0.0.7/24 dev eth1 label x
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
    loaded = loading(TEXT + group.replace("VG", "other") + group)
    said = [each for each in codes(loaded) if each[1] != "not-supported-yet"]
    assert said == [("error", "undefined-member"), ("error", "duplicate-name"), ("error", "undefined-member")]
    assert [each.members for each in loaded.config.sync_groups] == [("A", "B"), ("A",)]


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
        ("10.0.0.7/24", "eth1", "x")
    ]


def test_they_print_and_load_to_the_same(loading, config):
    assert loading(keepalived_conf(config, secrets=True)).config == config


def test_they_cross_the_pipes_between_processes(config):
    assert from_json(NodeConfig, json.loads(json.dumps(to_json(config)))) == config


def test_they_are_explained_as_not_supported(loading):
    text = explain(loading(TEXT))
    later = "(not supported yet: keepalived does this)"
    assert f"  * it fails over together with B (vrrp_sync_group VG) {later}\n" in text
    assert f"  * 1 further address, 4 routes, 3 rules come and go with the MASTER {later}" in text
