"""use_vmac and use_ipvlan."""

from __future__ import annotations

import pytest

from haxlb.config.printer import keepalived_conf
from haxlb.model.node import VirtualMac

MAC = "00:00:5e:00:01:33"


@pytest.mark.parametrize(
    ("lines", "mac", "said"),
    [
        (("use_vmac",), VirtualMac(interface="vrrp.51", mac=MAC), []),
        (("use_vmac vip0",), VirtualMac(interface="vip0", mac=MAC), []),
        (("use_vmac name vip0 group 7 netlink_notify_msg",), VirtualMac(interface="vip0", mac=MAC, group=7), []),
        (("use_vmac vip0 2:1:1:1:1:1",), VirtualMac(interface="vip0", mac="02:01:01:01:01:01"), []),
        (("use_vmac 02:00:00:00:00",), VirtualMac(interface="vrrp.51", mac="02:00:00:00:00:33"), []),
        (("use_vmac", "vmac_xmit_base"), VirtualMac(interface="vrrp.51", mac=MAC, xmit_base=True), []),
        (("use_vmac 01:00:00:00:00:01",), VirtualMac(interface="vrrp.51", mac=MAC), [("error", "bad-value")]),
        (("use_vmac 00:00:5e:00:01:07",), VirtualMac(interface="vrrp.51", mac=MAC), [("error", "bad-value")]),
        (("use_vmac a-name-that-is-long",), VirtualMac(interface="vrrp.51", mac=MAC), [("error", "bad-value")]),
        (("use_vmac vip0 group x",), VirtualMac(interface="vip0", mac=MAC), [("error", "bad-value")]),
        (("use_vmac vip0 group",), VirtualMac(interface="vip0", mac=MAC), [("error", "missing-argument")]),
        (("use_vmac vip0 vip1",), VirtualMac(interface="vip0", mac=MAC), [("warning", "surplus-words")]),
        (
            ("use_ipvlan vip0 10.0.0.9/24 private",),
            VirtualMac(interface="vip0", mac="", ipvlan="private", ipvlan_address="10.0.0.9/24"),
            [],
        ),
        (
            ("use_ipvlan 10.0.0.9",),
            VirtualMac(interface="vrrp.51", mac="", ipvlan="bridge", ipvlan_address="10.0.0.9/32"),
            [],
        ),
        (("use_ipvlan vip0",), None, [("error", "missing-argument")]),
        (("use_ipvlan fd00::1",), None, [("error", "mixed-family"), ("error", "missing-argument")]),
        (("vmac_xmit_base",), None, [("warning", "useless-option")]),
        (("use_vmac", "use_ipvlan 10.0.0.9"), VirtualMac(interface="vrrp.51", mac=MAC), [("error", "given-twice")]),
    ],
)
def test_one(instance, lines, mac, said):
    made, complaints = instance(*lines)
    assert (made.virtual_mac, sorted(complaints)) == (mac, sorted(said))


def test_addresses_live_on_it_unless_they_have_another_device(instance):
    """Measured with keepalived 2.2.7."""
    excluded = ("virtual_ipaddress_excluded {", "10.0.0.11", "fd00::1", "fd00::2 dev eth0", "}")
    made, _ = instance("use_vmac vip0", *excluded, vips="10.0.0.9 dev eth0\n10.0.0.10 dev eth1")
    assert [each.interface for each in made.vips] == ["vip0", "vip0", "eth1"]
    assert [each.interface for each in made.excluded_vips] == ["vip0", "eth0", "eth0"]


def test_virtual_macs_of_other_interfaces_are_not_supported_yet(instance):
    _, said = instance("use_vmac", "use_vmac_addr", vips="10.0.0.10 dev eth1 use_vmac")
    assert said == [("warning", "not-supported-yet")] * 2


def test_unicast_leaves_from_the_base(instance):
    unicast = ("unicast_peer {", "10.0.0.9", "}", "check_unicast_src")
    made, said = instance("use_vmac", *unicast)
    assert (made.virtual_mac.xmit_base, said) == (True, [("warning", "inexact-value")])
    made, said = instance("use_vmac", "vmac_xmit_base", *unicast)
    assert (made.virtual_mac.xmit_base, said) == (True, [])


def pair(loading, first: str, second: str, prefix: str = ""):
    text = "vrrp_instance %s {\ninterface %s\nvirtual_router_id 51\n%s\nvirtual_ipaddress {\n%s\n}\n}\n"
    defs = f"global_defs {{\nvmac_prefix {prefix}\n}}\n" if prefix else ""
    return loading(defs + text % ("A", "eth0", first, "10.0.0.1") + text % ("B", "eth1", second, "fe80::1"))


def names(loaded):
    return [each.virtual_mac.interface for each in loaded.config.instances]


def test_names(loading, codes):
    assert names(pair(loading, "use_vmac", "use_vmac")) == ["vrrp.51", "vrrp6.51"]
    assert names(pair(loading, "use_vmac", "use_vmac", "vip")) == ["vip.51", "vip6.51"]
    loaded = pair(loading, "use_vmac x", "use_vmac x")
    assert names(loaded) == ["x", "vrrp6.51"]
    assert codes(loaded) == [("error", "duplicate-name")]


def test_one_vrid_on_two_interfaces(loading):
    text = "vrrp_instance %s {\ninterface %s\nvirtual_router_id 51\nuse_vmac\nvirtual_ipaddress {\n%s\n}\n}\n"
    loaded = loading(text % ("A", "eth0", "10.0.0.1") + text % ("B", "eth1", "10.0.0.2"))
    assert names(loaded) == ["vrrp.51", "vrrp1.51"]
    assert loading(keepalived_conf(loaded.config)).config == loaded.config


def test_it_need_not_exist(loading):
    text = "vrrp_instance A {\ninterface eth0\nvirtual_router_id 51\nuse_vmac\nvirtual_ipaddress {\n10.0.0.1\n}\n}\n"
    assert loading(text, interfaces=frozenset({"eth0"})).diagnostics == ()
