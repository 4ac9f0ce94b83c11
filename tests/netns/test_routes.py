from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from haxlb.linux.routing import Routing
from haxlb.model.errors import HostError
from haxlb.model.routes import NextHop, Route, Rule
from tests.netns.kernel import Namespace, namespace

pytestmark = pytest.mark.netns

PLAIN = Route(destination="192.0.2.0/24", via="10.0.0.9")


@pytest.fixture(scope="module")
def host() -> Iterator[Namespace]:
    with namespace("rts") as made:
        for number in (0, 1):
            # A test takes an interface down: what others need on it stays.
            made.run("sysctl", "-qw", f"net.ipv6.conf.eth{number}.keep_addr_on_down=1")
            made.run("ip", "address", "add", f"2001:db8:{number}::1/64", "dev", f"eth{number}", "nodad")
        yield made


@pytest.fixture
def routing(host: Namespace) -> Iterator[Routing]:
    made = Routing(host.netlink, host.links("eth0", "eth1", "absent0").index)
    yield made
    held = made.held
    made.remove([each for each in held if isinstance(each, Route)], [each for each in held if isinstance(each, Rule)])
    for family in ("-4", "-6"):
        assert host.json(family, "route", "show", "table", "all", "protocol", "18") == []
        assert [each for each in host.json(family, "rule") if each.get("protocol") not in ("kernel", None)] == []


def shown(host: Namespace, destination: str, *where: str) -> dict[str, Any]:
    family = "-6" if ":" in destination else "-4"
    (found,) = host.json(family, "route", "show", destination, *where)
    return dict(found)


@pytest.mark.parametrize(
    ("route", "expected"),
    [
        (PLAIN, {"gateway": "10.0.0.9", "dev": "eth0", "protocol": "keepalived", "scope": "global"}),
        (Route(destination="192.0.2.0/24", device="eth1"), {"dev": "eth1", "scope": "link"}),
        (Route(destination="0.0.0.0/0", via="10.1.0.9", metric=50), {"dst": "default", "metric": 50, "dev": "eth1"}),
        (replace(PLAIN, source="10.0.0.1", device="eth0"), {"prefsrc": "10.0.0.1"}),
        (replace(PLAIN, kind="blackhole", via=""), {"type": "blackhole"}),
        (replace(PLAIN, kind="unreachable", via=""), {"type": "unreachable"}),
        (replace(PLAIN, kind="prohibit", via=""), {"type": "prohibit"}),
        (replace(PLAIN, kind="throw", via=""), {"type": "throw"}),
        (replace(PLAIN, via="172.31.0.1", device="eth0", onlink=True), {"flags": ["onlink"]}),
        (replace(PLAIN, via="2001:db8:0::9", device="eth0"), {"via": {"family": "inet6", "host": "2001:db8::9"}}),
        (replace(PLAIN, texts=(("tos", "0x10"),)), {"tos": "0x10"}),
        (replace(PLAIN, texts=(("protocol", "static"),)), {"protocol": "static"}),
        (replace(PLAIN, texts=(("scope", "site"),)), {"scope": "site"}),
        (replace(PLAIN, numbers=(("mtu", 1300),), mtu_locked=True), {"metrics": [{"mtu": 1300}]}),
        (
            replace(PLAIN, numbers=(("advmss", 1200), ("window", 9000), ("initcwnd", 20), ("quickack", 1))),
            {"metrics": [{"window": 9000, "advmss": 1200, "initcwnd": 20, "quickack": 1}]},
        ),
        (
            replace(PLAIN, numbers=(("hoplimit", 9), ("fastopen_no_cookie", 1))),
            {"metrics": [{"hoplimit": 9, "fastopen_no_cookie": 1}]},
        ),
        (
            replace(PLAIN, texts=(("rtt", "20ms"), ("rttvar", "0.5s"), ("rto_min", "300ms"), ("features", "ecn"))),
            {"metrics": [{"rtt": 20, "rttvar": 500, "ecn": None, "rto_min": 300}]},
        ),
        (replace(PLAIN, texts=(("congctl", "reno"),)), {"metrics": [{"congestion": "reno"}]}),
        (
            replace(
                PLAIN,
                via="",
                nexthops=(NextHop(via="10.0.0.9", weight=3), NextHop(via="10.1.0.9", device="eth1", weight=1)),
            ),
            {"nexthops": [("10.0.0.9", "eth0", 3), ("10.1.0.9", "eth1", 1)]},
        ),
        (
            replace(PLAIN, via="", device="eth0", encap=("ip", "id", "7", "dst", "10.0.0.9", "ttl", "9")),
            {"encap": "ip", "id": 7, "dst": "10.0.0.9", "ttl": 9},
        ),
        (Route(destination="2001:db8:9::/48", via="2001:db8::9", metric=77), {"gateway": "2001:db8::9", "metric": 77}),
        (Route(destination="::/0", via="fe80::9", device="eth1", texts=(("pref", "high"),)), {"pref": "high"}),
        (Route(destination="2001:db8:9::/48", via="2001:db8::9", numbers=(("expires", 600),)), {"expires": 600}),
        (Route(destination="2001:db8:9::/48", kind="blackhole"), {"type": "blackhole"}),
        (
            Route(
                destination="2001:db8:9::/48",
                nexthops=(NextHop(via="2001:db8::9"), NextHop(via="2001:db8:1::9", weight=2)),
            ),
            {"nexthops": [("2001:db8::9", "eth0", 1), ("2001:db8:1::9", "eth1", 2)]},
        ),
        (
            Route(destination="2001:db8:9::/48", device="eth0", encap=("ip6", "dst", "2001:db8::9", "hoplimit", "9")),
            {"encap": "ip6", "hoplimit": 9},
        ),
    ],
    ids=lambda each: None if isinstance(each, Route) else "-".join(each),
)
def test_a_route_has_what_its_line_says(
    host: Namespace, routing: Routing, route: Route, expected: dict[str, Any]
) -> None:
    began = time.monotonic()
    routing.add([route], [])
    destination = {"0.0.0.0/0": "default", "::/0": "default"}.get(route.destination, route.destination)
    found = shown(host, destination) if ":" not in route.destination else _six(host, destination)
    for name, value in expected.items():
        if name == "nexthops":
            assert [(hop["gateway"], hop["dev"], hop["weight"]) for hop in found["nexthops"]] == value
        elif name == "expires":
            assert value - (time.monotonic() - began) - 2 < found["expires"] <= value, "whole seconds"
        elif name == "scope":
            assert found.get("scope", "global") == value
        elif name == "type":
            assert found.get("type", "unicast") == value
        else:
            assert found.get(name) == value, found
    routing.remove([route], [])
    remaining = host.json("-6" if ":" in route.destination else "-4", "route", "show", "proto", "keepalived")
    assert remaining == []


def _six(host: Namespace, destination: str) -> dict[str, Any]:
    (found,) = host.json("-6", "route", "show", destination)
    return dict(found)


def test_a_table_by_number_and_by_name(host: Namespace, routing: Routing) -> None:
    routes = [replace(PLAIN, texts=(("table", text),)) for text in ("100", "70000", "main")]
    routing.add(routes, [])
    for table in ("100", "70000", "main"):
        assert shown(host, "192.0.2.0/24", "table", table)["gateway"] == "10.0.0.9"
    routing.remove(routes, [])
    for table in ("100", "70000", "main"):
        assert host.json("route", "show", "192.0.2.0/24", "table", table) == []


@pytest.mark.parametrize(
    ("route", "complaint"),
    [
        (replace(PLAIN, device="absent0"), "there is no interface absent0"),
        (replace(PLAIN, texts=(("table", "nonsense"),)), "table: `nonsense` is not in /etc/iproute2/rt_tables"),
        (replace(PLAIN, texts=(("tos", "256"),)), "tos: 256 is out of range"),
        (replace(PLAIN, texts=(("realms", "a/b/c"),)), "realms: `a` is not in"),
        (replace(PLAIN, texts=(("vrf", "red"),)), "option vrf is not supported"),
        (replace(PLAIN, texts=(("rtt", "soon"),)), "rtt soon is no time"),
        (replace(PLAIN, texts=(("rto_min", "1e99s"),)), "rto_min 1e99s is no time"),
        (replace(PLAIN, numbers=(("bogus", 1),)), "option bogus is not supported"),
        (replace(PLAIN, kind="anycast"), "type anycast is not known"),
        (replace(PLAIN, encap=("ip", "dst", "nowhere")), "encap ip dst nowhere cannot be understood"),
        (replace(PLAIN, encap=("ip", "ttl", "999")), "encap ip ttl 999 cannot be understood"),
        (replace(PLAIN, encap=("mpls", "x")), "encap mpls x cannot be understood"),
        (replace(PLAIN, encap=("mpls", "16/17"), device="eth0"), "encap mpls|MPLS"),
        (replace(PLAIN, encap=("ila", "1:2:3:4"), device="eth0"), "encap ila"),
        (replace(PLAIN, via="nowhere"), "it cannot be understood: 'nowhere' does not appear to be"),
        (replace(PLAIN, metric=2**32), "it cannot be understood"),
        (replace(PLAIN, numbers=(("mtu", -1),)), "it cannot be understood"),
        (replace(PLAIN, texts=(("pref", "sometimes"),)), "it cannot be understood: 'sometimes'"),
        (replace(PLAIN, via="", nexthops=(NextHop(via="10.0.0.9", weight=257),)), "it cannot be understood"),
        (replace(PLAIN, via="203.0.113.1"), "Network is unreachable|unreachable"),
        (replace(PLAIN, source="10.99.0.1"), "Invalid argument"),
    ],
)
def test_what_cannot_be_had_is_named_with_a_remedy_and_the_rest_is_on(
    host: Namespace, routing: Routing, route: Route, complaint: str
) -> None:
    other = Route(destination="198.51.100.0/24", via="10.0.0.9")
    with pytest.raises(HostError, match=complaint) as raised:
        routing.add([route, other], [])
    assert raised.value.remedy
    assert "192.0.2.0/24" in str(raised.value)
    assert shown(host, "198.51.100.0/24")["gateway"] == "10.0.0.9"
    assert host.json("route", "show", "192.0.2.0/24") == []
    routing.remove([route, other], [])


def test_twice_is_no_error_and_neither_is_the_removal_of_what_is_not_there(host: Namespace, routing: Routing) -> None:
    rule = Rule(family=4, selectors=(("from", "10.0.0.100/32"),), action=("table", "100"))
    for _ in range(2):
        routing.add([PLAIN], [rule])
    assert len([each for each in host.json("rule") if each.get("src") == "10.0.0.100"]) == 1
    for _ in range(2):
        routing.remove([PLAIN], [rule])


def test_what_somebody_takes_off_comes_back_but_for_no_track(host: Namespace, routing: Routing) -> None:
    loose = Route(destination="198.51.100.0/24", via="10.0.0.9", no_track=True)
    rule = Rule(family=4, selectors=(("from", "10.0.0.100/32"),), action=("table", "100"))
    loose_rule = Rule(family=4, selectors=(("from", "10.0.0.101/32"), ("no_track", "")), action=("table", "100"))
    routing.add([PLAIN, loose], [rule, loose_rule])
    for destination in ("192.0.2.0/24", "198.51.100.0/24"):
        host.run("ip", "route", "del", destination)
    host.run("ip", "rule", "del", "from", "10.0.0.100")
    host.run("ip", "rule", "del", "from", "10.0.0.101")
    routing.renew()
    assert shown(host, "192.0.2.0/24")["gateway"] == "10.0.0.9"
    assert host.json("route", "show", "198.51.100.0/24") == []
    assert [each["src"] for each in host.json("rule") if "src" in each and each["src"] != "all"] == ["10.0.0.100"]


def test_a_route_follows_its_interface_out_and_back(host: Namespace, routing: Routing) -> None:
    route = Route(destination="192.0.2.0/24", device="eth1")
    routing.add([route], [])
    host.run("ip", "link", "set", "eth1", "down")
    with pytest.raises(HostError, match="Network is down"):
        routing.renew()
    host.run("ip", "link", "set", "eth1", "up")
    routing.renew()
    assert shown(host, "192.0.2.0/24")["dev"] == "eth1"


def test_a_foreign_route_in_the_same_place_stays(host: Namespace, routing: Routing) -> None:
    host.run("ip", "route", "add", "192.0.2.0/24", "via", "10.1.0.9")
    routing.add([PLAIN], [])
    assert shown(host, "192.0.2.0/24")["gateway"] == "10.1.0.9"
    routing.remove([PLAIN], [])
    assert shown(host, "192.0.2.0/24")["gateway"] == "10.1.0.9"
    host.run("ip", "route", "del", "192.0.2.0/24")


@pytest.mark.parametrize("first", ["addition", "removal"])
def test_a_reload_that_changes_a_route_leaves_the_new_one(host: Namespace, routing: Routing, first: str) -> None:
    changed = replace(PLAIN, via="10.1.0.9")
    routing.add([PLAIN], [])
    if first == "addition":
        routing.add([changed], [])
        routing.remove([PLAIN], [])
    else:
        routing.remove([PLAIN], [])
        routing.add([changed], [])
    assert shown(host, "192.0.2.0/24")["gateway"] == "10.1.0.9"


def test_what_a_former_process_has_left_is_taken_off(host: Namespace, routing: Routing) -> None:
    rules = [Rule(family=4, selectors=(("from", f"10.0.0.{n}/32"),), action=("table", "100")) for n in (100, 101)]
    dead = Routing(host.netlink, host.links("eth0").index)
    # Prepared the other way round, so they have other preferences.
    dead.prepare([], reversed(rules))
    dead.add([PLAIN], rules)
    routing.prepare([PLAIN], rules)
    routing.reconcile([PLAIN], rules)
    assert host.json("route", "show", "192.0.2.0/24") == []
    assert [each for each in host.json("rule") if each["src"] != "all"] == []


RULES = [
    ((("from", "10.0.0.0/24"),), ("table", "100"), {"src": "10.0.0.0", "srclen": 24, "table": "100"}),
    ((("to", "192.0.2.1/32"),), ("table", "70000"), {"dst": "192.0.2.1", "table": "70000"}),
    ((("not", ""), ("from", "10.0.0.1/32")), ("table", "100"), {"not": None}),
    ((("fwmark", "16/255"),), ("table", "100"), {"fwmark": "0x10", "fwmask": "0xff"}),
    ((("iif", "eth0"), ("oif", "eth1")), ("table", "100"), {"iif": "eth0", "oif": "eth1"}),
    ((("uidrange", "100-200"),), ("table", "100"), {"uid_start": 100, "uid_end": 200}),
    ((("ipproto", "tcp"), ("sport", "80"), ("dport", "1000-2000")), ("table", "100"), {"ipproto": "tcp", "sport": 80}),
    ((("tos", "0x10"),), ("table", "100"), {"tos": "0x10"}),
    ((("from", "10.0.0.1/32"), ("suppress_prefixlength", "0")), ("table", "main"), {"suppress_prefixlen": 0}),
    ((("from", "10.0.0.1/32"), ("preference", "1234")), ("table", "100"), {"priority": 1234}),
    ((("from", "10.0.0.1/32"),), ("blackhole",), {"action": "blackhole"}),
    ((("from", "10.0.0.1/32"),), ("prohibit",), {"action": "prohibit"}),
    ((("from", "10.0.0.1/32"),), ("unreachable",), {"action": "unreachable"}),
    ((("from", "10.0.0.1/32"),), ("nop",), {"nop": None, "src": "10.0.0.1"}),
    ((("from", "10.0.0.1/32"),), ("goto", "32766"), {"goto": 32766}),
    ((("from", "10.0.0.1/32"), ("protocol", "static")), ("table", "100"), {"protocol": "static"}),
    ((("tunnel-id", "7"),), ("table", "100"), {"tun_id": 7}),
    ((("from", "10.0.0.1/32"), ("realms", "3/4")), ("table", "100"), {"flow_from": "3", "flow_to": "4"}),
]


@pytest.mark.parametrize(("selectors", "action", "expected"), RULES)
def test_a_rule_has_what_its_line_says(
    host: Namespace,
    routing: Routing,
    selectors: tuple[tuple[str, str], ...],
    action: tuple[str, ...],
    expected: dict[str, Any],
) -> None:
    before = host.json("rule")
    rule = Rule(family=4, selectors=selectors, action=action)
    routing.add([], [rule])
    (found,) = (each for each in host.json("rule") if each not in before)
    for name, value in expected.items():
        assert found.get(name) == value, found
    if ("preference", "1234") not in selectors:
        assert found["priority"] == 16384
    routing.remove([], [rule])
    assert host.json("rule") == before


def test_rules_of_ipv6_and_preferences_that_count_down(host: Namespace, routing: Routing) -> None:
    rules = [Rule(family=6, selectors=(("from", f"2001:db8::{n}/128"),), action=("table", "100")) for n in (1, 2, 3)]
    routing.prepare([], rules)
    routing.add([], rules)
    found = {each["src"]: each["priority"] for each in host.json("-6", "rule") if each["src"] != "all"}
    assert found == {"2001:db8::1": 16384, "2001:db8::2": 16383, "2001:db8::3": 16382}


@pytest.mark.parametrize(
    ("selectors", "action", "complaint"),
    [
        ((("from", "10.0.0.1/32"),), ("table", "nonsense"), "table: `nonsense` is not in /etc/iproute2/rt_tables"),
        ((("ipproto", "nonsense"),), ("table", "100"), "ipproto nonsense is not in /etc/protocols"),
        ((("ipproto", "300"),), ("table", "100"), "rule `ipproto 300 table 100`"),
        ((("suppress_ifgroup", "nonsense"),), ("table", "100"), "suppress_ifgroup: `nonsense`"),
        ((("from", "nowhere"),), ("table", "100"), "it cannot be understood: 'nowhere' does not"),
        ((("fwmark", "x"),), ("table", "100"), "it cannot be understood"),
        ((("sport", "1-x"),), ("table", "100"), "it cannot be understood"),
        ((("uidrange", "1-99999999999"),), ("table", "100"), "it cannot be understood"),
        ((("from", "10.0.0.1/32"),), ("dance",), "it cannot be understood: 'dance'"),
        ((("bogus", "1"),), ("table", "100"), "option bogus is not supported"),
        ((("from", "10.0.0.1/32"),), ("goto", "0"), "Invalid argument"),
    ],
)
def test_a_rule_that_cannot_be_had_is_named(
    host: Namespace,
    routing: Routing,
    selectors: tuple[tuple[str, str], ...],
    action: tuple[str, ...],
    complaint: str,
) -> None:
    rule = Rule(family=4, selectors=selectors, action=action)
    with pytest.raises(HostError, match=complaint) as raised:
        routing.add([], [rule])
    assert raised.value.remedy
    routing.remove([], [rule])
