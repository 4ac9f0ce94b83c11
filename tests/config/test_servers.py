from __future__ import annotations

from ipaddress import IPv4Address

import pytest

from haxlb.config.printer import keepalived_conf
from haxlb.model.addresses import Protocol
from haxlb.model.check import CheckKind, HttpUrl
from haxlb.model.commands import Command
from haxlb.model.virtual_server import ForwardingMethod, Scheduler
from keepalived_compat.keywords import KEEPALIVED

S = 1_000_000
ALL = "one of rr, wrr, lc, wlc, lblc, sh, mh, dh, fo, ovf, lblcr, sed, nq, twos"


@pytest.mark.parametrize(
    ("lines", "expected", "said"),
    [
        ((), {"scheduler": Scheduler.RR, "alpha": False, "quorum": 1, "hysteresis": 0}, []),
        (("alpha", "quorum_up /x/up"), {"alpha": True, "quorum_up": Command(argv=("/x/up",))}, []),
        (("quorum 3",), {"quorum": 1}, [("warning", "unreachable-quorum")]),
        (("weight 4", "quorum 3", "hysteresis 3"), {"quorum": 3, "hysteresis": 2}, [("warning", "unreachable-quorum")]),
        (("persistence_timeout 0",), {}, [("warning", "old-spelling")]),
        (("persistence_timeout 50",), {"persistence_s": 50}, []),
        (("persistence_timeout",), {"persistence_s": 360}, []),
        (("sh-port",), {"mh_port": False}, [("warning", "useless-flag")]),
        (("ip_family inet6",), {}, [("warning", "useless-flag")]),
        (("lvs_method DR",), {}, [("warning", "given-twice")]),
    ],
)
def test_one_virtual_server(server, lines, expected, said):
    made, complaints = server(*lines)
    assert made is not None
    assert {name: getattr(made, name) for name in expected} == expected
    assert complaints == said


@pytest.mark.parametrize(
    ("lines", "without", "expected", "said"),
    [
        ((), "lb_algo", (Scheduler.WLC, ForwardingMethod.DR), [("warning", "missing-scheduler")]),
        (("lb_algo wrrr",), "lb_algo", (Scheduler.WLC, ForwardingMethod.DR), [("error", "bad-value")]),
        ((), "lb_kind", (Scheduler.RR, ForwardingMethod.NAT), [("warning", "missing-method")]),
        (("lb_kind FOO",), "lb_kind", (Scheduler.RR, ForwardingMethod.NAT), [("error", "bad-value")]),
        (("lb_kind NAT",), "lb_kind", (Scheduler.RR, ForwardingMethod.NAT), []),
        (("lb_kind TUN type ipip",), "lb_kind", (Scheduler.RR, ForwardingMethod.TUN), []),
    ],
)
def test_the_defaults_are_keepalived_s(server, lines, without, expected, said):
    made, complaints = server(*lines, without=without)
    assert (made.scheduler, made.real_servers[0].method) == expected
    assert complaints == said


@pytest.mark.parametrize("scheduler", [each.value for each in Scheduler])
def test_every_scheduler(server, scheduler):
    made, said = server(f"lb_algo {scheduler}", without="lb_algo")
    assert (made.scheduler.value, said) == (scheduler, [])


@pytest.mark.parametrize("word", ["SCTP", "sctp"])
def test_sctp(server, word):
    made, said = server(f"protocol {word}", without="protocol")
    assert (made.endpoint.protocol, said) == (Protocol.SCTP, [])


@pytest.mark.parametrize("word", ["dr", "Dr"])
def test_dr_in_lower_case(server, word):
    made, said = server(f"lb_kind {word}", without="lb_kind")
    assert made is not None
    assert said == [("warning", "inexact-value")]


def test_without_a_protocol_it_is_udp_and_said_loudly(server):
    made, said = server(without="protocol")
    assert made.endpoint.protocol is Protocol.UDP
    assert said == [("warning", "missing-protocol")]


def test_the_port_is_hashed_when_asked(server):
    made, said = server("lb_algo sh", "sh-port", without="lb_algo")
    assert (made.scheduler, made.mh_port, said) == (Scheduler.SH, True, [])
    made, said = server("mh-port", "lb_algo mh", without="lb_algo")
    assert (made.scheduler, made.mh_port, said) == (Scheduler.MH, True, [("warning", "order")])


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("fwmark 1", "unmapped-mark"),
        ("fwmark 0", "bad-value"),
        ("fwmark eins", "bad-value"),
        ("fwmark", "missing-argument"),
        ("group G", "undefined-group"),
        ("group", "missing-argument"),
        ("10.0.0.1 http", "bad-value"),
        ("10.0.0.1 65536", "bad-value"),
        ("10.0.0.256 80", "bad-value"),
    ],
)
def test_heads_that_cannot_be_used(loading, codes, head, said):
    text = f"virtual_server {head} {{\nlb_algo rr\nlb_kind DR\nprotocol TCP\nreal_server 10.0.0.2 80 {{\n}}\n}}\n"
    loaded = loading(text)
    assert loaded.config.virtual_servers == ()
    assert codes(loaded)[0] == ("error", said)


def test_a_virtual_server_without_servers_is_left_out(loading, codes):
    loaded = loading("virtual_server 10.0.0.1 80 {\nlb_algo rr\nlb_kind DR\nprotocol TCP\n}\n")
    assert codes(loaded) == [("error", "no-real-server")]


class TestRealServers:
    def test_a_weight_beyond_16_bits_is_cut_and_said_where_it_stands(self, loading):
        text = (
            "virtual_server 10.0.0.1 80 {\nlb_algo rr\nlb_kind DR\nprotocol TCP\nweight 70000\n"
            "real_server 10.0.0.2 80 {\nweight 65535\nTCP_CHECK {\n}\n}\n"
            "real_server 10.0.0.3 80 {\nweight 65536\nTCP_CHECK {\n}\n}\n"
            "real_server 10.0.0.4 80 {\nTCP_CHECK {\n}\n}\n"
            "real_server 10.0.0.5 80 {\nTCP_CHECK {\n}\n}\n"
            "real_server 10.0.0.6 80 {\nweight 2147483648\nTCP_CHECK {\n}\n}\n}\n"
        )
        loaded = loading(text)
        assert [each.weight for each in loaded.config.virtual_servers[0].real_servers] == [65535] * 5
        said = [(each.severity.value, each.code, each.span.line, each.message) for each in loaded.diagnostics]
        assert said == [
            ("warning", "inexact-value", 5, "weight 70000 is taken as 65535, the largest that there is"),
            ("warning", "inexact-value", 12, "weight 65536 is taken as 65535, the largest that there is"),
            # As keepalived 2.2.7 refuses it, too.
            (
                "error",
                "bad-value",
                25,
                "weight: `2147483648` is out of range; the default counts: that of the virtual server",
            ),
        ]

    def test_inheritance(self, server):
        made, _ = server("weight 7", "inhibit_on_failure")
        assert (made.real_servers[0].weight, made.real_servers[0].inhibit_on_failure) == (7, True)
        made, _ = server("weight 7", "inhibit_on_failure", real="weight 0\ninhibit_on_failure no")
        assert (made.real_servers[0].weight, made.real_servers[0].inhibit_on_failure) == (0, False)

    @pytest.mark.parametrize(
        ("of_service", "real", "expected"),
        [
            ((), "", None),
            ((), "alpha", True),
            ((), "alpha no", None),
            ((), "TCP_CHECK {\nalpha\n}", True),
            ((), "alpha\nTCP_CHECK {\nalpha false\n}", None),
            ((), "TCP_CHECK {\n}\nTCP_CHECK {\nconnect_port 81\nalpha\n}", True),
            (("alpha",), "", None),
            (("alpha",), "alpha no", False),
            (("alpha",), "alpha no\nTCP_CHECK {\nalpha yes\n}", None),
            (("alpha",), "HTTP_GET {\nalpha off\nurl {\npath /\n}\n}", False),
        ],
    )
    def test_alpha_of_the_check_before_that_of_the_server_before_that_of_the_virtual_server(
        self, server, of_service, real, expected
    ):
        made, said = server(*of_service, real=real)
        assert (made.alpha, made.real_servers[0].alpha, said) == (bool(of_service), expected, [])

    def test_a_sorry_server_that_keeps_its_flows(self, server):
        made, said = server("sorry_server 10.0.0.9 80", "sorry_server_inhibit")
        assert (made.sorry_server.inhibit_on_failure, said) == (True, [])
        made, said = server("sorry_server 10.0.0.9 80", "inhibit_on_failure")
        assert (made.sorry_server.inhibit_on_failure, said) == (False, [])

    def test_another_port_is_reset_but_checked(self, loading, codes):
        text = (
            "virtual_server 10.0.0.1 80 {\nlb_algo rr\nlb_kind DR\nprotocol TCP\n"
            "real_server 10.0.0.2 8080 {\nTCP_CHECK {\n}\n}\nreal_server 10.0.0.3 {\nTCP_CHECK {\n}\n}\n}\n"
        )
        loaded = loading(text)
        assert codes(loaded) == [("warning", "port-reset")]
        first, second = loaded.config.virtual_servers[0].real_servers
        assert (first.port, first.checks[0].port) == (80, 8080)
        assert (second.port, second.checks[0].port) == (80, 80)

    def test_twice(self, server):
        made, said = server("real_server 192.168.10.21 80 {", "}")
        assert len(made.real_servers) == 1
        assert said == [("error", "duplicate-server")]

    def test_a_server_of_the_other_family_is_left_out_but_by_a_tunnel(self, server):
        made, said = server("real_server 2001:db8::2 80 {", "}", "real_server 2001:db8::3 80 {", "lvs_method TUN", "}")
        assert [each.key for each in made.real_servers] == ["[2001:db8::3]:80", "192.168.10.21:80"]
        assert said == [("error", "mixed-family")]

    def test_a_link_local_server_is_left_out(self, loading, codes):
        text = (
            "virtual_server 2001:db8::1 80 {\nlb_algo rr\nlb_kind DR\nprotocol TCP\nreal_server fe80::2 80 {\n}\n"
            "real_server 2001:db8::2 80 {\nTCP_CHECK {\n}\n}\n}\n"
        )
        loaded = loading(text)
        assert codes(loaded) == [("error", "bad-value")]
        (made,) = loaded.config.virtual_servers
        assert [each.key for each in made.real_servers] == ["[2001:db8::2]:80"]

    def test_sorry_server(self, server):
        made, said = server("sorry_server 192.168.10.30 8080")
        assert (made.sorry_server.key, said) == ("192.168.10.30:80", [("warning", "port-reset")])
        made, said = server("sorry_server 192.168.10.30 8080", "sorry_server_lvs_method NAT")
        assert (made.sorry_server.key, made.sorry_server.method) == ("192.168.10.30:8080", ForwardingMethod.NAT)
        assert said == []

    def test_a_check_that_is_not_supported_is_an_error(self, server):
        made, said = server(real="MISC_CHECK {\nmisc_path /bin/true\n}")
        assert made.real_servers[0].checks == ()
        assert said == [("error", "not-supported-yet")]


class TestChecks:
    def test_defaults(self, server):
        made, _ = server(real="TCP_CHECK {\n}")
        check = made.real_servers[0].checks[0]
        assert check.kind is CheckKind.TCP
        assert (check.connect_timeout_us, check.delay_loop_us, check.delay_before_retry_us) == (5 * S, 60 * S, S)
        assert (check.retry, check.warmup_us, check.bind_address) == (None, None, None)

    def test_the_innermost_value_counts(self, server):
        made, _ = server(
            "delay_loop 9",
            "retry 4",
            "connect_timeout 2",
            "warmup 3",
            real="retry 5\nTCP_CHECK {\nconnect_timeout 1\n}",
        )
        check = made.real_servers[0].checks[0]
        assert (check.delay_loop_us, check.retry, check.connect_timeout_us, check.warmup_us) == (9 * S, 5, S, 3 * S)

    def test_where_it_connects_to_and_from(self, server):
        made, said = server(
            real="TCP_CHECK {\nconnect_ip 10.9.9.9\nconnect_port 81\nbindto 10.9.9.1\nbind_port 4000\n}"
        )
        check = made.real_servers[0].checks[0]
        assert (check.address, check.port) == (IPv4Address("10.9.9.9"), 81)
        assert (check.bind_address, check.bind_port) == (IPv4Address("10.9.9.1"), 4000)
        assert said == []

    def test_several_checks_of_one_server(self, server):
        made, _ = server(real="TCP_CHECK {\n}\nHTTP_GET {\nurl {\npath /\n}\n}")
        assert [each.kind for each in made.real_servers[0].checks] == [CheckKind.TCP, CheckKind.HTTP]

    def test_the_old_spelling_of_retry(self, server):
        made, said = server(real="TCP_CHECK {\nnb_get_retry 3\n}")
        assert (made.real_servers[0].checks[0].retry, said) == (3, [("warning", "old-spelling")])

    @pytest.mark.parametrize(
        ("lines", "expected", "said"),
        [
            ("path /", HttpUrl(path="/"), []),
            ("path /\nvirtualhost www", HttpUrl(path="/", virtualhost="www"), []),
            ("path x", HttpUrl(path="x"), [("warning", "bad-value")]),
            ("path /\nstatus_code 2xx", HttpUrl(path="/"), [("error", "bad-value")]),
            (
                "path /\nstatus_code 200,301 404",
                HttpUrl(path="/", status_codes=((404, 404),)),
                [("error", "bad-value")],
            ),
            ("path /\nstatus_code 600", HttpUrl(path="/"), [("error", "bad-value")]),
            ("path /\ndigest abc", HttpUrl(path="/"), [("error", "bad-value")]),
            ('path /\nregex "a+"\nregex_no_match', HttpUrl(path="/", regex="a+", regex_no_match=True), []),
            ('path /\nregex "a+"\nregex_options caseless dotall', HttpUrl(path="/", regex="(?is)a+"), []),
            (
                'path /\nregex "a"\nregex_options ungreedy',
                HttpUrl(path="/", regex="a"),
                [("error", "not-supported-yet")],
            ),
            ('path /\nregex "a"\nregex_options casless', HttpUrl(path="/", regex="a"), [("error", "unknown-keyword")]),
            ('path /\nregex "(a"', HttpUrl(path="/"), [("error", "bad-value")]),
        ],
    )
    def test_urls(self, server, lines, expected, said):
        made, complaints = server(real=f"HTTP_GET {{\nurl {{\n{lines}\n}}\n}}")
        assert made.real_servers[0].checks[0].urls == (expected,)
        assert complaints == said

    @pytest.mark.parametrize(
        ("lines", "said"),
        [
            ("", [("error", "no-url")]),
            ("url {\n}", [("error", "no-url"), ("error", "missing-keyword")]),
        ],
    )
    def test_a_check_without_a_url_is_not_made(self, server, lines, said):
        made, complaints = server(real=f"HTTP_GET {{\n{lines}\n}}")
        assert made.real_servers[0].checks == ()
        assert complaints == said

    @pytest.mark.parametrize(
        ("lines", "protocol", "sni"),
        [
            ("http_protocol 1.1\nenable_sni", "1.1", "www"),
            ("http_protocol 1.0C", "1.0", None),
            ("sni_name other", "1.0", "other"),
            ("enable_sni false", "1.0", None),
        ],
    )
    def test_protocol_and_server_name(self, server, lines, protocol, sni):
        made, said = server("virtualhost www", real=f"SSL_GET {{\n{lines}\nurl {{\npath /\n}}\n}}")
        check = made.real_servers[0].checks[0]
        assert (check.http_protocol, check.sni, check.virtualhost, said) == (protocol, sni, "www", [])


def complaints(loading, server_line="", url="path /", check="", more=""):
    text = (
        "virtual_server 192.168.10.100 80 {\nlb_kind DR\n"
        f"{server_line}\nreal_server 192.168.10.21 80 {{\nHTTP_GET {{\nurl {{\n{url}\n}}\n{check}\n}}\n}}\n{more}\n}}\n"
    )
    return loading(text).diagnostics


@pytest.mark.parametrize(
    ("written", "code", "hint"),
    [
        ({"server_line": "lb_algo rr\nprotocol TPC"}, "bad-value", "did you mean `TCP`? one of TCP, UDP, SCTP"),
        ({"server_line": "protocol TCP\nlb_algo wwr"}, "bad-value", f"did you mean `wrr`? {ALL}"),
        ({"server_line": "protocol TCP\nlb_algo leastconn"}, "bad-value", ALL),
        ({"url": "path health"}, "bad-value", "write `/health`"),
        ({"check": "connect_timeout 1s"}, "inexact-value", "write the number alone, in seconds: `1`"),
        ({"check": "connect_timeout 0"}, "bad-value", "seconds, at most six decimals, 0.000001 to 4294.967295"),
        (
            {"more": "real_server 192.168.10.21 80 {\n}"},
            "duplicate-server",
            "the first stands at /etc/keepalived/keepalived.conf:5:13; delete one",
        ),
    ],
)
def test_the_hint_says_what_to_write(loading, written, code, hint):
    assert [
        each.hint
        for each in complaints(loading, **{"server_line": "lb_algo rr\nprotocol TCP", **written})
        if each.code == code
    ] == [hint]


def test_a_protocol_that_is_misspelt_is_not_missing(loading):
    said = {each.code for each in complaints(loading, "lb_algo rr\nprotocol TPC")}
    assert "missing-protocol" not in said


def test_a_status_code_that_is_none_is_said_once(loading):
    (found,) = [
        each
        for each in complaints(loading, "lb_algo rr\nprotocol TCP", "path /\nstatus_code 2000")
        if each.code == "bad-value"
    ]
    assert found.message.endswith("is not used: 200-299 is taken, as in keepalived")


@pytest.mark.parametrize("name", ["lb_algo", "lvs_sched"])
def test_the_schedulers_that_are_known_are_those_that_work(name):
    assert set(KEEPALIVED["virtual_server"][name].argument.choices) == {each.value for each in Scheduler}


def test_notify_up_at_start(loading):
    text = """\
global_defs {
rs_init_notifies
}
virtual_server 10.0.0.1 80 {
lb_algo rr
lb_kind DR
real_server 10.0.0.2 80 {
notify_up /bin/true
}
real_server 10.0.0.3 80 {
}
}
"""
    loaded = loading(text)
    (service,) = loaded.config.virtual_servers
    assert [each.notify_up_at_start for each in service.real_servers] == [True, False]
    assert loading(keepalived_conf(loaded.config)).config == loaded.config
