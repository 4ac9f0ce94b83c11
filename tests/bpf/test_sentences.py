"""The program against the oracle, frame by frame: flows and their servers."""

from __future__ import annotations

import pytest

from haxlb.forwarding.flows import FlowState
from haxlb.forwarding.reference import Action
from haxlb.forwarding.wanted import WantedTable
from haxlb.linux.specimen import OWN_MAC
from haxlb.model.virtual_server import Scheduler
from tests.bpf.frames import tcp, udp
from tests.bpf.plane import Plane
from tests.forwarding.tables import DNS, WEB, mac, server, service, table, unreachable

pytestmark = pytest.mark.bpf


RECORDS = [each for each in Scheduler if not each.hashes]


@pytest.mark.parametrize("scheduler", RECORDS)
def test_a_connection_stays_with_the_server_of_its_syn(plane: Plane, scheduler: Scheduler) -> None:
    plane.apply(table(*(server(n, weight=n) for n in range(1, 6)), scheduler=scheduler))
    for port in range(40000, 40050):
        first = plane.expect(tcp("S", port=port))
        assert first.reason == "new_flow"
        for flags in ("A", "PA", "A", "FA", "A"):
            answer = plane.expect(tcp(flags, port=port, data=b"x" * 100))
            assert (answer.reason, answer.frame[:12]) == ("forwarded", first.frame[:12])
    plane.expect_flows()


@pytest.mark.parametrize("scheduler", [Scheduler.RR, Scheduler.WRR])
def test_turns_are_exact(plane: Plane, scheduler: Scheduler) -> None:
    weights = {1: 5, 2: 1, 3: 2}
    plane.apply(table(*(server(n, weight=weight) for n, weight in weights.items()), scheduler=scheduler))
    got = [plane.expect(tcp(port=1024 + turn)).frame[:6].hex(":") for turn in range(24)]
    shares = {number: got.count(mac(0x100 + number)) for number in weights}
    assert shares == ({1: 8, 2: 8, 3: 8} if scheduler is Scheduler.RR else {1: 15, 2: 3, 3: 6})


@pytest.mark.parametrize("scheduler", [Scheduler.SH, Scheduler.MH])
@pytest.mark.parametrize("hash_port", [True, False])
def test_hash_schedulers_choose_by_source(plane: Plane, scheduler: Scheduler, *, hash_port: bool) -> None:
    plane.apply(table(*map(server, range(1, 9)), scheduler=scheduler, hash_port=hash_port))
    servers = {plane.expect(tcp(port=port)).frame[:6] for port in range(30000, 30064)}
    assert (len(servers) == 1) != hash_port
    assert len({plane.expect(tcp(source=f"192.0.2.{n}")).frame[:6] for n in range(1, 65)}) > 4


def test_a_retransmitted_syn_goes_where_the_first_went(plane: Plane) -> None:
    plane.apply(table(*map(server, range(1, 4))))
    first = plane.expect(tcp())
    for pause in (1.1, 2.0, 4.0, 8.0, 16.0):
        plane.age(pause)
        again = plane.expect(tcp())
        assert (again.reason, again.frame) == ("forwarded", first.frame)
    plane.age(61)
    assert plane.expect(tcp()).reason == "new_flow"


def test_a_syn_after_fin_or_rst_is_a_new_connection(plane: Plane) -> None:
    plane.apply(table(*map(server, range(1, 4))))
    for end in ("FA", "R", "RA"):
        before = plane.expect(tcp())
        plane.expect(tcp("A"))
        plane.expect(tcp(end))
        after = plane.expect(tcp())
        assert after.reason == "new_flow"
        assert after.frame[:6] != before.frame[:6]
        plane.expect(tcp("R"))
    plane.expect_flows()


def test_a_syn_does_not_move_an_established_connection(plane: Plane) -> None:
    plane.apply(table(*map(server, range(1, 4))))
    plane.expect(tcp())
    plane.expect(tcp("A"))
    for _ in range(5):
        assert plane.expect(tcp()).reason == "forwarded"
    assert plane.expect(tcp("A")).reason == "forwarded"


def test_a_connection_that_slept_goes_on(plane: Plane) -> None:
    plane.apply(table(*map(server, range(1, 4))))
    plane.expect(tcp())
    plane.expect(tcp("A"))
    plane.age(7200.5)
    assert plane.expect(tcp("PA")).reason == "forwarded"


def test_udp_flows_end_after_300_s(plane: Plane) -> None:
    plane.apply(table(*map(server, range(1, 4)), endpoint=DNS))
    first = plane.expect(udp())
    plane.age(299)
    assert plane.expect(udp()).frame[:6] == first.frame[:6]
    plane.age(300.1)
    answer = plane.expect(udp())
    assert (answer.reason, answer.frame[:6] == first.frame[:6]) == ("new_flow", False)
    plane.expect_flows()


def test_tcp_and_udp_of_one_port_are_two_services(plane: Plane) -> None:
    plane.apply(WantedTable(services=(service(server(1)), service(server(2), endpoint=DNS))))
    assert plane.expect(tcp()).frame[:6].hex(":") == mac(0x101)
    assert plane.expect(udp()).frame[:6].hex(":") == mac(0x102)
    plane.apply(table(server(1)))
    assert plane.expect(udp()).reason == "no_service"


def test_a_flooded_frame_of_a_known_flow_is_not_forwarded(plane: Plane) -> None:
    plane.apply(table(server(1), server(2, interface_index=7)))
    for port in (40000, 40001):
        plane.expect(tcp(port=port))
        assert plane.expect(tcp("A", port=port, to="02:00:00:00:00:ab")).reason == "not_for_us"
        assert plane.expect(tcp("A", port=port)).reason == "forwarded"


def test_a_server_behind_another_interface_is_reached_by_redirect(plane: Plane) -> None:
    plane.apply(table(server(1, interface_index=7, source_mac="02:00:00:00:00:07")))
    assert plane.expect(tcp()).redirected
    assert plane.expect(tcp("A")).redirected


@pytest.mark.parametrize("dead", [server(1, alive=False), unreachable(1)], ids=["down", "no MAC"])
def test_a_dead_servers_flows_move(plane: Plane, dead: object) -> None:
    plane.apply(table(*map(server, range(1, 4))))
    frames = [tcp("A", port=port) for port in range(40000, 40030)]
    for port in range(40000, 40030):
        plane.expect(tcp(port=port))
    before = [plane.expect(frame).frame[:6].hex(":") for frame in frames]
    plane.apply(table(dead, server(2), server(3)))
    for frame, was in zip(frames, before, strict=True):
        answer = plane.expect(frame)
        assert answer.reason == ("moved_flow" if was == mac(0x101) else "forwarded")
        assert answer.frame[:6].hex(":") != mac(0x101)
        assert plane.expect(frame).frame == answer.frame
    plane.expect_flows()


def test_weight_0_drains(plane: Plane) -> None:
    plane.apply(table(*map(server, range(1, 4))))
    for port in range(40000, 40030):
        plane.expect(tcp(port=port))
    before = [plane.expect(tcp("A", port=port)).frame for port in range(40000, 40030)]
    plane.apply(table(server(1, weight=0), server(2), server(3)))
    assert [plane.expect(tcp("A", port=port)).frame for port in range(40000, 40030)] == before
    fresh = {plane.expect(tcp(port=port)).frame[:6].hex(":") for port in range(50000, 50030)}
    assert fresh == {mac(0x102), mac(0x103)}


def test_without_a_server_packets_are_dropped_and_counted(plane: Plane) -> None:
    plane.apply(table(server(1, alive=False)))
    assert plane.expect(tcp()).reason == "no_server"
    assert plane.expect(tcp("A")).reason == "no_server"
    assert plane.flows() == []
    plane.apply(table())
    assert plane.expect(tcp()).action is Action.DROP
    plane.apply(table(server(1)))
    assert plane.expect(tcp()).reason == "new_flow"


def test_a_new_mac_is_used_for_old_flows_at_once(plane: Plane) -> None:
    plane.apply(table(server(1)))
    plane.expect(tcp())
    for number in (7, 8, 9):
        plane.apply(table(server(1, destination_mac=mac(number))))
        assert plane.expect(tcp("A")).frame[:6].hex(":") == mac(number)


def test_a_server_that_sends_to_itself_does_not_loop(plane: Plane) -> None:
    plane.apply(table(server(1)))
    assert plane.expect(tcp(by=mac(0x101))).reason == "loop"
    assert plane.expect(tcp("A", by=mac(0x101))).reason == "loop"
    assert plane.expect(tcp("A")).reason == "forwarded"


def test_a_server_that_is_this_host_gets_its_packets_from_the_kernel(plane: Plane) -> None:
    plane.apply(table(server(1, destination_mac=OWN_MAC)))
    assert plane.expect(tcp()).reason == "local"
    assert plane.expect(tcp("A")).reason == "local"
    plane.apply(table(server(1, destination_mac=OWN_MAC, alive=False), server(2)))
    assert plane.expect(tcp("A")).reason == "moved_flow"


def test_states_of_a_flow(plane: Plane) -> None:
    plane.apply(WantedTable(services=(service(server(1)), service(server(1), endpoint=DNS))))

    def states() -> list[FlowState]:
        return [flow.state for flow in plane.flows()]

    plane.expect(tcp("S"))
    assert states() == [FlowState.TCP_NEW]
    plane.expect(tcp("A"))
    assert states() == [FlowState.TCP_ESTABLISHED]
    plane.expect(tcp("FA"))
    plane.expect(tcp("A"))
    assert states() == [FlowState.TCP_CLOSING]
    plane.reset()
    plane.apply(WantedTable(services=(service(server(1)), service(server(1), endpoint=DNS))))
    plane.expect(udp())
    assert states() == [FlowState.UDP_NEW]
    plane.expect(udp())
    assert states() == [FlowState.UDP]


def test_counters(plane: Plane) -> None:
    plane.apply(table(server(1), server(2, weight=0)))
    frames = [tcp("S"), tcp("A"), tcp("PA", data=b"x" * 500), tcp("S", port=40001)]
    for frame in frames:
        plane.expect(frame)
    counters = plane.forwarder.counters()
    for tally in (counters.services[str(WEB)], counters.servers[str(WEB), "10.0.0.1:80"]):
        assert (tally.packets, tally.bytes, tally.flows) == (4, sum(len(frame) - 14 for frame in frames), 2)
    assert counters.servers[str(WEB), "10.0.0.2:80"].packets == 0
