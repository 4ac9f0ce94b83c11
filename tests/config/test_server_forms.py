"""Virtual servers of every form: all ports, both families, groups, marks, methods, persistence, thresholds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from haxlb.config.consequences import consequences
from haxlb.config.diff import plan_reload
from haxlb.config.fate import Fate
from haxlb.config.meaning import meaning
from haxlb.config.printer import keepalived_conf
from haxlb.config.server_method import Method, method_of
from haxlb.model.addresses import Protocol
from haxlb.model.virtual_server import FlowTimeouts, ForwardingMethod, Scheduler, TunnelKind

REAL = "real_server 10.0.0.2 {\nTCP_CHECK {\nconnect_port 80\n}\n}\n"
REAL6 = "real_server 2001:db8::2 {\nTCP_CHECK {\nconnect_port 80\n}\n}\n"
GROUP = "virtual_server_group web {\n192.0.2.1-3 80\n192.0.2.9 443\nfwmark 5\n}\n"


def service(head: str, *lines: str, algo: str = "rr", kind: str = "DR", protocol: str = "TCP", real: str = REAL) -> str:
    own = "".join(f"{each}\n" for each in lines)
    return f"virtual_server {head} {{\nlb_algo {algo}\nlb_kind {kind}\nprotocol {protocol}\n{own}{real}}}\n"


@pytest.fixture
def made(loading, codes):
    """Its only virtual server, and the complaints without notes that bareness brings; printed it loads to the same."""

    def of(text: str):
        loaded = loading(text)
        assert loaded.config is not None
        assert loading(keepalived_conf(loaded.config)).config == loaded.config
        (found,) = loaded.config.virtual_servers or (None,)
        return found, [each for each in codes(loaded) if each[1] != "unchecked-server"]

    return of


class TestWhatIsServed:
    @pytest.mark.parametrize("head", ["192.0.2.1", "192.0.2.1 0"])
    def test_all_ports_keep_a_client_at_its_server(self, made, head):
        found, said = made(service(head))
        assert (found.endpoint.port, found.persistence_s, found.real_servers[0].port) == (0, 360, 0)
        assert said == [("warning", "forced-persistence")]
        assert made(service(head, "persistence_timeout 60"))[0].persistence_s == 60
        assert made(service(head, "persistence_timeout 60"))[1] == []

    def test_a_hash_of_the_address_does_so_by_itself(self, made):
        assert made(service("192.0.2.1", algo="sh"))[0].persistence_s == 0
        assert made(service("192.0.2.1", algo="sh"))[1] == []
        assert made(service("192.0.2.1", "sh-port", algo="sh"))[0].persistence_s == 360

    def test_ipv6(self, made):
        found, said = made(service("2001:db8::1 80", real=REAL6))
        assert (found.name, found.real_servers[0].key, said) == ("[2001:db8::1]:tcp:80", "[2001:db8::2]:80", [])
        assert found.real_servers[0].checks[0].target == "[2001:db8::2]:80"

    def test_a_group_shares_one_set_of_servers(self, made):
        found, said = made(GROUP + service("group web"))
        assert [str(each) for each in found.endpoints] == [
            *(f"[192.0.2.{each}]:tcp:80" for each in (1, 2, 3)),
            "[192.0.2.9]:tcp:443",
        ]
        assert (found.name, found.group, found.real_servers[0].port) == ("group web tcp", "web", 0)
        assert said == [("note", "mark-by-address")]

    def test_a_group_of_ipv6_ranges(self, made):
        text = "virtual_server_group six {\n2001:db8::a1-a3 80\n2001:db8:1::/126 80\n}\n"
        found, said = made(text + service("group six", real=REAL6))
        assert [str(each.address) for each in found.endpoints] == [
            *("2001:db8::a1", "2001:db8::a2", "2001:db8::a3"),
            *("2001:db8:1::", "2001:db8:1::1", "2001:db8:1::2", "2001:db8:1::3"),
        ]
        assert (found.real_servers[0].port, said) == (80, [])

    def test_an_entry_twice_in_a_group_is_served_once(self, made):
        found, _ = made("virtual_server_group web {\n192.0.2.1 80\n192.0.2.1-2 80\n}\n" + service("group web"))
        assert len(found.endpoints) == 2

    def test_a_mark_is_what_the_groups_that_name_it_serve(self, made):
        more = "virtual_server_group more {\n192.0.2.77 80\nfwmark 5 inet\nfwmark 6\n}\n"
        found, said = made(GROUP + more + service("fwmark 5"))
        assert (found.name, found.fwmark, len(found.endpoints), said) == ("fwmark 5 tcp", 5, 5, [])

    def test_the_family_of_a_mark(self, made):
        both = "virtual_server_group both {\n192.0.2.1 80\n2001:db8::1 80\nfwmark 5 inet\nfwmark 5 inet6\n}\n"
        found, said = made(both + service("fwmark 5", "ip_family inet6", real=REAL6))
        assert ([str(each) for each in found.endpoints], said) == (["[2001:db8::1]:tcp:80"], [])
        assert found.name == "fwmark 5 inet6 tcp"

    def test_one_mark_for_each_family(self, loading):
        both = "virtual_server_group both {\n192.0.2.1 80\n2001:db8::1 80\nfwmark 5 inet\nfwmark 5 inet6\n}\n"
        text = both + service("fwmark 5", "ip_family inet6", real=REAL6) + service("fwmark 5", "ip_family inet")
        assert [each.name for each in loading(text).config.virtual_servers] == ["fwmark 5 inet6 tcp", "fwmark 5 tcp"]

    def test_a_mark_without_a_protocol_is_tcp(self, made):
        found, said = made(GROUP + service("fwmark 5").replace("protocol TCP\n", ""))
        assert (found.endpoint.protocol, said) == (Protocol.TCP, [("note", "missing-protocol")])

    def test_a_group_of_marks_takes_the_addresses_of_others(self, made):
        found, _ = made(GROUP + "virtual_server_group marks {\nfwmark 5\n}\n" + service("group marks"))
        assert len(found.endpoints) == 4

    @pytest.mark.parametrize(
        ("text", "code", "hint"),
        [
            (service("group wbe") + GROUP, "undefined-group", "did you mean `web`?"),
            (service("fwmark 9") + GROUP, "unmapped-mark", "virtual_server_group mark9 { ADDRESS PORT"),
            (
                "virtual_server_group m {\nfwmark 9\n}\n" + service("group m"),
                "unmapped-mark",
                "virtual_server_group mark9",
            ),
            ("virtual_server_group web {\n10.0.0.0/15 80\n}\n" + service("group web"), "too-many-endpoints", "divide"),
        ],
    )
    def test_what_cannot_be_served_says_what_to_write(self, loading, text, code, hint):
        loaded = loading(text)
        assert loaded.config.virtual_servers == ()
        (found,) = [each for each in loaded.diagnostics if each.code == code]
        assert found.severity.value == "error"
        assert found.hint.startswith(hint)

    def test_an_empty_group_is_said_once(self, loading, codes):
        loaded = loading("virtual_server_group web {\n}\n" + service("group web"))
        assert codes(loaded) == [("warning", "empty-group")]

    def test_an_address_belongs_to_the_first(self, loading, codes):
        loaded = loading(
            GROUP + service("192.0.2.2 80") + service("group web") + service("192.0.2.2 80", protocol="UDP")
        )
        first, second, third = loaded.config.virtual_servers
        assert [str(each.address) for each in second.endpoints] == ["192.0.2.1", "192.0.2.3", "192.0.2.9"]
        assert (first.name, third.name) == ("[192.0.2.2]:tcp:80", "[192.0.2.2]:udp:80")
        assert ("error", "duplicate-server") in codes(loaded)

    def test_the_same_group_twice(self, loading, codes):
        loaded = loading(GROUP + service("group web") + service("group web"))
        assert len(loaded.config.virtual_servers) == 1
        assert ("error", "duplicate-server") in codes(loaded)

    def test_more_addresses_than_there_can_be_in_all(self, loading, codes):
        nets = "".join(f"virtual_server_group n{each} {{\n10.{each}.0.0/17 80\n}}\n" for each in range(3))
        loaded = loading(nets + "".join(service(f"group n{each}") for each in range(3)))
        assert [each.group for each in loaded.config.virtual_servers] == ["n0"]
        assert [each for each in codes(loaded) if each[0] == "error"] == [("error", "too-many-endpoints")] * 2


class TestMethods:
    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("NAT", Method(kind=ForwardingMethod.NAT)),
            ("TUN", Method(kind=ForwardingMethod.TUN)),
            ("TUN type ipip nocsum", Method(kind=ForwardingMethod.TUN)),
            ("TUN type gue port 6080", Method(kind=ForwardingMethod.TUN, tunnel=TunnelKind.GUE, port=6080)),
            (
                "TUN csum port 6080 type gue",
                Method(kind=ForwardingMethod.TUN, tunnel=TunnelKind.GUE, port=6080, checksum=True),
            ),
            ("TUN type gre csum", Method(kind=ForwardingMethod.TUN, tunnel=TunnelKind.GRE, checksum=True)),
        ],
    )
    def test_of_the_virtual_server_and_of_one_server(self, made, line, expected):
        found, said = made(service("192.0.2.1 80", kind=line))
        assert ([method_of(each) for each in found.real_servers], said) == ([expected], [])
        other = REAL + REAL.replace("10.0.0.2 {", f"10.0.0.3 {{\nlvs_method {line}")
        found, said = made(service("192.0.2.1 80", real=other))
        assert [method_of(each) for each in found.real_servers] == [Method(kind=ForwardingMethod.DR), expected]
        assert said == []

    @pytest.mark.parametrize(
        "line",
        [
            "TUN type gue",
            "TUN type gre port 5",
            "TUN type gre remcsum",
            "TUN type foo",
            "TUN type",
            "TUN type ipip csum",
            "TUN type gue port",
            "TUN type gue port 0",
            "TUN type gue port gue",
            "TUN sideways",
            "TUNNEL",
        ],
    )
    def test_what_keepalived_does_not_take_is_not_used(self, made, line):
        real = REAL.replace("10.0.0.2 {", f"10.0.0.2 {{\nlvs_method {line}")
        found, said = made(service("192.0.2.1 80", real=real))
        assert found.real_servers[0].method is ForwardingMethod.DR
        assert said == [("error", "bad-value")]

    def test_remcsum_is_sent_without(self, made):
        found, said = made(service("192.0.2.1 80", kind="TUN type gue port 6080 remcsum"))
        assert (found.real_servers[0].tunnel, found.real_servers[0].tunnel_checksum) == (TunnelKind.GUE, False)
        assert said == [("warning", "not-supported")]

    def test_words_behind_a_method_without_options(self, made):
        found, said = made(service("192.0.2.1 80", kind="DR type ipip"))
        assert (found.real_servers[0].method, said) == (ForwardingMethod.DR, [("warning", "surplus-words")])

    @pytest.mark.parametrize(
        ("kind", "port", "said"),
        [("NAT", 8080, []), ("DR", 80, [("warning", "port-reset")]), ("TUN", 80, [("warning", "port-reset")])],
    )
    def test_ports_change_by_nat_only(self, made, kind, port, said):
        real = REAL.replace("10.0.0.2", "10.0.0.2 8080")
        found, complaints = made(service("192.0.2.1 80", kind=kind, real=real))
        assert (found.real_servers[0].port, complaints) == (port, said)

    def test_of_all_ports_none_changes(self, made):
        real = REAL.replace("10.0.0.2", "10.0.0.2 8080")
        found, said = made(service("192.0.2.1", "persistence_timeout", kind="NAT", real=real))
        assert (found.real_servers[0].port, said) == (0, [("warning", "port-reset")])

    def test_a_tunnel_to_the_other_family(self, made):
        found, said = made(service("192.0.2.1 80", kind="TUN", real=REAL6 + REAL))
        assert ([each.address.version for each in found.real_servers], said) == ([6, 4], [])

    def test_sctp_by_nat_is_impossible(self, loading, codes):
        loaded = loading(service("192.0.2.1 80", kind="NAT", protocol="SCTP"))
        assert codes(loaded) == [("error", "no-real-server"), ("error", "not-supported")]
        assert "CRC32c" in loaded.diagnostics[1].message

    def test_a_method_before_or_behind_the_sorry_server(self, made):
        lines = ["sorry_server 10.0.0.9 8080", "sorry_server_lvs_method NAT"]
        for order in (lines, lines[::-1]):
            found, said = made(service("192.0.2.1 80", *order))
            assert (found.sorry_server.method, found.sorry_server.port, said) == (ForwardingMethod.NAT, 8080, [])


class TestChoice:
    @pytest.mark.parametrize(
        ("lines", "expected", "said"),
        [
            (["persistence_granularity 255.255.255.0"], (360, 24), []),
            (["persistence_granularity 24"], (360, 24), [("warning", "inexact-value")]),
            (["persistence_timeout 50", "persistence_granularity 255.255.0.0"], (50, 16), []),
            (["persistence_granularity 255.255.0.255"], (0, None), [("error", "bad-value")]),
            (["persistence_granularity 0.0.0.0"], (0, None), [("error", "bad-value")]),
            (["persistence_timeout 65536"], (65535, None), [("warning", "inexact-value")]),
            (["persistence_granularity 33"], (0, None), [("error", "bad-value")]),
            (["persistence_granularity 1.2"], (0, None), [("error", "bad-value")]),
        ],
    )
    def test_granularity(self, made, lines, expected, said):
        found, complaints = made(service("192.0.2.1 80", *lines))
        assert (found.persistence_s, found.persistence_granularity) == expected
        assert complaints == said

    @pytest.mark.parametrize(
        ("word", "expected", "said"),
        [("64", 64, []), ("129", None, [("error", "bad-value")]), ("255.255.255.0", None, [("error", "bad-value")])],
    )
    def test_granularity_of_ipv6(self, made, word, expected, said):
        found, complaints = made(service("2001:db8::1 80", f"persistence_granularity {word}", real=REAL6))
        assert (found.persistence_granularity, complaints) == (expected, said)

    def test_one_packet_scheduling_is_for_udp(self, made):
        assert made(service("192.0.2.1 53", "ops", protocol="UDP"))[0].one_packet
        found, said = made(service("192.0.2.1 53", "ops"))
        assert (found.one_packet, said) == (False, [("warning", "useless-flag")])

    def test_flags_by_their_numbers(self, made):
        found, said = made(service("192.0.2.1 80", "flag-1", "flag-2", algo="mh"))
        assert (found.mh_port, said) == (True, [("note", "ignored")])
        found, said = made(service("192.0.2.1 80", "flag-2"))
        assert (found.mh_port, said) == (False, [("warning", "useless-flag")])

    @pytest.mark.parametrize("name", ["sh-fallback", "mh-fallback"])
    def test_a_stand_in_is_taken_with_or_without_the_flag(self, loading, name):
        (said,) = loading(service("192.0.2.1 80", name, algo=name[:2])).diagnostics
        assert (said.severity.value, said.code) == ("note", "ignored")
        assert said.message.endswith("another one always takes its place")

    @pytest.mark.parametrize(
        ("lines", "expected", "said"),
        [
            ("uthreshold 100", (100, 0), []),
            ("uthreshold 100\nlthreshold 80", (100, 80), []),
            ("uthreshold 100\nlthreshold 101", (100, 0), [("error", "bad-value")]),
            ("lthreshold 80", (0, 0), [("warning", "useless-option")]),
            ("uthreshold 0\nlthreshold 0", (0, 0), []),
            ("uthreshold -1", (0, 0), [("error", "bad-value")]),
        ],
    )
    def test_thresholds(self, made, lines, expected, said):
        found, complaints = made(service("192.0.2.1 80", real=REAL.replace("10.0.0.2 {", f"10.0.0.2 {{\n{lines}")))
        server = found.real_servers[0]
        assert ((server.upper_threshold, server.lower_threshold), complaints) == (expected, said)

    def test_the_heaviest_weight(self, made):
        found, said = made(service("192.0.2.1 80", real=REAL.replace("10.0.0.2 {", "10.0.0.2 {\nweight 65536")))
        assert (found.real_servers[0].weight, said) == (65535, [("warning", "inexact-value")])

    @pytest.mark.parametrize(
        ("number", "algo", "expected"),
        [(256, "wlc", "wlc"), (257, "wlc", "wrr"), (257, "mh", "mh"), (257, "twos", "twos")],
    )
    def test_as_many_servers_as_can_be_compared(self, made, number, algo, expected):
        reals = "".join(f"real_server 10.1.{each // 256}.{each % 256} 80 {{\n}}\n" for each in range(number))
        found, said = made(service("192.0.2.1 80", algo=algo, real=reals))
        assert found.scheduler is Scheduler(expected)
        assert said == ([] if algo == expected else [("error", "too-many-servers")])

    @pytest.mark.parametrize(("sorry", "most"), [("", 16384), ("sorry_server 10.9.0.1 80\n", 16383)])
    def test_as_many_servers_as_can_have_a_turn(self, made, sorry, most):
        reals = "".join(f"real_server 10.1.{each // 256}.{each % 256} 80 {{\n}}\n" for each in range(16385))
        found, said = made(service("192.0.2.1 80", algo="rr", real=sorry + reals))
        assert len(found.real_servers) == most
        assert said == [("error", "too-many-servers")]


@pytest.mark.parametrize(
    ("words", "expected", "said"),
    [
        ("tcp 600 tcpfin 60 udp 30", FlowTimeouts(tcp_s=600, tcp_fin_s=60, udp_s=30), []),
        ("udp 0", FlowTimeouts(), []),
        ("udp 30 tcp", FlowTimeouts(udp_s=30), [("error", "missing-argument")]),
        ("tpc 30 udp 40", FlowTimeouts(udp_s=40), [("error", "bad-value"), ("error", "bad-value")]),
        ("tcp 100000", FlowTimeouts(tcp_s=65535), [("warning", "inexact-value")]),
        ("tcp 2678401 udp 9", FlowTimeouts(udp_s=9), [("error", "bad-value")]),
    ],
)
def test_timeouts(loading, codes, words, expected, said):
    loaded = loading(f"global_defs {{\nlvs_timeouts {words}\n}}\n{service('192.0.2.1 80')}")
    assert (loaded.config.timeouts, codes(loaded)) == (expected, said)
    assert loading(keepalived_conf(loaded.config)).config == loaded.config


def test_a_check_without_a_port_is_not_made(loading, codes):
    loaded = loading(service("192.0.2.1", "persistence_timeout", real="real_server 10.0.0.2 {\nTCP_CHECK {\n}\n}\n"))
    assert ("error", "missing-keyword") in codes(loaded)
    assert loaded.config.virtual_servers[0].real_servers[0].checks == ()


def test_a_source_of_the_other_family_is_not_used(loading, codes):
    real = "real_server 2001:db8::2 80 {\nTCP_CHECK {\nbindto 10.0.0.1\n}\n}\n"
    loaded = loading(service("2001:db8::1 80", real=real))
    assert codes(loaded) == [("error", "mixed-family")]
    assert loaded.config.virtual_servers[0].real_servers[0].checks[0].bind_address is None


def test_a_server_with_a_virtual_address_is_said(loading, codes):
    instance = (
        "vrrp_instance V {\ninterface eth0\nvirtual_router_id 1\nvirtual_ipaddress {\n192.0.2.1\n192.0.2.2\n}\n}\n"
    )
    reals = REAL + REAL.replace("10.0.0.2", "192.0.2.2") + REAL.replace("10.0.0.2", "192.0.2.1")
    assert codes(loading(instance + service("192.0.2.1 80", real=reals))) == [("warning", "server-is-vip")] * 2


@pytest.mark.parametrize(
    ("place", "kind", "said"),
    [
        ("192.0.2.1 8080", "NAT", [("warning", "local-port")]),
        ("127.0.0.1 8080", "NAT", [("warning", "local-port")]),
        ("127.0.0.1 80", "NAT", []),
        ("10.0.0.2 8080", "NAT", []),
        ("127.0.0.1 80", "DR", []),
    ],
)
def test_a_port_that_is_not_changed_on_the_way_to_this_host_is_said(loading, codes, place, kind, said):
    real = f"real_server {place} {{\nTCP_CHECK {{\n}}\n}}\n"
    assert codes(loading(service("192.0.2.1 80", kind=kind, real=real))) == said


def test_addresses_of_a_group_that_do_not_move(loading):
    instance = "vrrp_instance V {\ninterface eth0\nvirtual_router_id 1\nvirtual_ipaddress {\n192.0.2.1\n}\n}\n"
    (said,) = [
        each for each in loading(instance + GROUP + service("group web")).diagnostics if each.code == "unowned-address"
    ]
    assert said.message.startswith("no vrrp_instance has 192.0.2.2 and 2 more in its virtual_ipaddress")


class TestReload:
    def test_a_group_stays_the_same_virtual_server_when_its_addresses_change(self, loading):
        before = loading(GROUP + service("group web")).config
        after = loading(GROUP.replace("1-3", "1-4") + service("group web")).config
        (change,) = plan_reload(before, after).virtual_servers.changed
        assert (change.name, change.reason) == ("group web tcp", "address [192.0.2.4]:tcp:80 added")
        gone = {each.name: each for each in consequences(after, before) if each.kind == "virtual_server"}
        assert gone["group web tcp"].fate is Fate.RETUNED
        assert gone["group web tcp"].effects[1].startswith("packets to [192.0.2.4]:tcp:80, also those of connections")

    def test_the_words_of_what_differs(self, loading):
        before = loading(service("192.0.2.1 80")).config
        (server,) = before.virtual_servers
        real = replace(server.real_servers[0], method=ForwardingMethod.NAT, upper_threshold=5)
        after = replace(
            before,
            virtual_servers=(replace(server, persistence_s=60, real_servers=(real,)),),
            timeouts=FlowTimeouts(udp_s=9),
        )
        assert plan_reload(before, after).virtual_servers.changed[0].reason == (
            "real_server 10.0.0.2:80 (lvs_method DR -> NAT, uthreshold 0 -> 5), persistence_timeout 0 -> 60"
        )
        said = {each.name: each for each in consequences(before, after)}
        assert said["lvs_timeouts"].reason == "udp 300 -> 9"
        assert said["[192.0.2.1]:tcp:80 10.0.0.2:80"].effects == (
            "its packets, also those of connections, are sent by NAT from now on",
            "the number of its connections is judged anew at its next one",
        )


def test_it_is_explained(loading):
    reals = REAL.replace("10.0.0.2 {", "10.0.0.2 {\nuthreshold 100\nlvs_method NAT") + REAL.replace("0.0.2", "0.0.3")
    text = GROUP + service("group web", "persistence_granularity 255.255.255.0", algo="sed", real=reals)
    (found,) = [each for each in meaning(loading(text)) if each.kind == "virtual_server"]
    values = {each.name: each.text for each in found.values}
    assert values["lb_kind"] == "NAT, DR, by server"
    assert (values["persistence_timeout"], values["persistence_granularity"]) == ("360 s", "255.255.255.0")
    said = " · ".join(found.sentences)
    for sentence in (
        "it serves [192.0.2.1]:tcp:80, [192.0.2.2]:tcp:80, [192.0.2.3]:tcp:80, [192.0.2.9]:tcp:443",
        "go to the server that would have the fewest connections for its weight with it: 10.0.0.2:0, 10.0.0.3:0",
        "clients whose first 24 bits are alike keep their server for 360 s after the last packet",
        "10.0.0.2:0 gets no new connections from 100 on, until it has fewer than 75",
        "10.0.0.2:0: by NAT, so that its answers must come back through this director",
    ):
        assert sentence in said


@pytest.mark.parametrize("algo", [each.value for each in Scheduler])
def test_every_scheduler_is_explained(loading, algo):
    (found,) = [each for each in meaning(loading(service("192.0.2.1 80", algo=algo))) if each.kind == "virtual_server"]
    assert [each for each in found.sentences if each.startswith("new connections")]
