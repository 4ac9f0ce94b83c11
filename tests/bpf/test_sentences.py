"""The program against the oracle, frame by frame."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scapy.layers.inet import ICMP, IP, TCP, IPOption
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether

from haxlb.forwarding import layout
from haxlb.forwarding.layout import FlowState
from haxlb.forwarding.plan import Write, deaths
from haxlb.forwarding.reference import Action
from haxlb.forwarding.wanted import WantedTable
from haxlb.linux.specimen import OWN_MAC, VIP
from haxlb.model.node import Scheduler
from tests.bpf.frames import CLIENT, CLIENT_MAC, in_doubt, tcp, udp
from tests.bpf.plane import Plane
from tests.forwarding.tables import DNS, PEER, PEER_MAC, WEB, mac, server, service, table, unreachable

pytestmark = pytest.mark.bpf


@pytest.mark.parametrize("scheduler", Scheduler)
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


@pytest.mark.parametrize("frame", [tcp(data=b"GET / HTTP/1.1\r\n\r\n"), udp(data=b"0123456789")], ids=["tcp", "udp"])
def test_every_truncation(plane: Plane, frame: bytes) -> None:
    plane.apply(WantedTable(services=(service(server(1)), service(server(2), endpoint=DNS))))
    reasons = {length: plane.expect(frame[:length]).reason for length in range(14, len(frame) + 1)}
    assert reasons.pop(len(frame)) == "new_flow"
    assert set(reasons.values()) == {"malformed"}


@pytest.mark.parametrize("kind", ["tcp", "udp"])
@pytest.mark.parametrize("length", [0, 19, 20, 27, 28, 39, 40, 41, 1400, 65535])
def test_every_total_length(plane: Plane, kind: str, length: int) -> None:
    plane.apply(WantedTable(services=(service(server(1)), service(server(2), endpoint=DNS))))
    frame = bytearray((tcp if kind == "tcp" else udp)(data=b"x" * 20))
    frame[16:18] = length.to_bytes(2, "big")
    plane.expect(bytes(frame))


@pytest.mark.parametrize("kind", ["tcp", "udp"])
@pytest.mark.parametrize("version_and_length", [*range(0x40, 0x50), 0x00, 0x55, 0x65, 0xF5])
def test_every_header_length(plane: Plane, kind: str, version_and_length: int) -> None:
    plane.apply(WantedTable(services=(service(server(1)), service(server(2), endpoint=DNS))))
    options = max(0, (version_and_length & 0x0F) * 4 - 20)
    frame = (tcp if kind == "tcp" else udp)(data=b"x" * 80)
    frame = bytearray(frame[:34] + b"\x01" * options + frame[34:])
    frame[14] = version_and_length
    frame[16:18] = (len(frame) - 14).to_bytes(2, "big")
    answer = plane.expect(bytes(frame))
    assert (answer.reason == "new_flow") == (version_and_length in range(0x45, 0x50))


def test_ip_options_are_forwarded(plane: Plane) -> None:
    plane.apply(table(server(1)))
    assert plane.expect(tcp(ip={"options": [IPOption(b"\x94\x04\x00\x00")]})).reason == "new_flow"
    assert plane.expect(tcp("A")).reason == "forwarded"


@pytest.mark.parametrize(
    ("fragment", "reason"),
    [
        ({"flags": "MF"}, "fragment"),
        ({"frag": 1}, "fragment"),
        ({"frag": 0x1FFF, "flags": "MF"}, "fragment"),
        ({"flags": "DF"}, "new_flow"),
    ],
)
def test_fragments_are_the_kernels(plane: Plane, fragment: dict[str, object], reason: str) -> None:
    plane.apply(table(server(1)))
    assert plane.expect(tcp(ip=fragment)).reason == reason


def to_us(payload: object) -> bytes:
    return bytes(Ether(dst=OWN_MAC, src=CLIENT_MAC) / payload).ljust(60, b"\0")


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (to_us(ARP(pdst=str(VIP))), "not_ipv4"),
        (to_us(IPv6(dst="2001:db8::1") / TCP(dport=80)), "not_ipv4"),
        (to_us(Dot1Q(vlan=5) / IP(src=CLIENT, dst=str(VIP)) / TCP(dport=80)), "not_ipv4"),
        (to_us(IP(src=CLIENT, dst=str(VIP)) / ICMP()), "not_tcp_udp"),
        (to_us(IP(src=CLIENT, dst=str(VIP), proto=112) / b"\x31"), "not_tcp_udp"),
        (tcp(vip="10.200.1.2"), "no_service"),
        (tcp(vport=81), "no_service"),
        (udp(), "no_service"),
        (tcp(to="02:00:00:00:00:ab"), "not_for_us"),
        (tcp(to="06:00:00:00:00:aa"), "not_for_us"),
        (tcp(to="ff:ff:ff:ff:ff:ff"), "not_for_us"),
        (tcp(to="01:00:5e:00:00:01"), "not_for_us"),
    ],
)
def test_what_is_no_service_of_ours_is_left_untouched(plane: Plane, frame: bytes, reason: str) -> None:
    plane.apply(table(server(1)))
    answer = plane.expect(frame)
    assert (answer.action, answer.reason, answer.frame) == (Action.PASS, reason, frame)
    assert plane.flows() == []


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


@pytest.mark.parametrize("scheduler", Scheduler)
def test_new_and_old_flows_pass_over_a_server_that_died_before_its_ring_was_exchanged(
    plane: Plane, scheduler: Scheduler
) -> None:
    """Its death is one write, a ring without it takes milliseconds: nothing is lost meanwhile."""
    servers = [server(1), server(2, weight=2), server(3), server(4)]
    plane.apply(table(*servers, scheduler=scheduler))
    before = {port: plane.send(tcp(port=port)).frame[:6].hex(":") for port in range(2000, 2200)}
    dying = deaths(table(replace(servers[0], alive=False), *servers[1:], scheduler=scheduler), plane.forwarder._read())
    (step,) = dying.steps
    assert isinstance(step, Write)
    plane.maps.write(step.map, step.key, step.value)
    after = {port: plane.send(tcp("A", port=port)) for port in before}
    for port, former in before.items():
        now = after[port].frame[:6].hex(":")
        assert now != mac(0x101)
        assert after[port].reason == ("moved_flow" if former == mac(0x101) else "forwarded")
        assert former in (now, mac(0x101))
    for port in range(3000, 3200):
        for flags in ("S", "A"):
            assert plane.send(tcp(flags, port=port)).frame[:6].hex(":") in {mac(0x102), mac(0x103), mac(0x104)}
        # What nobody has on record is decided by hash, twice the same way.
        stray = [plane.send(tcp("A", port=port + 1000)).frame for _ in range(2)]
        assert stray[0] == stray[1]
    plane.restart()


def test_a_server_that_died_before_its_ring_was_exchanged_gets_no_packet(plane: Plane) -> None:
    """A writer that was killed between two writes left this; better no answer than a frame to nowhere."""
    plane.apply(table(server(1)))
    dead = layout.BackendRecord.unpack(plane.maps.read("backends", layout.INDEX.pack(1)) or b"")
    plane.maps.write("backends", layout.INDEX.pack(1), replace(dead, state=0).pack())
    assert plane.send(tcp()).reason == "no_server"
    assert plane.flows() == []


def test_a_new_mac_is_used_for_old_flows_at_once(plane: Plane) -> None:
    plane.apply(table(server(1)))
    plane.expect(tcp())
    for number in (7, 8, 9):
        plane.apply(table(server(1, destination_mac=mac(number))))
        assert plane.expect(tcp("A")).frame[:6].hex(":") == mac(number)


@pytest.mark.parametrize("scheduler", Scheduler)
def test_the_peer_is_asked_for_unknown_connections_of_rr_and_wrr(plane: Plane, scheduler: Scheduler) -> None:
    plane.apply(table(*map(server, range(1, 4)), scheduler=scheduler, peer=PEER))
    asks = scheduler in (Scheduler.RR, Scheduler.WRR)
    for flags in ("A", "PA", "FA", "R", "SA"):
        answer = plane.expect(tcp(flags, port=2000 + sum(map(ord, flags))))
        assert (answer.reason, answer.frame[:6].hex(":") == PEER_MAC) == (
            ("asked_peer", True) if asks else ("unknown_flow", False)
        )
    assert plane.expect(tcp("S")).reason == "new_flow"
    plane.expect_flows()


def test_what_the_peer_asks_is_answered_here(plane: Plane) -> None:
    plane.apply(table(*map(server, range(1, 4)), peer=PEER))
    answer = plane.expect(tcp("A", by=PEER_MAC))
    assert answer.reason == "unknown_flow"
    assert plane.expect(tcp("A", by=PEER_MAC)).frame == answer.frame
    # And also when clients reach us directly from then on.
    assert plane.expect(tcp("A")).frame == answer.frame
    plane.expect_flows()


def test_two_directors_send_an_unknown_connection_to_the_same_server(plane: Plane) -> None:
    """What neither knows has a hash: it does not depend on what each of them did before."""
    plane.apply(table(*map(server, range(1, 8)), peer=PEER))
    for port in range(1, 20):
        plane.expect(tcp(port=port))
    first = [plane.expect(tcp("A", port=port, by=PEER_MAC)).frame[:6] for port in range(5000, 5040)]
    plane.reset()
    plane.apply(table(*map(server, reversed(range(1, 8))), peer=PEER))
    assert [plane.expect(tcp("A", port=port, by=PEER_MAC)).frame[:6] for port in range(5000, 5040)] == first


def close(plane: Plane) -> bytes:
    """A connection that its client closes; the frame as it then reaches its server."""
    plane.expect(tcp())
    plane.expect(tcp("A"))
    assert plane.expect(tcp("FA")).reason == "forwarded"
    answer = plane.expect(tcp("A"))
    assert answer.reason == "forwarded"
    return answer.frame


@pytest.mark.parametrize("scheduler", [Scheduler.RR, Scheduler.WRR])
@pytest.mark.parametrize("idle_s", [2.1, 60.0, 119.0, 7200.0])
@pytest.mark.parametrize("flags", ["A", "PA", "FA", "R"])
def test_the_peer_is_asked_whether_it_placed_another_connection_on_the_ports_of_a_closed_one(
    plane: Plane, scheduler: Scheduler, idle_s: float, flags: str
) -> None:
    plane.apply(table(*map(server, range(1, 4)), scheduler=scheduler, peer=PEER))
    close(plane)
    plane.age(idle_s)
    before = plane.flows()
    frame = tcp(flags, data=b"x" * 100)
    for _ in range(3):
        answer = plane.expect(frame)
        assert answer.reason == "asked_peer"
        assert answer.frame == in_doubt(plane.peers(frame))
    assert plane.flows() == before
    plane.expect_flows()


def test_a_late_packet_that_comes_back_from_the_peer_reaches_the_server_of_the_closed_connection(plane: Plane) -> None:
    """It waits for the answer with its side closed: after a pause of the server its ACKs are late, but no others'."""
    plane.apply(table(*map(server, range(1, 4)), peer=PEER))
    reached = close(plane)
    plane.age(30)
    assert plane.expect(tcp("A")).reason == "asked_peer"
    answer = plane.expect(tcp("A", by=PEER_MAC))
    assert (answer.reason, answer.frame) == ("forwarded", reached)
    # Heard of again: for the next two seconds nobody is asked.
    for pause in (0.0, 1.5, 1.9):
        plane.age(pause)
        assert plane.expect(tcp("A")).frame == reached
    plane.expect_flows()


def test_a_closed_connection_without_a_peer_keeps_its_late_packets(plane: Plane) -> None:
    plane.apply(table(*map(server, range(1, 4))))
    reached = close(plane)
    for pause in (30, 130):
        plane.age(pause)
        answer = plane.expect(tcp("A"))
        assert (answer.reason, answer.frame) == ("forwarded", reached)
    plane.expect_flows()


def test_a_connection_that_has_just_been_closed_asks_nobody(plane: Plane) -> None:
    plane.apply(table(*map(server, range(1, 4)), peer=PEER))
    reached = close(plane)
    for flags in ("FA", "A", "R"):
        plane.age(1.9)
        answer = plane.expect(tcp(flags))
        assert (answer.reason, answer.frame) == ("forwarded", reached[:12] + tcp(flags)[12:])


@pytest.mark.parametrize("idle_s", [2.1, 61.0, 901.0])
@pytest.mark.parametrize("seen", [("S",), ("S", "A")], ids=["half-open", "established"])
def test_a_connection_that_is_not_closing_asks_nobody(plane: Plane, seen: tuple[str, ...], idle_s: float) -> None:
    plane.apply(table(*map(server, range(1, 4)), peer=PEER))
    for flags in seen:
        plane.expect(tcp(flags))
    plane.age(idle_s)
    assert plane.expect(tcp("FA")).reason == "forwarded"


@pytest.mark.parametrize("scheduler", [Scheduler.SH, Scheduler.MH])
def test_a_closed_connection_of_a_hash_scheduler_asks_nobody(plane: Plane, scheduler: Scheduler) -> None:
    plane.apply(table(*map(server, range(1, 4)), scheduler=scheduler, peer=PEER))
    reached = close(plane)
    plane.age(30)
    assert plane.expect(tcp("A")).frame == reached


def test_a_syn_on_a_closed_connection_is_not_for_the_peer(plane: Plane) -> None:
    plane.apply(table(*map(server, range(1, 4)), peer=PEER))
    reached = close(plane)
    plane.age(30)
    answer = plane.expect(tcp())
    assert (answer.reason, answer.frame[:6] == reached[:6]) == ("new_flow", False)
    assert plane.expect(tcp("A")).frame[:6] == answer.frame[:6]


@pytest.mark.parametrize("idle_s", [0.0, 30.0, 1000.0])
@pytest.mark.parametrize("closed", [True, False])
def test_what_the_peer_doubts_and_we_know_is_forwarded(plane: Plane, idle_s: float, *, closed: bool) -> None:
    plane.apply(table(*map(server, range(1, 4)), peer=PEER))
    first = plane.expect(tcp())
    plane.expect(tcp("FA" if closed else "A"))
    plane.age(idle_s)
    answer = plane.expect(in_doubt(tcp("PA", by=PEER_MAC, data=b"x" * 500)))
    assert (answer.reason, answer.frame) == ("forwarded", first.frame[:12] + tcp("PA", data=b"x" * 500)[12:])
    plane.expect_flows()


def test_what_the_peer_doubts_and_we_do_not_know_goes_back_as_it_was(plane: Plane) -> None:
    plane.apply(table(*map(server, range(1, 4)), peer=PEER))
    for flags in ("A", "PA", "FA", "R"):
        frame = tcp(flags, by=PEER_MAC)
        answer = plane.expect(in_doubt(frame))
        assert (answer.reason, answer.frame) == ("asked_peer", plane.peers(frame))
    assert plane.flows() == []


def test_what_the_peer_doubts_is_placed_anew_when_our_server_for_it_is_dead(plane: Plane) -> None:
    plane.apply(table(server(1), peer=PEER))
    plane.expect(tcp())
    plane.apply(table(server(1, alive=False), server(2), peer=PEER))
    assert plane.expect(in_doubt(tcp("A", by=PEER_MAC))).reason == "moved_flow"
    plane.expect_flows()


def test_no_packet_goes_back_and_forth_between_two_directors(plane: Plane) -> None:
    """Each asks at most once, and what has come back is sent to a server, whatever has become of the flow meanwhile."""
    plane.apply(table(*map(server, range(1, 4)), peer=PEER))
    close(plane)
    plane.age(30)
    asked = plane.expect(tcp("A")).frame
    plane.reset()
    plane.apply(table(*map(server, range(1, 4)), peer=PEER))
    # The other director, and then the first one, which has lost its record.
    back = plane.expect(as_received(asked)).frame
    assert back[:6].hex(":") == PEER_MAC
    assert plane.expect(as_received(back)).reason == "unknown_flow"


def as_received(sent: bytes) -> bytes:
    """What was sent to the other director, as if we were that one."""
    return bytes.fromhex((OWN_MAC + PEER_MAC).replace(":", "")) + sent[12:]


@pytest.mark.parametrize(
    ("frame", "reason"),
    [
        (tcp("A"), "asked_peer"),  # of somebody else: no more than the packet in it
        (tcp("S", by=PEER_MAC), "new_flow"),
        (udp(by=PEER_MAC), "new_flow"),
        (tcp("A", by=PEER_MAC, vport=81), "no_service"),
        (tcp("A", by=PEER_MAC, to="02:00:00:00:00:ab"), "not_ipv4"),
        (tcp("A", by=PEER_MAC, ip={"flags": "MF"}), "fragment"),
        (tcp("A", by=PEER_MAC)[:14], "malformed"),
        (tcp("A", by=PEER_MAC)[:40], "malformed"),
        (to_us(IP(src=CLIENT, dst=str(VIP)) / ICMP()), "not_tcp_udp"),
    ],
)
def test_doubts_that_no_peer_of_ours_has(plane: Plane, frame: bytes, reason: str) -> None:
    servers = tuple(map(server, range(1, 4)))
    plane.apply(WantedTable(services=(service(*servers, peer=PEER), service(*servers, endpoint=DNS, peer=PEER))))
    assert plane.expect(in_doubt(frame)).reason == reason
    plane.expect_flows()


@pytest.mark.parametrize(
    "options", [{}, {"scheduler": Scheduler.SH, "peer": PEER}, {"scheduler": Scheduler.MH, "peer": PEER}]
)
def test_a_doubt_where_no_peer_is_asked_is_an_ordinary_packet(plane: Plane, options: dict[str, object]) -> None:
    """The two directors have different configurations, or we have lost sight of the other one."""
    plane.apply(table(*map(server, range(1, 4)), **options))
    assert plane.expect(in_doubt(tcp("A", by=PEER_MAC))).reason == "unknown_flow"
    plane.expect_flows()


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
    for tally in (counters.services[WEB], counters.servers[WEB, "10.0.0.1:80"]):
        assert (tally.packets, tally.bytes, tally.flows) == (4, sum(len(frame) - 14 for frame in frames), 2)
    assert counters.servers[WEB, "10.0.0.2:80"].packets == 0


FRAMES = st.builds(
    tcp,
    st.sampled_from(["S", "A", "PA", "FA", "R", "SA"]),
    source=st.sampled_from([CLIENT, "192.0.2.2"]),
    port=st.sampled_from([1024, 1025, 40000, 40001]),
    by=st.sampled_from([CLIENT_MAC, CLIENT_MAC, PEER_MAC, mac(0x101)]),
    to=st.sampled_from([OWN_MAC, OWN_MAC, OWN_MAC, "02:00:00:00:00:ab"]),
) | st.builds(udp, port=st.sampled_from([1024, 1025, 40000]))
FRAMES = FRAMES | FRAMES | FRAMES.map(in_doubt)
SERVERS = st.tuples(
    *(
        st.builds(
            server,
            st.just(number),
            weight=st.sampled_from([0, 1, 1, 2, 5]),
            alive=st.sampled_from([True, True, True, False]),
            destination_mac=st.sampled_from([mac(0x100 + number), mac(0x200 + number), OWN_MAC]),
            interface_index=st.sampled_from([1, 1, 7]),
        )
        for number in range(1, 5)
    )
)
TABLES = st.builds(
    lambda servers, count, scheduler, hash_port, peer, with_udp: WantedTable(
        services=(
            service(*servers[:count], scheduler=scheduler, hash_port=hash_port, peer=peer),
            *([service(*servers[1:], scheduler=scheduler, endpoint=DNS)] if with_udp else []),
        )
    ),
    SERVERS,
    st.integers(0, 4),
    st.sampled_from(Scheduler),
    st.booleans(),
    st.sampled_from([None, PEER]),
    st.booleans(),
)
# Odd fractions: no sum of them falls on a lifetime, where a millisecond would decide.
PAUSES = st.sampled_from([1.37, 7.31, 23.17, 70.77, 130.93, 310.37, 1000.71])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(FRAMES | FRAMES | FRAMES | TABLES | PAUSES, min_size=5, max_size=60), TABLES)
def test_any_sentence(plane: Plane, sentence: list[object], beginning: WantedTable) -> None:
    plane.reset()
    plane.apply(beginning)
    for word in sentence:
        match word:
            case bytes():
                plane.expect(word)
            case WantedTable():
                plane.apply(word)
            case float():
                plane.age(word)
    plane.expect_flows()
