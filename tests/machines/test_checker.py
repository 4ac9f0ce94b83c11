from __future__ import annotations

import gc
import time
from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haxlb.forwarding.records import FrontendFlag
from haxlb.forwarding.wanted import Counters, Load, NextHop, Tally
from haxlb.health.rise_fall import fall_time_us
from haxlb.model.commands import Command
from haxlb.model.facts import AlarmCleared, AlarmRaised, QuorumChanged
from haxlb.model.node import NodeConfig
from haxlb.model.status import LinkStatus
from haxlb.model.virtual_server import ForwardingMethod, Scheduler, TunnelKind, VirtualServer
from tests.forwarding.kernel import Kernel
from tests.health.worlds import OTHER_VIP, VIP, check, seconds, server, virtual_server
from tests.machines.checker_stage import BAD, INSTANCE, PROBE_US, RecordingForwarder, Stage, address, hop

PAIR = virtual_server(server(21), server(22, weight=2))
HERE = NextHop(interface_index=1, source_mac="00:00:00:00:00:00", destination_mac="00:00:00:00:00:00", mtu=65535)
BOTH = {"192.168.10.21:80": 1, "192.168.10.22:80": 2}


class NoRoom(RecordingForwarder):
    """Refuses tables, not programs."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage, refusal="no room")

    def attach(self, program: str, interfaces: tuple[str, ...], mode: str) -> tuple[LinkStatus, ...]:
        refusal, self.refusal = self.refusal, ""
        try:
            return super().attach(program, interfaces, mode)
        finally:
            self.refusal = refusal


class Below(RecordingForwarder):
    """Attaches below a VLAN."""

    def links(self) -> tuple[LinkStatus, ...]:
        return tuple(replace(each, interface="eth0") for each in super().links())


def running(*virtual_servers: VirtualServer) -> Stage:
    stage = Stage()
    stage.configure(*(virtual_servers or (PAIR,)))
    stage.resolve(21, 22, 23)
    stage.go(5)
    stage.calls.clear()
    return stage


# Start


def test_tables_are_written_before_the_program_is_attached_and_then_it_is_ready() -> None:
    stage = Stage()
    stage.configure(PAIR)
    stage.resolve(21, 22)
    assert stage.answers == []
    stage.go()
    assert [each for each in stage.calls if not each.startswith("report")] == ["apply", "attach", "save"]
    assert stage.forwarder.attached == [("/bpf/program", ("eth0",), "auto")]
    assert stage.answers == [("ConfigureChecker", "")]
    assert stage.serving() == BOTH


def test_the_first_table_waits_for_the_link_layer_addresses_of_the_servers() -> None:
    stage = Stage()
    stage.configure(PAIR)
    stage.checker.peers_known("eth0", [address(12)])
    stage.resolve(21)
    stage.go(0.5)
    assert stage.forwarder.applied == [], "22 would leave a forwarder that is at work already"
    stage.resolve(22)
    stage.go()
    assert [at for at, _ in stage.forwarder.applied] == [seconds(0.5)], "but not for the peer's"
    assert stage.serving() == BOTH


def test_the_first_table_does_not_wait_for_a_server_that_does_not_answer() -> None:
    stage = Stage()
    stage.configure(PAIR)
    stage.resolve(21)
    stage.go(3)
    assert stage.forwarder.applied[0][0] == seconds(1)
    assert stage.serving() == {"192.168.10.21:80": 1}
    stage = Stage()
    stage.configure(PAIR)
    stage.resolve(21)
    stage.lose(22)
    stage.go()
    assert stage.serving() == {"192.168.10.21:80": 1}


def test_without_a_program_tables_are_written_and_what_is_attached_stays() -> None:
    stage = Stage()
    stage.configure(PAIR, program="")
    stage.resolve(21, 22)
    stage.go()
    assert stage.forwarder.attached == []
    assert stage.answers == [("ConfigureChecker", "")]
    assert stage.checker.status(0)[1].problem == "no program is attached: nothing is forwarded"


def test_a_checker_that_takes_over_knows_what_the_former_one_knew() -> None:
    before = running(virtual_server(server(21), server(22), alpha=True))
    before.sick[check(21)] = BAD
    before.go(20)
    remembered = before.saved[-1]
    assert remembered == {f"{VIP} 192.168.10.21:80": False, f"{VIP} 192.168.10.22:80": True}
    after = Stage(remembered)
    after.sick[check(21)] = BAD
    after.configure(virtual_server(server(21), server(22), alpha=True))
    after.resolve(21, 22)
    after.go()
    assert after.table == before.table, "the data plane does not notice"
    after.go(30)
    assert after.changes() == []


# Verdicts


def test_a_verdict_reaches_the_maps_in_the_instant_it_is_known() -> None:
    stage = running()
    stage.sick[check(21)] = BAD
    died = stage.now_us
    stage.go(fall_time_us(check(21)) / 1e6)
    (change,) = stage.changes()
    at, _ = stage.forwarder.applied[-1]
    assert at == change.at_us
    assert at - died <= fall_time_us(check(21))
    assert stage.serving() == {"192.168.10.22:80": 2}
    assert stage.calls == ["report BackendChanged", "apply", "save"], "and the maps come before the file"


def test_a_verdict_on_a_thousand_servers_is_applied_in_under_100_ms() -> None:
    """Machine, table and (recording) apply, in CPU time; the forwarder's own share is measured by its tests."""
    servers = [server(1, port=1000 + n, checks=(check(1, port=1000 + n),)) for n in range(1000)]
    stage = Stage()
    stage.configure(virtual_server(*servers))
    stage.resolve(1)
    stage.go(12)
    stage.sick[servers[500].checks[0]] = BAD
    applies, slowest = len(stage.forwarder.applied), 0.0
    gc.freeze()  # a collection of what other tests have left is not the checker's
    try:
        while len(stage.forwarder.applied) == applies:
            assert stage.now_us < seconds(60)
            begun = time.thread_time()
            stage.go(0.01)
            slowest = max(slowest, time.thread_time() - begun)
    finally:
        gc.unfreeze()
    assert len(stage.serving()) == 999
    # Some ten probes are handled in the same step; the bound holds for all of them together.
    assert slowest < 0.1


def test_changes_of_one_instant_are_one_change_of_the_maps() -> None:
    shared = virtual_server(server(21), server(22)), virtual_server(server(21), endpoint=OTHER_VIP)
    stage = running(*shared)
    applies = len(stage.forwarder.applied)
    stage.sick[check(21)] = BAD
    stage.go(20)
    assert len(stage.changes()) == 2
    assert len(stage.forwarder.applied) == applies + 1
    stage.resolve(21, 22, generation=1)
    stage.go()
    assert len(stage.forwarder.applied) == applies + 2


def test_healthy_servers_cause_no_writes() -> None:
    stage = running()
    stage.go(300)
    assert stage.calls == []


def test_the_sorry_server_is_in_the_table_only_while_it_serves() -> None:
    stage = running(virtual_server(server(21), server(22), sorry_server=server(23, checks=())))
    assert [each.key for each in stage.table.services[0].servers] == ["192.168.10.21:80", "192.168.10.22:80"]
    stage.sick[check(21)] = stage.sick[check(22)] = BAD
    stage.go(20)
    assert stage.serving() == {"192.168.10.23:80": 1}
    assert len(stage.table.services[0].servers) == 3
    assert [each.up for each in stage.facts if isinstance(each, QuorumChanged)] == [True, False]


@pytest.mark.parametrize("inhibit", [False, True])
@pytest.mark.parametrize("weight", [0, 1])
def test_a_sorry_server_that_is_a_real_one_serves(weight: int, *, inhibit: bool) -> None:
    """With weight 0 it is the drained one that is left when all others have died."""
    both = server(21, checks=(), weight=weight)
    sorry = server(21, checks=(), inhibit_on_failure=inhibit)
    stage = running(virtual_server(both, server(22), sorry_server=sorry, quorum=1 + weight))
    kernel = Kernel()
    kernel.apply(stage.table)
    stage.sick[check(22)] = BAD
    stage.go(20)
    kernel.apply(stage.table)
    assert kernel.shares(VIP) == {"192.168.10.21": 1}
    assert [str(each.address) for each in kernel.backends().values() if each.alive] == ["192.168.10.21"]
    stage.sick.clear()
    stage.go(20)
    kernel.apply(stage.table)
    assert kernel.shares(VIP) == ({"192.168.10.21": 1} if weight else {}) | {"192.168.10.22": 1}
    assert all(each.alive for each in kernel.backends().values()), "the flows of both stay"


def test_flows_of_inhibited_servers_are_found_whoever_serves() -> None:
    """The record of a flow to a server of NAT says the port, where the server has none of its own."""
    sorry = server(23, checks=(), port=0, method=ForwardingMethod.NAT)
    one = server(21, port=0, inhibit_on_failure=True)
    ports = (replace(VIP, port=443),)
    stage = running(virtual_server(one, more_endpoints=ports, group="web", sorry_server=sorry))
    kernel = Kernel()
    kernel.apply(stage.table)
    before = kernel.frontends()
    assert [each.flags for each in before.values()] == [FrontendFlag.ANY_PORT] * 2
    stage.sick[check(21)] = BAD
    stage.go(20)
    assert stage.serving() == {"192.168.10.21:0": 0, "192.168.10.23:0": 1}
    kernel.apply(stage.table)
    assert kernel.frontends() == before


def command(words: str) -> Command:
    return Command(argv=tuple(words.split()))


def test_scripts_run_in_the_order_of_their_facts() -> None:
    stage = running(virtual_server(server(21, notify_down=command("down 21")), quorum_down=command("quorum down")))
    stage.sick[check(21)] = BAD
    stage.go(20)
    assert stage.calls == [
        "report BackendChanged",
        "down 21",
        "report QuorumChanged",
        "quorum down",
        "apply",
        "save",
    ]


def test_an_inhibited_sorry_server_that_waits_is_shown_with_weight_0() -> None:
    stage = running(virtual_server(server(21), server(22), sorry_server=server(23, checks=(), inhibit_on_failure=True)))
    assert stage.serving() == {"192.168.10.21:80": 1, "192.168.10.22:80": 1, "192.168.10.23:80": 0}
    *_, sorry = stage.checker.status(0)[0][0].real_servers
    assert (sorry.is_sorry, sorry.weight, sorry.in_pool) == (True, 0, False)


# Neighbours


def test_the_servers_the_sorry_server_and_the_peers_are_followed() -> None:
    stage = Stage()
    stage.configure(virtual_server(server(21), sorry_server=server(99, checks=())))
    stage.checker.peers_known("eth0", [address(12)])
    assert stage.followed == (address(21), address(99), address(12))
    stage.configure(PAIR)
    assert stage.followed == (address(21), address(22), address(12))


def test_a_changed_mac_reaches_the_maps_at_once() -> None:
    stage = running()
    stage.resolve(21, generation=7)
    stage.go()
    assert stage.table.services[0].servers[0].next_hop == hop(21, 7)
    assert ("info", "neighbour_moved") in [(level, event) for level, event, _ in stage.logs]


def test_a_server_without_an_arp_answer_is_out_and_said_once() -> None:
    stage = running()
    for _ in range(3):
        stage.lose(21)
        stage.go(10)
    assert stage.serving() == {"192.168.10.22:80": 2}
    complaints = [fields for _, event, fields in stage.logs if event == "neighbour_unreachable"]
    assert complaints == [
        {"address": address(21), "reason": "no ARP answer from 192.168.10.21 on eth0"},
    ]
    status = stage.checker.status(0)[0][0].real_servers[0]
    assert (status.up, status.in_pool, status.mac) == (True, False, None)
    assert status.reason == "no ARP answer from 192.168.10.21 on eth0"
    stage.resolve(21)
    stage.go()
    assert stage.serving() == BOTH


def test_the_peer_is_known_to_every_service_and_the_first_that_can_be_reached_is_it() -> None:
    """Whether a packet goes there is the forwarder's to know: it is not asked about stateless flows."""
    stage = running(
        virtual_server(server(21), scheduler=Scheduler.WRR),
        virtual_server(server(21), scheduler=Scheduler.SH, endpoint=OTHER_VIP),
    )
    assert [each.peer for each in stage.table.services] == [None, None]
    stage.checker.peers_known("eth0", [address(13), address(12)])
    stage.lose(13)
    stage.resolve(12)
    stage.go()
    assert [each.peer for each in stage.table.services] == [hop(12), hop(12)]
    stage.checker.peers_known("eth0", [])
    stage.go()
    assert [each.peer for each in stage.table.services] == [None, None]


def test_a_peer_behind_a_router_or_that_is_this_host_is_no_peer() -> None:
    stage = running()
    stage.checker.peers_known("eth0", [address(12), address(13), address(14)])
    stage.checker.on_neighbour(address(12), hop(1), "", address(1))
    stage.checker.on_neighbour(address(13), HERE, "")
    stage.go()
    assert stage.table.services[0].peer is None
    stage.resolve(14)
    stage.go()
    assert stage.table.services[0].peer == hop(14)


def test_a_director_that_is_a_server_asks_only_by_a_link_that_leads_to_servers() -> None:
    """On another link the other director has another MAC than what it places here comes from."""
    stage = running(virtual_server(server(21), server(22)))
    stage.checker.peers_known("eth1", [address(12)])
    stage.checker.on_neighbour(address(12), replace(hop(12), interface_index=3), "")
    stage.resolve(22)
    stage.go()
    assert stage.table.services[0].peer == replace(hop(12), interface_index=3)
    stage.checker.on_neighbour(address(21), HERE, "")
    stage.go()
    assert stage.table.services[0].peer is None
    stage.resolve(12)
    stage.go()
    assert stage.table.services[0].peer == hop(12)


def test_a_link_local_peer_is_followed_on_the_interface_where_it_was_heard() -> None:
    stage = running()
    heard, configured = ip_address("fe80::12"), ip_address("2001:db8::12")
    stage.checker.peers_known("eth0", [heard, configured])
    stage.checker.peers_known("eth1", [heard])
    scoped = [ip_address("fe80::12%eth0"), configured, ip_address("fe80::12%eth1")]
    assert stage.followed == (address(21), address(22), *scoped)
    stage.checker.on_neighbour(scoped[2], hop(12), "")
    stage.go()
    assert stage.table.services[0].peer == hop(12)


def behind_a_gateway(stage: Stage, *hosts: int) -> None:
    for host in hosts:
        stage.checker.on_neighbour(address(host), hop(1), "", address(1))
    stage.go(5)


def test_behind_a_gateway_is_no_server_for_dr_and_that_is_said_once() -> None:
    stage = running()
    behind_a_gateway(stage, 21)
    assert stage.serving() == {"192.168.10.22:80": 2}
    reason = (
        "192.168.10.21 is behind the gateway 192.168.10.1: DR needs the real server on the link; "
        "`lvs_method TUN` or NAT reaches it"
    )
    assert stage.checker.status(0)[0][0].real_servers[0].reason == reason
    warnings = [fields for level, event, fields in stage.logs if event == "neighbour_unreachable"]
    assert warnings == [{"address": address(21), "reason": reason}]
    behind_a_gateway(stage, 22)
    assert [(each.up, each.reason) for each in stage.facts if isinstance(each, QuorumChanged)][-1][0] is False
    stage.resolve(21, 22)
    stage.go()
    assert stage.serving() == BOTH


@pytest.mark.parametrize("method", [ForwardingMethod.TUN, ForwardingMethod.NAT])
def test_behind_a_gateway_tun_and_nat_serve_and_a_reload_to_them_helps(method: ForwardingMethod) -> None:
    stage = running()
    behind_a_gateway(stage, 21, 22)
    assert stage.serving() == {}
    stage.configure(virtual_server(server(21, method=method), server(22, weight=2, method=method)))
    stage.go()
    assert stage.serving() == BOTH
    assert [each.method for each in stage.table.services[0].servers] == [method, method]
    assert [each.up for each in stage.facts if isinstance(each, QuorumChanged)][1:] == [False, True]
    assert [each.method for each in stage.checker.status(0)[0][0].real_servers] == [method.value] * 2


def test_a_server_that_is_this_host_serves() -> None:
    stage = running()
    stage.checker.on_neighbour(address(21), HERE, "")
    stage.go()
    assert stage.table.services[0].servers[0].next_hop == HERE
    assert stage.serving() == BOTH


def test_all_that_is_configured_of_a_service_is_wanted() -> None:
    tunnel = server(
        21, method=ForwardingMethod.TUN, tunnel=TunnelKind.GUE, tunnel_port=6080, tunnel_checksum=True,
        upper_threshold=9, lower_threshold=5,
    )  # fmt: skip
    stage = running(
        virtual_server(
            tunnel, more_endpoints=(OTHER_VIP,), persistence_s=30, persistence_granularity=24, mh_port=True,
            scheduler=Scheduler.SH,
        )
    )  # fmt: skip
    (service,) = stage.table.services
    assert (service.name, service.endpoints) == (str(VIP), (VIP, OTHER_VIP))
    assert (service.persistence_s, service.persistence_mask, service.persistence_prefix) == (30, 24, 128)
    assert (service.scheduler, service.hash_port, service.one_packet) == (Scheduler.SH, True, False)
    (wanted,) = service.servers
    assert (wanted.method, wanted.tunnel, wanted.tunnel_port) == (ForwardingMethod.TUN, TunnelKind.GUE, 6080)
    assert (wanted.tunnel_checksum, wanted.upper_threshold, wanted.lower_threshold) == (True, 9, 5)


def test_what_is_said_of_an_address_that_is_not_followed_is_ignored() -> None:
    stage = running()
    stage.resolve(77)
    stage.go(1)
    assert stage.calls == []


# Reload


def test_a_reload_of_the_same_configuration_writes_nothing() -> None:
    stage = running()
    stage.configure(PAIR)
    stage.go()
    assert stage.calls == []
    assert stage.answers[-1] == ("ConfigureChecker", "")


def test_a_reload_keeps_a_dead_server_dead_and_a_known_mac_known() -> None:
    stage = running()
    stage.sick[check(21)] = BAD
    stage.go(20)
    stage.configure(virtual_server(server(21), server(22, weight=9), server(23)))
    stage.resolve(23)
    stage.go()
    assert stage.serving() == {"192.168.10.22:80": 9, "192.168.10.23:80": 1}


def test_without_virtual_servers_everything_is_taken_down() -> None:
    stage = running()
    stage.configure()
    stage.go()
    assert stage.table.services == ()
    assert stage.forwarder.attached[-1] == ("/bpf/program", (), "auto")
    assert stage.followed == ()


# The forwarder


def test_a_forwarder_that_refuses_is_a_problem_that_is_tried_again_with_backoff() -> None:
    stage = running()
    stage.forwarder.refusal = "cannot write a BPF map: out of memory"
    stage.forwarder.attempts.clear()
    first = stage.now_us
    stage.resolve(21, generation=1)
    stage.go(20)
    pauses = [(at - first) / seconds(1) for at in stage.forwarder.attempts]
    assert pauses[:4] == [0, 1, 3, 7]
    problem = "cannot write a BPF map: out of memory (free memory)"
    assert stage.checker.status(0)[1].problem == problem
    assert [(event, fields) for level, event, fields in stage.logs if level == "error"] == [
        ("data_plane_problem", {"problem": problem})
    ]
    (alarm,) = [each for each in stage.facts if isinstance(each, AlarmRaised)]
    assert (alarm.key, alarm.severity, alarm.evidence) == ("forwarder/problem", "critical", (problem,))
    stage.forwarder.refusal = ""
    stage.go(31)
    assert stage.table.services[0].servers[0].next_hop == hop(21, 1)
    assert stage.checker.status(0)[1].problem == ""
    assert stage.logs[-1][1] == "data_plane_restored"
    assert [each.key for each in stage.facts if isinstance(each, AlarmCleared)] == ["forwarder/problem"]


def test_a_data_plane_that_somebody_took_away_is_noticed_although_nothing_changes() -> None:
    stage = running()
    stage.forwarder.refusal = "the forwarder's maps are not there"
    stage.go(5)
    assert [each.key for each in stage.facts if isinstance(each, AlarmRaised)] == ["forwarder/problem"]
    # Built anew, as `haxlb swap` does: tables and program are put back.
    stage.forwarder.refusal = ""
    stage.forwarder.applied.clear()
    stage.forwarder.attached.clear()
    stage.checker.swap("/bpf/anew")
    stage.go()
    assert stage.serving() == BOTH
    assert [program for program, _, _ in stage.forwarder.attached] == ["/bpf/anew"]
    assert [each.key for each in stage.facts if isinstance(each, AlarmCleared)] == ["forwarder/problem"]


def test_nothing_is_attached_to_tables_that_could_not_be_written() -> None:
    stage = Stage(forwarder=NoRoom)
    stage.configure(PAIR)
    stage.resolve(21, 22)
    stage.go(20)
    assert stage.forwarder.attached == []
    stage.forwarder.refusal = ""
    stage.go(31)
    assert [each for each in stage.calls if each in ("apply", "attach")] == ["apply", "attach"]


def test_a_change_is_tried_at_once_even_while_waiting_to_try_again() -> None:
    stage = running()
    stage.forwarder.refusal = "cannot"
    stage.resolve(21, generation=1)
    stage.go(20)
    stage.forwarder.attempts.clear()
    stage.resolve(21, generation=2)
    stage.go()
    assert stage.forwarder.attempts == [stage.now_us]


def test_below_a_vlan_it_is_the_interface_below_that_is_looked_at() -> None:
    stage = Stage(forwarder=Below)
    vlan = replace(INSTANCE, interface="eth0.100")
    stage.checker.configure(NodeConfig(node="lb1", instances=(vlan,), virtual_servers=(PAIR,)), "/bpf/program")
    stage.resolve(21, 22)
    stage.go(60)
    assert stage.forwarder.attached == [("/bpf/program", ("eth0.100",), "auto")]
    assert [event for _, event, _ in stage.logs if event == "program_missing"] == []


def test_an_interface_that_was_made_anew_gets_the_program_again() -> None:
    stage = running()
    stage.go(60)
    assert stage.calls == [], "looking is no attaching"
    attached = stage.forwarder.attached[-1]
    stage.forwarder.attached.clear()
    stage.go(5)
    assert stage.forwarder.attached == [attached]
    assert stage.logs[-1] == ("warning", "program_missing", {"interfaces": "eth0"})
    assert stage.checker.status(0)[1].swaps == 0


def test_pins_that_somebody_removed_are_back_with_the_next_look_and_it_is_said() -> None:
    stage = running()
    stage.forwarder.unpinned = ("flows", "parts-1")
    stage.go(5)
    (said,) = [fields for _, event, fields in stage.logs if event == "pins_restored"]
    assert said["pins"] == "flows parts-1"
    assert said["remedy"]
    assert stage.calls == ["save"], "nothing is attached anew"


def test_who_is_down_is_known_to_the_next_checker_also_beside_other_pins() -> None:
    """What was saved says which pins it belongs to: the next checker would take it for another data plane's."""
    stage = running()
    stage.sick[check(22)] = BAD
    stage.go(20)
    known = {"[192.168.10.100]:tcp:80 192.168.10.21:80": True, "[192.168.10.100]:tcp:80 192.168.10.22:80": False}
    stage.saved.clear()
    stage.forwarder.unpinned = ("endpoints",)
    stage.go(5)
    assert stage.saved == [known]
    stage.forwarder.refusal = "somebody has removed what it needs"
    stage.resolve(21, generation=1)
    stage.go(5)
    stage.saved.clear()
    stage.forwarder.refusal = ""
    stage.go(31)
    assert stage.saved == [known]
    stage.go(300)
    assert stage.saved == [known], "once"


def test_pins_that_cannot_be_restored_are_said_once_until_they_can() -> None:
    stage = running()

    def said() -> list[object]:
        return [fields["reason"] for _, event, fields in stage.logs if event == "pins_not_restored"]

    stage.forwarder.unpinnable = "read-only"
    stage.go(20)
    assert said() == ["read-only"]
    stage.forwarder.unpinnable = ""
    stage.go(5)
    stage.forwarder.unpinnable = "read-only"
    stage.go(5)
    assert said() == ["read-only", "read-only"]
    assert stage.calls == []


def test_a_changed_interface_is_told_to_the_forwarder_at_once_although_no_table_changes() -> None:
    stage = running()
    stage.checker.on_interfaces()
    stage.go()
    assert stage.calls == ["apply"]
    # One that was made anew carries no program, and does not wait for the next look.
    attached = stage.forwarder.attached[-1]
    stage.forwarder.attached.clear()
    stage.checker.on_interfaces()
    stage.go()
    assert stage.forwarder.attached == [attached]


def test_the_problem_is_the_answer_when_the_configuration_cannot_be_forwarded() -> None:
    stage = Stage()
    stage.forwarder.refusal = "no bpffs"
    stage.configure(PAIR)
    stage.resolve(21, 22)
    stage.go()
    assert stage.answers == [("ConfigureChecker", "no bpffs (free memory)")]


def test_after_a_refused_attachment_the_tables_come_first_again() -> None:
    """It may have been refused because its tables are new ones, and empty."""
    stage = running()
    stage.forwarder.refusal = "the program reads other tables"
    stage.checker.swap("/bpf/next")
    stage.go(0.5)
    stage.forwarder.refusal = ""
    stage.go(1)
    assert [each for each in stage.calls if each in ("apply", "attach")] == ["apply", "attach"]
    assert stage.answers[1:] == [("SwapProgram", "the program reads other tables (free memory)")]


def test_a_change_of_a_stateless_service_is_ended_by_looking_once_a_second() -> None:
    stage = running()
    before = len(stage.forwarder.settled)
    stage.go(10)
    assert 9 <= len(stage.forwarder.settled) - before <= 11
    assert stage.forwarder.settled[-1] == (stage.now_us // seconds(1), 900)


def test_a_program_that_a_reload_needs_takes_over_before_the_tables_that_need_it() -> None:
    stage = running()
    config = NodeConfig(node="one", instances=(INSTANCE,), virtual_servers=(replace(PAIR, scheduler=Scheduler.MH),))
    stage.checker.configure(config, "/bpf/other")
    stage.go(0.1)
    assert [each for each in stage.calls if each in ("apply", "attach")] == ["attach", "apply"]
    assert stage.forwarder.attached[-1][0] == "/bpf/other"


def test_a_swap_attaches_also_the_same_path_again() -> None:
    stage = running()
    for program in ("/bpf/next", "/bpf/next"):
        stage.checker.swap(program)
        stage.go()
        assert stage.calls.pop() == "attach"
    assert stage.calls == []
    assert stage.answers[1:] == [("SwapProgram", "")] * 2
    assert stage.checker.status(0)[1].swaps == 2
    assert [each[0] for each in stage.forwarder.attached] == ["/bpf/program", "/bpf/next", "/bpf/next"]


# Status


def test_the_status_says_all_that_is_shown() -> None:
    stage = running(virtual_server(server(21), server(22, weight=0), sorry_server=server(23, checks=())))
    stage.forwarder.readings = Counters(
        verdicts={"forwarded": 7},
        services={str(VIP): Tally(packets=7, bytes=700, flows=2)},
        servers={(str(VIP), "192.168.10.21:80"): Tally(packets=6, bytes=600, flows=1)},
        loads={(str(VIP), "192.168.10.21:80"): Load(active=3, inactive=2, overloaded=True)},
    )
    stage.sick[check(21)] = BAD
    stage.go(20)
    epoch = 1_700_000_000
    (virtual,), plane = stage.checker.status(epoch * 1_000_000)
    assert (virtual.address, virtual.port, virtual.protocol, virtual.scheduler) == (VIP.address, 80, "TCP", "wrr")
    assert (virtual.quorum_up, virtual.sorry, virtual.packets, virtual.bytes, virtual.flows) == (False, True, 7, 700, 2)
    dead, drained, sorry = virtual.real_servers
    assert (dead.up, dead.in_pool, dead.weight, dead.packets, dead.flows) == (False, False, 1, 6, 1)
    assert dead.reason == "TCP_CHECK: connection refused"
    assert (dead.active, dead.inactive, dead.overloaded, drained.active) == (3, 2, True, None)
    assert dead.since_at == epoch - (stage.now_us - stage.changes()[0].at_us) / 1e6
    assert dead.checked_at is not None
    assert dead.since_at <= dead.checked_at <= epoch
    assert (drained.up, drained.in_pool, drained.weight) == (True, False, 0)
    assert drained.mac == hop(22).destination_mac
    assert (sorry.is_sorry, sorry.in_pool, sorry.up, sorry.reason) == (True, True, True, "serves: no quorum")
    assert plane.verdicts == {"forwarded": 7}
    assert [(each.interface, each.mode) for each in plane.links] == [(INSTANCE.interface, "native")]


def test_the_status_survives_a_forwarder_that_cannot_be_read() -> None:
    stage = running()
    stage.forwarder.refusal = "gone"
    (virtual,), plane = stage.checker.status(0)
    assert virtual.packets == 0
    assert plane.problem == "gone (free memory)"


# Property


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from("sgal"), st.integers(21, 23), st.integers(0, 15)), max_size=30))
def test_after_every_step_the_forwarder_has_what_is_wanted(steps: list[tuple[str, int, int]]) -> None:
    """Wanted equals actual at rest; and a server that is known to be down or unreachable is never served."""
    servers = [server(host, checks=(check(host, delay_loop_us=seconds(3)),)) for host in (21, 22, 23)]
    stage = Stage()
    stage.configure(virtual_server(*servers))
    stage.resolve(21, 22, 23)
    stage.go(2)
    lost: set[int] = set()
    for kind, host, wait in steps:
        if kind == "s":
            stage.sick[servers[host - 21].checks[0]] = BAD
        elif kind == "g":
            stage.sick.pop(servers[host - 21].checks[0], None)
        elif kind == "l":
            stage.lose(host)
            lost.add(host)
        else:
            stage.resolve(host)
            lost.discard(host)
        stage.go(wait + PROBE_US / 1e6)
        shown = stage.checker.status(0)[0][0].real_servers
        in_pool = {f"{each.address}:{each.port}" for each in shown if each.in_pool}
        assert set(stage.serving()) == in_pool
        up = {each.address for each in shown if each.up}
        assert in_pool == {f"{address(host)}:80" for host in (21, 22, 23) if address(host) in up and host not in lost}
