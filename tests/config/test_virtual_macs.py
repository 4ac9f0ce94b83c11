"""use_vmac and use_ipvlan."""

from __future__ import annotations

import pytest

from haxlb.config.printer import keepalived_conf
from haxlb.model.instance import VirtualMac

MAC, MAC6 = "00:00:5e:00:01:33", "00:00:5e:00:02:33"


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


ABROAD = "10.0.1.9 dev eth1\n10.0.1.10 dev eth1\n10.0.2.9 dev eth2 use_vmac"
EXCLUDED = ("virtual_ipaddress_excluded {", "fd00::1", "fd00::2 dev eth1", "}")


def of_addresses(name: str, base: str, family: int = 4) -> VirtualMac:
    return VirtualMac(interface=name, mac=MAC if family == 4 else MAC6, base=base)


@pytest.mark.parametrize(
    ("lines", "vips", "excluded", "macs"),
    [
        pytest.param(
            ("use_vmac", "use_vmac_addr"),
            ["vrrp.51", "vrrp1.51", "vrrp1.51", "vrrp2.51"],
            ["vrrp6.51", "vrrp3.51"],
            [
                of_addresses("vrrp1.51", "eth1"),
                of_addresses("vrrp2.51", "eth2"),
                of_addresses("vrrp6.51", "eth0", 6),
                of_addresses("vrrp3.51", "eth1", 6),
            ],
            id="everywhere",
        ),
        pytest.param(
            ("use_vmac",),
            ["vrrp.51", "eth1", "eth1", "vrrp1.51"],
            ["eth0", "eth1"],
            [of_addresses("vrrp1.51", "eth2")],
            id="one-address",
        ),
        pytest.param(
            ("use_vmac_addr",),
            ["eth0", "vrrp.51", "vrrp.51", "vrrp1.51"],
            ["vrrp6.51", "vrrp2.51"],
            [
                of_addresses("vrrp.51", "eth1"),
                of_addresses("vrrp1.51", "eth2"),
                of_addresses("vrrp6.51", "eth0", 6),
                of_addresses("vrrp2.51", "eth1", 6),
            ],
            id="only-addresses",
        ),
        pytest.param(
            (), ["eth0", "eth1", "eth1", "vrrp.51"], ["eth0", "eth1"], [of_addresses("vrrp.51", "eth2")], id="alone"
        ),
        pytest.param(
            ("use_ipvlan vip0 10.0.0.7/24", "use_vmac_addr"),
            ["vip0", "vrrp.51", "vrrp.51", "vrrp1.51"],
            ["vrrp6.51", "vrrp2.51"],
            [
                of_addresses("vrrp.51", "eth1"),
                of_addresses("vrrp1.51", "eth2"),
                of_addresses("vrrp6.51", "eth0", 6),
                of_addresses("vrrp2.51", "eth1", 6),
            ],
            id="beside-an-ipvlan",
        ),
    ],
)
def test_addresses_with_virtual_macs_of_their_own(instance, lines, vips, excluded, macs):
    """Names, places and MACs as measured with keepalived 2.2.7."""
    made, said = instance(*lines, *EXCLUDED, vips=ABROAD)
    assert said == []
    assert [each.interface for each in made.vips] == vips
    assert [each.interface for each in made.excluded_vips] == excluded
    assert list(made.address_macs) == macs
    assert not any(each.flags for each in made.vips)


def test_an_address_of_the_instances_own_interface(instance):
    made, said = instance(vips="10.0.0.9 use_vmac\n10.0.0.10 dev eth0 use_vmac")
    assert ([each.interface for each in made.vips], said) == (["eth0", "vrrp.51", "vrrp.51"], [])
    made, said = instance("use_vmac", vips="10.0.0.9 use_vmac")
    assert ([each.interface for each in made.vips], made.address_macs) == (["vrrp.51", "vrrp.51"], ())
    assert said == [("warning", "useless-option")]


def test_a_mac_of_ones_own_choice_is_that_of_all_addresses(instance):
    made, _ = instance("use_vmac vip0 02:00:00:00:00:01", "use_vmac_addr", *EXCLUDED, vips="10.0.1.9 dev eth1")
    assert [each.interface for each in made.excluded_vips] == ["vip0", "vrrp.51"]
    assert made.address_macs == (VirtualMac(interface="vrrp.51", mac="02:00:00:00:00:01", base="eth1"),)


def test_names_of_interfaces_for_addresses(loading):
    text = "global_defs {\nvmac_prefix vv\n%s}\n" + ALL
    for more, name in (("vmac_addr_prefix aa\n", "aa.51"), ("", "vv1.51")):
        loaded = loading(text % more)
        assert [each.interface for each in loaded.config.instances[0].address_macs] == [name]
        assert loading(keepalived_conf(loaded.config)).config == loaded.config


ALL = """\
vrrp_instance A {
    interface eth0
    virtual_router_id 51
    use_vmac
    use_vmac_addr
    virtual_ipaddress {
        10.0.0.1
        10.0.1.1 dev eth1
    }
}
"""


@pytest.mark.parametrize("first", [False, True])
def test_one_virtual_mac_is_once_on_an_interface(loading, codes, first):
    other = ALL.replace(" A ", " B ").replace("eth0", "eth2").replace("10.0.0", "10.0.2").replace("1.1", "1.2")
    other = other.replace("eth1", "eth0")
    loaded = loading(other + ALL if first else ALL + other)
    assert codes(loaded) == [("error", "duplicate-mac")]
    a, b = sorted(loaded.config.instances, key=lambda each: each.name)
    assert ([each.base for each in a.address_macs], b.address_macs) == (["eth1"], ())
    assert [each.interface for each in b.vips][-1] == "eth0"


def test_their_interfaces_must_exist(loading, codes):
    loaded = loading(ALL, interfaces=frozenset({"eth0"}))
    assert codes(loaded) == [("fatal", "no-such-interface")]
    assert "interface eth1 of A" in loaded.diagnostics[0].message


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
