"""Whole files: the pair, what cannot be read, what is refused."""

from __future__ import annotations

from ipaddress import IPv4Address
from pathlib import Path

import pytest

from haxlb.config import load, load_or_raise
from haxlb.model.addresses import Endpoint, Protocol, Vip
from haxlb.model.check import Check, CheckKind, HttpUrl
from haxlb.model.commands import Command
from haxlb.model.errors import ConfigError
from haxlb.model.instance import GarpConfig, Role, VrrpInstance
from haxlb.model.node import NodeConfig
from haxlb.model.notification import NotifyScripts
from haxlb.model.virtual_server import RealServer, Scheduler, VirtualServer

DATA = Path(__file__).parent / "data"
S = 1_000_000


def a(text: str) -> IPv4Address:
    return IPv4Address(text)


MASTER = NodeConfig(
    node="director-a",
    instances=(
        VrrpInstance(
            name="VI_1",
            interface="eth0",
            vrid=51,
            priority=150,
            initial_role=Role.MASTER,
            version=2,
            advert_interval_us=S,
            auth_pass="s3cr3t",
            vips=(Vip(address=a("192.168.10.100"), prefix_length=24, interface="eth0", label="eth0:vip"),),
            garp=GarpConfig(master_refresh_us=60 * S),
            notify=NotifyScripts(
                master=Command(argv=("/usr/local/bin/tell", "master")), any=Command(argv=("/usr/local/bin/tell",))
            ),
        ),
    ),
    virtual_servers=(
        VirtualServer(
            endpoint=Endpoint(address=a("192.168.10.100"), port=80, protocol=Protocol.TCP),
            scheduler=Scheduler.WRR,
            sorry_server=RealServer(address=a("192.168.10.30"), port=80),
            real_servers=(
                RealServer(
                    address=a("192.168.10.21"),
                    port=80,
                    weight=3,
                    checks=(
                        Check(
                            kind=CheckKind.TCP,
                            address=a("192.168.10.21"),
                            port=80,
                            connect_timeout_us=3 * S,
                            delay_loop_us=5 * S,
                            retry=2,
                            delay_before_retry_us=S,
                        ),
                    ),
                ),
                RealServer(
                    address=a("192.168.10.22"),
                    port=80,
                    weight=2,
                    inhibit_on_failure=True,
                    checks=(
                        Check(
                            kind=CheckKind.HTTP,
                            address=a("192.168.10.22"),
                            port=80,
                            connect_timeout_us=3 * S,
                            delay_loop_us=5 * S,
                            delay_before_retry_us=3 * S,
                            urls=(HttpUrl(path="/health", status_codes=((200, 200), (204, 206))),),
                        ),
                    ),
                ),
                RealServer(
                    address=a("192.168.10.23"),
                    port=80,
                    checks=(
                        Check(
                            kind=CheckKind.SSL,
                            address=a("192.168.10.23"),
                            port=443,
                            delay_loop_us=5 * S,
                            delay_before_retry_us=3 * S,
                            urls=(HttpUrl(path="/status?a=b#c", digest="9b3a0c85a887a256d6939da88aabd8cd"),),
                            virtualhost="www.example.org",
                            sni="www.example.org",
                        ),
                    ),
                ),
            ),
        ),
    ),
)


def test_the_master_of_a_pair():
    loaded = load(DATA / "master.conf", settings=None, node="host", interfaces=frozenset({"eth0"}))
    assert loaded.diagnostics == ()
    assert loaded.config == MASTER


def test_the_backup_of_a_pair_and_its_include():
    loaded = load(DATA / "backup.conf", settings=None, node="host", interfaces=frozenset({"eth0"}))
    assert loaded.diagnostics == ()
    assert loaded.config is not None
    assert loaded.config.node == "director-b"
    assert loaded.config.instances[0].initial_role is Role.BACKUP
    assert [each.key for each in loaded.config.virtual_servers[0].real_servers] == ["192.168.10.21:80"]


@pytest.mark.parametrize("name", ["keepalived.conf", "keepalived-backup.conf"])
def test_the_tutorial_has_nothing_to_say(name):
    path = Path(__file__).parents[2] / "docs" / "tutorial" / name
    loaded = load(path, settings=None, node="host")
    assert loaded.diagnostics == ()
    assert loaded.config is not None
    assert len(loaded.config.virtual_servers) == 1


def test_without_router_id_the_host_names_the_director(loading):
    assert loading("").config == NodeConfig(node="lb1")


class TestCannotBeUsed:
    @pytest.mark.parametrize("name", ["none.conf", ".", "\0"])
    def test_no_such_file(self, name):
        loaded = load(DATA / name, settings=None, node="host")
        assert loaded.config is None
        (found,) = loaded.diagnostics
        assert (found.code, found.severity.value) == ("unreadable-file", "fatal")

    def test_one_clear_line_with_a_remedy(self):
        with pytest.raises(ConfigError) as refused:
            load_or_raise(DATA / "none.conf", settings=None, node="host")
        assert str(refused.value) == (
            f"{DATA / 'none.conf'}:1:1: cannot read the configuration: No such file or directory"
            " (give its path with -f, and see that it may be read)"
        )
        assert refused.value.exit_code == 4
        assert len(refused.value.diagnostics) == 1

    def test_the_first_fatal_complaint_speaks_for_all(self, tmp_path):
        path = tmp_path / "keepalived.conf"
        path.write_text("nonsens\nvrrp_instance A {\n}\n")
        with pytest.raises(ConfigError) as refused:
            load_or_raise(path, settings=None, node="host")
        assert str(refused.value).startswith(f"{path}:2:15: A names no interface, and 1 more (add `interface eth0`")
        assert [each.code for each in refused.value.diagnostics] == [
            "unknown-keyword",
            "missing-keyword",
            "missing-keyword",
            "no-vip",
        ]

    def test_an_error_is_no_reason_to_refuse(self, loading, codes):
        loaded = loading("nonsens\n")
        assert codes(loaded) == [("error", "unknown-keyword")]
        assert loaded.config is not None


class TestInterfaces:
    TEXT = (
        "vrrp_instance VI_1 {\n interface eth0\n virtual_router_id 1\n"
        " virtual_ipaddress {\n  10.0.0.1/24 dev eth1\n }\n}\n"
    )

    def test_those_that_do_not_exist_are_fatal(self, loading):
        loaded = loading(self.TEXT, interfaces=frozenset({"lo", "eth0"}))
        assert loaded.config is None
        (found,) = loaded.diagnostics
        assert (found.code, found.severity.value, found.span[1:]) == ("no-such-interface", "fatal", (5, 3, 14))
        assert found.hint == "did you mean `eth0`? this host has: eth0, lo"

    def test_those_that_do_are_fine(self, loading):
        assert loading(self.TEXT, interfaces=frozenset({"eth0", "eth1"})).diagnostics == ()

    def test_it_need_not_be_looked_at(self, loading):
        assert loading(self.TEXT).diagnostics == ()


class TestAcrossBlocks:
    PAIR = (
        "vrrp_instance A {\n interface eth0\n virtual_router_id %d\n virtual_ipaddress {\n 10.0.0.1\n }\n}\n"
        "vrrp_instance %s {\n interface %s\n virtual_router_id 1\n virtual_ipaddress {\n %s\n }\n}\n"
    )

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ((1, "B", "eth0", "10.0.0.2"), ("fatal", "duplicate-vrid", 10)),
            ((2, "B", "eth0", "10.0.0.1"), ("error", "duplicate-vip", 12)),
            ((2, "A", "eth1", "10.0.0.2"), ("error", "duplicate-name", 8)),
        ],
    )
    def test_what_two_instances_may_not_share(self, loading, values, expected):
        loaded = loading(self.PAIR % values)
        assert [(each.severity.value, each.code, each.span.line) for each in loaded.diagnostics] == [expected]

    def test_one_vrid_on_two_interfaces(self, loading):
        loaded = loading(self.PAIR % (1, "B", "eth1", "10.0.0.2"))
        assert loaded.diagnostics == ()
        assert loaded.config is not None
        assert [each.key for each in loaded.config.instances] == [("eth0", 1), ("eth1", 1)]

    def test_a_virtual_server_twice(self, loading, codes):
        one = (
            "virtual_server 10.0.0.1 80 {\n lb_algo rr\n lb_kind DR\n protocol %s\n"
            " real_server 10.0.0.%d 80 {\n TCP_CHECK {\n }\n }\n}\n"
        )
        loaded = loading(one % ("TCP", 2) + one % ("UDP", 3) + one % ("TCP", 4))
        assert codes(loaded) == [("error", "duplicate-server")]
        assert loaded.config is not None
        assert [str(each.endpoint) for each in loaded.config.virtual_servers] == [
            "[10.0.0.1]:tcp:80",
            "[10.0.0.1]:udp:80",
        ]

    def test_defaults_that_come_too_late_for_keepalived(self, loading, codes):
        text = self.PAIR % (2, "B", "eth0", "10.0.0.2") + "global_defs {\n vrrp_garp_master_delay 9\n router_id x\n}\n"
        loaded = loading(text)
        assert codes(loaded) == [("warning", "order")]
        assert loaded.config is not None
        assert {each.garp.master_delay_us for each in loaded.config.instances} == {9 * S}
