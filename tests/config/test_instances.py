from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from haxlb.model.commands import Command
from haxlb.model.instance import GarpConfig, Role
from haxlb.model.notification import NotifyScripts
from haxlb.model.tracking import Track, TrackKind

S = 1_000_000
UNICAST = ("unicast_src_ip 10.0.0.1", "unicast_peer {", "10.0.0.2", "}")


@pytest.mark.parametrize(
    ("lines", "expected", "said"),
    [
        ((), {"priority": 100, "initial_role": Role.BACKUP, "version": 2, "advert_interval_us": S}, []),
        (("state MASTER", "priority 150"), {"priority": 150, "initial_role": Role.MASTER}, []),
        (("state SLAVE",), {"initial_role": Role.BACKUP}, [("warning", "old-spelling")]),
        (("state Backup",), {"initial_role": Role.BACKUP}, [("warning", "inexact-value")]),
        (("state PRIMARY",), {"initial_role": Role.BACKUP}, [("error", "bad-value")]),
        (("state MASTER",), {"priority": 255, "initial_role": Role.MASTER}, [("warning", "owner-by-default")]),
        (("state MASTER", "priority 256"), {"priority": 100}, [("error", "bad-value")]),
        (("priority 255",), {"initial_role": Role.MASTER}, []),
        (("nopreempt",), {"nopreempt": True}, []),
        (("nopreempt", "preempt"), {"nopreempt": False}, []),
        (
            ("state MASTER", "priority 9", "nopreempt"),
            {"nopreempt": False},
            [("warning", "useless-nopreempt")],
        ),
        (("preempt_delay 2.5",), {"preempt_delay_us": 2_500_000}, []),
        (("nopreempt", "preempt_delay 5"), {"preempt_delay_us": 0}, [("warning", "useless-preempt-delay")]),
        (("advert_int 3",), {"advert_interval_us": 3 * S}, []),
        (("advert_int 0.5",), {"advert_interval_us": S}, [("warning", "rounded-interval")]),
        (("advert_int 1.5",), {"advert_interval_us": 2 * S}, [("warning", "rounded-interval")]),
        (("advert_int 0.2",), {"advert_interval_us": S}, [("warning", "rounded-interval")]),
        (("version 3", "advert_int 0.25"), {"advert_interval_us": 250_000, "version": 3}, []),
        (("version 3", "advert_int 0.123"), {"advert_interval_us": 120_000}, [("warning", "rounded-interval")]),
        (("version 3", "advert_int 50"), {"advert_interval_us": 40_950_000}, [("warning", "rounded-interval")]),
        (("unicast_src_ip 10.0.0.1",), {"source": IPv4Address("10.0.0.1")}, [("warning", "no-peers")]),
        (("mcast_src_ip 10.0.0.1",), {"source": IPv4Address("10.0.0.1"), "peers": ()}, []),
        (
            ("unicast_src_ip 10.0.0.1", "unicast_peer {", "10.0.0.2", "10.0.0.3", "10.0.0.2", "}"),
            {"peers": (IPv4Address("10.0.0.2"), IPv4Address("10.0.0.3"))},
            [("warning", "given-twice")],
        ),
        (
            ("unicast_src_ip 10.0.0.1", "unicast_peer {", "10.0.0.1", "10.0.0.2", "}"),
            {"peers": (IPv4Address("10.0.0.2"),)},
            [("warning", "self-peer")],
        ),
        (("unicast_peer {", "10.0.0.2 min_ttl 255", "}"), {"check_unicast_src": True}, []),
        (("unicast_peer {", "peer-b", "}"), {"peers": ()}, [("error", "bad-value")]),
        (
            ("unicast_src_ip 10.0.0.1", "unicast_peer {", "2001:db8::1", "10.0.0.2", "}"),
            {"peers": (IPv4Address("10.0.0.2"),)},
            [("error", "mixed-family")],
        ),
        (("track_interface {", "eth0", "}"), {"tracks": ()}, [("warning", "useless-option")]),
        (
            ("track_interface {", "eth1 weight -5", "}"),
            {"tracks": (Track(kind=TrackKind.INTERFACE, name="eth1", weight=-5),)},
            [],
        ),
        (("down_timer_adverts 5",), {"down_timer_adverts": 5}, []),
        (("mcast_dst_ip 224.0.0.99",), {"multicast_group": IPv4Address("224.0.0.99")}, []),
        (("mcast_dst_ip 224.0.0.18",), {"multicast_group": None}, []),
        (("mcast_dst_ip 10.0.0.1",), {"multicast_group": None}, [("error", "bad-value")]),
        (
            ("mcast_dst_ip 224.0.0.99", *UNICAST),
            {"multicast_group": None},
            [("warning", "useless-option")],
        ),
        (("unicast_ttl 3", *UNICAST), {"unicast_ttl": 3}, []),
        (("unicast_ttl 0", *UNICAST), {"unicast_ttl": 255}, [("warning", "inexact-value")]),
        (("unicast_ttl 3",), {"unicast_ttl": 255}, [("warning", "useless-option")]),
        (("check_unicast_src", *UNICAST), {"check_unicast_src": True}, []),
        (("check_unicast_src",), {"check_unicast_src": False}, [("warning", "useless-option")]),
        (("unicast_fault_no_peer", "unicast_src_ip 10.0.0.1"), {"unicast_fault_no_peer": True}, []),
        (("old_unicast_checksum", *UNICAST), {"old_unicast_checksum": "always"}, []),
        (("old_unicast_checksum never", *UNICAST), {"old_unicast_checksum": "never"}, []),
        (("old_unicast_checksum maybe", *UNICAST), {"old_unicast_checksum": "auto"}, [("error", "bad-value")]),
        (("v3_checksum_as_v2",), {"checksum_as_v2": True}, []),
        (("track_src_ip", "mcast_src_ip 10.0.0.1"), {"track_source": True}, []),
        (("track_src_ip",), {"track_source": False}, [("warning", "useless-option")]),
        (("vrf red",), {"vrf": "", "interface": "eth0"}, [("warning", "useless-option")]),
        (("dont_track_primary",), {"track_primary": False}, []),
        (("promote_secondaries",), {"promote_secondaries": True}, []),
        (
            ("promote_secondaries", "use_vmac"),
            {"promote_secondaries": False},
            [("warning", "useless-option")],
        ),
        (("no_accept",), {"accept": False}, []),
        (("no_accept", "accept"), {"accept": True}, []),
        (("lower_prio_no_advert",), {"lower_prio_no_advert": True}, []),
        (("higher_prio_send_advert true",), {"higher_prio_send_advert": True}, []),
        (("owner_ignore_adverts", "priority 255"), {"owner_ignore_adverts": True}, []),
        (("owner_ignore_adverts",), {"owner_ignore_adverts": False}, [("warning", "useless-option")]),
        (("notify_priority_changes",), {"notify_priority_changes": True}, []),
        (
            ("garp_extra_if all 30",),
            {"garp": GarpConfig(extra_if_us=30 * S, extra_if_all=True)},
            [],
        ),
        (("vmac_garp_intvl 5",), {"garp": GarpConfig(extra_if_us=5 * S)}, [("warning", "old-spelling")]),
        (("garp_extra_if soon",), {"garp": GarpConfig()}, [("error", "bad-value")]),
        (("garp_extra_if all",), {"garp": GarpConfig()}, [("error", "bad-value")]),
        (
            ("notify_deleted", 'notify_master "/x y" web www', "notify_master_rx_lower_pri /z"),
            {
                "notify": NotifyScripts(
                    tells_deleted=True,
                    master=Command(argv=("/x", "y"), user="web", group="www"),
                    master_rx_lower_pri=Command(argv=("/z",)),
                )
            },
            [],
        ),
        (("garp_master_repeat 0",), {"garp": GarpConfig(master_repeat=1)}, [("warning", "inexact-value")]),
        (
            ("garp_master_delay 1", "garp_lower_prio_repeat 0", "garp_master_refresh 30"),
            {"garp": GarpConfig(master_delay_us=S, lower_prio_repeat=0, master_refresh_us=30 * S)},
            [],
        ),
    ],
)
def test_one_instance(instance, lines, expected, said):
    made, complaints = instance(*lines)
    complaints = [
        each for each in complaints if each != ("note", "unchecked-source")
    ]  # of unicast, see test_crosscheck
    assert made is not None
    assert {name: getattr(made, name) for name in expected} == expected
    assert complaints == said


@pytest.mark.parametrize(
    ("lines", "password", "said"),
    [
        (("auth_type PASS", "auth_pass 1111"), "1111", []),
        (("auth_type PASS", "auth_pass 123456789"), "12345678", [("warning", "truncated-password")]),
        (("auth_type PASS", 'auth_pass "a#b c"'), "a#b c", []),
        (("auth_type PASS",), None, [("warning", "unused-authentication")]),
        (("auth_pass 1111",), None, [("warning", "unused-authentication")]),
        (("auth_type pass", "auth_pass 1111"), None, [("error", "bad-value")]),
    ],
)
def test_passwords(instance, lines, password, said):
    made, complaints = instance("authentication {", *lines, "}")
    assert made is not None
    assert made.auth_pass == password
    assert complaints == said


def test_a_password_is_cut_to_eight_bytes_not_characters(instance):
    made, _ = instance("authentication {", "auth_type PASS", "auth_pass äääääääää", "}")
    assert made.auth_pass == "ääää"


def test_version_3_has_no_authentication(instance):
    made, said = instance("version 3", "authentication {", "auth_type PASS", "auth_pass x", "}")
    assert (made.version, made.auth_pass, said) == (3, None, [("warning", "unused-authentication")])


def test_an_authentication_header(instance):
    lines = ("authentication {", "auth_type AH", "auth_pass x", "}")
    made, said = instance(*lines)
    assert (made.auth_ah, made.auth_pass, said) == (True, "x", [])
    made, said = instance("version 3", *lines)
    assert (made.auth_ah, made.auth_pass, said) == (False, None, [("warning", "unused-authentication")])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("interface eth0\nvirtual_ipaddress {\n10.0.0.1\n}", [("fatal", "missing-keyword")]),
        ("virtual_router_id 1\nvirtual_ipaddress {\n10.0.0.1\n}", [("fatal", "missing-keyword")]),
        ("interface eth0\nvirtual_router_id 0\nvirtual_ipaddress {\n10.0.0.1\n}", [("fatal", "bad-value")]),
        ("interface\nvirtual_router_id 1\nvirtual_ipaddress {\n10.0.0.1\n}", [("fatal", "missing-argument")]),
        (
            "interface a-very-long-name\nvirtual_router_id 1\nvirtual_ipaddress {\n10.0.0.1\n}",
            [("fatal", "bad-value")],
        ),
        ("interface eth0\nvirtual_router_id 1", [("warning", "no-vip")]),
        (
            "vrf red\nvirtual_router_id 1\nvirtual_ipaddress {\n10.0.0.1\n}",
            [("fatal", "missing-keyword"), ("warning", "useless-option")],
        ),
        (
            "vrf a-very-long-name\nvirtual_router_id 1\nunicast_fault_no_peer\nvirtual_ipaddress {\n10.0.0.1\n}",
            [("fatal", "bad-value")],
        ),
        ("interface eth0\nvirtual_router_id 1\nversion 3", [("fatal", "no-vip")]),
        (
            "auth_hmac {\n}\ninterface eth0\nvirtual_router_id 1",
            [("warning", "no-vip"), ("fatal", "refused")],
        ),
    ],
)
def test_what_every_instance_needs(loading, codes, text, said):
    assert codes(loading(f"vrrp_instance A {{\n{text}\n}}\n")) == said


def test_a_vrf_in_the_place_of_an_interface(loading, codes):
    lines = "virtual_router_id 1\nunicast_src_ip 10.0.0.8\nunicast_peer {\n10.0.0.9\n}"
    loaded = loading(
        f"vrrp_instance A {{\nvrf red\n{lines}\nvirtual_ipaddress {{\n10.0.0.1\n10.0.0.2 dev eth1\n}}\n}}\n"
    )
    (made,) = loaded.config.instances
    assert (made.vrf, made.interface) == ("red", "red")
    assert [vip.interface for vip in made.vips] == ["red", "eth1"]
    assert codes(loaded) == [("note", "unchecked-source")]


def test_more_addresses_than_an_advert_can_carry(instance):
    made, said = instance(vips="\n".join(f"10.0.{number // 256}.{number % 256}" for number in range(256)))
    assert said == [("error", "too-many-vips")]
    assert len(made.vips) == 255
    assert [str(each.address) for each in made.excluded_vips] == ["10.0.0.254", "10.0.0.255"]


@pytest.mark.parametrize(
    ("line", "expected", "said"),
    [
        ("10.0.0.9", {"prefix_length": 32, "interface": "eth0", "label": None, "scope": 0}, []),
        ("10.0.0.9/24 dev eth1 label eth1:1", {"prefix_length": 24, "interface": "eth1", "label": "eth1:1"}, []),
        ("10.0.0.9/24 brd + scope link", {"broadcast": IPv4Address("10.0.0.255"), "scope": 253}, []),
        ("10.0.0.9/24 brd 10.0.0.7 scope 200", {"broadcast": IPv4Address("10.0.0.7"), "scope": 200}, []),
        ("10.0.0.9/33", {"prefix_length": 32}, [("error", "bad-value")]),
        ("10.0.0.9 255.255.255.0", {"prefix_length": 32}, [("error", "surplus-words")]),
        ("10.0.0.9 netmask 24", {"prefix_length": 32}, [("error", "unknown-keyword"), ("error", "unknown-keyword")]),
        ("10.0.0.9 noprefixroute -nodad", {"flags": ("-nodad", "noprefixroute")}, []),
        ("10.0.0.9 peer 10.0.0.8", {"peer": IPv4Address("10.0.0.8")}, []),
        ("10.0.0.9 preferred_lft 7", {"preferred_lifetime_s": 7}, []),
    ],
)
def test_a_line_of_virtual_ipaddress(instance, line, expected, said):
    made, complaints = instance(vips=line)
    vip = made.vips[1]
    assert vip.address == IPv4Address("10.0.0.9")
    assert {name: getattr(vip, name) for name in expected} == expected
    assert complaints == said


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("VIP", ("error", "bad-value")),
        ("10.0.0.9 dev", ("error", "missing-argument")),
        ("2001:db8::1/64", ("error", "mixed-family")),
        ("10.0.0.9/32 brd +", ("error", "bad-value")),
        ("10.0.0.9 scope nowhre", ("error", "bad-value")),
        ("10.0.0.9 label a-label-that-is-long", ("error", "bad-value")),
        ("10.0.0.9 peer 2001:db8::1", ("error", "bad-value")),
        ("192.168.10.100/32", ("warning", "duplicate-vip")),
    ],
)
def test_a_line_that_is_not_used(instance, line, said):
    made, complaints = instance(vips=line)
    assert [str(each) for each in made.vips] == ["192.168.10.100/24"]
    assert complaints == [said]


@pytest.mark.parametrize(
    ("defs", "garp"),
    [
        (
            "vrrp_garp_master_delay 7\nvrrp_garp_master_repeat 2",
            GarpConfig(master_repeat=2, master_delay_us=7 * S, lower_prio_repeat=2, lower_prio_delay_us=7 * S),
        ),
        ("vrrp_garp_interval 0.001\nvrrp_garp_interval 0", GarpConfig()),
        ("vrrp_garp_interval 0.001", GarpConfig(interval_us=1000)),
        (
            "vrrp_min_garp",
            GarpConfig(master_repeat=1, master_delay_us=0, lower_prio_repeat=1, lower_prio_delay_us=0),
        ),
        ("vrrp_min_garp false", GarpConfig()),
    ],
)
def test_defaults_of_global_defs(instance, defs, garp):
    made, _ = instance(before=f"global_defs {{\n{defs}\n}}\n")
    assert made.garp == garp


def test_the_version_of_global_defs(instance):
    assert instance(before="global_defs {\nvrrp_version 3\n}\n")[0].version == 3
    assert instance("version 2", before="global_defs {\nvrrp_version 3\n}\n")[0].version == 2


def test_version_3_needs_an_address_that_can_be_used(loading):
    text = "vrrp_instance A {\ninterface eth0\nvirtual_router_id 1\nversion %d\nvirtual_ipaddress {\nx\n}\n}\n"
    assert loading(text % 3).config is None
    assert loading(text % 2).config.instances[0].vips == ()
