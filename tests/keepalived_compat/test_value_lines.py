"""Blocks of one entry a line as values."""

from __future__ import annotations

from functools import partial
from ipaddress import ip_address, ip_network

import pytest

from keepalived_compat.diagnostics import Complaints
from keepalived_compat.lexer import Line, words
from keepalived_compat.values_addresses import FOREVER, read_addresses, read_peers
from keepalived_compat.values_groups import GroupMark, GroupRange, read_delays, read_group, read_linkbeat
from keepalived_compat.values_line import name_list
from keepalived_compat.values_routes import NextHop, read_routes
from keepalived_compat.values_rules import read_rules
from keepalived_compat.values_tracking import TrackLine, Weight, read_tracks, read_weight

READERS = {
    "virtual_ipaddress": partial(read_addresses, block="virtual_ipaddress"),
    "unicast_peer": read_peers,
    "virtual_routes": partial(read_routes, block="virtual_routes"),
    "static_routes": partial(read_routes, block="static_routes"),
    "virtual_rules": partial(read_rules, block="virtual_rules"),
    "virtual_server_group": read_group,
    "linkbeat_interfaces": read_linkbeat,
    "interface_up_down_delays": read_delays,
    **{
        name: partial(read_tracks, block=name)
        for name in ("track_interface", "track_script", "track_file", "track_process", "track_bfd")
    },
}


def lines(text):
    return [words(Line(line, "f", number), Complaints()) for number, line in enumerate(text.splitlines(), 1)]


def of(block, text):
    """(values, [(severity, code, column)])."""
    complaints = Complaints()
    found = READERS[block](lines(text), complaints)
    return found, [(each.severity.value, each.code, each.span.column) for each in complaints.all]


def fields(value, *without):
    """What is not at its default, but for the places."""
    defaults = {name: field.default for name, field in type(value).__dataclass_fields__.items()}
    named = {name: getattr(value, name) for name in defaults}
    return {k: v for k, v in named.items() if v != defaults[k] and k not in ("word", *without)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.1", {"prefix_length": 32}),
        ("10.0.0.1/24 dev eth0", {"prefix_length": 24, "device": "eth0"}),
        ("10.0.0.1/24 brd +", {"prefix_length": 24, "broadcast": ip_address("10.0.0.255")}),
        ("10.0.0.1/24 broadcast 10.0.0.9", {"prefix_length": 24, "broadcast": ip_address("10.0.0.9")}),
        ("10.0.0.1/24 scope link label eth0:1", {"prefix_length": 24, "scope": 253, "label": "eth0:1"}),
        ("10.0.0.1 scope 7 no_track", {"prefix_length": 32, "scope": 7, "no_track": True}),
        ("10.0.0.1 peer 10.0.0.2", {"prefix_length": 32, "peer": ip_address("10.0.0.2")}),
        ("10.0.0.1 preferred_lft forever", {"prefix_length": 32, "preferred_lifetime_s": FOREVER}),
        ("2001:db8::1", {"prefix_length": 128}),
        ("2001:db8::1/64 -nodad home", {"prefix_length": 64, "nodad": True, "home": True}),
        ("2001:db8::1/64 preferred_lft 0", {"prefix_length": 64, "preferred_lifetime_s": 0}),
        ("10.0.0.1 track_group g use_vmac", {"prefix_length": 32, "track_group": "g", "use_vmac": True}),
    ],
)
def test_an_address(text, expected):
    (value,), said = of("virtual_ipaddress", text)
    assert said == []
    assert fields(value, "address") == expected
    assert str(value.address) == text.split()[0].split("/")[0]


@pytest.mark.parametrize(
    ("text", "kept", "said"),
    [
        ("VIP", 0, ("error", "bad-value", 1)),
        ("10.0.0.1/33", 1, ("error", "bad-value", 1)),
        ("10.0.0.1 255.255.255.0", 1, ("error", "surplus-words", 10)),
        ("10.0.0.1 10.0.0.2", 1, ("error", "surplus-words", 10)),
        ("10.0.0.1 netmask", 1, ("error", "unknown-keyword", 10)),
        ("10.0.0.1 dev", 0, ("error", "missing-argument", 10)),
        ("10.0.0.1 dev abcdefghijklmnop", 0, ("error", "bad-value", 14)),
        ("10.0.0.1 label eth0:abcdefghijklm", 0, ("error", "bad-value", 16)),
        ("10.0.0.1/31 brd +", 0, ("error", "bad-value", 17)),
        ("10.0.0.1 scope 256", 0, ("error", "bad-value", 16)),
        ("2001:db8::1 brd +", 0, ("error", "bad-value", 13)),
        ("2001:db8::1 label x", 1, ("warning", "useless-option", 13)),
        ("10.0.0.1/24 peer 10.0.0.2", 1, ("warning", "useless-option", 1)),
        ("10.0.0.1 peer 2001:db8::1", 0, ("error", "bad-value", 15)),
        ("10.0.0.1 peer 10.0.0.2/24", 0, ("error", "bad-value", 15)),
        ("10.0.0.1 preferred_lft soon", 0, ("error", "bad-value", 24)),
    ],
)
def test_an_address_that_is_not_as_it_should_be(text, kept, said):
    found, complaints = of("virtual_ipaddress", text)
    assert (len(found), complaints) == (kept, [said])


def test_peers():
    found, said = of("unicast_peer", "10.0.0.2\n10.0.0.3 min_ttl 250 max_ttl 255\n2001:db8::2")
    assert said == []
    assert [(str(each.address), each.min_ttl, each.max_ttl) for each in found] == [
        ("10.0.0.2", None, None),
        ("10.0.0.3", 250, 255),
        ("2001:db8::2", None, None),
    ]


@pytest.mark.parametrize(
    ("text", "kept", "said"),
    [
        ("peer1", 0, ("error", "bad-value", 1)),
        ("10.0.0.2 10.0.0.3", 1, ("error", "surplus-words", 10)),
        ("10.0.0.2 min_ttl 256", 0, ("error", "bad-value", 18)),
        ("10.0.0.2 min_ttl", 0, ("error", "missing-argument", 10)),
        ("10.0.0.2 min_ttl 9 max_ttl 8", 0, ("error", "bad-value", 1)),
    ],
)
def test_a_peer_that_is_not_as_it_should_be(text, kept, said):
    found, complaints = of("unicast_peer", text)
    assert (len(found), complaints) == (kept, [said])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("192.0.2.0/24 dev eth0", {"device": "eth0"}),
        ("to 192.0.2.0/24 via 10.0.0.9 dev eth0", {"device": "eth0", "via": ip_address("10.0.0.9")}),
        ("blackhole 192.0.2.0/24", {"kind": "blackhole"}),
        ("192.0.2.1 dev eth0 metric 5 src 10.0.0.1", {"device": "eth0", "metric": 5, "source": ip_address("10.0.0.1")}),
        ("default via 10.0.0.9 dev eth0 onlink", {"device": "eth0", "via": ip_address("10.0.0.9"), "onlink": True}),
        ("192.0.2.0/24 dev eth0 mtu lock 1400", {"device": "eth0", "mtu_locked": True, "numbers": (("mtu", 1400),)}),
        ("192.0.2.0/24 dev eth0 tos 8 table main", {"device": "eth0", "texts": (("tos", "8"), ("table", "main"))}),
        ("192.0.2.0/24 dev eth0 encap mpls 17", {"device": "eth0", "encap": ("mpls", "17")}),
        ("192.0.2.0/24 dev eth0 encap ip id 1 dst 9.9.9.9 no_track", {
            "device": "eth0", "encap": ("ip", "id", "1", "dst", "9.9.9.9"), "no_track": True,
        }),
        ("2001:db8::/64 via inet6 fe80::1 dev eth0", {"device": "eth0", "via": ip_address("fe80::1")}),
        ("192.0.2.0/24 via inet6 fe80::1 dev eth0", {"device": "eth0", "via": ip_address("fe80::1")}),
        ("192.0.2.0/24 nexthop via 10.0.0.8 dev eth0 weight 2 nexthop via 10.0.0.9 dev eth1", {"nexthops": (
            NextHop(via=ip_address("10.0.0.8"), device="eth0", weight=2),
            NextHop(via=ip_address("10.0.0.9"), device="eth1"),
        )}),
    ],
)  # fmt: skip
def test_a_route(text, expected):
    (value,), said = of("virtual_routes", text)
    assert said == []
    assert fields(value, "destination") == expected


@pytest.mark.parametrize(
    ("text", "destination"),
    [
        ("default dev eth0", "0.0.0.0/0"),
        ("inet6 default dev eth0", "::/0"),
        ("default via 2001:db8::9 dev eth0", "::/0"),
        ("192.0.2.7/24 dev eth0", "192.0.2.0/24"),
    ],
)
def test_the_destination_of_a_route(text, destination):
    (value,), said = of("virtual_routes", text)
    assert (value.destination, said) == (ip_network(destination), [])


@pytest.mark.parametrize(
    ("text", "kept", "said"),
    [
        ("192.0.2.0/24 via 10.0.0.9", 1, ("warning", "untracked-route", 1)),
        ("192.0.2.0/24 gw 10.0.0.9 dev eth0", 1, ("warning", "old-spelling", 14)),
        ("192.0.2.0/24 dev eth0 or 10.0.0.9", 1, ("warning", "old-spelling", 23)),
        ("default6 dev eth0", 1, ("warning", "old-spelling", 1)),
        ("dev eth0", 0, ("error", "bad-value", 1)),
        ("nowhere dev eth0", 0, ("error", "bad-value", 1)),
        ("192.0.2.0/24 dev eth0 metrik 5", 0, ("error", "unknown-keyword", 23)),
        ("192.0.2.0/24 dev eth0 metric x", 0, ("error", "bad-value", 30)),
        ("192.0.2.0/24 dev eth0 pref big", 0, ("error", "bad-value", 28)),
        ("192.0.2.0/24 via 2001:db8::1 dev eth0", 0, ("error", "bad-value", 18)),
        ("192.0.2.0/24 nexthop", 0, ("error", "bad-value", 14)),
        ("192.0.2.0/24 dev eth0 encap gre", 0, ("error", "bad-value", 29)),
    ],
)
def test_a_route_that_is_not_as_it_should_be(text, kept, said):
    found, complaints = of("virtual_routes", text)
    assert (len(found), complaints) == (kept, [said])


def test_a_static_route_is_not_tracked():
    assert of("static_routes", "192.0.2.0/24 via 10.0.0.9")[1] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from 192.0.2.0/24 table 7 preference 100", {
            "action": "table", "table": "7", "preference": 100, "from_prefix": ip_network("192.0.2.0/24"), "family": 4,
        }),
        ("not to 2001:db8::/32 lookup main priority 5", {
            "action": "table", "table": "main", "preference": 5, "to_prefix": ip_network("2001:db8::/32"),
            "family": 6, "negated": True,
        }),
        ("fwmark 0x10/0xff goto 300 order 1", {
            "action": "goto", "goto": 300, "preference": 1, "fwmark": 16, "fwmask": 255, "family": 4,
        }),
        ("iif eth0 oif eth1 blackhole preference 1", {
            "action": "blackhole", "preference": 1, "iif": "eth0", "oif": "eth1", "family": 4,
        }),
        ("from all sport 80 dport 1-9 uidrange 5-6 ipproto tcp table 1 preference 1", {
            "action": "table", "table": "1", "preference": 1, "sport": (80, 80), "dport": (1, 9), "uid_range": (5, 6),
            "ipproto": "tcp", "family": 4,
        }),
        ("l3mdev preference 1000", {"action": "table", "l3mdev": True, "preference": 1000, "family": 4}),
        ("inet6 sup_pl 0 table main preference 1", {
            "action": "table", "table": "main", "suppress_prefixlength": 0, "preference": 1, "family": 6,
        }),
    ],
)  # fmt: skip
def test_a_rule(text, expected):
    (value,), said = of("virtual_rules", text)
    assert said == []
    assert fields(value) == expected


@pytest.mark.parametrize(
    ("text", "kept", "said"),
    [
        ("from 192.0.2.0/24 table 7", 1, ("warning", "no-preference", 1)),
        ("from 192.0.2.0/24 preference 1", 0, ("error", "bad-value", 1)),
        ("from 192.168.100./24 table 7", 0, ("error", "bad-value", 6)),
        ("from 192.0.2.0/24 to 2001:db8::/32 table 7", 0, ("error", "bad-value", 22)),
        ("table 7 goto 5 preference 1", 0, ("error", "bad-value", 9)),
        ("tabel 7 preference 1", 0, ("error", "unknown-keyword", 1)),
        ("fwmark x table 1 preference 1", 0, ("error", "bad-value", 8)),
        ("uidrange 5 table 1 preference 1", 0, ("error", "bad-value", 10)),
        ("dport 9-1 table 1 preference 1", 0, ("error", "bad-value", 7)),
        ("type x preference 1", 0, ("error", "bad-value", 6)),
        ("from", 0, ("error", "missing-argument", 1)),
    ],
)
def test_a_rule_that_is_not_as_it_should_be(text, kept, said):
    found, complaints = of("virtual_rules", text)
    assert (len(found), complaints) == (kept, [said])


@pytest.mark.parametrize(
    ("text", "first", "last", "port"),
    [
        ("10.0.0.1 80", "10.0.0.1", "10.0.0.1", 80),
        ("10.0.0.1-9 80", "10.0.0.1", "10.0.0.9", 80),
        ("10.0.0.1-10.0.1.9", "10.0.0.1", "10.0.1.9", None),
        ("10.0.0.0/30 80", "10.0.0.0", "10.0.0.3", 80),
        ("2001:db8::1-ff 80", "2001:db8::1", "2001:db8::ff", 80),
        ("10.0.0.1 0", "10.0.0.1", "10.0.0.1", None),
    ],
)
def test_a_range_of_a_group(text, first, last, port):
    (value,), said = of("virtual_server_group", text)
    assert said == []
    assert isinstance(value, GroupRange)
    assert (str(value.first), str(value.last), value.port) == (first, last, port)


def test_a_mark_of_a_group():
    found, said = of("virtual_server_group", "fwmark 7\nfwmark 8 inet6")
    assert said == []
    assert [(each.fwmark, each.family) for each in found if isinstance(each, GroupMark)] == [(7, 0), (8, 6)]


@pytest.mark.parametrize(
    ("text", "kept", "said"),
    [
        ("10.0.0.1-256 80", 0, ("error", "bad-value", 1)),
        ("10.0.0.9-1 80", 0, ("error", "bad-value", 1)),
        ("10.0.0.1/24 80", 0, ("error", "bad-value", 1)),
        ("10.0.0.1-2001:db8::1 80", 0, ("error", "bad-value", 1)),
        ("10.0.0.1 http", 0, ("error", "bad-value", 10)),
        ("10.0.0.1 80 81", 1, ("warning", "surplus-words", 13)),
        ("fwmark x", 0, ("error", "bad-value", 8)),
        ("fwmark", 0, ("error", "missing-argument", 1)),
    ],
)
def test_an_entry_of_a_group_that_is_not_as_it_should_be(text, kept, said):
    found, complaints = of("virtual_server_group", text)
    assert (len(found), complaints) == (kept, [said])


@pytest.mark.parametrize("block", ["track_interface", "track_script", "track_file", "track_process", "track_bfd"])
def test_tracks(block):
    found, said = of(block, "a\nb weight -5\nc weight 253 reverse")
    assert said == []
    assert [(each.name, each.weight) for each in found] == [
        ("a", None),
        ("b", Weight(value=-5)),
        ("c", Weight(value=253, reverse=True)),
    ]


@pytest.mark.parametrize(
    ("block", "text", "kept", "said"),
    [
        ("track_script", "a wieght 5", 0, ("error", "unknown-keyword", 3)),
        ("track_script", "a weight", 0, ("error", "missing-argument", 3)),
        ("track_script", "a weight 254", 0, ("error", "bad-value", 10)),
        ("track_file", "a weight 254", 1, None),
        ("track_file", "a weight 255", 0, ("error", "bad-value", 10)),
        ("track_interface", "a weight -254", 1, ("warning", "inexact-value", 10)),
        ("track_script", "a weight 5 revers", 1, ("error", "unknown-keyword", 12)),
        ("track_script", "a\na weight 5", 1, ("warning", "given-twice", 1)),
    ],
)
def test_a_track_that_is_not_as_it_should_be(block, text, kept, said):
    found, complaints = of(block, text)
    assert (len(found), complaints) == (kept, [said] if said else [])


def test_a_track_keeps_its_place():
    (value,), _ = of("track_bfd", "  b")
    assert isinstance(value, TrackLine)
    assert value.word.span == ("f", 1, 3, 4)


def test_a_weight_of_a_script():
    (line,) = lines("weight 20 reverse")
    assert read_weight(line[1:], Complaints(), block="vrrp_script", limit=253) == Weight(value=20, reverse=True)


def test_delays_and_linkbeats():
    delays, said = of("interface_up_down_delays", "eth0 1.5\neth1 1 2")
    assert ([(each.down_us, each.up_us) for each in delays], said) == ([(1_500_000, 0), (1_000_000, 2_000_000)], [])
    assert of("interface_up_down_delays", "eth0\neth1 x")[1] == [
        ("error", "missing-argument", 1),
        ("error", "bad-value", 6),
    ]
    beats, said = of("linkbeat_interfaces", "eth0\neth1 MII\neth2 PING")
    assert ([each.method for each in beats], said) == (["", "MII", ""], [("error", "bad-value", 6)])


def test_names():
    assert [each.text for each in name_list(lines("a b\nc"))] == ["a", "b", "c"]
