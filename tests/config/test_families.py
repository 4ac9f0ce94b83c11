"""Which family an instance speaks, and what becomes of addresses of the other one."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from haxlb.config.printer import keepalived_conf


@pytest.fixture
def one(loading, codes):
    """One instance of these lines: (instance or None, complaints)."""

    def of(*lines: str, before: str = ""):
        head = "vrrp_instance A {\ninterface eth0\nvirtual_router_id 51\n"
        loaded = loading(before + head + "\n".join(lines) + "\n}\n")
        found = loaded.config.instances if loaded.config is not None else ()
        return (found[0] if found else None), codes(loaded)

    return of


LOCAL = ("virtual_ipaddress {", "fe80::1/64", "2001:db8::1/64", "}")


@pytest.mark.parametrize(
    ("lines", "family", "version"),
    [
        (LOCAL, 6, 3),
        (("version 2", *LOCAL), 6, 2),
        (("native_ipv6", *LOCAL), 6, 3),
        (("unicast_src_ip 2001:db8::8", "unicast_peer {", "2001:db8::9", "}", "check_unicast_src", *LOCAL), 6, 3),
        (("mcast_dst_ip ff02::99", *LOCAL), 6, 3),
        (("virtual_ipaddress {", "10.0.0.1", "}"), 4, 2),
        (("version 3", "virtual_ipaddress {", "10.0.0.1", "}"), 4, 3),
        (("virtual_ipaddress {", "10.0.0.1", "}", "virtual_ipaddress_excluded {", "2001:db8::1/64", "}"), 4, 2),
    ],
)
def test_the_first_address_says_the_family(one, lines, family, version):
    instance, said = one(*lines)
    assert (instance.family, instance.version, said) == (family, version, [])
    assert instance.key == ("eth0", 51 if family == 4 else 51 + 256)


@pytest.mark.parametrize(
    ("lines", "family"),
    [
        (("mcast_src_ip 2001:db8::8", *LOCAL[:1], "10.0.0.1", *LOCAL[1:]), 6),
        (("virtual_ipaddress {", "10.0.0.1", "2001:db8::1", "}"), 4),
        (("virtual_ipaddress {", "10.0.0.1", "}", "mcast_src_ip 2001:db8::8"), 4),
        (("virtual_ipaddress {", "10.0.0.1", "}", "mcast_dst_ip ff02::99"), 4),
    ],
)
def test_an_address_of_the_other_family_is_not_used(one, lines, family):
    instance, said = one(*lines)
    assert said == [("error", "mixed-family")]
    assert {each.family for each in instance.vips} == {family}
    assert instance.source is None or instance.source.version == family
    assert instance.multicast_group is None


@pytest.mark.parametrize(
    ("lines", "before"),
    [
        (("version 2", "native_ipv6", *LOCAL), ""),
        (("version 2", *LOCAL), "global_defs {\nvrrp_strict\n}\n"),
    ],
)
def test_ipv6_that_has_to_be_version_3(one, lines, before):
    instance, said = one(*lines, before=before)
    assert (instance.version, said) == (3, [("warning", "strict-conflict")])


@pytest.mark.parametrize("kind", ["PASS", "AH"])
def test_ipv6_has_no_authentication(one, kind):
    instance, said = one("version 2", "authentication {", f"auth_type {kind}", "auth_pass x", "}", *LOCAL)
    assert (instance.auth_pass, instance.auth_ah, said) == (None, False, [("warning", "unused-authentication")])


def test_ipv6_wants_a_link_local_address_first(one):
    _, said = one("virtual_ipaddress {", "2001:db8::1/64", "fe80::1/64", "}")
    assert said == [("warning", "link-local-first")]
    _, said = one("unicast_src_ip fd00::1", "unicast_peer {", "fd00::2", "}", "virtual_ipaddress {", "fd00::9", "}")
    assert said == [("note", "unchecked-source")]


def test_more_addresses_than_a_frame_has_room_for(one):
    vips = [f"2001:db8::{number:x}/64" for number in range(1, 91)]
    instance, said = one("virtual_ipaddress {", "fe80::1/64", *vips, "}")
    assert said == [("error", "too-many-vips")]
    assert len(instance.vips) == 89
    assert [str(each.address) for each in instance.excluded_vips] == ["2001:db8::59", "2001:db8::5a"]


def test_groups_of_global_defs(one):
    before = "global_defs {\nvrrp_mcast_group4 224.0.0.99\nvrrp_mcast_group6 ff02::99\n}\n"
    instance, _ = one(*LOCAL, before=before)
    assert instance.multicast_group == ip_address("ff02::99")
    instance, _ = one("virtual_ipaddress {", "10.0.0.1", "}", before=before)
    assert instance.multicast_group == ip_address("224.0.0.99")
    _, said = one(*LOCAL, before="global_defs {\nvrrp_mcast_group4 10.0.0.1\nvrrp_mcast_group6 x\n}\n")
    assert said == [("error", "bad-value"), ("error", "bad-value")]


def test_a_group_beyond_the_link_is_not_used(one):
    instance, said = one("mcast_dst_ip ff05::99", *LOCAL)
    assert (instance.multicast_group, said) == (None, [("error", "bad-value")])


def test_one_vrid_of_both_families_on_an_interface(loading):
    text = "vrrp_instance %s {\ninterface eth0\nvirtual_router_id 51\nvirtual_ipaddress {\n%s\n}\n}\n"
    loaded = loading(text % ("A", "10.0.0.1") + text % ("B", "fe80::1"))
    assert [each.family for each in loaded.config.instances] == [4, 6]
    assert loading(text % ("A", "fe80::2") + text % ("B", "fe80::1")).config is None


def test_one_link_local_address_on_two_interfaces(loading, codes):
    text = "vrrp_instance %s {\ninterface %s\nvirtual_router_id 51\nvirtual_ipaddress {\nfe80::1/64\n%s\n}\n}\n"
    loaded = loading(text % ("A", "eth0", "") + text % ("B", "eth1", ""))
    assert (codes(loaded), [len(each.vips) for each in loaded.config.instances]) == ([], [1, 1])
    loaded = loading(text % ("A", "eth0", "fd00::1") + text % ("B", "eth1", "fd00::1"))
    assert codes(loaded) == [("error", "duplicate-vip")]


def test_an_instance_without_any_address_keeps_its_family(loading, one):
    text = "vrrp_instance A {\ninterface eth0\nvirtual_router_id 51\nnative_ipv6\n}\n"
    assert loading(text).config is None
    text = text.replace("native_ipv6", "native_ipv6\nvirtual_ipaddress {\nfe80::1\n}")
    config = loading(text).config
    assert loading(keepalived_conf(config)).config == config


def test_the_same_address_may_be_excluded_once_only(one):
    instance, said = one(
        "virtual_ipaddress {", "10.0.0.1", "}", "virtual_ipaddress_excluded {", "10.0.0.1", "10.0.0.2", "10.0.0.2", "}"
    )
    assert [str(each.address) for each in instance.excluded_vips] == ["10.0.0.2"]
    assert said == [("warning", "duplicate-vip"), ("warning", "duplicate-vip")]
