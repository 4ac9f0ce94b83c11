from __future__ import annotations

import io
from dataclasses import replace
from ipaddress import IPv6Address
from pathlib import Path

import pytest

from haxlb.cli.show_ipvs import connections, rates, statistics, thresholds
from haxlb.cli.show_render import ago, render
from haxlb.model.status import DataPlaneStatus, MailStatus


def rendered(status, **environment):
    stream = io.StringIO()
    render(status, stream)
    return stream.getvalue()


def test_the_history_is_cut_to_its_last_lines_unless_all_are_asked_for(status):
    many = replace(status, history=tuple(f"2027-01-15T07:59:00.{number:03d}Z line" for number in range(50)))
    lines = rendered(many).splitlines()
    assert lines[-11] == "history  the last 10 of 50 lines: all with `haxlb show --history`"
    assert lines[-10:] == [f"  2027-01-15T07:59:00.{number:03d}Z line" for number in range(40, 50)]
    stream = io.StringIO()
    render(many, stream, whole_history=True)
    assert stream.getvalue().splitlines()[-51] == "history"
    few = replace(status, history=many.history[:10])
    assert rendered(few).splitlines()[-11] == "history"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_everything_is_said(status):
    text = rendered(status)
    for words in (
        "lb1  haxlb 0.1.0  2027-01-15 08:00:00 UTC",
        "/etc/keepalived/keepalived.conf, loaded 1 d 1 h ago",
        "the last reload was refused, the configuration before it is in force: x.conf: 1 fatal",
        "the configuration in force has errors, and is without what they name:",
        "  - x.conf:7: `abc` is not a whole number",
        "ALARM split-brain/VI_1 (critical, for 2 h 1 min): two MASTERs of VRID 51",
        "- adverts of 192.168.10.12 [priority 100]",
        "VI_1 (VRID 51, v2)",
        "192.168.10.12 prio 100, 4 min 10 s ago",
        "no advert for 3.609 s",
        "12 adverts sent, 3 received, rejected: 2 ip_ttl_err; 1 transition",
        "TCP 192.168.10.100:80 wrr  serving  21 packets, 2100 bytes, 9 flows",
        "connection refused",
        "unresolved",
        "data plane  eth0 native (haxlb d5780bfa90192afc)  1 swap",
        "packets: forwarded 21, not_ipv4 4",
        "checker  pid 11, for 1 min 0 s",
        "speaker  not running, for 0.0 s, 2 restarts: waiting to be started again",
        "MQTT  connected",
        "2027-01-15T07:59:00.000Z VI_1 BACKUP -> MASTER: no advert for 3.609 s",
    ):
        assert words in text
    assert "is starting" not in text
    assert "loop" not in text, "reasons that never happened are left out"


def test_a_director_that_is_starting_says_so(status):
    assert "haxlb is starting" in rendered(replace(status, starting=True))


def test_a_reload_of_which_not_all_worked_was_not_refused(status):
    text = rendered(replace(status, config_refused=False, config_problem="the checker did not answer"))
    assert "the last reload is not all in force: the checker did not answer" in text
    assert "refused" not in text.splitlines()[2]


def test_one_line_per_server_in_a_pipe_whatever_its_length(status):
    long = replace(status.virtual_servers[0].real_servers[0], reason="x" * 400)
    service = replace(status.virtual_servers[0], real_servers=(long,))
    text = rendered(replace(status, virtual_servers=(service,)))
    (line,) = (line for line in text.splitlines() if line.startswith("-> 192.168.10.21:80"))
    assert "x" * 400 in line


def test_a_narrow_terminal_cuts_no_address_and_no_reason(status, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = rendered(status).splitlines()
    assert "  VI_1: why no advert for 3.609 s" in lines
    assert "  VI_1: peer 192.168.10.12 prio 100, 4 min 10 s ago" in lines
    assert any(line.startswith("VI_1 (VRID 51, v2)") and line.endswith("192.168.10.100/24") for line in lines)
    assert any(line.startswith("-> 192.168.10.21:80  ") for line in lines)
    (down,) = (line for line in lines if line.startswith("  192.168.10.22:80: "))
    assert down.endswith("connection refused")


def test_the_interface_of_a_virtual_mac_is_named(status):
    (instance, *_) = status.instances
    behind = replace(status, instances=(replace(instance, virtual_mac="vrrp.51"),))
    assert "eth0 (virtual MAC: vrrp.51)" in rendered(behind)
    more = replace(behind.instances[0], address_macs=("vrrp1.51 on eth1",))
    assert "eth0 (virtual MAC: vrrp.51, vrrp1.51 on eth1)" in rendered(replace(status, instances=(more,)))
    assert "virtual MAC" not in rendered(status)


def test_who_sent_the_last_advert_that_was_refused_is_said(status):
    refused = replace(
        status.instances[0],
        adverts_rejected={"auth_failure": 3},
        last_rejected="192.168.10.12: its password is not ours",
        last_rejected_at=status.at - 4,
    )
    text = rendered(replace(status, instances=(refused,)))
    assert "rejected: 3 auth_failure (the last 4.0 s ago, of 192.168.10.12: its password is not ours); " in text


def test_a_full_disk_is_met_while_it_can_be_said(status):
    full = Path("/dev/full").open("w")  # noqa: SIM115 - to close it fails, too
    with pytest.raises(OSError, match="No space left on device"):
        render(status, full)
    with pytest.raises(OSError, match="No space left on device"):
        full.close()


def test_a_peer_that_has_resigned(status):
    gone = replace(status.instances[0].peers[0], priority=0)
    assert "192.168.10.12 resigned 4 min 10 s ago" in rendered(
        replace(status, instances=(replace(status.instances[0], peers=(gone,)),))
    )


def test_a_terminal_gets_colours_unless_it_does_not_want_them(status, monkeypatch):
    terminal = Terminal()
    render(status, terminal)
    assert "\x1b[1;32m" in terminal.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    terminal = Terminal()
    render(status, terminal)
    assert "\x1b[1;32m" not in terminal.getvalue()
    assert "\x1b[32m" not in terminal.getvalue()


def test_what_an_operator_wrote_is_not_taken_for_markup(status):
    text = rendered(replace(status, config_file="/etc/[bold]x[/bold].conf"))
    assert "/etc/[bold]x[/bold].conf" in text


def test_the_states_of_a_service(status):
    service = status.virtual_servers[0]
    assert "no quorum" in rendered(replace(status, virtual_servers=(replace(service, quorum_up=False),)))
    assert "sorry server" in rendered(replace(status, virtual_servers=(replace(service, sorry=True),)))


@pytest.mark.parametrize(
    ("changes", "head"),
    [
        (
            {"name": "group web tcp", "endpoints": ("[192.168.10.100]:tcp:80", "[192.168.10.101]:tcp:80")},
            "TCP 192.168.10.100:80 (group web, and 1 endpoint more) wrr  serving",
        ),
        ({"name": "fwmark 5 tcp", "endpoints": ("[192.168.10.100]:tcp:80",)}, "TCP 192.168.10.100:80 (fwmark 5) wrr  "),
        ({"name": "[192.168.10.100]:tcp:80", "endpoints": ("[192.168.10.100]:tcp:80",)}, "TCP 192.168.10.100:80 wrr  "),
    ],
)
def test_a_group_and_a_mark_are_named(status, changes, head):
    service = replace(status.virtual_servers[0], quorum_up=True, sorry=False, **changes)
    assert head in rendered(replace(status, virtual_servers=(service,)))


def test_the_table_of_ipvsadm_has_the_sorry_server_alone_while_it_serves(status):
    service = status.virtual_servers[0]
    alive = replace(service.real_servers[0], up=True, in_pool=False, is_sorry=False)
    sorry = replace(alive, port=8080, in_pool=True, is_sorry=True)
    serving = replace(service, sorry=True, real_servers=(alive, sorry))
    lines = list(connections(replace(status, virtual_servers=(serving,))))
    assert [line.split()[1] for line in lines[4:]] == [sorry.key]


def test_why_it_does_not_forward(status):
    plane = DataPlaneStatus(problem="no program is attached")
    assert "not forwarding: no program is attached" in rendered(replace(status, data_plane=plane))


def test_what_did_not_reach_the_operator(status):
    assert "mail" not in rendered(status)
    lost = replace(
        status,
        fifo_lines_lost={"/run/a b": 1},
        mail=MailStatus(delivered=2, dropped=1, waiting=3, problem="10.0.0.1:25: refused"),
    )
    text = rendered(lost)
    assert "FIFO  /run/a b: 1 line lost, nobody reads" in text
    assert "mail  2 delivered, 1 dropped, 3 waiting: 10.0.0.1:25: refused" in text


def test_a_node_without_anything(status):
    text = rendered(
        replace(status, instances=(), virtual_servers=(), alarms=(), history=(), data_plane=DataPlaneStatus())
    )
    assert "data plane" not in text
    assert "history" not in text


@pytest.mark.parametrize(
    ("span", "said"),
    [
        (0, "0.0 s"),
        (-5, "0.0 s"),
        (59.94, "59.9 s"),
        (60, "1 min 0 s"),
        (3599, "59 min 59 s"),
        (3600, "1 h 0 min"),
        (86_399, "23 h 59 min"),
        (86_400, "1 d 0 h"),
    ],
)
def test_spans(span, said):
    assert ago(1000.0, 1000.0 - span) == said


def test_the_form_of_ipvsadm(status):
    assert list(connections(status)) == [
        "haxlb Virtual Server version 0.1.0 (xdp)",
        "Prot LocalAddress:Port Scheduler Flags",
        "  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn",
        "TCP  192.168.10.100:80 wrr",
        "  -> 192.168.10.21:80             Route   3      -          -",
        "  -> 192.168.10.23:80             Route   0      -          -",
    ]


def counted(status):
    """The first server counts connections, the last is this host, and an operator has set its weight."""
    first, second, last = status.virtual_servers[0].real_servers
    servers = (
        replace(first, active=12, inactive=3, method="TUN", upper_threshold=100, lower_threshold=80),
        second,
        replace(last, active=0, inactive=0, local=True, configured_weight=4),
    )
    return replace(
        status, virtual_servers=(replace(status.virtual_servers[0], real_servers=servers, persistence_s=360),)
    )


def test_connections_methods_and_persistence(status):
    assert list(connections(counted(status)))[3:] == [
        "TCP  192.168.10.100:80 wrr persistent 360",
        "  -> 192.168.10.21:80             Tunnel  3      12         3",
        "  -> 192.168.10.23:80             Local   0      0          0",
    ]
    text = rendered(counted(status))
    assert "TCP 192.168.10.100:80 wrr persistent 360" in text
    assert "  192.168.10.23:80: * weight 0 was set on this daemon, the configured one is 4" in text.splitlines()
    assert any(line.split()[:4] == ["->", "192.168.10.23:80", "Local", "0*"] for line in text.splitlines())
    (line,) = (line for line in text.splitlines() if line.startswith("-> 192.168.10.21:80"))
    assert line.split()[2:6] == ["Tunnel", "3", "12", "3"]


def test_a_server_at_its_threshold_is_said(status):
    service = status.virtual_servers[0]
    full = replace(service.real_servers[0], overloaded=True)
    text = rendered(replace(status, virtual_servers=(replace(service, real_servers=(full,)),)))
    assert "up, at its threshold" in text


def test_the_form_of_ipvsadm_thresholds(status):
    assert list(thresholds(counted(status)))[1:] == [
        "Prot LocalAddress:Port            Uthreshold Lthreshold ActiveConn InActConn",
        "  -> RemoteAddress:Port",
        "TCP  192.168.10.100:80 wrr",
        "  -> 192.168.10.21:80             100        80         12         3",
        "  -> 192.168.10.23:80             0          0          0          0",
    ]


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        (
            {"name": "group web tcp", "endpoints": ("[10.0.0.1]:tcp:80", "[10.0.0.2]:tcp:8080")},
            ["TCP  10.0.0.1:80 wrr", "TCP  10.0.0.2:8080 wrr"],
        ),
        ({"name": "fwmark 5 udp", "endpoints": ("[10.0.0.1]:udp:0",)}, ["FWM  5 wrr"]),
        (
            {"name": "[2001:db8::1]:tcp:80", "endpoints": ("[2001:db8::1]:tcp:80",)},
            ["TCP  [2001:db8::1]:80 wrr"],
        ),
        ({"address": IPv6Address("2001:db8::1")}, ["TCP  [2001:db8::1]:80 wrr"]),
    ],
)
def test_the_lines_of_a_virtual_server(status, changes, lines):
    service = replace(status.virtual_servers[0], real_servers=(), **changes)
    assert list(connections(replace(status, virtual_servers=(service,))))[3:] == lines


def test_rates_are_of_the_time_between(status):
    service = replace(status.virtual_servers[0], name="web")
    before = replace(status, virtual_servers=(service,))
    first, *others = service.real_servers
    grown = replace(
        service, packets=service.packets + 100, real_servers=(replace(first, bytes=first.bytes + 3000), *others)
    )
    later = replace(before, at=before.at + 2, virtual_servers=(grown,))
    lines = list(rates(before, later))
    assert lines[1] == "Prot LocalAddress:Port                 CPS    InPPS   OutPPS    InBPS   OutBPS"
    assert lines[3] == "TCP  192.168.10.100:80                   0       50        -        0        -"
    assert lines[4] == "  -> 192.168.10.21:80                    0        0        -     1500        -"
    fresh = list(rates(replace(before, virtual_servers=()), later))
    assert fresh[4].split()[2:] == ["0", "0", "-", "0", "-"]


def test_the_form_of_ipvsadm_stats(status):
    lines = list(statistics(status))
    assert lines[1] == "Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes"
    assert lines[3] == "TCP  192.168.10.100:80                   9       21        -     2100        -"
    assert lines[5] == "  -> 192.168.10.23:80                    3     123G        -      700        -"
    assert {len(line) for line in lines[3:]} == {len(lines[1])}
