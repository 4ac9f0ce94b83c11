from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from haxlb.config import load
from haxlb.config.diff import plan_reload
from haxlb.model.node import ForwardingSettings, MqttSettings, NodeConfig

DATA = Path(__file__).parent / "data"


@pytest.fixture
def config() -> NodeConfig:
    loaded = load(DATA / "master.conf", settings=None, node="host")
    assert loaded.config is not None
    return loaded.config


def with_instance(config, **changes):
    return replace(config, instances=(replace(config.instances[0], **changes),))


def with_server(config, **changes):
    return replace(config, virtual_servers=(replace(config.virtual_servers[0], **changes),))


def test_an_identical_configuration_is_an_empty_plan(config):
    again = load(DATA / "master.conf", settings=None, node="host").config
    plan = plan_reload(config, again)
    assert plan.empty
    assert plan.instances.kept == ("VI_1",)
    assert plan.virtual_servers.kept == ("[192.168.10.100]:tcp:80",)
    assert list(plan.lines()) == []


def test_a_changed_instance_says_what_changed(config):
    vip = replace(config.instances[0].vips[0], prefix_length=32)
    after = with_instance(config, priority=90, advert_interval_us=2_000_000, auth_pass="other", vips=(vip,))
    plan = plan_reload(config, after)
    (line,) = plan.lines()
    assert line == (
        "vrrp_instance VI_1 changed: vip 192.168.10.100/32 (prefix_length 24 -> 32), "
        "priority 150 -> 90, advert_interval 1 s -> 2 s, auth_pass is another one"
    )
    assert plan.virtual_servers.none


def test_a_new_name_is_no_new_instance(config):
    plan = plan_reload(config, with_instance(config, name="VI_2"))
    assert [each.reason for each in plan.instances.changed] == ["name VI_1 -> VI_2"]


def test_a_new_vrid_is_another_instance(config):
    plan = plan_reload(config, with_instance(config, vrid=52))
    assert list(plan.lines()) == [
        "vrrp_instance VI_1 removed: virtual_router_id 51 on eth0 is gone",
        "vrrp_instance VI_1 added: virtual_router_id 52 on eth0 is new",
    ]


def test_a_changed_pool(config):
    first, second, third = config.virtual_servers[0].real_servers
    after = with_server(
        config, real_servers=(replace(first, weight=0), replace(second, checks=()), replace(third, port=81)), alpha=True
    )
    (change,) = plan_reload(config, after).virtual_servers.changed
    assert change.reason == (
        "real_server 192.168.10.23:80 removed, real_server 192.168.10.23:81 added, "
        "real_server 192.168.10.21:80 (weight 3 -> 0), real_server 192.168.10.22:80 (checks), alpha False -> True"
    )


def test_the_order_of_servers_is_a_change(config):
    after = with_server(config, real_servers=config.virtual_servers[0].real_servers[::-1])
    assert [each.reason for each in plan_reload(config, after).virtual_servers.changed] == ["order"]


def test_settings(config):
    mqtt = MqttSettings(host="a", password="x")
    plan = plan_reload(config, replace(config, mqtt=mqtt, node="n", forwarding=ForwardingSettings(mode="native")))
    assert list(plan.lines()) == [
        "node changed: director-a -> n",
        "mqtt changed: switched on",
        "forwarding changed: mode auto -> native",
    ]
    other = replace(mqtt, password="y", port=1)
    (change,) = plan_reload(replace(config, mqtt=mqtt), replace(config, mqtt=other)).settings
    assert change.reason == "port 1883 -> 1, password is another one"
    assert [each.reason for each in plan_reload(replace(config, mqtt=mqtt), config).settings] == ["switched off"]
