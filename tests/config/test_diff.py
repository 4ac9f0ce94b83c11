from __future__ import annotations

from dataclasses import fields, replace
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from haxlb.config import load
from haxlb.config.diff import plan_reload
from haxlb.config.diff_words import _NAMES
from haxlb.model import check, groups, instance, node, notification, settings, tracking, virtual_server
from haxlb.model.commands import Command
from haxlb.model.instance import GarpConfig, VirtualMac
from haxlb.model.node import NodeConfig
from haxlb.model.notification import NotificationSettings, NotifyScripts, ScriptSettings
from haxlb.model.settings import ForwardingSettings, MqttSettings
from haxlb.model.virtual_server import RealServer

DATA = Path(__file__).parent / "data"
PARTS = (node, instance, virtual_server, check, settings, notification, groups, tracking)


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
        "priority 150 -> 90, advert_int 1 s -> 2 s, auth_pass is another one"
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
        "real_server 192.168.10.21:80 (weight 3 -> 0), real_server 192.168.10.22:80 (checks), alpha no -> yes"
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


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"notify": NotifyScripts(any=Command(argv=("/bin/x", "a")))}, "notify none -> /bin/x a"),
        (
            {"notify": NotifyScripts(master=Command(argv=("/bin/x",), user="web", group="adm"))},
            "notify_master none -> /bin/x as web adm",
        ),
        ({"garp": GarpConfig(master_repeat=2)}, "garp_master_repeat 5 -> 2"),
        ({"source": IPv4Address("10.0.0.1")}, "source address none -> 10.0.0.1"),
        ({"nopreempt": True}, "nopreempt no -> yes"),
        ({"virtual_mac": VirtualMac(interface="vrrp.51", mac="x")}, "virtual MAC none -> vrrp.51"),
        (
            {"address_macs": (VirtualMac(interface="vrrp1.51", mac="x", base="eth1"),)},
            "virtual MAC vrrp1.51 on eth1 added",
        ),
    ],
)
def test_names_are_those_of_the_configuration(config, changes, reason):
    bare = with_instance(config, notify=NotifyScripts(), garp=GarpConfig(), source=None, nopreempt=False)
    (change,) = plan_reload(bare, with_instance(bare, **changes)).instances.changed
    assert change.reason == reason


def test_what_is_not_there_is_none(config):
    scripts = NotificationSettings(scripts=ScriptSettings(user="web", startup=Command(argv=("/bin/x",))))
    (change,) = plan_reload(config, replace(config, notification=scripts)).settings
    assert change.reason == "script_user none -> web, startup_script none -> /bin/x"
    (change,) = plan_reload(replace(config, notification=scripts), config).settings
    assert change.reason == "script_user web -> none, startup_script /bin/x -> none"


def test_a_sorry_server_is_named_by_its_address(config):
    before = with_server(config, sorry_server=None)
    after = with_server(config, sorry_server=RealServer(address=IPv4Address("10.0.0.9"), port=80))
    (change,) = plan_reload(before, after).virtual_servers.changed
    assert change.reason == "sorry_server none -> 10.0.0.9:80"


@pytest.mark.parametrize(("number", "words"), [(0, "no real servers"), (1, "1 real server"), (3, "3 real servers")])
def test_a_service_that_goes(config, number, words):
    (server,) = config.virtual_servers
    before = with_server(config, real_servers=server.real_servers[:number])
    (change,) = plan_reload(before, replace(config, virtual_servers=())).virtual_servers.removed
    assert change.reason == f"a service with {words} is gone"


def test_every_name_of_a_field_is_one_of_the_model():
    for kind, names in _NAMES.items():
        owner = next(getattr(each, kind) for each in PARTS if hasattr(each, kind))
        assert set(names) <= {each.name for each in fields(owner)}, kind
