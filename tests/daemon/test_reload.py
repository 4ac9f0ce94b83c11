from __future__ import annotations

from dataclasses import replace

import pytest

from haxlb.daemon.reload import compare
from haxlb.model.settings import ForwardingSettings, MqttSettings
from haxlb.model.virtual_server import RealServer


def test_nothing(kit):
    change = compare(kit.node(), kit.node())
    assert change.nothing
    assert change.summary == "nothing has changed"


def test_who_is_concerned(kit):
    old = kit.node(servers=(kit.virtual_server(),))
    faster = kit.node(kit.instance(advert_interval_us=500_000), servers=(kit.virtual_server(),))
    change = compare(old, faster)
    assert (change.speaker, change.checker, change.broker, change.frames) == (True, False, False, False)
    heavier = replace(
        old,
        virtual_servers=(
            kit.virtual_server(80, RealServer(address=kit.vip("192.168.10.21").address, port=80, weight=5)),
        ),
    )
    change = compare(old, heavier)
    assert (change.speaker, change.checker, change.broker, change.frames) == (False, True, False, False)
    told = compare(old, replace(old, mqtt=MqttSettings(host="192.0.2.1")))
    assert (told.speaker, told.checker, told.broker) == (False, False, True)


def test_another_interface_concerns_the_forwarder_too(kit):
    old = kit.node(servers=(kit.virtual_server(),))
    moved = kit.node(kit.instance(interface="eth1"), servers=(kit.virtual_server(),))
    assert compare(old, moved).checker


def test_words(kit):
    old = kit.node(kit.instance("VI_1"), kit.instance("VI_2", vrid=52))
    new = kit.node(kit.instance("VI_1", priority=90), kit.instance("VI_3", vrid=53), servers=(kit.virtual_server(),))
    assert compare(old, new).summary == (
        "vrrp_instance VI_2 removed: virtual_router_id 52 on eth0 is gone; "
        "vrrp_instance VI_1 changed: priority 150 -> 90; "
        "vrrp_instance VI_3 added: virtual_router_id 53 on eth0 is new; "
        "virtual_server [192.168.10.100]:tcp:80 added: a service with 1 real server is new"
    )


def test_what_waits_for_a_restart_is_said(kit):
    old = kit.node(servers=(kit.virtual_server(),))
    new = replace(old, node="lb9", forwarding=ForwardingSettings(flow_buckets_log2=18, mode="generic"))
    change = compare(old, new)
    assert len(change.later) == 3
    assert "lb1 until haxlb is restarted" in change.later[0]
    assert "forwarding.mode" in change.later[2]


@pytest.mark.parametrize(
    ("forwarding", "said"),
    [
        ({"flow_buckets_log2": 18}, "flow_buckets_log2 counts where the tables are made anew: "),
        ({"max_services": 65}, "max_services counts where the tables are made anew: "),
        ({"max_services": 9}, "max_services counts where the tables are made anew: "),
        (
            {"max_services": 65, "flow_buckets_log2": 18},
            "flow_buckets_log2 and max_services count where the tables are made anew: ",
        ),
    ],
)
def test_the_size_of_a_table_waits_until_it_is_made_anew_which_is_said(kit, forwarding, said):
    old = kit.node(servers=(kit.virtual_server(),))
    new = replace(old, forwarding=ForwardingSettings(**forwarding))
    assert compare(old, new).later == (said + "stop haxlb, `haxlb detach`, start it",)
    # Where there are no tables yet they are made as large as it says.
    assert compare(replace(old, virtual_servers=()), new).later == ()
